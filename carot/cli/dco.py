"""``carot dco``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from carot.cli import app
from carot.cli.options import DeviceMap, Dtype, Model, load, names, pairs_of


@app.command()
def dco(
    model: Model,
    data: Annotated[str, typer.Option(help="JSONL file, or task:NAME or task:NAME:FOLDER.")],
    languages: Annotated[str, typer.Option(help="Languages of the questions, as en,es.")],
    output: Annotated[Path, typer.Option(help="Folder of checkpoints and of the result.")],
    objective: Annotated[
        str | None, typer.Option(help="dco, dpo, calm, sft_gold, dco+dpo, ...")
    ] = None,
    beta: Annotated[float | None, typer.Option(help="Of DCO; 1 by default.")] = None,
    gamma: Annotated[
        str | None, typer.Option(help="Of DCO, as en=0.5,es=2 or en-es=0.5,es-en=2.")
    ] = None,
    candidates: Annotated[
        int | None, typer.Option(help="Of DCO: compared of each question; 2 by default.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Questions; `carot consistency --skip` asks the others.")
    ] = None,
    recipe: Annotated[Path | None, typer.Option(help="YAML file of everything else.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on from the last checkpoint.")] = False,
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
) -> None:
    """Fine-tune MODEL so that its preferences agree across languages."""
    from carot.training import Recipe
    from carot.training.dco import dco_recipe
    from carot.training.run import train

    made = dco_recipe(
        names(languages) or [],
        recipe=None if recipe is None else Recipe.from_yaml(recipe),
        objective=objective,
        data=data,
        beta=beta,
        gamma=pairs_of(gamma, "--gamma"),
        candidates=candidates,
        limit=limit,
    )
    loaded, tokenizer = load(model, dtype, device_map)
    train(loaded, tokenizer, made, output, resume=resume)
    typer.echo(f"{output}: trained with {made.objective}")
