"""Asking questions: candidates are scored, or an answer is generated."""

from __future__ import annotations

from collections.abc import Sequence

from carot.evaluation.items import RankingItem
from carot.models import CarotModel


def rank(
    model: CarotModel,
    items: Sequence[RankingItem],
    english: Sequence[RankingItem | None] | None = None,
    *,
    batch_size: int = 16,
) -> list[list[float]]:
    """Score the candidates of each question by mean log-probability.

    Parameters
    ----------
    model : CarotModel
        Scores, steered by the English questions.
    items : sequence of RankingItem
        Questions in the target language.
    english : sequence of (RankingItem or None), optional
        For each of them its English counterpart.
    batch_size : int
        Questions in one batch.

    Returns
    -------
    list of list of float
        One list for each question, in the order of its candidates.
    """
    sources = [None] * len(items) if english is None else list(english)
    return model.score(
        [item.prompt for item in items],
        [[candidate + item.suffix for candidate in item.candidates] for item in items],
        [None if source is None else source.source or source.prompt for source in sources],
        content=[item.content for item in items],
        english_content=[None if source is None else source.content for source in sources],
        batch_size=batch_size,
    )


def best(scores: Sequence[Sequence[float]]) -> list[int]:
    """Return the position of the best-scored candidate of each question; ties go to the first."""
    return [list(row).index(max(row)) for row in scores]


def accuracy(predictions: Sequence[int], items: Sequence[RankingItem]) -> float:
    """Return the share of questions whose answer was predicted."""
    pairs = zip(predictions, items, strict=True)
    return sum(prediction == item.answer for prediction, item in pairs) / len(items)
