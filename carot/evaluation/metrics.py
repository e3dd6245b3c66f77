"""What is measured: consistency between languages, uncertainty and significance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from carot.errors import CarotError

Scores = Sequence[Sequence[float]]
"""For each question, the scores of its candidates."""


def rankc(scores_a: Scores, scores_b: Scores) -> float:
    r"""Return how alike two languages rank the same candidates (RankC).

    .. math:: \frac{1}{Q} \sum_q \sum_{j=1}^{N} w_j
        \frac{|\mathrm{top}_j(a_q) \cap \mathrm{top}_j(b_q)|}{j},
        \qquad w = \mathrm{softmax}(N, N - 1, \ldots, 1)

    Parameters
    ----------
    scores_a, scores_b : sequence of sequence of float
        For each of Q questions, the scores of its N candidates, N of its own for each question.
        The same candidates stand at the same positions; ties go to the first.

    Returns
    -------
    float
        From 0 to 1; 1 for the same ranking of all candidates of all questions. Two rankings
        without anything in common but the whole set still share ``w_N``.

    Raises
    ------
    CarotError
        When the questions or their candidates do not match, or there are none.

    References
    ----------
    Qi, Fernández and Bisazza (2023). Cross-Lingual Consistency of Factual Knowledge in
    Multilingual Language Models. EMNLP. arXiv:2310.10378.

    Examples
    --------
    >>> rankc([[0.9, 0.5, 0.1]], [[3.0, 2.0, 1.0]])
    1.0
    """
    _require_same_length("rankc", scores_a, scores_b)
    overlaps = []
    for row, (one, other) in enumerate(zip(scores_a, scores_b, strict=True)):
        if len(one) != len(other) or not one:
            raise CarotError(
                f"rankc: question {row} has {len(one)} and {len(other)} candidates; expected the "
                "same number in both languages, at least one"
            )
        overlaps.append(_overlap(_ranking(one, row), _ranking(other, row)))
    return math.fsum(overlaps) / len(overlaps)


def _ranking(scores: Sequence[float], row: int) -> list[int]:
    """Positions from best to worst; the sort is stable, so ties stay in order."""
    if any(math.isnan(score) for score in scores):
        raise CarotError(f"rankc: a score of question {row} is NaN; expected numbers")
    return sorted(range(len(scores)), key=lambda position: -scores[position])


def _overlap(one: Sequence[int], other: Sequence[int]) -> float:
    """Shares of common top candidates at each depth, weighted towards the top."""
    weights = [math.exp(-depth) for depth in range(len(one))]  # softmax, less its common factor
    seen_one: set[int] = set()
    seen_other: set[int] = set()
    total = 0.0
    for depth, weight in enumerate(weights):
        seen_one.add(one[depth])
        seen_other.add(other[depth])
        total += weight * len(seen_one & seen_other) / (depth + 1)
    return total / sum(weights)


def rankc_pairs(scores_by_language: Mapping[str, Scores]) -> dict[tuple[str, str], float]:
    """Return :func:`rankc` of each pair of languages, in the order in which they are given.

    Parameters
    ----------
    scores_by_language : mapping of str to (sequence of sequence of float)
        The same questions in the same order in all languages.
    """
    return {
        (one, other): rankc(scores_by_language[one], scores_by_language[other])
        for one, other in combinations(scores_by_language, 2)
    }


def clc_all(scores_by_language: Mapping[str, Scores]) -> float:
    """Return the mean of :func:`rankc` over all pairs of languages.

    Parameters
    ----------
    scores_by_language : mapping of str to (sequence of sequence of float)
        The same questions in the same order in all languages, English among them or not.

    Raises
    ------
    CarotError
        When there are fewer than two languages.

    References
    ----------
    Qi, Fernández and Bisazza (2023), arXiv:2310.10378; under this name in arXiv:2603.04678.
    """
    if len(scores_by_language) < 2:
        raise CarotError(
            f"clc_all: {len(scores_by_language)} languages; expected two or more to compare"
        )
    pairs = rankc_pairs(scores_by_language)
    return math.fsum(pairs.values()) / len(pairs)


def consistency(right_a: Sequence[bool], right_b: Sequence[bool]) -> float:
    r"""Return how far two languages know the same: the overlap of their right answers.

    .. math:: |A \cap B| / |A \cup B|

    Parameters
    ----------
    right_a, right_b : sequence of bool
        For each question, whether it is answered right in each language.

    Returns
    -------
    float
        From 0 to 1; 0 where neither language has a right answer.

    References
    ----------
    Wang et al. (2025). Lost in Multilinguality: Dissecting Cross-lingual Factual Inconsistency in
    Transformer Language Models (KLAR). ACL. arXiv:2504.04264.

    Examples
    --------
    >>> consistency([True, True, False, False], [True, False, True, False])
    0.3333333333333333
    """
    _require_same_length("consistency", right_a, right_b)
    pairs = list(zip(right_a, right_b, strict=True))
    either = sum(bool(one or other) for one, other in pairs)
    both = sum(bool(one and other) for one, other in pairs)
    return both / either if either else 0.0


def agreement(predictions_a: Sequence[object], predictions_b: Sequence[object]) -> float:
    """Return the share of questions with the same answer in both, right or wrong.

    Parameters
    ----------
    predictions_a, predictions_b : sequence
        For each question, the position of the chosen candidate, or anything else that is compared
        by ``==``.

    Examples
    --------
    >>> agreement([0, 2, 1], [0, 1, 1])
    0.6666666666666666
    """
    _require_same_length("agreement", predictions_a, predictions_b)
    pairs = zip(predictions_a, predictions_b, strict=True)
    return sum(bool(one == other) for one, other in pairs) / len(predictions_a)


def bootstrap_interval(
    values: ArrayLike,
    *,
    statistic: Callable[..., float] = np.mean,
    seed: int,
    samples: int = 2000,
    level: float = 0.95,
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a statistic.

    Parameters
    ----------
    values : array-like
        One for each question: a number or truth value, or a row of them (one question in all
        languages), which is then drawn as a whole.
    statistic : callable
        From an array of such values to a number; the mean by default.
    seed : int
        The same seed draws the same samples.
    samples : int
        How many times as many values are drawn, with replacement.
    level : float
        Share of the statistics that lie inside.

    Returns
    -------
    (float, float)
        The ``(1 - level) / 2`` and ``(1 + level) / 2`` quantiles.

    Raises
    ------
    CarotError
        When there are no values, or ``samples`` or ``level`` is out of range.

    References
    ----------
    Efron and Tibshirani (1993). An Introduction to the Bootstrap, chapter 13.

    Examples
    --------
    >>> low, high = bootstrap_interval([0, 1, 1, 1, 0, 1, 1, 0, 1, 1], seed=0)
    >>> low < 0.7 < high
    True
    """
    array = np.asarray(values, dtype=np.float64)
    if not array.size:
        raise CarotError("bootstrap_interval: no values; expected one for each question")
    if samples < 1 or not 0 < level < 1:
        raise CarotError(
            f"bootstrap_interval: samples={samples}, level={level}; expected samples of 1 or more "
            "and a level between 0 and 1"
        )
    generator = np.random.default_rng(seed)
    statistics = [
        float(statistic(array[generator.integers(len(array), size=len(array))]))
        for _ in range(samples)
    ]
    low, high = np.quantile(statistics, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def mcnemar_exact(before: Sequence[bool], after: Sequence[bool]) -> float:
    r"""Return the one-sided exact p that ``after`` is no better than ``before``.

    Only the questions whose answer changed between right and wrong count. With g gained and l
    lost, and both equally likely where nothing improved:

    .. math:: p = \sum_{k=g}^{g+l} \binom{g+l}{k} 2^{-(g+l)}

    Parameters
    ----------
    before, after : sequence of bool
        For each question, whether it is answered right.

    Returns
    -------
    float
        Small where ``after`` is better; 1 where nothing changed.

    References
    ----------
    McNemar (1947). Note on the sampling error of the difference between correlated proportions
    or percentages. Psychometrika 12.

    Examples
    --------
    >>> mcnemar_exact([False] * 8 + [True], [True] * 8 + [False])  # 8 gained, 1 lost
    0.01953125
    """
    _require_same_length("mcnemar_exact", before, after)
    pairs = list(zip(before, after, strict=True))
    gained = sum(bool(new and not old) for old, new in pairs)
    changed = gained + sum(bool(old and not new) for old, new in pairs)
    term = total = 1  # In whole numbers: exact for any number of questions.
    for k in range(changed, gained, -1):
        term = term * k // (changed - k + 1)  # binom(changed, k - 1) from binom(changed, k)
        total += term
    return float(total / 2**changed)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    r"""Return p-values adjusted for their number, by Holm's step-down method.

    The i-th smallest of m becomes :math:`\max_{h \le i} \min(1, (m - h + 1)\, p_{(h)})`.

    Parameters
    ----------
    p_values : mapping of str to float
        Of one family of tests, each under its name.

    Returns
    -------
    dict of str to float
        In the order given. A test is significant at a level below which its value lies.

    Raises
    ------
    CarotError
        When a value is not between 0 and 1.

    References
    ----------
    Holm (1979). A simple sequentially rejective multiple test procedure. Scandinavian Journal of
    Statistics 6.

    Examples
    --------
    >>> holm({"es": 0.01, "fr": 0.04, "ja": 0.03})
    {'es': 0.03, 'fr': 0.06, 'ja': 0.06}
    """
    for name, value in p_values.items():
        if not 0 <= value <= 1:
            raise CarotError(f"holm: p of {name!r} is {value}; expected a number from 0 to 1")
    adjusted: dict[str, float] = {}
    largest = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}


def _require_same_length(metric: str, one: Sequence[object], other: Sequence[object]) -> None:
    if len(one) != len(other) or not len(one):
        raise CarotError(
            f"{metric}: {len(one)} and {len(other)} questions; expected the same ones in both, "
            "at least one"
        )
