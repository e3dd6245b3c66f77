"""A run of ``carot generate`` as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carot.alignment import Guard
from carot.files import write_atomically
from carot.reporting.heatmap import heatmap_html
from carot.reporting.page import LANGUAGE_NAMES, html_page
from carot.reporting.run_summary import BINS, Group, Row, RunSummary

if TYPE_CHECKING:
    from carot.models import AlignmentView

MOST_CHARACTERS, MOST_CELLS = 1000, 10_000
"""Shown of a text and of a heatmap."""

_CSS = """\
main { max-width: 60rem; }
h1 { margin: 0 0 1rem; font-weight: 600; overflow-wrap: anywhere; }
h2 { margin: 2.5rem 0 .75rem; font-size: 1.2rem; }
dd { margin: 0; overflow-wrap: anywhere; white-space: pre-line; }
.list { width: 100%; border-collapse: collapse; font-size: .9375rem; }
.list, .figures { font-variant-numeric: tabular-nums; }
.list th, .list td { padding: .35rem .75rem; text-align: right; font-weight: 400; }
.list thead th { color: var(--faint); font-size: .875rem; }
.list .text { min-width: 5rem; text-align: start; overflow-wrap: anywhere; }
.list tbody tr { border-top: 1px solid var(--line); }
.list svg { display: block; margin-left: auto; border-bottom: 1px solid var(--faint); }
.list rect { fill: var(--accent); } .list line { stroke: var(--ink); stroke-dasharray: 3 2; }
.figures { display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; }
.figures dd { font-size: 1.5rem; }
.pair { margin: 0 0 .75rem; padding: 1rem; }
.pair > .note { margin-top: 0; }
.sides { display: grid; grid-template-columns: 5rem 1fr; gap: .15rem .75rem; margin: .5rem 0; }
"""


def write_run_report(
    summary: RunSummary,
    path: Path,
    *,
    title: str,
    settings: Mapping[str, Any],
    guard: Guard,
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
    title, settings : str, mapping
        Of the run; shown.
    guard : Guard
        The least match that was steered; drawn into the histograms.
    seconds : float, optional
        How long the run took.
    heatmaps : mapping of id to AlignmentView, optional
        Alignments of the worst rows.
    """
    failures = [(row["id"], row["prompt"], row["error"]) for row in summary.failures]
    parts = [
        f"<h1>{escape(title)}</h1>",
        _figures(summary.total, seconds),
        _languages(summary, guard),
        _table("Not steered", 2, ["reason", "languages", "rows"], _reasons(summary)),
        _table("Failed", 1, ["error", "rows"], summary.total.errors.most_common()),
        _worst(summary, heatmaps or {}),
        _table("Failed rows", 3, ["id", "prompt", "error"], failures),
        _table("Settings", 2, ["setting", "value"], settings.items()),
    ]
    write_atomically(path, html_page(title, _CSS, "\n".join(filter(None, parts)) + "\n"))


def _figures(total: Group, seconds: float | None) -> str:
    shown = {"rows": str(total.rows), "steered": _share(total), "failed": str(total.failed)}
    if seconds:
        shown["rows a second"] = f"{total.rows / seconds:.1f}"
    pairs = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in shown.items())
    return f'<dl class="figures">{pairs}</dl>'


