"""The heatmap of one alignment: rows are prompt tokens, columns the English tokens."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterator, Sequence
from html import escape
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.color import Color
from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.style import Style
from rich.table import Table
from rich.text import Text

from carot.errors import CarotError
from carot.files import write_atomically

if TYPE_CHECKING:
    from carot.models.view import AlignmentView

IMAGE_FORMATS = ("png", "svg", "pdf")

FONT_FAMILIES = (
    "DejaVu Sans",
    "Noto Sans",
    "Noto Sans Arabic",
    "Noto Naskh Arabic",
    "Geeza Pro",
    "Noto Sans Devanagari",
    "Lohit Devanagari",
    "Kohinoor Devanagari",
    "Nirmala UI",
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans JP",
    "Noto Sans SC",
    "Hiragino Sans",
    "PingFang SC",
    "Yu Gothic",
    "Microsoft YaHei",
    "Malgun Gothic",
    "Arial Unicode MS",
)
"""Tried in this order for each character of an image."""

_PALE, _FULL, _INK = (255, 244, 235), (236, 112, 24), (20, 14, 10)
"""Both ends of the scale and the text on it, which is readable (contrast above 6) all along."""

_MOVED_WIDTH = 7
_TERMINAL_PALE = (196, 178, 164)  # Not near white: most terminals are dark.

_CSS = """
.carot-heatmap {
  --ink: #1c1917; --faint: #78716c; --surface: #fff; --line: #e7e5e4;
  --full: 236 112 24;
  margin: 0; padding: 1rem; background: var(--surface); color: var(--ink);
  font: 14px/1.5 system-ui, "Noto Sans", sans-serif;
}
@media (prefers-color-scheme: dark) {
  .carot-heatmap {
    --ink: #f5f5f4; --faint: #a8a29e; --surface: #1c1917; --line: #44403c;
    --full: 178 72 8;
  }
}
.carot-heatmap .scroll { overflow-x: auto; }
.carot-heatmap table { border-collapse: separate; border-spacing: 2px; width: auto; margin: 0; }
.carot-heatmap tr { background: none; }
.carot-heatmap th {
  padding: 0 .5em; border: 0; font-weight: 400; white-space: pre; background: var(--surface);
}
.carot-heatmap tbody th { text-align: right; position: sticky; left: 0; }
.carot-heatmap thead th { padding: .3em 0; vertical-align: bottom; text-align: center; }
.carot-heatmap thead span { writing-mode: vertical-rl; transform: rotate(180deg); }
.carot-heatmap td {
  min-width: 2.3em; height: 2.1em; padding: 0; border: 0; border-radius: 3px; font-size: .85em;
  text-align: center; vertical-align: middle; font-variant-numeric: tabular-nums;
}
.carot-heatmap tbody td { background: rgb(var(--full) / max(var(--share), .04)); }
.carot-heatmap .moved { padding: 0 0 0 1em; background: none; white-space: nowrap; }
.carot-heatmap thead .moved { text-align: left; color: var(--faint); }
.carot-heatmap .bar {
  display: inline-block; width: 4em; height: .5em; margin-right: .5em; border-radius: 3px;
  background: var(--line);
}
.carot-heatmap .bar i {
  display: block; height: 100%; border-radius: 3px; background: var(--faint);
}
.carot-heatmap figcaption { max-width: 44em; margin-top: .8em; color: var(--faint); }
"""


def heatmap_html(view: AlignmentView) -> str:
    """Return a self-contained HTML fragment: one ``<figure>``, no scripts, nothing from outside.

    Parameters
    ----------
    view : AlignmentView
        The alignment to show.

    Returns
    -------
    str
        Follows the reader's light or dark mode.
    """
    header = "".join(
        f'<th scope="col" lang="en"><span dir="auto">{escape(token)}</span></th>'
        for token in view.english_tokens
    )
    body = "\n".join(
        _html_row(token, view.english_tokens, shares, moved) for token, shares, moved in _rows(view)
    )
    return f"""<figure class="carot-heatmap">
