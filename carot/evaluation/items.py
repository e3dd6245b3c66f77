"""Questions: a task gives the same ones in every language, joined on their ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from carot.errors import CarotError

Span = tuple[int, int]


@dataclass(frozen=True)
class RankingItem:
    """A question whose candidates are scored; the best one is the answer.

    Parameters
    ----------
    id : str
        The same in all languages.
    prompt : str
        What stands before the answer.
    candidates : tuple of str
        Possible answers; position j means the same in all languages.
    answer : int
        Position of the right one.
    suffix : str
        What stands behind the answer, scored with it: a cloze whose mask is in mid-sentence.
    source : str, optional
        What steers the other languages, where this is the English item; the prompt by default.
    content : (int, int), optional
        The characters of the prompt that are steered (the question behind examples); all of it by
        default. Of ``source`` where that is given.
    """

    id: str
    prompt: str
    candidates: tuple[str, ...]
    answer: int
    suffix: str = ""
    source: str | None = None
    content: Span | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.answer < len(self.candidates):
            raise CarotError(
                f"item {self.id}: the answer is number {self.answer} of {len(self.candidates)} "
                "candidates; expected one of them"
            )


@dataclass(frozen=True)
class GenerationItem:
    """A question that is answered in free text.

    Parameters
    ----------
    id : str
        The same in all languages.
    prompt : str
        What the model goes on from.
    answers : tuple of str
        Right answers; one is enough.
    content : (int, int), optional
        The characters of the prompt that are steered; all of it by default.
    """

    id: str
    prompt: str
    answers: tuple[str, ...]
    content: Span | None = None


Item = RankingItem | GenerationItem


@dataclass(frozen=True)
class Skipped:
    """A row that is no question, and why."""

    id: str
    reason: str


class Task(Protocol):
    """A benchmark: where its questions are, and how an answer is judged.

    One class a file in :mod:`carot.evaluation.tasks`; users register their own with
    :func:`carot.evaluation.tasks.register_task`.
    """

    name: str
    max_new_tokens: int
    """Tokens of a generated answer; 0 for a ranking task."""

    def languages(self) -> list[str]:
        """Return the language codes that there are, English among them."""
        ...

    def load(self, language: str) -> tuple[dict[str, Item], list[Skipped]]:
        """Return the questions of one language by id, and the rows that were left out.

        Raises
        ------
        CarotError
            When the language or its file is missing, or the file has another layout.
        """
        ...

    def is_right(self, item: GenerationItem, text: str) -> bool:
        """Judge a generated answer; ranking tasks do not need it."""
        ...
