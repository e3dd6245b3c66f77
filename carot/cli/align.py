"""``carot align``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from carot.cli import app
from carot.cli.options import AlignerFolder, DeviceMap, Dtype, Layers, Marker, Model, Theta, wrapped


@app.command()
def align(
    model: Model,
    aligner: AlignerFolder,
    prompt: Annotated[str, typer.Option(help="A prompt.")],
    english: Annotated[str, typer.Option(help="Its English translation.")],
    layers: Layers = None,
    theta: Theta = None,
    html: Annotated[Path | None, typer.Option(help="Write the heatmap as a page.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write the heatmap as an image.")] = None,
    content_marker: Marker = None,
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
) -> None:
    """Show which English tokens move onto which tokens of a prompt."""
    from carot.files import require_file_or_nothing, write_atomically
    from carot.reporting.heatmap import heatmap_page, heatmap_terminal, require_image

    if html is not None:
        require_file_or_nothing(html)
    if png is not None:
        require_image(png)
    steered = wrapped(model, aligner, layers, theta, dtype, device_map)
    view = steered.align(prompt, english, content=content_marker)
    console = Console()
    console.print(heatmap_terminal(view, console.width))
    if html is not None:
        write_atomically(html, heatmap_page(view))
    if png is not None:
        view.plot(png)