def _table(title: str, texts: int, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Make a table; its first columns are text, to be escaped, the others numbers or HTML."""
    kinds = ["text" if at < texts else "number" for at in range(len(columns))]
    header = "".join(
        f'<th scope="col" class="{kind}">{name}</th>'
        for kind, name in zip(kinds, columns, strict=True)
    )
    body = ""
    for first, *others in rows:
        cells = "".join(
            f'<td class="text" dir="auto">{_shown(cell)}</td>'
            if kind == "text"
            else f'<td class="number">{cell}</td>'
            for kind, cell in zip(kinds[1:], others, strict=True)
        )
        body += f'<tr><th scope="row" class="text">{_shown(first)}</th>{cells}</tr>\n'
    table = f"""<h2>{title}</h2>
<div class="card"><table class="list" aria-label="{title}">
<thead><tr>{header}</tr></thead><tbody>
{body}</tbody></table></div>"""
    return table if body else ""


def _languages(summary: RunSummary, guard: Guard) -> str:
    columns = ["language", "rows", "steered", "mean match", "mean interpolation", "match, 0 to 1"]
    every = 0.0 if guard.languages else guard.threshold  # One line for all languages, or none.
    named = [
        *((_name(code), group, guard.of(code)) for code, group in summary.languages.items()),
        ("all", summary.total, every),
    ]
    rows = [
        (
            name,
            group.rows,
            _share(group),
            _mean(group, "match"),
            _mean(group, "interpolation"),
            _histogram(name, group.histogram, least),
        )
        for name, group, least in named
    ]
    line = "; dashed, the least that was steered" if guard.is_on else ""
    note = f"Steered: of the rows that were answered. On the right, rows by match{line}."
    table = _table("Languages", 1, columns, rows)
    return f'{table}\n<p class="note">{note}</p>' if summary.languages else ""


def _histogram(name: str, histogram: list[int], least: float) -> str:
    """Draw the rows by match, with the least match that was steered."""
    step, height, most = 8, 32, max(histogram)
    bars, said, line = "", [], ""
    for at, count in enumerate(histogram):
        if count:
            tall = max(1.0, height * count / most)  # One row among thousands is still seen.
            where = f'x="{step * at}" y="{height - tall:.1f}"'
            bars += f'<rect {where} width="{step - 1}" height="{tall:.1f}"/>'
            said.append(f"{at / BINS:.2f} to {(at + 1) / BINS:.2f}: {count}")
    if not bars:
        return "–"
    if least > 0:
        x = f"{least * step * BINS:.1f}"
        line = f'<line x1="{x}" x2="{x}" y1="0" y2="{height}"/>'
        said.append(f"the least that was steered: {least:.2f}")
    label = escape(f"Rows of {name} by match. {'; '.join(said)}")
    size = f'width="{step * BINS}" height="{height}"'
    return f'<svg role="img" aria-label="{label}" {size}>{bars}{line}</svg>'


def _reasons(summary: RunSummary) -> list[Sequence[Any]]:
    """Return each reason, the languages that it is most frequent in, and its rows."""
    rows: list[Sequence[Any]] = []
    for reason, count in summary.total.reasons.most_common():
        by_language = Counter(
            {code: one.reasons[reason] for code, one in summary.languages.items()}
        )
        parts = [f"{_name(code)} {many}" for code, many in by_language.most_common(8) if many]
        rows.append((reason, ", ".join(parts), count))
    return rows


def _worst(summary: RunSummary, heatmaps: Mapping[Any, AlignmentView]) -> str:
    # Rows may share an id; which of them an alignment is of is then unknown.
    times = Counter(row["id"] for row in summary.worst)
    cards = "".join(
        _card(row, heatmaps.get(row["id"]) if times[row["id"]] == 1 else None)
        for row in summary.worst
    )
    return f"<h2>Worst matches</h2>\n{cards}" if cards else ""


def _card(row: Row, view: AlignmentView | None) -> str:
    state = "steered" if row["steered"] else f"not steered, {row['reason']}"
    lang = f' lang="{escape(row["language"] or "")}"'  # Empty: not the page's, and not known.
    sides = "".join(
        f'<dt>{key.title()}</dt><dd dir="auto"{"" if key == "english" else lang}>'
        f"{_shown(row[key])}</dd>"
        for key in ("prompt", "english", "answer")
    )
    picture = ""
    if view is not None and view.plan.numel() > MOST_CELLS:
        picture = '<p class="note">The alignment is too large to be shown.</p>'
    elif view is not None:
        picture = "" if row["steered"] else '<p class="note">Had it been steered:</p>'
        picture += f"<div{lang}>{heatmap_html(view)}</div>"
    return f"""<section class="card pair">
<p class="note">{_shown(row["id"])}: match {row["match"]:.2f}; {_shown(state)}</p>
<dl class="sides">{sides}</dl>
{picture}</section>
"""


def _shown(value: Any) -> str:
    """Escape a value of the data, cut where it is long."""
    text = "" if value is None else str(value)
    return escape(text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…")


def _name(code: str) -> str:
    return LANGUAGE_NAMES.get(code, code)


def _share(group: Group) -> str:
    return f"{100 * group.steered / group.answered:.1f} %" if group.answered else "–"


def _mean(group: Group, name: str) -> str:
    mean = group.mean(name)
    return "–" if mean is None else f"{mean:.2f}"
