"""Evaluation results as tables (terminal, Markdown, LaTeX) and as a page that works offline."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import fmean
from typing import Any

from rich.table import Table
from rich.text import Text

from carot.errors import CarotError
from carot.reporting.demo_report import LANGUAGE_NAMES
from carot.reporting.plots import (
    ENGLISH,
    FAINT,
    INK,
    LINE,
    MEAN,
    SURFACE,
    Results,
    accuracy_figure,
    consistency_figure,
    fidelity_figure,
    layer_figure,
    methods_of,
    number,
    svg,
)

FORMAT = 1
SIGNIFICANT = 0.05
MISSING = "–"

_CONSISTENCY = {
    "RankC": "rankc",
    "CLC": "clc_all",
    "agreement": "agreement",
    "consistency": "consistency",
    "fidelity": "fidelity",
}

_ACCURACY_TITLE = "Right answers"
_CONSISTENCY_TITLE = "Consistency and fidelity"
_ACCURACY_NOTE = (
    "Right answers in percent, the best method of each column in bold; en is English itself, "
    "without a method. * Better than none with p < .05: one-sided exact McNemar test, "
    "Holm-corrected over the languages; the mean has one test of its own."
)
_CONSISTENCY_NOTE = (
    "In percent, means over languages. RankC: the same ranking of the candidates as in English; "
    "CLC: the same over all pairs of languages; agreement: the same answer as in English, right "
    "or wrong; consistency: right answers shared with English, of those right in either; "
    "fidelity: outputs in the language of the prompt."
)

_CSS = """
:root {
  color-scheme: light dark;
  --ink: #1c1917; --faint: #78716c; --page: #fafaf9; --surface: #fff; --line: #e7e5e4;
  --best: #c2560c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #f5f5f4; --faint: #a8a29e; --page: #0f0d0c; --surface: #1c1917; --line: #44403c;
    --best: #ffaa69;
  }
}
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, "Noto Sans", sans-serif;
}
main { max-width: 64rem; margin: 0 auto; padding: 3rem 1.25rem; }
h1 { margin: 0 0 1rem; font-size: 1.7rem; font-weight: 600; line-height: 1.35; }
h2 { margin: 3rem 0 .75rem; font-size: 1.2rem; font-weight: 600; }
h3 { margin: 1.75rem 0 .5rem; font-size: 1rem; font-weight: 600; }
p { margin: .5rem 0; }
.note, summary { max-width: 50rem; color: var(--faint); font-size: .875rem; }
.card { padding: .5rem 1.25rem; border: 1px solid var(--line); border-radius: 8px;
  background: var(--surface); overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums;
  font-size: .9375rem; }
th, td { padding: .3rem .5rem; text-align: right; font-weight: 400; white-space: nowrap; }
thead th { padding-right: calc(.5rem + .6em); color: var(--faint); font-size: .875rem; }
th.name { text-align: left; vertical-align: top; }
thead th.name:first-child, th.run:first-child { padding-left: 0; }
th.run { min-width: 6rem; white-space: normal; overflow-wrap: anywhere; }
tbody { border-top: 1px solid var(--line); }
td b { color: var(--best); font-weight: 600; }
.mark { display: inline-block; width: .6em; text-align: left; color: var(--faint); }
figure { margin: 0; }
svg { display: block; max-width: 100%; height: auto; margin: .5rem auto; }
pre { margin: .5rem 0; font-size: .8125rem; white-space: pre-wrap; overflow-wrap: anywhere; }
"""


@dataclass(frozen=True)
class _Cell:
    share: float | None
    significant: bool = False
    best: bool = False
    hint: str = ""

    @property
    def text(self) -> str:
        return MISSING if self.share is None else f"{100 * self.share:.1f}"


@dataclass(frozen=True)
class _Run:
    """One result in a table: a row of cells for each method."""

    model: str
    task: str
    rows: dict[str, list[_Cell]]


@dataclass(frozen=True)
class _Grid:
    title: str
    note: str
    columns: list[str]
    runs: list[_Run]


def _checked(list_of_results: Sequence[Results]) -> list[Results]:
    if not list_of_results:
        raise CarotError("no results to report; expected one evaluation or more")
    for results in list_of_results:
        if results.get("format") != FORMAT:
            raise CarotError(
                f"results of format {results.get('format')!r}; this version of carot reads format "
                f"{FORMAT}: run the evaluation again, or report with the version that wrote them"
            )
    return list(list_of_results)


def _grids(list_of_results: Sequence[Results]) -> list[_Grid]:
    return [_accuracy_grid(list_of_results), _consistency_grid(list_of_results)]


def _accuracy_grid(list_of_results: Sequence[Results]) -> _Grid:
    languages = list(
        dict.fromkeys(name for results in list_of_results for name in results["languages"])
    )
    english = any(
        number(results, "none", ENGLISH, "accuracy") is not None for results in list_of_results
    )
    columns = [ENGLISH] * english + [name for name in languages if name != ENGLISH] + [MEAN]
    runs = _runs(list_of_results, columns, _accuracy_cell)
    return _Grid(_ACCURACY_TITLE, _ACCURACY_NOTE, columns, runs)


def _consistency_grid(list_of_results: Sequence[Results]) -> _Grid:
    columns = list(_CONSISTENCY)
    runs = _runs(list_of_results, columns, _consistency_cell)
    return _Grid(_CONSISTENCY_TITLE, _CONSISTENCY_NOTE, columns, runs)


def _runs(
    list_of_results: Sequence[Results],
    columns: Sequence[str],
    cell: Callable[[Results, str, str], _Cell],
) -> list[_Run]:
    runs = []
    for results, (model, task) in zip(list_of_results, _names(list_of_results), strict=True):
        rows = {
            method: [cell(results, method, column) for column in columns]
            for method in methods_of(results)
        }
        runs.append(_Run(model, task, _with_best(rows, columns)))
    return runs


def _names(list_of_results: Sequence[Results]) -> list[tuple[str, str]]:
    """Model and task of each; the second run of the same two is ``#2``."""
    seen: Counter[tuple[str, str]] = Counter()
    names = []
    for results in list_of_results:
        model, task = str(results["model"]["name"]), str(results["task"])
        seen[model, task] += 1
        count = seen[model, task]
        names.append((model, task if count == 1 else f"{task} #{count}"))
    return names


