"""A run of ``carot generate`` summed up: counts that do not grow with it, and a page."""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from carot.files import write_atomically
from carot.models import AlignmentView
from carot.reporting.heatmap import heatmap_html
from carot.reporting.page import LANGUAGE_NAMES, html_page

BINS = 20
"""Of the histogram of match, over [0, 1]."""

WORST = 8
"""Rows of the worst match that are shown."""

FAILED = 20
"""Failed rows that are shown."""

UNKNOWN = "unknown"

Row = Mapping[str, Any]


@dataclass
class Group:
    """Rows of one language.

    Parameters
    ----------
    rows, steered : int
        How many.
    match, interpolation : list of float
        Count and sum of what the rows have.
    histogram : list of int
        Rows by match, in equal bins over [0, 1].
    """

    rows: int = 0
    steered: int = 0
    match: list[float] = field(default_factory=lambda: [0, 0.0])
    interpolation: list[float] = field(default_factory=lambda: [0, 0.0])
    histogram: list[int] = field(default_factory=lambda: [0] * BINS)

    def add(self, row: Row) -> None:
        """Count a row."""
        self.rows += 1
        self.steered += bool(row["steered"])
        for name in ("match", "interpolation"):
            if row[name] is not None:
                sums = getattr(self, name)
                sums[0] += 1
                sums[1] += row[name]
        if row["match"] is not None:
            self.histogram[min(int(row["match"] * BINS), BINS - 1)] += 1

    def mean(self, name: str) -> float | None:
        """Return the mean ``match`` or ``interpolation``."""
        count, total = getattr(self, name)
        return total / count if count else None


@dataclass(frozen=True)
class RunSummary:
    """What a run came to.

    Parameters
    ----------
    rows, answered, steered, failed : int
        How many.
    reasons : Counter
        Why rows were not steered.
    errors : Counter
        What failed rows failed of, numbers taken out.
    languages : dict of str to Group
        The most frequent first.
    worst : list of dict
        Rows of the worst match.
    failures : list of dict
        The first failed rows.
    """

    rows: int
    answered: int
    steered: int
    failed: int
    reasons: Counter[str]
    errors: Counter[str]
    languages: dict[str, Group]
    worst: list[dict[str, Any]]
    failures: list[dict[str, Any]]


def summarise_run(rows: Iterable[Row]) -> RunSummary:
    """Go once through the rows of an answered file; memory does not grow with them."""
    reasons: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    groups: dict[str, Group] = defaultdict(Group)
    worst: list[tuple[float, int, dict[str, Any]]] = []  # a heap, the best of them first
    failures: list[dict[str, Any]] = []
    total = 0
    for total, row in enumerate(rows, 1):
        if "error" in row:
            errors[re.sub(r"\d+", "N", row["error"])[:80]] += 1
            if len(failures) < FAILED:
                failures.append(dict(row))
            continue
        groups[row["language"] or UNKNOWN].add(row)
        if not row["steered"]:
            reason = str(row["reason"])
            reasons["match too low" if reason.startswith("match ") else reason] += 1
        if row["match"] is not None:
            entry = (-row["match"], -total, dict(row))
            (heapq.heappush if len(worst) < WORST else heapq.heappushpop)(worst, entry)
    failed = errors.total()
    return RunSummary(
        rows=total,
        answered=total - failed,
        steered=sum(group.steered for group in groups.values()),
        failed=failed,
        reasons=reasons,
        errors=errors,
        languages=dict(sorted(groups.items(), key=lambda pair: (-pair[1].rows, pair[0]))),
        worst=[row for _, _, row in sorted(worst, reverse=True)],
        failures=failures,
    )


_CSS = """\
main { max-width: 60rem; }
h1 { margin: 0 0 1rem; font-weight: 600; overflow-wrap: anywhere; }
h2 { margin: 2.5rem 0 .75rem; font-size: 1.2rem; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums;
  font-size: .9375rem; }
th, td { padding: .35rem .75rem; text-align: right; font-weight: 400; vertical-align: middle; }
th[scope=row], thead th:first-child, .text { text-align: left; }
thead th { color: var(--faint); font-size: .875rem; }
tbody { border-top: 1px solid var(--line); }
.figures { display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; margin: 0; }
.figures dd { margin: 0; font-size: 1.5rem; font-variant-numeric: tabular-nums; }
.pair { margin: 0 0 1rem; padding: 1rem; }
.pair p { margin: .15rem 0; overflow-wrap: anywhere; }
svg { vertical-align: middle; } svg rect { fill: var(--accent); }
svg line { stroke: var(--ink); stroke-dasharray: 2 2; }
"""


