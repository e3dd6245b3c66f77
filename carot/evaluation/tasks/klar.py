"""KLAR (Wang et al., ACL 2025): facts asked for by a question, as ranking and as generation."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from carot.errors import CarotError
from carot.evaluation.items import GenerationItem, Item, RankingItem, Skipped
from carot.evaluation.tasks.base import (
    RankingTask,
    cell,
    checked,
    many,
    read_json,
    require_folder,
    require_language,
    sorted_out,
)
from carot.evaluation.text_metrics import first_line

MASK = "<mask>"
SUBJECT = "<subject>"

SHOTS = 3
"""Solved examples before a question, as in the paper."""

SEED = 0
"""Draws the examples of a question, together with its id."""


@dataclass(frozen=True)
class _Fact:
    id: str
    relation: str
    subject: str
    object: str
    candidates: tuple[str, ...]
    template: str

    @property
    def fault(self) -> str | None:
        """Why this is no question."""
        if self.template.count(SUBJECT) != 1 or self.template.count(MASK) != 1:
            return "template without one subject and one mask"
        if self.template.strip().startswith(MASK):
            return "mask comes first"
        return None if self.subject and self.object else "empty subject or object"

    def filled(self) -> tuple[str, str]:
        """Return what stands before and after the mask."""
        before, _, after = self.template.replace(SUBJECT, self.subject).partition(MASK)
        return before, after


class _Relations:
    """Facts of KLAR, one folder a language and one file a relation."""

    name: str

    def __init__(self, data: Path | None) -> None:
        self.folder = require_folder(data, self.name)

    def languages(self) -> list[str]:
        """Return the languages whose folders are there."""
        return sorted({path.parent.name for path in self.folder.glob("*/*.json")})

    def facts(self, language: str) -> dict[str, _Fact]:
        """Return the facts of a language by relation and index, ``capital-6152``."""
        require_language(language, self.languages(), self.folder)
        facts: dict[str, _Fact] = {}
        for path in sorted((self.folder / language).glob("*.json")):
            for fact in _read_relation(path):
                if fact.id in facts:
                    raise CarotError(f"{path}: the index of {fact.id} stands twice")
                facts[fact.id] = fact
        return facts


class Klar(_Relations, RankingTask):
    """KLAR as ranking: the first template of each relation, with its candidates.

    The prompt is what stands before the mask; what stands behind it, but for closing punctuation,
    is scored with the candidate.

    Parameters
    ----------
    data : Path
        The original files ``en/capital.json``, ``es/capital.json``, ...
    """

    name = "klar"

    def load(self, language: str) -> tuple[dict[str, Item], list[Skipped]]:
        """Load the facts of one language by relation and index, ``capital-6152``."""
        items, skipped = sorted_out(map(self._item, self.facts(language).values()))
        return dict(items), skipped

    @staticmethod
    def _item(fact: _Fact) -> RankingItem | Skipped:
        if fact.fault:
            return Skipped(fact.id, fact.fault)
        before, after = fact.filled()
        suffix = after.rstrip(" .。।")
        return checked(fact.id, before.strip(), fact.candidates, fact.object, suffix=suffix)


class KlarGenerate(_Relations):
    """KLAR as generation, after three solved examples of the same relation.

    The examples are drawn from the English facts with a fixed seed and the question's id, so they
    are the same in all languages; never a fact about the same subject. An answer is right if its
    first line contains the object, whatever the case.

    Parameters
    ----------
    data : Path
        The original files ``en/capital.json``, ``es/capital.json``, ...; English must be there.
    """

    name = "klar-generate"
    max_new_tokens = 50

    def load(self, language: str) -> tuple[dict[str, Item], list[Skipped]]:
        """Load the facts of one language by relation and index, ``capital-6152``."""
        facts = self.facts(language)
        items, skipped = sorted_out(self._item(fact, facts) for fact in facts.values())
        return dict(items), skipped

    def is_right(self, item: GenerationItem, text: str) -> bool:
        """Look for a right answer in the first line of a text."""
        line = first_line(text).casefold()
        return any(answer.casefold() in line for answer in item.answers)

    @cached_property
    def _english(self) -> dict[str, list[_Fact]]:
        """English facts by relation."""
        relations: dict[str, list[_Fact]] = {}
        for _, fact in sorted(self.facts("en").items()):
            relations.setdefault(fact.relation, []).append(fact)
        return relations

    def _item(self, fact: _Fact, facts: dict[str, _Fact]) -> GenerationItem | Skipped:
        if fact.fault:
            return Skipped(fact.id, fact.fault)
        shots = [facts.get(shot) for shot in self._shots(fact)]
        solved = [_solved(shot) for shot in shots if shot and not shot.fault]
        if len(solved) < SHOTS:
            return Skipped(fact.id, f"fewer than {SHOTS} examples")
        examples = "".join(f"{line}\n" for line in solved)
        prompt = examples + fact.filled()[0].strip()
        return GenerationItem(fact.id, prompt, (fact.object,), content=(len(examples), len(prompt)))

    def _shots(self, fact: _Fact) -> list[str]:
        """Return the ids of the examples of a question."""
        relation = self._english.get(fact.relation, [])
        subject = next((other.subject for other in relation if other.id == fact.id), None)
        others = [other.id for other in relation if other.subject != subject]
        draw = random.Random(f"{SEED} {fact.id}")
        return draw.sample(others, min(SHOTS, len(others)))


def _solved(fact: _Fact) -> str:
    before, after = fact.filled()
    return (before + fact.object + after).strip()


def _read_relation(path: Path) -> Iterator[_Fact]:
    table: Any = read_json(path)
    templates = many(table, "prompt_templates", str(path))
    if not templates:
        raise CarotError(f"{path}: prompt_templates is empty; expected one or more")
    for number, sample in enumerate(many(table, "samples", str(path)), 1):
        where = f"{path}, sample {number}"
        listed = cell(sample, "object_candidates", where)
        yield _Fact(
            id=f"{path.stem}-{cell(sample, 'index', where)}",
            relation=path.stem,
            subject=cell(sample, "subject", where),
            object=cell(sample, "object", where),
            candidates=tuple(candidate.strip() for candidate in listed.split(", ")),
            template=str(templates[0]),
        )