def _accuracy_cell(results: Results, method: str, language: str) -> _Cell:
    metrics = results["metrics"].get(method, {}).get(language, {})
    p = metrics.get("p_holm")
    if p is None and language == MEAN:
        p = metrics.get("p")
    hints = []
    if metrics.get("accuracy_interval"):
        low, high = metrics["accuracy_interval"]
        hints.append(f"{100 * low:.1f} to {100 * high:.1f}")
    if p is not None:
        hints.append(f"p = {p:.2g}")
    share = number(results, method, language, "accuracy")
    return _Cell(share, p is not None and p < SIGNIFICANT, hint="; ".join(hints))


def _consistency_cell(results: Results, method: str, column: str) -> _Cell:
    metric = _CONSISTENCY[column]
    share = number(results, method, MEAN, metric)
    if share is None:
        values = [number(results, method, language, metric) for language in results["languages"]]
        known = [value for value in values if value is not None]
        # A mean of some languages only would not compare with that of all.
        share = fmean(known) if known and len(known) == len(values) else None
    return _Cell(share)


def _with_best(rows: Mapping[str, list[_Cell]], columns: Sequence[str]) -> dict[str, list[_Cell]]:
    """Mark the best cells of each column, as rounded; nothing to choose from has no best."""
    best = {}
    for index, column in enumerate(columns):
        texts = [cells[index].text for cells in rows.values() if cells[index].share is not None]
        if column != ENGLISH and len(set(texts)) > 1:
            best[index] = max(texts, key=float)
    return {
        method: [
            _Cell(cell.share, cell.significant, cell.text == best.get(index), cell.hint)
            for index, cell in enumerate(cells)
        ]
        for method, cells in rows.items()
    }


def results_table(results: Results) -> Table:
    """Return one evaluation as a table for the terminal.

    Parameters
    ----------
    results : dict
        One evaluation; its accuracies are shares.

    Returns
    -------
    rich.table.Table
        A row for each method: accuracy in percent in each language, its mean, and mean RankC.
    """
    [results] = _checked([results])
    grid = _accuracy_grid([results])
    rankc = _consistency_grid([results]).runs[0].rows
    [(model, task)] = _names([results])
    table = Table(
        title=Text(f"{model}, {task}: right answers, in %"),
        title_justify="left",
        caption=Text(f"* better than none, p < {SIGNIFICANT} (McNemar, Holm)"),
        caption_justify="left",
    )
    table.add_column("method")
    for column in [*grid.columns, "RankC"]:
        table.add_column(Text(column), justify="right", no_wrap=True)
    for method, cells in grid.runs[0].rows.items():
        table.add_row(Text(method), *map(_rich_cell, [*cells, rankc[method][0]]))
    return table