def write_run_report(
    summary: RunSummary,
    path: Path,
    *,
    title: str,
    settings: Mapping[str, Any],
    threshold: float | None,
    seconds: float | None,
    heatmaps: Mapping[Any, AlignmentView] | None = None,
) -> None:
    """Write a page that needs nothing from outside.

    Parameters
    ----------
    summary : RunSummary
        Of the run.
    path : Path
        HTML file.
    title : str
        Above the page.
    settings : mapping
        Of the run.
    threshold : float, optional
        The least match that was steered; drawn into the histograms.
    seconds : float, optional
        How long the run took.
    heatmaps : mapping of id to AlignmentView, optional
        Alignments of the worst rows.
    """
    parts = [
        f"<h1>{escape(title)}</h1>",
        _figures(summary, seconds),
        _languages(summary, threshold),
        _counts("Not steered", "reason", summary.reasons),
        _counts("Failed", "error", summary.errors),
        _worst(summary, heatmaps or {}),
        _failures(summary),
        _settings(settings),
    ]
    write_atomically(path, html_page(title, _CSS, "\n".join(filter(None, parts)) + "\n"))


def _figures(summary: RunSummary, seconds: float | None) -> str:
    shown = {"rows": f"{summary.rows}", "steered": _share(summary.steered, summary.answered)}
    shown |= {"failed": f"{summary.failed}"}
    if seconds:
        shown["rows a second"] = f"{summary.rows / seconds:.1f}"
    pairs = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in shown.items())
    return f'<dl class="figures">{pairs}</dl>'


def _languages(summary: RunSummary, threshold: float | None) -> str:
    rows = ""
    for code, group in summary.languages.items():
        name = LANGUAGE_NAMES.get(code, code)
        rows += (
            f'<tr><th scope="row">{escape(name)}</th><td>{group.rows}</td>'
            f"<td>{_share(group.steered, group.rows)}</td><td>{_number(group.mean('match'))}</td>"
            f"<td>{_number(group.mean('interpolation'))}</td>"
            f'<td class="text">{_histogram(name, group, threshold)}</td></tr>\n'
        )
    if not rows:
        return ""
    columns = ("language", "rows", "steered", "match", "interpolation", "match, 0 to 1")
    header = "".join(f'<th scope="col">{column}</th>' for column in columns)
    return f"""<h2>Languages</h2>
<div class="card"><table><thead><tr>{header}</tr></thead><tbody>
{rows}</tbody></table></div>"""


def _histogram(name: str, group: Group, threshold: float | None) -> str:
    """Draw the rows by match, with the least that was steered."""
    width, height, most = 8, 32, max(group.histogram)
    if not most:
        return ""
    bars = "".join(
        f'<rect x="{width * at}" y="{height - tall:.1f}" width="{width - 1}" height="{tall:.1f}"/>'
        for at, count in enumerate(group.histogram)
        if (tall := height * count / most)
    )
    line = ""
    if threshold:
        at = threshold * width * BINS
        line = f'<line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{height}"/>'
    label = escape(f"Match of {name}: {group.histogram} rows in steps of {1 / BINS}", quote=True)
    size = f'width="{width * BINS}" height="{height}"'
    return f'<svg role="img" aria-label="{label}" {size}>{bars}{line}</svg>'


def _counts(title: str, what: str, counts: Counter[str]) -> str:
    if not counts:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{count}</td></tr>\n'
        for name, count in counts.most_common(FAILED)
    )
    return f"""<h2>{title}</h2>
<div class="card"><table>
<thead><tr><th scope="col">{what}</th><th scope="col">rows</th></tr></thead><tbody>
{rows}</tbody></table></div>"""


def _worst(summary: RunSummary, heatmaps: Mapping[Any, AlignmentView]) -> str:
    if not summary.worst:
        return ""
    cards = ""
    for row in summary.worst:
        state = "steered" if row["steered"] else str(row["reason"])
        lines = "".join(
            f'<p dir="auto">{escape(str(row[key] or ""))}</p>'
            for key in ("prompt", "english", "answer")
        )
        view = heatmaps.get(row["id"])
        picture = "" if view is None else heatmap_html(view)
        cards += f"""<div class="card pair">
<p class="note">{escape(str(row["id"]))}: match {row["match"]:.2f}, {escape(state)}</p>
{lines}{picture}</div>
"""
    note = "Prompt, English and answer of the rows whose sides match least."
    return f'<h2>Worst matches</h2>\n<p class="note">{note}</p>\n{cards}'


def _failures(summary: RunSummary) -> str:
    if not summary.failures:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(str(row["id"]))}</th>'
        f'<td class="text" dir="auto">{escape(str(row["prompt"] or "")[:200])}</td>'
        f'<td class="text">{escape(row["error"])}</td></tr>\n'
        for row in summary.failures
    )
    header = "".join(
        f'<th scope="col" class="text">{name}</th>' for name in ("id", "prompt", "error")
    )
    return f"""<h2>Failed rows</h2>
<div class="card"><table><thead><tr>{header}</tr></thead><tbody>
{rows}</tbody></table></div>"""


def _settings(settings: Mapping[str, Any]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(str(name))}</th>'
        f'<td class="text">{escape(str(value))}</td></tr>\n'
        for name, value in settings.items()
    )
    return f"""<h2>Settings</h2>
<div class="card"><table><tbody>
{rows}</tbody></table></div>"""


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "none"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
