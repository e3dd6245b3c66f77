"""The plot of consistency between languages: matrices before, after, and their change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
