"""``carot calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from carot.cli import app
from carot.cli.options import (
    DeviceMap,
    Dtype,
    EnglishColumn,
    Input,
    Marker,
    Model,
    PromptColumn,
    load,
)


@app.command()
def calibrate(
    model: Model,
    aligner: Annotated[Path, typer.Option(help="Folder of an aligner; its guard is replaced.")],
    input: Input,
    keep: Annotated[float, typer.Option(help="Share of true translations that are kept.")] = 0.95,
    prompt_column: PromptColumn = "prompt",
    english_column: EnglishColumn = "english",
    content_marker: Marker = None,
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
) -> None:
    """Calibrate the guard against wrong English on true pairs of your own."""
    from carot.alignment import Aligner
    from carot.inference import Columns, open_rows
    from carot.models import calibrate_guard

    fitted = Aligner.from_pretrained(aligner)
    rows = [row for row in open_rows(input, Columns(prompt_column, english_column)) if row.english]
    loaded, tokenizer = load(model, dtype, device_map)
    calibrated = calibrate_guard(
        loaded,
        tokenizer,
        fitted,
        [row.prompt for row in rows],
        [row.english or "" for row in rows],
        keep=keep,
        content=content_marker,
        progress=True,
    )
    calibrated.save_pretrained(aligner)
    for layer, guard in calibrated.guards.items():
        typer.echo(
            f"layer {layer}: match {guard} keeps {guard.kept:.0%} of {guard.pairs} true pairs, "
            f"refuses {guard.refused:.0%} of wrong ones"
        )
