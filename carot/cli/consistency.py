"""``carot consistency``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from carot.cli import app
from carot.cli.eval import Data, Languages, Task
from carot.cli.options import DeviceMap, Dtype, Model, load, names


@app.command()
def consistency(
    model: Model,
    task: Task,
    languages: Languages,
    output: Annotated[Path, typer.Option(help="JSON file of the results, as of carot eval.")],
    data: Data = None,
    limit: Annotated[int | None, typer.Option(help="Questions in each language.")] = None,
    skip: Annotated[int, typer.Option(help="Leave out as many first.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the draw and the intervals.")] = 0,
    batch_size: Annotated[int, typer.Option(help="Questions in one batch.")] = 16,
    before: Annotated[
        Path | None, typer.Option(help="Results of the model before training, to compare with.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="PNG or SVG of the matrix of RankC.")] = None,
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
) -> None:
    """Show how alike a model ranks the same candidates in all pairs of languages."""
    from carot.evaluation.runner import evaluate
    from carot.evaluation.tasks import get_task
    from carot.reporting.consistency import before_and_after, matrix_table, model_plot
    from carot.reporting.results import read_results

    earlier = None if before is None else read_results(before)
    opened = get_task(task, data)
    loaded, tokenizer = load(model, dtype, device_map)
    results = evaluate(
        loaded,
        tokenizer,
        None,
        opened,
        names(languages) or [],
        methods=["none"],
        data=data,
        limit=limit,
        skip=skip,
        seed=seed,
        batch_size=batch_size,
        output=output,
        progress=True,
    )
    Console().print(matrix_table(results, earlier))
    if plot is not None:
        model_plot(results if earlier is None else before_and_after(earlier, results), plot)
