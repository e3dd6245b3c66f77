"""Plots of evaluation results: accuracy, layers, consistency between languages, fidelity.

Each plot has two functions: one makes the matplotlib figure, which a notebook shows, and one
writes it to a file. Neither touches pyplot.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import Any

from carot.errors import CarotError
from carot.files import write_atomically

Results = Mapping[str, Any]
"""One evaluation, as it is written to JSON."""

_Matrix = list[list[float | None]]

IMAGE_FORMATS = ("png", "svg")
ENGLISH = "en"
MEAN = "mean"

INK, FAINT, LINE, SURFACE = "#1c1917", "#78716c", "#e7e5e4", "#ffffff"
_PALE, _FULL, _COOL, _CELL_INK = "#fff4eb", "#ec7018", "#5b9bc8", "#140e0a"
_DASHES = (0, (4, 3))
_SWEEP_KEYS = frozenset(("setup", "method", "layers", "language", "accuracy"))
"""Of a row of a sweep; all others are settings."""

_COLOURS = {
    "none": "#a8a29e",
    "carot": "#d95f0e",
    "no_leace": "#c79a00",
    "no_filter": "#b5536b",
    "last_token": "#8a6fc0",
    "lang_vec": "#2f7fb8",
    "mlrs": "#2a9d76",
}
_OTHER_COLOURS = ("#7a5c3e", "#4c6a92", "#a23b72", "#5f7f2e", "#3f8f9b")
_MARKERS = {
    "none": "o",
    "carot": "D",
    "no_leace": "v",
    "no_filter": "^",
    "last_token": "P",
    "lang_vec": "s",
    "mlrs": "X",
}


def method_styles(methods: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return colour and marker of each method; the known ones have their own everywhere."""
    others = cycle(_OTHER_COLOURS)
    return {
        method: {
            "color": _COLOURS.get(method) or next(others),
            "marker": _MARKERS.get(method, "*"),
        }
        for method in methods
    }


def methods_of(results: Results) -> list[str]:
    """Return the methods in their order, those without numbers among them."""
    return list(dict.fromkeys([*results["methods"], *results["metrics"]]))


def number(results: Results, method: str, language: str, metric: str) -> float | None:
    """Return one number, or None where it is not there."""
    value = results["metrics"].get(method, {}).get(language, {}).get(metric)
    return None if value is None else float(value)


def accuracy_figure(results: Results) -> Any:
    """Return the figure that :func:`accuracy_plot` writes."""
    languages = [*results["languages"], MEAN]
    methods = [method for method in methods_of(results) if results["metrics"].get(method)]
    figure = _new_figure(7.5, 0.9 + len(languages) * max(0.34, 0.125 * len(methods)))
    axes = figure.add_subplot()
    for index, (method, style) in enumerate(method_styles(methods).items()):
        offset = 0.8 * (index + 0.5) / len(methods) - 0.4
        _draw_dots(axes, results, method, languages, offset, style)
    english = number(results, "none", ENGLISH, "accuracy")
    if english is not None:
        axes.axvline(100 * english, color=INK, linewidth=1, linestyle=_DASHES, label="English")
    for row in range(len(languages) - 1):
        axes.axhline(row + 0.5, color=LINE, linewidth=2 if row == len(languages) - 2 else 0.8)
    axes.set_ylim(len(languages) - 0.5, -0.5)
    axes.set_yticks(range(len(languages)), languages)
    axes.set_xlabel("right answers (%)")
    _legend(axes, len(methods) + (english is not None))
    _plain(axes, grid="x")
    return figure


def _draw_dots(
    axes: Any,
    results: Results,
    method: str,
    languages: Sequence[str],
    offset: float,
    style: Mapping[str, str],
) -> None:
    x, y = [], []
    for row, language in enumerate(languages):
        share = number(results, method, language, "accuracy")
        if share is None:
            continue
        x.append(100 * share)
        y.append(row + offset)
        interval = results["metrics"][method][language].get("accuracy_interval")
        if interval:
            ends = [100 * end for end in interval]
            axes.plot(ends, [y[-1]] * 2, color=style["color"], linewidth=1.2)
    axes.plot(x, y, linestyle="", markersize=5, label=method, zorder=3, **style)


