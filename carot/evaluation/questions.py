"""The questions of one evaluation: the same ids in every language, drawn once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from carot.errors import CarotError, require_positive
from carot.evaluation.items import Item, RankingItem, Task
from carot.interventions import ENGLISH


@dataclass(frozen=True)
class Questions:
    """Questions that every language has, in the same order.

    Parameters
    ----------
    ids : list of str
        N ids.
    items : dict of str to list
        For each language, English among them, its N questions.
    skipped : dict of str to dict
        For each language how many rows were left out, by reason.
    """

    ids: list[str]
    items: dict[str, list[Item]]
    skipped: dict[str, dict[str, int]]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def languages(self) -> list[str]:
        """The target languages: all but English."""
        return [language for language in self.items if language != ENGLISH]

    def part(self, start: int, stop: int) -> Questions:
        """Return the questions from one position to another: parts never share an id."""
        items = {language: rows[start:stop] for language, rows in self.items.items()}
        return Questions(self.ids[start:stop], items, self.skipped)


def draw_questions(
    task: Task, languages: Sequence[str], limit: int | None = None, seed: int = 0
) -> Questions:
    """Load a task and draw questions that English and all languages have.

    Parameters
    ----------
    task : Task
        Where they come from; joined on ids, never on order.
    languages : sequence of str
        Target languages.
    limit : int, optional
        How many, drawn with the seed; all by default. The first n of a larger draw are the draw of
        n.
    seed : int
        Decides which, and their order.

    Raises
    ------
    CarotError
        When a language is missing, named twice or English, or no question is common to all.
    """
    if limit is not None:
        require_positive(limit=limit)
    if not languages or ENGLISH in languages or len(set(languages)) < len(languages):
        raise CarotError(
            f"languages are {', '.join(languages) or 'none'}; expected some, each once, without "
            "English, which always takes part"
        )
    tables: dict[str, dict[str, Item]] = {}
    skipped: dict[str, dict[str, int]] = {}
    for language in (ENGLISH, *languages):
        table, left_out = task.load(language)
        tables[language] = table
        skipped[language] = dict(Counter(row.reason for row in left_out))
    common = sorted(set.intersection(*(set(table) for table in tables.values())))
    for language, table in tables.items():
        if lonely := len(table) - len(common):
            skipped[language]["not in every language"] = lonely
    if not common:
        raise CarotError(f"task {task.name}: no question is in all of en, {', '.join(languages)}")
    _require_same_answers(task, tables, common)
    random.Random(seed).shuffle(common)
    ids = common[:limit]
    items = {language: [table[item] for item in ids] for language, table in tables.items()}
    return Questions(ids, items, skipped)


def _require_same_answers(
    task: Task, tables: dict[str, dict[str, Item]], common: Sequence[str]
) -> None:
    """Refuse a task whose candidates do not match by position between languages."""
    for item_id in common:
        rows = [table[item_id] for table in tables.values()]
        ranked = [row for row in rows if isinstance(row, RankingItem)]
        for what, seen in (
            ("number of candidates", {len(row.candidates) for row in ranked}),
            ("position of the answer", {row.answer for row in ranked}),
        ):
            if len(seen) > 1:
                raise CarotError(
                    f"task {task.name}, item {item_id}: languages differ in the {what} "
                    f"({sorted(seen)}); expected position j to mean the same in all"
                )
