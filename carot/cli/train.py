"""``carot train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from carot.cli import app
from carot.cli.options import DeviceMap, Dtype, Model, load


@app.command()
def train(
    model: Model,
    recipe: Annotated[Path, typer.Option(help="YAML file; examples/recipes has some.")],
    output: Annotated[Path, typer.Option(help="Folder of checkpoints and of the result.")],
    objective: Annotated[
        str | None, typer.Option(help="Instead of the recipe's: sft, carot, midalign, solar, a+b.")
    ] = None,
    aligner: Annotated[
        str | None, typer.Option(help="For carot; fitted on the parallel data by default.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on from the last checkpoint.")] = False,
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
) -> None:
    """Train MODEL so that it needs no English at inference."""
    from carot.alignment import Aligner
    from carot.training import Recipe
    from carot.training import train as run

    made = Recipe.from_yaml(recipe)
    if objective is not None:
        made = made.model_copy(update={"objective": objective})
    fitted = None if aligner is None else Aligner.from_pretrained(aligner)
    loaded, tokenizer = load(model, dtype, device_map)
    run(loaded, tokenizer, made, output, aligner=fitted, resume=resume)
    typer.echo(f"{output}: trained with {made.objective}")
