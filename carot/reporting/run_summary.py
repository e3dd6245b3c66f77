"""A run of ``carot generate`` in counts that do not grow with it."""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

BINS = 20  # of the histogram of match
WORST, FAILED = 8, 20  # rows that are kept
MOST_LANGUAGES, MOST_KINDS = 300, 50  # counted apart; others together
UNKNOWN, OTHER = "unknown", "other"

Row = Mapping[str, Any]


@dataclass
class Group:
    """Rows counted together: of one language, or all.

    Parameters
    ----------
    rows, answered, steered, failed : int
        How many.
    reasons, errors : Counter
        Why rows were not steered, and what rows failed of; their numbers taken out.
    measured, sums : dict
        How many rows have a ``match`` and an ``interpolation``, and what these add up to.
    histogram : list of int
        Rows by match, in equal bins over [0, 1].
    """

    rows: int = 0
    answered: int = 0
    steered: int = 0
    failed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    measured: Counter[str] = field(default_factory=Counter)
    sums: dict[str, float] = field(default_factory=dict)
    histogram: list[int] = field(default_factory=lambda: [0] * BINS)

    def add(self, row: Row) -> None:
        """Count a row."""
        self.rows += 1
        if "error" in row:
            self.failed += 1
            self.errors[_known(_kind(row["error"]), self.errors, MOST_KINDS)] += 1
            return
        self.answered += 1
        self.steered += bool(row["steered"])
        if not row["steered"]:
            self.reasons[_known(_kind(row["reason"] or UNKNOWN), self.reasons, MOST_KINDS)] += 1
        for name in ("match", "interpolation"):
            if _is_number(row[name]):
                self.measured[name] += 1
                self.sums[name] = self.sums.get(name, 0.0) + row[name]
        if _is_number(row["match"]):
            self.histogram[max(0, min(int(row["match"] * BINS), BINS - 1))] += 1

    def mean(self, name: str) -> float | None:
        """Return the mean ``match`` or ``interpolation`` of the rows that have one."""
        return self.sums[name] / self.measured[name] if self.measured[name] else None


@dataclass(frozen=True)
class RunSummary:
    """What a run came to.

    Parameters
    ----------
    total : Group
        All rows.
    languages : dict of str to Group
        The most frequent first. A failed row that names no language is in ``total`` alone.
    worst : list of dict
        The answered rows of the worst match, steered or refused; the worst first.
    failures : list of dict
        The first failed rows.
    """

    total: Group
    languages: dict[str, Group]
    worst: list[dict[str, Any]]
    failures: list[dict[str, Any]]


def summarise_run(rows: Iterable[Row]) -> RunSummary:
    """Go once through the rows of an answered file; memory does not grow with them."""
    total = Group()
    groups: dict[str, Group] = {}
    worst: list[tuple[float, int, dict[str, Any]]] = []  # a heap, the best of them first
    failures: list[dict[str, Any]] = []
    for number, row in enumerate(rows):
        total.add(row)
        language = row.get("language") or (None if "error" in row else UNKNOWN)
        if language is not None:
            groups.setdefault(_known(language, groups, MOST_LANGUAGES), Group()).add(row)
        if "error" in row:
            if len(failures) < FAILED:
                failures.append(dict(row))
        elif _is_number(row["match"]):
            entry = (-row["match"], -number, dict(row))
            (heapq.heappush if len(worst) < WORST else heapq.heappushpop)(worst, entry)
    return RunSummary(
        total=total,
        languages=dict(sorted(groups.items(), key=lambda pair: (-pair[1].rows, pair[0]))),
        worst=[row for _, _, row in sorted(worst, reverse=True)],
        failures=failures,
    )


def _kind(text: str) -> str:
    low = re.fullmatch(r"match \S+ below \S+", text)
    return "match too low" if low else re.sub(r"\d+(\.\d+)?", "N", text)[:100]


def _known(key: str, counted: Mapping[str, Any], most: int) -> str:
    return key if key in counted or len(counted) < most else OTHER


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
