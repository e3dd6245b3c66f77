"""``carot generate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from carot.cli import app
from carot.cli.options import (
    AlignerFolder,
    DeviceMap,
    Dtype,
    Layers,
    Marker,
    Model,
    Theta,
    answer_file,
)


@app.command()
def generate(
    model: Model,
    aligner: AlignerFolder,
    input: Annotated[Path, typer.Option(help='Rows {"id", "prompt", "english"} (JSONL).')],
    output: Annotated[Path, typer.Option(help="JSONL file that the answers are written to.")],
    layers: Layers = None,
    theta: Theta = None,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens of an answer at most.")] = 32,
    batch_size: Annotated[int, typer.Option(help="Rows in one batch.")] = 16,
    content_marker: Marker = None,
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
) -> None:
    """Answer the prompts of a file, steered by their English counterparts; greedy search."""
    from carot.errors import require_positive
    from carot.files import require_file_or_nothing
    from carot.inference import read_prompts

    require_positive(max_new_tokens=max_new_tokens, batch_size=batch_size)
    require_file_or_nothing(output)
    rows = read_prompts(input)
    answer_file(
        rows,
        output,
        model=model,
        aligner=aligner,
        input=input,
        layers=layers,
        theta=theta,
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
        content_marker=content_marker,
        dtype=dtype,
        device_map=device_map,
    )
    with_english = sum(bool(row.get("english")) for row in rows)
    typer.echo(f"{output}: {len(rows)} answers, {with_english} of them steered")