<style>{_CSS}</style>
<div class="scroll"><table>
<thead><tr><td></td>{header}<th scope="col" class="moved" lang="en">moved</th></tr></thead>
<tbody>
{body}
</tbody>
</table></div>
<figcaption lang="en">{escape(_caption(view))}</figcaption>
</figure>
"""


def heatmap_page(view: AlignmentView) -> str:
    """Return :func:`heatmap_html` as a whole page."""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Token alignment</title>'
        "<style>:root{color-scheme:light dark}body{margin:2rem;font:16px/1.5 system-ui}</style>"
        f"{heatmap_html(view)}</html>\n"
    )


def _rows(view: AlignmentView) -> Iterator[tuple[str, list[float], float]]:
    shares, interpolation = view.shares().tolist(), view.interpolation.tolist()
    return zip(view.prompt_tokens, shares, interpolation, strict=True)


def _caption(view: AlignmentView) -> str:
    return (
        f"Layer {view.layer}. Each row is a token of the prompt; its cells say, in percent, which "
        "English tokens its new state is drawn from. “moved” says how far it went towards them, "
        "from 0 (not at all) to 1 (all the way). A row without numbers kept its own state."
    )


def _html_row(token: str, english: Sequence[str], shares: list[float], moved: float) -> str:
    cells = "".join(
        f'<td style="--share:{share:.3f}" '
        f'title="{escape(f"{token} ← {source}: {share:.2f}")}">{_percent(share)}</td>'
        for source, share in zip(english, shares, strict=True)
    )
    bar = f'<span class="bar"><i style="width:{100 * moved:.0f}%"></i></span>'
    return (
        f'<tr><th scope="row"><span dir="auto">{escape(token)}</span></th>{cells}'
        f'<td class="moved">{bar}{moved:.2f}</td></tr>'
    )


def _percent(share: float) -> str:
    """Whole percent; nothing for a share that rounds to 0, so that the eye finds the others."""
    return f"{100 * share:.0f}" if share >= 0.005 else ""


def require_image(path: Path) -> str:
    """Return the image format that a suffix says; a CarotError where it says none."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in IMAGE_FORMATS:
        raise CarotError(
            f"{path}: no image format for the suffix {path.suffix!r}; expected one of "
            f"{', '.join(f'.{name}' for name in IMAGE_FORMATS)}: rename the file"
        )
    return kind


def heatmap_image(view: AlignmentView, path: Path) -> None:
    """Write the heatmap as an image; folders are made where missing.

    Parameters
    ----------
    view : AlignmentView
        The alignment to show.
    path : Path
        Its suffix says the format: png, svg or pdf.

    Raises
    ------
    CarotError
        When the suffix is none of these.
    """
    kind = require_image(path)
    figure = _figure(view)
    buffer = BytesIO()
    with warnings.catch_warnings():
        # A script without an installed font shows boxes; the numbers still tell the story.
        warnings.filterwarnings("ignore", message="Glyph|Matplotlib currently does not support")
        figure.savefig(buffer, format=kind, dpi=200, bbox_inches="tight", pad_inches=0.15)
    write_atomically(path, buffer.getvalue())


