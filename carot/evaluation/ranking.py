"""Ranking tasks: the model scores each candidate, and the best one is its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from carot.errors import CarotError
from carot.models import CarotModel


@dataclass(frozen=True)
class RankingItem:
    """One question in one language.

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
    """

    id: str
    prompt: str
    candidates: tuple[str, ...]
    answer: int

    def __post_init__(self) -> None:
        if not 0 <= self.answer < len(self.candidates):
            raise CarotError(
                f"item {self.id}: the answer is number {self.answer} of {len(self.candidates)} "
                "candidates; expected one of them"
            )


def predict(
    model: CarotModel,
    items: Sequence[RankingItem],
    english: Sequence[RankingItem] | None = None,
    *,
    batch_size: int = 16,
) -> list[int]:
    """Return the position of the best-scored candidate of each item.

    Parameters
    ----------
    model : CarotModel
        Scores by mean log-probability.
    items : sequence of RankingItem
        Questions in the target language.
    english : sequence of RankingItem, optional
        The same questions in English, in any order: they are joined on ids, and steer the model.
    batch_size : int
        Questions in one batch.

    Returns
    -------
    list of int
        Ties go to the first.
    """
    sources: list[str | None] | None = None
    if english is not None:
        by_id = {item.id: item.prompt for item in english}
        missing = [item.id for item in items if item.id not in by_id]
        if missing:
            raise CarotError(
                f"{len(missing)} items have no English counterpart, first {missing[0]}"
            )
        sources = [by_id[item.id] for item in items]
    scores = model.score(
        [item.prompt for item in items],
        [item.candidates for item in items],
        sources,
        batch_size=batch_size,
    )
    return [row.index(max(row)) for row in scores]


def accuracy(predictions: Sequence[int], items: Sequence[RankingItem]) -> float:
    """Return the share of items whose answer was predicted."""
    pairs = zip(predictions, items, strict=True)
    return sum(prediction == item.answer for prediction, item in pairs) / len(items)