def accuracy_plot(results: Results, path: Path) -> None:
    """Write accuracy by language and method: a dot each, with its interval.

    Parameters
    ----------
    results : dict
        One evaluation.
    path : Path
        Its suffix says the format: png or svg. Folders are made where missing.

    Raises
    ------
    CarotError
        When the suffix is neither.
    """
    _write(accuracy_figure(results), path)


def layer_figure(sweep_rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return the figure that :func:`layer_plot` writes."""
    best = _best_by_layers(sweep_rows)
    places = _layer_places([layers for _, layers in best])
    figure = _new_figure(7.5, 3.8)
    axes = figure.add_subplot()
    methods = list(dict.fromkeys(method for method, _ in best))
    for method, style in method_styles(methods).items():
        y = {layers: 100 * value for (name, layers), value in best.items() if name == method}
        label = method
        if () in y:  # Without layers of its own: the same everywhere.
            axes.axhline(y[()], color=style["color"], linestyle=_DASHES, label=label)
            label = "_"  # Named once in the legend.
        singles = [layers for layers in places if layers in y and len(layers) == 1]
        sets = [layers for layers in places if layers in y and len(layers) > 1]
        for group, linestyle in ((singles, "-"), (sets, "")):
            if group:
                x = [places[layers] for layers in group]
                heights = [y[layers] for layers in group]
                axes.plot(x, heights, linestyle=linestyle, markersize=5, label=label, **style)
                label = "_"
    names = [textwrap.fill(", ".join(map(str, layers)), 9) for layers in places]
    axes.set_xticks(list(places.values()), names)
    axes.set_xlabel("layers")
    axes.set_ylabel("right answers (%)\nmean over languages, best setting")
    _legend(axes, len(methods))
    _plain(axes, grid="y")
    return figure


def _layer_places(all_layers: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], float]:
    """Where layers stand on the axis: single ones in scale, sets of them evenly to the right."""
    ordered = sorted(set(all_layers), key=lambda layers: (len(layers), layers))
    singles = [layers for layers in ordered if len(layers) == 1]
    sets = [layers for layers in ordered if len(layers) > 1]
    first, last = (singles[0][0], singles[-1][0]) if singles else (0, 0)
    gap = max((last - first) / 8, 1.5)
    places: dict[tuple[int, ...], float] = {layers: layers[0] for layers in singles}
    return places | {layers: last + gap * (index + 1) for index, layers in enumerate(sets)}


def _best_by_layers(
    rows: Sequence[Mapping[str, Any]],
) -> dict[tuple[str, tuple[int, ...]], float]:
    """Mean over languages of each setting, then the best one. Settings lacking one are out."""
    settings: dict[tuple[str, tuple[int, ...], str], dict[str, float]] = {}
    for row in rows:
        others = {key: value for key, value in row.items() if key not in _SWEEP_KEYS}
        key = (row["method"], tuple(row["layers"]), repr(sorted(others.items())))
        settings.setdefault(key, {})[row["language"]] = float(row["accuracy"])
    languages = {row["language"] for row in rows}
    best: dict[tuple[str, tuple[int, ...]], float] = {}
    for (method, layers, _), accuracies in settings.items():
        if set(accuracies) == languages:
            mean = fmean(accuracies.values())
            best[method, layers] = max(mean, best.get((method, layers), mean))
    if not best:
        raise CarotError(
            f"layer_plot: {len(rows)} rows, and no setting has all of the languages; expected rows "
            "with method, layers, language and accuracy"
        )
    return best


def layer_plot(sweep_rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write accuracy by layer: a line for each method, mean over languages, best setting.

    Parameters
    ----------
    sweep_rows : sequence of dict
        Of ``method``, ``layers`` (a list), ``language``, ``accuracy`` and settings such as
        ``theta``; the best of them is shown. Several layers at once stand to the right of the
        single ones. What was not run in all languages is left out: its mean would not compare.
    path : Path
        Its suffix says the format: png or svg. Folders are made where missing.

    Raises
    ------
    CarotError
        When the suffix is neither, or there is nothing to draw.
    """
    _write(layer_figure(sweep_rows), path)


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
    figure = _new_figure(3 * (side + 0.55), side + 0.7)
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
    _plain(axes)


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
    _write(consistency_figure(results, before, after), path)


def fidelity_figure(results: Results) -> Any:
    """Return the figure that :func:`fidelity_plot` writes."""
    figure = _new_figure(7.5, 5)
    axes = figure.add_subplot()
    points = {
        method: [
            (100 * accuracy, 100 * faithful, language)
            for language in results["languages"]
            if (accuracy := number(results, method, language, "accuracy")) is not None
            and (faithful := number(results, method, language, "fidelity")) is not None
        ]
        for method in methods_of(results)
    }
    shown = [method for method in points if points[method]]
    if not shown:
        raise CarotError("fidelity_plot: no fidelity in these results; expected a generation task")
    for method, style in method_styles(shown).items():
        x, y, languages = zip(*points[method], strict=True)
        axes.plot(x, y, linestyle="", markersize=5, alpha=0.85, label=method, **style)
        for place in zip(x, y, languages, strict=True):
            axes.annotate(
                place[2], place[:2], (4, 3), textcoords="offset points", fontsize=7,
                color=style["color"],
            )  # fmt: skip
    axes.set_xlabel("right answers (%)")
    axes.set_ylabel("outputs in the language of the prompt (%)")
    axes.margins(0.06)
    _legend(axes, len(shown))
    _plain(axes, grid="both")
    return figure


def fidelity_plot(results: Results, path: Path) -> None:
    """Write fidelity against accuracy: a point for each method and language.

    Parameters
    ----------
    results : dict
        One evaluation.
    path : Path
        Its suffix says the format: png or svg. Folders are made where missing.

    Raises
    ------
    CarotError
        When the suffix is neither, or there is no fidelity in the results.
    """
    _write(fidelity_figure(results), path)


def _new_figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="none")
    FigureCanvasAgg(figure)
    return figure


