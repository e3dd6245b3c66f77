"""Evaluation results as a page that works offline."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from carot.reporting.consistency import consistency_figure
from carot.reporting.figures import FAINT, INK, LINE, SURFACE, svg
from carot.reporting.page import LANGUAGE_NAMES, html_page
from carot.reporting.plots import accuracy_figure, fidelity_figure, layer_figure
from carot.reporting.results import MEAN, Results, checked, methods_of, names_of, number
from carot.reporting.tables import MISSING, Cell, Grid, Run, grids_of

_CSS = """\
main { max-width: 64rem; }
h1 { margin: 0 0 1rem; font-weight: 600; }
h2 { margin: 3rem 0 .75rem; font-size: 1.2rem; }
h3 { margin: 1.75rem 0 .5rem; font-size: 1rem; font-weight: 600; }
.note, summary { max-width: 50rem; }
.card { padding: .5rem 1.25rem; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums;
  font-size: .9375rem; }
th, td { padding: .3rem .5rem; text-align: right; font-weight: 400; white-space: nowrap; }
thead th { padding-right: calc(.5rem + .6em); color: var(--faint); font-size: .875rem; }
th.name { text-align: left; vertical-align: top; }
thead th.name:first-child, th.run:first-child { padding-left: 0; }
th.run { min-width: 6rem; white-space: normal; overflow-wrap: anywhere; }
tbody { border-top: 1px solid var(--line); }
td b { color: var(--accent); font-weight: 600; }
.mark { display: inline-block; width: .6em; text-align: left; color: var(--faint); }
figure { margin: 0; }
svg { display: block; max-width: 100%; height: auto; margin: .5rem auto; }
pre { margin: .5rem 0; font-size: .8125rem; white-space: pre-wrap; overflow-wrap: anywhere; }
"""


def html_report(
    list_of_results: Sequence[Results], *, sweep: Mapping[str, Any] | None = None
) -> str:
    """Return evaluations as an HTML page that needs nothing from outside.

    Parameters
    ----------
    list_of_results : sequence of dict
        Of several tasks, models or runs; all their languages are columns.
    sweep : dict, optional
        The sweep that chose their layers and settings: its ``rows`` are plotted, and what is
        ``chosen`` is told.

    Returns
    -------
    str
        The page, to be written as UTF-8: the tables, then plots and settings of each evaluation.
        It follows the reader's light or dark mode.

    Raises
    ------
    CarotError
        When there are no results, or they are of another format.
    """
    valid = checked(list_of_results)
    names = [f"{model}, {task}" for model, task in names_of(valid)]
    sections = "".join(
        _section(results, name, f"run{index}")
        for index, (results, name) in enumerate(zip(valid, names, strict=True))
    )
    body = f"""<h1>Evaluation</h1>
{"".join(map(_headline, valid, names))}
{"".join(map(_html_grid, grids_of(valid)))}
{sections}{"" if sweep is None else _sweep_section(sweep)}
"""
    return html_page(f"Evaluation: {'; '.join(names)}", _CSS, body)


def _best_method(results: Results) -> str | None:
    """The method with the best mean, to be compared with ``none``."""
    means = {
        method: mean
        for method in methods_of(results)
        if method != "none" and (mean := number(results, method, MEAN, "accuracy")) is not None
    }
    known = number(results, "none", MEAN, "accuracy") is not None
    return max(means, key=lambda method: means[method]) if means and known else None


def _headline(results: Results, name: str) -> str:
    method = _best_method(results)
    if method is None:
        return ""
    before, after = (Cell(number(results, one, MEAN, "accuracy")) for one in ("none", method))
    change = float(after.text) - float(before.text)
    direction = "up from" if change > 0 else "down from" if change < 0 else "the same as"
    count = len(results["languages"])
    languages = f"on average over {count} languages" if count != 1 else "in one language"
    return (
        f"<p>{escape(name)}: with {escape(method)} <strong>{after.text} %</strong> right "
        f"{languages}, {direction} {before.text} % without.</p>\n"
    )


def _html_grid(grid: Grid) -> str:
    header = "".join(
        f'<th scope="col"{_hint(LANGUAGE_NAMES.get(column, ""))}>{escape(column)}</th>'
        for column in grid.columns
    )
    return f"""<h2>{escape(grid.title)}</h2>