def _rich_cell(cell: _Cell) -> Text:
    mark = "*" if cell.significant else " "  # The digits stay below each other.
    return Text(cell.text + mark, style="bold" if cell.best else "")


def markdown_table(list_of_results: Sequence[Results]) -> str:
    """Return evaluations as two Markdown tables: accuracy; consistency and fidelity.

    Parameters
    ----------
    list_of_results : sequence of dict
        Of several tasks, models or runs; all their languages are columns.

    Returns
    -------
    str
        A row for each model, task and method. What is missing is ``–``.

    Raises
    ------
    CarotError
        When there are no results, or they are of another format.
    """
    return "\n".join(_markdown_grid(grid) for grid in _grids(_checked(list_of_results)))


def _markdown_grid(grid: _Grid) -> str:
    header = ["model", "task", "method", *grid.columns]
    lines = [f"**{grid.title}**", "", _markdown_row(map(_markdown, header))]
    lines.append(_markdown_row(["---"] * 3 + ["---:"] * len(grid.columns)))
    for run in grid.runs:
        for method, cells in run.rows.items():
            names = map(_markdown, (run.model, run.task, method))
            lines.append(_markdown_row([*names, *map(_markdown_cell, cells)]))
    return "\n".join([*lines, "", _markdown(grid.note), ""])


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(cell: _Cell) -> str:
    text = f"**{cell.text}**" if cell.best else cell.text
    return text + r"\*" * cell.significant


def _markdown(text: str) -> str:
    """Escape what Markdown would read; an underscore within a word means nothing to it."""
    escaped = re.sub(r"([\\`*|<>\[\]])", r"\\\1", " ".join(text.split()))
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", escaped)


def latex_table(list_of_results: Sequence[Results]) -> str:
    r"""Return evaluations as two LaTeX ``tabular``: accuracy; consistency and fidelity.

    Parameters
    ----------
    list_of_results : sequence of dict
        Of several tasks, models or runs; all their languages are columns.

    Returns
    -------
    str
        To be put into ``table`` environments; needs ``\usepackage{booktabs}``.

    Raises
    ------
    CarotError
        When there are no results, or they are of another format.
    """
    return "\n".join(_latex_grid(grid) for grid in _grids(_checked(list_of_results)))


def _latex_grid(grid: _Grid) -> str:
    header = " & ".join(map(_latex, ["model", "task", "method", *grid.columns]))
    lines = [
        f"% {_latex(grid.title)}; needs \\usepackage{{booktabs}}",
        f"% {_latex(grid.note)}",
        f"\\begin{{tabular}}{{lll{'r' * len(grid.columns)}}}",
        "\\toprule",
        f"{header} \\\\",
    ]
    for run in grid.runs:
        lines.append("\\midrule")
        names = [_latex(run.model), _latex(run.task)]
        for method, cells in run.rows.items():
            row = [*names, _latex(method), *map(_latex_cell, cells)]
            lines.append(f"{' & '.join(row)} \\\\")
            names = ["", ""]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def _latex_cell(cell: _Cell) -> str:
    text = cell.text.replace(MISSING, "--")
    return (rf"\textbf{{{text}}}" if cell.best else text) + "$^{*}$" * cell.significant


_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in " ".join(text.split()))


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
    checked = _checked(list_of_results)
    names = [f"{model}, {task}" for model, task in _names(checked)]
    title = f"Evaluation: {escape('; '.join(names))}"
    sections = "".join(
        _section(results, name, f"run{index}")
        for index, (results, name) in enumerate(zip(checked, names, strict=True))
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{_CSS}</style>
</head>
<body>
<main>
<h1>Evaluation</h1>
{"".join(map(_headline, checked, names))}
{"".join(map(_html_grid, _grids(checked)))}
{sections}{"" if sweep is None else _sweep_section(sweep)}
</main>
</body>
</html>
"""


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
    before, after = (_Cell(number(results, one, MEAN, "accuracy")) for one in ("none", method))
    change = float(after.text) - float(before.text)
    direction = "up from" if change > 0 else "down from" if change < 0 else "the same as"
    count = len(results["languages"])
    languages = f"on average over {count} languages" if count != 1 else "in one language"
    return (
        f"<p>{escape(name)}: with {escape(method)} <strong>{after.text} %</strong> right "
        f"{languages}, {direction} {before.text} % without.</p>\n"
    )


def _html_grid(grid: _Grid) -> str:
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


def _html_run(run: _Run) -> str:
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


def _html_cell(cell: _Cell) -> str:
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
