"""Preference data: the same two answers in several languages."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from pathlib import Path
from typing import Any, Literal

from carot.corpora.parallel import read_jsonl
from carot.errors import CarotError
from carot.evaluation.items import RankingItem
from carot.evaluation.questions import draw_questions
from carot.evaluation.tasks import open_task
from carot.interventions import ENGLISH


@dataclass(frozen=True)
class Choice:
    """A question in one language.

    Parameters
    ----------
    prompt : str
        What stands before the answer.
    candidates : tuple of str
        Possible answers; position j means the same in all languages.
    gold : int, optional
        Position of the right one, where it is known.
    """

    prompt: str
    candidates: tuple[str, ...]
    gold: int | None = None


Item = Mapping[str, Choice]
"""A question by language."""


@dataclass(frozen=True)
class Side:
    """The compared responses in one language; where one of them is to win, it is the first."""

    language: str
    prompt: str
    responses: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """Responses to one question: a side for each of its languages, which mean the same."""

    id: str
    sides: tuple[Side, ...]


def read_items(
    source: str | Path, languages: Sequence[str], limit: int | None = None
) -> dict[str, Item]:
    """Read questions in several languages by id.

    Parameters
    ----------
    source : str or path
        ``task:NAME[:FOLDER]``, a ranking task; or JSONL of ``{"id", "language", "prompt"}`` with
        ``"candidates"`` (and perhaps ``"gold"``, a position) or ``"chosen"`` and ``"rejected"``,
        joined on id; or of the published six fields ``prompt_1``, ``chosen_1``, ``rejected_1``,
        ``prompt_2``, ``chosen_2``, ``rejected_2``, in the order of the languages.
    languages : sequence of str
        Keep these; a question that one of them lacks is left out.
    limit : int, optional
        The first so many: of a task those that ``carot eval --skip`` leaves out, with the same
        languages.

    Raises
    ------
    CarotError
        Naming the row in which something is missing, or where no question is left.
    """
    if str(source).startswith("task:"):
        return _task_items(str(source), languages, limit)
    found: dict[str, dict[str, Choice]] = {}
    key: str
    for number, row in enumerate(read_jsonl(source), 1):
        where = f"{source}, row {number}"
        if "prompt_1" in row:
            if len(languages) != 2:
                raise CarotError(f"{where} holds two languages; name two, not {len(languages)}")
            sides = {
                language: {key: row.get(f"{key}_{place}") for key in PLAIN_KEYS}
                for place, language in enumerate(languages, 1)
            }
            for language, side in sides.items():
                found.setdefault(str(row.get("id", number)), {})[language] = _choice(side, where)
        else:
            for key in ("id", "language"):
                if key not in row:
                    raise CarotError(f"{where}: no {key!r}; there: {', '.join(row)}")
            item = found.setdefault(str(row["id"]), {})
            if row["language"] in item:
                raise CarotError(f"{where}: id {row['id']!r} stands twice in {row['language']}")
            item[row["language"]] = _choice(row, where)
    whole: dict[str, Item] = {
        key: {language: item[language] for language in languages}
        for key, item in found.items()
        if all(language in item for language in languages)
    }
    if not whole:
        raise CarotError(f"{source}: no question is in all of {', '.join(languages)}")
    for key, choices in whole.items():
        if len({(len(choice.candidates), choice.gold) for choice in choices.values()}) > 1:
            raise CarotError(
                f"{source}, {key!r}: languages differ in their candidates or in the right one; "
                "expected position j to mean the same in all"
            )
    return dict(islice(whole.items(), limit))


PLAIN_KEYS = ("prompt", "chosen", "rejected")


def _choice(row: Mapping[str, Any], where: str) -> Choice:
    prompt = row.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        raise CarotError(f"{where}: the prompt is {prompt!r:.40}; expected a text")
    gold: Any
    if "candidates" in row:
        candidates, gold = row["candidates"], row.get("gold")
    else:
        candidates, gold = [row.get("chosen"), row.get("rejected")], 0
    texts = isinstance(candidates, list) and all(
        isinstance(text, str) and text.strip() for text in candidates
    )
    if not texts or len(set(candidates)) < max(len(candidates), 2):
        raise CarotError(
            f"{where}: expected two or more different candidates, got {candidates!r:.60}"
        )
    if gold is not None and not (isinstance(gold, int) and 0 <= gold < len(candidates)):
        raise CarotError(f"{where}: gold is {gold!r}; expected a position of {len(candidates)}")
    return Choice(prompt, tuple(candidates), gold)


def _task_items(source: str, languages: Sequence[str], limit: int | None) -> dict[str, Item]:
    task = open_task(source)
    others = [language for language in languages if language != ENGLISH]
    questions = draw_questions(task, others, limit)
    items: dict[str, Item] = {}
    for row, key in enumerate(questions.ids):
        item: dict[str, Choice] = {}
        for language in languages:
            asked = questions.items[language][row]
            if not isinstance(asked, RankingItem):
                raise CarotError(f"{source}: answers are not ranked; expected a ranking task")
            texts = tuple(text + asked.suffix for text in asked.candidates)
            item[language] = Choice(asked.prompt, texts, asked.answer)
        items[key] = item
    return items


def dco_comparisons(
    items: Mapping[str, Item],
    *,
    pairs: Literal["drawn", "all"] = "drawn",
    candidates: int = 2,
    seed: int = 0,
) -> list[Comparison]:
    """Pair languages on random different candidates, the same in both.

    Parameters
    ----------
    items : mapping of str to Item
        By id.
    pairs : {"drawn", "all"}
        Two languages are drawn for each question, or every pair of languages takes part.
    candidates : int
        Drawn of each question; all, where it has fewer.
    seed : int
        Of all draws.
    """
    generator = random.Random(seed)
    rows = []
    for key, item in items.items():
        languages = list(item)
        count = len(item[languages[0]].candidates)
        places = generator.sample(range(count), min(candidates, count))
        if pairs == "all":
            chosen = list(combinations(languages, 2))
        else:
            first, second = generator.sample(languages, 2)
            chosen = [(first, second)]
        for both in chosen:
            sides = tuple(_side(language, item[language], places) for language in both)
            rows.append(Comparison(key, sides))
    return rows


def gold_comparisons(items: Mapping[str, Item], *, seed: int = 0) -> list[Comparison]:
    """Let the right answer win against a random other one, in each language by itself (DPO)."""
    generator = random.Random(seed)
    rows = []
    for key, item in items.items():
        for language, choice in item.items():
            if choice.gold is None:
                raise CarotError(f"{key!r} names no right answer; dpo and sft_gold need one")
            others = [place for place in range(len(choice.candidates)) if place != choice.gold]
            side = _side(language, choice, (choice.gold, generator.choice(others)))
            rows.append(Comparison(key, (side,)))
    return rows


@dataclass(frozen=True)
class Vote:
    """What a vote among languages gave."""

    comparisons: list[Comparison]
    ties: int


def calm_comparisons(
    items: Mapping[str, Item], answers: Mapping[str, Mapping[str, int]], *, seed: int = 0
) -> Vote:
    """Let the answer of most languages win against a random other one (CALM, arXiv 2501.18457).

    Parameters
    ----------
    items : mapping of str to Item
        By id, in three languages or more.
    answers : mapping of str to mapping
        For each id and language the position of the candidate that the model chose.
    seed : int
        Of the draws.

    Returns
    -------
    Vote
        Ties have no winner: they are counted and left out.

    Raises
    ------
    CarotError
        With fewer than three languages, among which there is no majority.
    """
    generator = random.Random(seed)
    rows, ties = [], 0
    for key, item in items.items():
        if len(item) < 3:
            raise CarotError(
                f"calm takes the majority of the languages, and there are {len(item)} "
                f"({', '.join(item)}); expected three or more"
            )
        votes = Counter(answers[key][language] for language in item).most_common(2)
        if len(votes) > 1 and votes[0][1] == votes[1][1]:
            ties += 1
            continue
        winner = votes[0][0]
        for language, choice in item.items():
            others = [place for place in range(len(choice.candidates)) if place != winner]
            side = _side(language, choice, (winner, generator.choice(others)))
            rows.append(Comparison(key, (side,)))
    return Vote(rows, ties)


def _side(language: str, choice: Choice, places: Sequence[int]) -> Side:
    return Side(language, choice.prompt, tuple(choice.candidates[place] for place in places))
