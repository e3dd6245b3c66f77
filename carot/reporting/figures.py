"""What all plots share: colours, an empty figure, its axes and legend, the image."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from carot.errors import CarotError
from carot.files import write_atomically

IMAGE_FORMATS = ("png", "svg")

INK, FAINT, LINE, SURFACE = "#1c1917", "#78716c", "#e7e5e4", "#ffffff"


def new_figure(width: float, height: float) -> Any:
    """Return a figure, in inches, that pyplot knows nothing of."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="none")
    FigureCanvasAgg(figure)
    return figure


def draw_legend(axes: Any, entries: int) -> None:
    """Put a legend of so many entries above the axes."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.01), ncols=max(1, min(entries, 5)), frameon=False,
        fontsize=9, labelcolor=INK, handletextpad=0.4, columnspacing=1.2, borderaxespad=0,
    )  # fmt: skip


def make_plain(axes: Any, grid: str | None = None) -> None:
    """Take frame and ticks away; faint lines where a reader measures."""
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


def write_image(figure: Any, path: Path) -> None:
    """Write a figure in the format that the suffix says; a CarotError where it says none."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in IMAGE_FORMATS:
        raise CarotError(
            f"{path}: no image format for the suffix {path.suffix!r}; expected one of "
            f"{', '.join(f'.{name}' for name in IMAGE_FORMATS)}: rename the file"
        )
    write_atomically(path, _image(figure, kind, "carot", facecolor="white"))
