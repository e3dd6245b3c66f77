"""Plots of evaluation results: accuracy, layers, fidelity.

Each plot has two functions: one makes the matplotlib figure, which a notebook shows, and one
writes it to a file. Neither touches pyplot.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import Any

from carot.errors import CarotError
from carot.reporting.figures import INK, LINE, draw_legend, make_plain, new_figure, write_image
from carot.reporting.results import ENGLISH, MEAN, Results, methods_of, number

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


def accuracy_figure(results: Results) -> Any:
    """Return the figure that :func:`accuracy_plot` writes."""
    languages = [*results["languages"], MEAN]
    methods = [method for method in methods_of(results) if results["metrics"].get(method)]
    figure = new_figure(7.5, 0.9 + len(languages) * max(0.34, 0.125 * len(methods)))
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
    draw_legend(axes, len(methods) + (english is not None))
    make_plain(axes, grid="x")
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
    write_image(accuracy_figure(results), path)


def layer_figure(sweep_rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return the figure that :func:`layer_plot` writes."""
    best = _best_by_layers(sweep_rows)
    places = _layer_places([layers for _, layers in best])
    figure = new_figure(7.5, 3.8)
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
    draw_legend(axes, len(methods))
    make_plain(axes, grid="y")
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
    write_image(layer_figure(sweep_rows), path)


def fidelity_figure(results: Results) -> Any:
    """Return the figure that :func:`fidelity_plot` writes."""
    figure = new_figure(7.5, 5)
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
    draw_legend(axes, len(shown))
    make_plain(axes, grid="both")
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
    write_image(fidelity_figure(results), path)
