"""From answers to metrics: for each method each language, and the mean."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from carot.errors import CarotError
from carot.evaluation.fidelity import fidelity, script_fidelity
from carot.evaluation.metrics import (
    agreement,
    bootstrap_interval,
    consistency,
    holm,
    mcnemar_exact,
    rankc,
    rankc_pairs,
)
from carot.evaluation.questions import Questions
from carot.interventions import ENGLISH

UNSTEERED = "none"
MEAN = "mean"

Rows = Sequence[dict[str, Any]]
Metrics = dict[str, Any]


def summarise(rows: Rows, questions: Questions, *, seed: int = 0) -> dict[str, Any]:
    """Compute all metrics.

    Parameters
    ----------
    rows : sequence of dict
        Every answer: method, language, id, right, and answer with scores or text.
    questions : Questions
        What was asked, in order.
    seed : int
        Of the bootstrap.

    Returns
    -------
    dict
        ``metrics`` by method and language (``en`` under ``none``, ``mean`` over target languages),
        and ``pairs``, RankC of all pairs of languages by method. Steered languages are compared
        with unsteered English.
    """
    answers: dict[str, dict[str, Rows]] = {}
    for row in rows:
        answers.setdefault(row["method"], {}).setdefault(row["language"], [])
        answers[row["method"]][row["language"]].append(row)  # type: ignore[attr-defined]
    english = answers[UNSTEERED][ENGLISH]
    metrics: dict[str, Metrics] = {}
    pairs: dict[str, dict[str, float]] = {}
    for method, by_language in answers.items():
        table = {
            language: _of_language(these, english, language, questions, seed)
            for language, these in by_language.items()
        }
        if method != UNSTEERED:
            _compare(table, by_language, answers[UNSTEERED])
        pairs[method] = _pairs({ENGLISH: english, **by_language})
        table[MEAN] = _mean(table, by_language, answers[UNSTEERED], pairs[method], method, seed)
        metrics[method] = table
    return {"metrics": metrics, "pairs": pairs}


def _right(rows: Rows) -> list[bool]:
    return [row["right"] for row in rows]


def _scores(rows: Rows) -> list[list[float]] | None:
    return [row["scores"] for row in rows] if all("scores" in row for row in rows) else None


def _of_language(
    rows: Rows, english: Rows, language: str, questions: Questions, seed: int
) -> Metrics:
    right = _right(rows)
    scores, english_scores = _scores(rows), _scores(english)
    ranked = scores is not None and english_scores is not None
    texts = [row["text"] for row in rows if "text" in row]
    return {
        "items": len(rows),
        "accuracy": fmean(right),
        "accuracy_interval": list(bootstrap_interval([float(x) for x in right], seed=seed)),
        "rankc": rankc(scores, english_scores) if ranked else None,  # type: ignore[arg-type]
        "agreement": agreement([row["answer"] for row in rows], [row["answer"] for row in english])
        if ranked
        else None,
        "consistency": consistency(right, _right(english)),
        "fidelity": _measured(fidelity, texts, language, [ENGLISH, *questions.languages]),
        "script_fidelity": _measured(script_fidelity, texts, language),
        "p": None,
        "p_holm": None,
    }


def _measured(measure: Callable[..., float], texts: list[str], *arguments: Any) -> float | None:
    """Measure fidelity; what cannot be measured is null, and no reason to lose the answers."""
    if not texts:
        return None
    try:
        return measure(texts, *arguments)
    except CarotError as error:
        warnings.warn(f"{measure.__name__} is not measured: {error}", stacklevel=2)
        return None


def _compare(
    table: dict[str, Metrics], by_language: dict[str, Rows], plain: dict[str, Rows]
) -> None:
    """Test each language against unsteered, and correct for their number."""
    values = {
        language: mcnemar_exact(_right(plain[language]), _right(rows))
        for language, rows in by_language.items()
    }
    for language, corrected in holm(values).items():
        table[language] |= {"p": values[language], "p_holm": corrected}


def _pairs(by_language: dict[str, Rows]) -> dict[str, float]:
    scores = {language: _scores(rows) for language, rows in by_language.items()}
    ranked = {language: these for language, these in scores.items() if these is not None}
    return {f"{one}-{other}": value for (one, other), value in rankc_pairs(ranked).items()}


def _mean(
    table: dict[str, Metrics],
    by_language: dict[str, Rows],
    plain: dict[str, Rows],
    pairs: dict[str, float],
    method: str,
    seed: int,
) -> Metrics:
    targets = [language for language in by_language if language != ENGLISH]
    right = {language: _right(by_language[language]) for language in targets}
    # Items are resampled, not answers: one question in several languages is one observation.
    by_item = [fmean(values) for values in zip(*right.values(), strict=True)]
    mean: Metrics = {
        "items": sum(len(values) for values in right.values()),
        "accuracy": fmean(by_item),
        "accuracy_interval": list(bootstrap_interval(by_item, seed=seed)),
        "clc_all": fmean(pairs.values()) if pairs else None,
        "p": None,
    }
    for name in ("rankc", "agreement", "consistency", "fidelity", "script_fidelity"):
        values = [table[language][name] for language in targets]
        mean[name] = None if None in values else fmean(values)
    if method != UNSTEERED:
        before = zip(*(_right(plain[language]) for language in targets), strict=True)
        changes = [
            sum(new) - sum(old)
            for old, new in zip(before, zip(*right.values(), strict=True), strict=True)
        ]
        mean["p"] = mcnemar_exact(
            [change < 0 for change in changes], [change > 0 for change in changes]
        )
    return mean
