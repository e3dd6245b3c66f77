"""The plot of consistency between languages: matrices before, after, and their change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from carot.errors import CarotError
from carot.reporting.figures import INK, SURFACE, make_plain, new_figure, write_image
from carot.reporting.results import ENGLISH, Results

_Matrix = list[list[float | None]]

_PALE, _FULL, _COOL, _CELL_INK = "#fff4eb", "#ec7018", "#5b9bc8", "#140e0a"


def consistency_figure(results: Results, before: str, after: str) -> Any:
    """Return the figure that :func:`consistency_plot` writes."""
    pairs = results.get("pairs", {})
    for method in (before, after):
        if not pairs.get(method):
            expected = ", ".join(name for name, values in pairs.items() if values) or "none"
            raise CarotError(
                f"no consistency between languages for the method {method!r}; there is: {expected}"
            )
    languages = _paired_languages(results, pairs[before])
    old, new = (_matrix(pairs[method], languages) for method in (before, after))
    change = [list(map(_minus, *rows)) for rows in zip(new, old, strict=True)]
    known = _known(old) + _known(new)
    span = max(map(abs, _known(change)), default=0) or 0.01
    panels = (
        (f"RankC: {before}", old, (min(known), max(known))),
        (f"RankC: {after}", new, (min(known), max(known))),
        ("change (points)", change, (-span, span)),
    )
    side = max(0.36 * len(languages), 1.6)
    figure = new_figure(3 * (side + 0.55), side + 0.7)
    spacing = {"left": 0.05, "right": 0.99, "wspace": 0.22, "bottom": 0.12, "top": 0.86}
    every_axes = figure.subplots(1, 3, gridspec_kw=spacing)
    for axes, (title, matrix, limits) in zip(every_axes, panels, strict=True):
        _heatmap(axes, matrix, languages, limits, signed=matrix is change)
        axes.set_title(title, fontsize=9.5, color=INK, pad=7)
    return figure


def _paired_languages(results: Results, pairs: Mapping[str, float]) -> list[str]:
    every = list(dict.fromkeys([ENGLISH, *results["languages"]]))
    return [one for one in every if any(_pair(pairs, one, other) is not None for other in every)]


def _known(matrix: _Matrix) -> list[float]:
    return [value for row in matrix for value in row if value is not None]


def _minus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _pair(pairs: Mapping[str, float], one: str, other: str) -> float | None:
    return pairs.get(f"{one}-{other}", pairs.get(f"{other}-{one}"))


def _matrix(pairs: Mapping[str, float], languages: Sequence[str]) -> _Matrix:
    return [[_pair(pairs, one, other) for other in languages] for one in languages]


def _heatmap(
    axes: Any,
    matrix: _Matrix,
    languages: Sequence[str],
    limits: tuple[float, float],
    *,
    signed: bool,
) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    ends = [_COOL, "#ffffff", _FULL] if signed else [_PALE, _FULL]
    scale = LinearSegmentedColormap.from_list("carot", ends)
    values = [[float("nan") if value is None else value for value in row] for row in matrix]
    axes.pcolormesh(
        values, cmap=scale, vmin=limits[0], vmax=limits[1], edgecolor=SURFACE, linewidth=1.5
    )
    for row, cells in enumerate(matrix):
        for column, value in enumerate(cells):
            if value is not None:
                percent = round(100 * value)
                text = f"{percent:+d}".replace("-", "−") if signed and percent else str(percent)
                axes.text(
                    column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=7.5,
                    color=_CELL_INK,
                )  # fmt: skip
    axes.set_aspect("equal")
    axes.invert_yaxis()
    middles = [index + 0.5 for index in range(len(languages))]
    axes.set_xticks(middles, languages)
    axes.set_yticks(middles, languages)
    make_plain(axes)


def consistency_plot(results: Results, before: str, after: str, path: Path) -> None:
    """Write the RankC of all pairs of languages: before, after, and the change.

    Parameters
    ----------
    results : dict
        One evaluation.
    before, after : str
        Two of its methods.
    path : Path
        Its suffix says the format: png or svg. Folders are made where missing.

    Raises
    ------
    CarotError
        When the suffix is neither, or a method has no such pairs.
    """
    write_image(consistency_figure(results, before, after), path)


BEFORE, AFTER = "before", "after"


def before_and_after(earlier: Results, later: Results) -> Results:
    """Return results whose ``pairs`` are those of one model before and after training.

    Raises
    ------
    CarotError
        When the two asked other questions.
    """
    for key in ("task", "languages"):
        if earlier[key] != later[key]:
            raise CarotError(
                f"results of {key} {earlier[key]} and of {later[key]}; expected the same questions"
            )
    asked = [
        {(row["id"], row["language"]) for row in results["predictions"] if row["method"] == "none"}
        for results in (earlier, later)
    ]
    if asked[0] != asked[1]:
        raise CarotError("the two results have other questions; evaluate with the same draw")
    pairs = {BEFORE: earlier["pairs"]["none"], AFTER: later["pairs"]["none"]}
    return {**later, "pairs": pairs}


def model_plot(results: Results, path: Path) -> None:
    """Write the RankC of all pairs of languages of an unsteered model.

    With results of :func:`before_and_after` three matrices, as :func:`consistency_plot` has them.
    """
    pairs = results["pairs"]
    if BEFORE in pairs:
        consistency_plot(results, BEFORE, AFTER, path)
        return
    languages = _paired_languages(results, pairs["none"])
    matrix = _matrix(pairs["none"], languages)
    known = _known(matrix) or [0.0]
    side = max(0.36 * len(languages), 1.6)
    figure = new_figure(side + 0.55, side + 0.7)
    axes = figure.subplots()
    _heatmap(axes, matrix, languages, (min(known), max(known)), signed=False)
    axes.set_title("RankC", fontsize=9.5, color=INK, pad=7)
    write_image(figure, path)


def matrix_table(results: Results, earlier: Results | None = None) -> Table:
    """Return accuracy and RankC of all pairs of languages, for the terminal, in percent.

    With earlier results of the same questions, the change stands behind each figure.
    """
    if earlier is not None:
        before_and_after(earlier, results)
    pairs = results["pairs"]["none"]
    languages = _paired_languages(results, pairs)
    table = Table(title=f"{results['task']}: right answers and RankC, in %", title_justify="left")
    table.add_column("")
    for column in ("right", *languages):
        table.add_column(column, justify="right", no_wrap=True)

    def cell(value: float | None, old: float | None) -> str:
        if value is None:
            return ""
        change = "" if earlier is None or old is None else f" ({100 * (value - old):+.1f})"
        return f"{100 * value:.1f}{change}"

    def right(source: Results | None, language: str) -> float | None:
        return None if source is None else source["metrics"]["none"][language]["accuracy"]

    old_pairs = {} if earlier is None else earlier["pairs"]["none"]
    for one in languages:
        values = [
            cell(_pair(pairs, one, other), _pair(old_pairs, one, other)) for other in languages
        ]
        table.add_row(one, cell(right(results, one), right(earlier, one)), *values)
    whole = results["metrics"]["none"]["mean"]["clc_all"]
    old = None if earlier is None else earlier["metrics"]["none"]["mean"]["clc_all"]
    table.caption = f"clc_all, the mean over all pairs: {cell(whole, old)}"
    table.caption_justify = "left"
    return table
