"""Evaluation results as tables: terminal, Markdown, LaTeX; and the grids that they show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from carot.reporting.results import ENGLISH, MEAN, Results, checked, methods_of, names_of, number

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


@dataclass(frozen=True)
class Cell:
    """One number of a table."""

    share: float | None
    significant: bool = False
    best: bool = False
    hint: str = ""

    @property
    def text(self) -> str:
        """In percent, or the sign for what is missing."""
        return MISSING if self.share is None else f"{100 * self.share:.1f}"


@dataclass(frozen=True)
class Run:
    """One result in a table: a row of cells for each method."""

    model: str
    task: str
    rows: dict[str, list[Cell]]


@dataclass(frozen=True)
class Grid:
    """A table before it is rendered: the runs below the same columns."""

    title: str
    note: str
    columns: list[str]
    runs: list[Run]


def grids_of(list_of_results: Sequence[Results]) -> list[Grid]:
    """Return the grids of all results: accuracy; consistency and fidelity."""
    return [_accuracy_grid(list_of_results), _consistency_grid(list_of_results)]


def _accuracy_grid(list_of_results: Sequence[Results]) -> Grid:
    languages = list(
        dict.fromkeys(name for results in list_of_results for name in results["languages"])
    )
    english = any(
        number(results, "none", ENGLISH, "accuracy") is not None for results in list_of_results
    )
    columns = [ENGLISH] * english + [name for name in languages if name != ENGLISH] + [MEAN]
    runs = _runs(list_of_results, columns, _accuracy_cell)
    return Grid(_ACCURACY_TITLE, _ACCURACY_NOTE, columns, runs)


def _consistency_grid(list_of_results: Sequence[Results]) -> Grid:
    columns = list(_CONSISTENCY)
    runs = _runs(list_of_results, columns, _consistency_cell)
    return Grid(_CONSISTENCY_TITLE, _CONSISTENCY_NOTE, columns, runs)


def _runs(
    list_of_results: Sequence[Results],
    columns: Sequence[str],
    cell: Callable[[Results, str, str], Cell],
) -> list[Run]:
    runs = []
    for results, (model, task) in zip(list_of_results, names_of(list_of_results), strict=True):
        rows = {
            method: [cell(results, method, column) for column in columns]
            for method in methods_of(results)
        }
        runs.append(Run(model, task, _with_best(rows, columns)))
    return runs


def _accuracy_cell(results: Results, method: str, language: str) -> Cell:
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
    return Cell(share, p is not None and p < SIGNIFICANT, hint="; ".join(hints))


def _consistency_cell(results: Results, method: str, column: str) -> Cell:
    metric = _CONSISTENCY[column]
    share = number(results, method, MEAN, metric)
    if share is None:
        values = [number(results, method, language, metric) for language in results["languages"]]
        known = [value for value in values if value is not None]
        # A mean of some languages only would not compare with that of all.
        share = fmean(known) if known and len(known) == len(values) else None
    return Cell(share)


def _with_best(rows: Mapping[str, list[Cell]], columns: Sequence[str]) -> dict[str, list[Cell]]:
    """Mark the best cells of each column, as rounded; nothing to choose from has no best."""
    best = {}
    for index, column in enumerate(columns):
        texts = [cells[index].text for cells in rows.values() if cells[index].share is not None]
        if column != ENGLISH and len(set(texts)) > 1:
            best[index] = max(texts, key=float)
    return {
        method: [
            Cell(cell.share, cell.significant, cell.text == best.get(index), cell.hint)
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
    [results] = checked([results])
    grid = _accuracy_grid([results])
    rankc = _consistency_grid([results]).runs[0].rows
    [(model, task)] = names_of([results])
    table = Table(
        title=Text(f"{model}, {task}: right answers, in %"),
        title_justify="left",
        caption=Text(f"* better than none, p < {SIGNIFICANT} (McNemar, Holm)"),
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),  # ten columns fit into a terminal of 80
        pad_edge=False,
    )
    table.add_column("method", no_wrap=True)
    for column in [*grid.columns, "RankC"]:
        table.add_column(Text(column), justify="right", no_wrap=True)
    for method, cells in grid.runs[0].rows.items():
        table.add_row(Text(method), *map(_rich_cell, [*cells, rankc[method][0]]))
    return table


def _rich_cell(cell: Cell) -> Text:
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
    return "\n".join(_markdown_grid(grid) for grid in grids_of(checked(list_of_results)))


def _markdown_grid(grid: Grid) -> str:
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


def _markdown_cell(cell: Cell) -> str:
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
    return "\n".join(_latex_grid(grid) for grid in grids_of(checked(list_of_results)))


def _latex_grid(grid: Grid) -> str:
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


def _latex_cell(cell: Cell) -> str:
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