<div class="card"><table>
<thead><tr><th class="name" scope="col">model</th><th class="name" scope="col">task</th>
<th class="name" scope="col">method</th>{header}</tr></thead>
{"".join(map(_html_run, grid.runs))}</table></div>
<p class="note">{escape(grid.note)}</p>
"""


def _html_run(run: Run) -> str:
    names = "".join(
        f'<th class="name run" scope="rowgroup" rowspan="{len(run.rows)}">{escape(name)}</th>'
        for name in (run.model, run.task)
    )
    rows = []
    for method, cells in run.rows.items():
        values = "".join(map(_html_cell, cells))
        rows.append(f'<tr>{names}<th class="name" scope="row">{escape(method)}</th>{values}</tr>\n')
        names = ""
    return f"<tbody>\n{''.join(rows)}</tbody>\n"


def _html_cell(cell: Cell) -> str:
    text = f"<b>{cell.text}</b>" if cell.best else cell.text
    mark = f'<span class="mark">{"*" * cell.significant}</span>'
    return f"<td{_hint(cell.hint)}>{text}{mark}</td>"


def _hint(text: str) -> str:
    return f' title="{escape(text)}"' if text else ""


def _section(results: Results, name: str, key: str) -> str:
    plots = [("Accuracy with 95 % intervals", accuracy_figure(results))]
    method, pairs = _best_method(results), results.get("pairs", {})
    if method and pairs.get("none") and pairs.get(method):
        figure = consistency_figure(results, "none", method)
        plots.append(("Consistency between all languages", figure))
    if any(
        number(results, method, language, "fidelity") is not None
        for method in methods_of(results)
        for language in results["languages"]
    ):
        plots.append(("Fidelity against accuracy", fidelity_figure(results)))
    figures = "".join(
        f'<h3>{title}</h3>\n<figure class="card">{_inline(figure, f"{key}-{index}", title)}'
        "</figure>\n"
        for index, (title, figure) in enumerate(plots)
    )
    return f"<h2>{escape(name)}</h2>\n{figures}{_foot(results)}"


def _sweep_section(sweep: Mapping[str, Any]) -> str:
    chosen = "".join(
        f"<p>{escape(method)}: {escape(_plain(settings))}</p>\n"
        for method, settings in sweep.get("chosen", {}).items()
    )
    figure = _inline(layer_figure(sweep["rows"]), "sweep", "Accuracy by layer")
    return f"""<h2>How layers and settings were chosen</h2>
<figure class="card">{figure}</figure>
<p class="note">Tried on other questions than those above.</p>
{chosen}"""


def _plain(settings: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{key} {', '.join(map(str, value)) or MISSING if isinstance(value, list) else value}"
        for key, value in settings.items()
    )


def _foot(results: Results) -> str:
    skipped = "; ".join(
        f"{language} {sum(reasons.values())} ({', '.join(reasons)})"
        for language, reasons in results.get("skipped", {}).items()
        if reasons
    )
    line = f"{results['items']} questions in each language; left out: {skipped or 'none'}."
    keys = ("model", "settings", "seed", "versions", "skipped")
    shown = {key: results[key] for key in keys if key in results}
    settings = json.dumps(shown, indent=2, ensure_ascii=False, default=str)
    return (
        f'<p class="note">{escape(line)}</p>\n<details><summary>Settings</summary>'
        f"<pre>{escape(settings)}</pre></details>\n"
    )


def _inline(figure: Any, key: str, label: str) -> str:
    """SVG as a part of the page: no namespaces, no metadata, and the page's own colours."""
    text = svg(figure, key).decode()
    text = text[text.index("<svg") :].replace("xlink:href", "href")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    text = re.sub(r' id="([^"]+)"', lambda match: match[0] if match[1] in used else "", text)
    for colour, variable in ((INK, "--ink"), (FAINT, "--faint"), (LINE, "--line")):
        text = text.replace(f": {colour}", f": var({variable})")
    text = text.replace(f"stroke: {SURFACE}", "stroke: var(--surface)")
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)