def _legend(axes: Any, entries: int) -> None:
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.01), ncols=max(1, min(entries, 5)), frameon=False,
        fontsize=9, labelcolor=INK, handletextpad=0.4, columnspacing=1.2, borderaxespad=0,
    )  # fmt: skip


def _plain(axes: Any, grid: str | None = None) -> None:
    """No frame, no ticks; faint lines where a reader measures."""
    axes.set_facecolor("none")
    axes.spines[:].set_visible(False)
    axes.tick_params(which="both", length=0, labelsize=9, colors=INK)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(fontsize=9, color=FAINT)
    if grid:
        axes.grid(axis=grid, color=LINE, linewidth=0.8)
        axes.set_axisbelow(True)


def svg(figure: Any, name: str) -> bytes:
    """Return a figure as SVG on a transparent ground.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        To draw.
    name : str
        What the ids in it are derived from; another one for each SVG of a page.
    """
    return _image(figure, "svg", name, facecolor="none")


def _image(figure: Any, kind: str, name: str, facecolor: str) -> bytes:
    from matplotlib import rc_context
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # A name such as "a$b$" is no formula.
    buffer = BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(
            buffer,
            format=kind,
            dpi=200,
            facecolor=facecolor,
            bbox_inches="tight",
            pad_inches=0.1,
            # Without the time of its making, which would differ each time.
            metadata={"Date": None} if kind == "svg" else None,
        )
    return buffer.getvalue()


def _write(figure: Any, path: Path) -> None:
    kind = path.suffix.lower().removeprefix(".")
    if kind not in IMAGE_FORMATS:
        raise CarotError(
            f"{path}: no image format for the suffix {path.suffix!r}; expected one of "
            f"{', '.join(f'.{name}' for name in IMAGE_FORMATS)}: rename the file"
        )
    write_atomically(path, _image(figure, kind, "carot", facecolor="white"))
