"""Offline distillation: steered answers become instruction data, which ``sft`` trains on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from carot.alignment import Guard
from carot.errors import CarotError
from carot.evaluation.text_metrics import first_line
from carot.interventions import ENGLISH
from carot.languages import LanguageIdentifier


@dataclass(frozen=True)
class Distilled:
    """What was kept of steered answers.

    Parameters
    ----------
    rows : list of dict
        ``{"id", "prompt", "response", "language", "match"}``.
    dropped : dict of str to int
        How many were left out, by reason.
    """

    rows: list[dict[str, Any]]
    dropped: dict[str, int]


def distil(
    answers: Sequence[Mapping[str, Any]],
    *,
    min_match: float | Guard = 0.0,
    faithful: bool = True,
    one_line: bool = False,
) -> Distilled:
    """Choose the answers that are worth learning from.

    Parameters
    ----------
    answers : sequence of mapping
        Rows of :func:`carot.inference.generate_file`, with the languages of their prompts.
    min_match : float or Guard
        Leave out answers whose prompt and English match less
        (:func:`carot.alignment.match_quality`): one number for all, or a guard's for each language.
    faithful : bool
        Leave out answers in another language than their prompt (needs lingua, ``carot[eval]``).
    one_line : bool
        Keep the first line of each answer only.

    Raises
    ------
    CarotError
        When a language is not known to the identifier, or nothing is left.
    """
    languages = {row["language"] for row in answers if "error" not in row}
    guard = min_match if isinstance(min_match, Guard) else Guard(min_match)
    identify = LanguageIdentifier({ENGLISH, *languages}) if faithful else None
    rows: list[dict[str, Any]] = []
    dropped: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()
    for row in answers:
        if "error" in row:
            dropped["not answered"] += 1
            continue
        language = row["language"]
        response = (first_line(row["answer"]) if one_line else row["answer"]).strip()
        if not row["steered"]:
            dropped["not steered"] += 1
        elif not response:
            dropped["empty"] += 1
        elif row["match"] is not None and row["match"] < guard.of(language):
            dropped["match too low"] += 1
        elif identify is not None and identify(response) != language:
            dropped["in another language"] += 1
        elif (row["prompt"], response) in seen:
            dropped["there already"] += 1
        else:
            seen.add((row["prompt"], response))
            rows.append(
                {
                    "id": row["id"],
                    "prompt": row["prompt"],
                    "response": response,
                    "language": language,
                    "match": row["match"],
                }
            )
    if not rows:
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
        raise CarotError(f"no answer is left of {len(answers)} ({reasons}); ask for less")
    return Distilled(rows, dict(dropped))