def _figure(view: AlignmentView) -> Any:
    """Axes of a fixed size for each cell; the labels stand outside, where "tight" finds them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows, columns = view.plan.shape
    width, height, gap, bars = 0.34 * columns, 0.3 * rows, 0.2, 1.0  # inches
    whole = width + gap + bars
    figure = Figure(figsize=(whole, height), facecolor="white")
    FigureCanvasAgg(figure)
    _draw_shares(figure.add_axes((0, 0, width / whole, 1)), view)
    _draw_moved(
        figure.add_axes(((width + gap) / whole, 0, bars / whole, 1)), view.interpolation.tolist()
    )
    return figure


def _draw_shares(axes: Any, view: AlignmentView) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    ends = [[value / 255 for value in colour] for colour in (_PALE, _FULL)]
    shares = view.shares().tolist()
    scale = LinearSegmentedColormap.from_list("carot", ends)
    axes.imshow(shares, cmap=scale, vmin=0, vmax=1, aspect="auto")
    for row, values in enumerate(shares):
        for column, share in enumerate(values):
            axes.text(column, row, _percent(share), ha="center", va="center", fontsize=7)
    axes.set_xticks([column + 0.5 for column in range(len(view.english_tokens) - 1)], minor=True)
    axes.set_yticks([row + 0.5 for row in range(len(view.prompt_tokens) - 1)], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    # Without parse_math=False a token such as "$x$" would be read as a formula.
    style = {"fontfamily": _installed_fonts(), "parse_math": False, "fontsize": 9}
    axes.set_xticks(range(len(view.english_tokens)), view.english_tokens, rotation=90, **style)
    axes.set_yticks(range(len(view.prompt_tokens)), view.prompt_tokens, **style)
    axes.set_xlabel(
        f"Layer {view.layer}: English tokens in each\nprompt token's new state (%)",
        loc="left",
        fontsize=8,
        color="#78716c",
    )
    _bare(axes)


def _draw_moved(axes: Any, interpolation: list[float]) -> None:
    rows = range(len(interpolation))
    axes.barh(rows, [1] * len(interpolation), height=0.25, color="#e7e5e4")
    axes.barh(rows, interpolation, height=0.25, color="#78716c")
    for row, value in enumerate(interpolation):
        axes.text(1.12, row, f"{value:.2f}", va="center", fontsize=7)
    axes.set_xlim(0, 1.6)
    axes.set_ylim(len(interpolation) - 0.5, -0.5)
    axes.set_xticks([0.5], ["moved"], fontsize=9, color="#78716c")
    axes.set_yticks([])
    _bare(axes)


def _bare(axes: Any) -> None:
    """Labels on top and on the left; no ticks, no frame."""
    axes.tick_params(which="both", length=0, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)


def _installed_fonts() -> list[str]:
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return [family for family in FONT_FAMILIES if family in installed]


def heatmap_terminal(view: AlignmentView, max_width: int | None = None) -> RenderableType:
    """Return the heatmap for a terminal, ready for ``rich.print``.

    Parameters
    ----------
    view : AlignmentView
        The alignment to show.
    max_width : int, optional
        Columns of the terminal; its own width where left out. When the English tokens do not fit
        as headers they are numbered and listed below, in several tables where need be.

    Returns
    -------
    rich.console.RenderableType
        No wider than ``max_width``.
    """
    width = max_width or Console().width
    title = Text(f"Layer {view.layer}: English tokens (%) in each prompt token's new state")
    label = min(max(map(cell_len, view.prompt_tokens), default=0), width // 3) + 1
    room = width - label - _MOVED_WIDTH
    english, indices = view.english_tokens, range(len(view.english_tokens))
    widths = [max(cell_len(token), 3) + 1 for token in english]
    if sum(widths) <= room:
        return Constrain(
            Group(title, _terminal_table(view, indices, english, widths, label)), width
        )

    numbers = [str(index + 1) for index in indices]
    widths = [max(3, len(numbers[-1]) + 1)] * len(numbers)
    size = max(1, room // widths[0])
    blocks = [
        _terminal_table(view, indices[start : start + size], numbers, widths, label)
        for start in indices[::size]
    ]
    return Constrain(Group(title, *blocks, _legend(numbers, english, width)), width)


def _legend(numbers: list[str], tokens: list[str], width: int) -> Text:
    """Numbered tokens in running lines that never part a number from its token."""
    tied = "\N{NO-BREAK SPACE}"
    items = [
        f"{number} {token}".replace(" ", tied)
        for number, token in zip(numbers, tokens, strict=True)
    ]
    filled = textwrap.fill("  ".join(items), width, break_on_hyphens=False)
    return Text(filled.replace(tied, " "))


def _terminal_table(
    view: AlignmentView, columns: range, headers: list[str], widths: list[int], label: int
) -> Table:
    table = Table(box=None, padding=0, pad_edge=False, header_style="bold")
    table.add_column("", width=label, no_wrap=True, overflow="ellipsis")
    for column in columns:
        # Text, not str: a token may look like rich markup.
        table.add_column(Text(headers[column]), width=widths[column], justify="right", no_wrap=True)
    table.add_column("moved", width=_MOVED_WIDTH, justify="right")
    for token, shares, moved in _rows(view):
        cells = [_terminal_cell(shares[column], widths[column]) for column in columns]
        table.add_row(Text(token), *cells, f"{moved:.2f}")
    return table


def _terminal_cell(share: float, width: int) -> Text:
    text = _percent(share).rjust(width)
    if share < 0.05:
        return Text(text)
    red, green, blue = (
        low + share * (high - low) for low, high in zip(_TERMINAL_PALE, _FULL, strict=True)
    )
    style = Style(color=Color.from_rgb(*_INK), bgcolor=Color.from_rgb(red, green, blue))
    return Text(text, style=style)
