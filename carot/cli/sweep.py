"""``carot sweep``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from carot.cli import app
from carot.cli.eval import Data, Languages, Methods, Task
from carot.cli.options import AlignerFolder, DeviceMap, Dtype, Model, decimals, load, names, numbers


@app.command()
def sweep(
    model: Model,
    aligner: AlignerFolder,
    task: Task,
    languages: Languages,
    output: Annotated[Path, typer.Option(help="JSON file of the results.")],
    layers: Annotated[str, typer.Option(help="Sets of layers, as 3,5,7 or 3+7+11,5.")],
    theta: Annotated[str, typer.Option(help="Values, as 0.25,0.5,1.")] = "0.5",
    rho: Annotated[str, typer.Option(help="Values, as 0.5,1.")] = "0.5",
    methods: Methods = "carot",
    data: Data = None,
    dev: Annotated[int, typer.Option(help="Questions that the choice is made on.")] = 60,
    test: Annotated[int, typer.Option(help="Other questions, for the report.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the draw and the intervals.")] = 0,
    batch_size: Annotated[int, typer.Option(help="Questions in one batch.")] = 16,
    html: Annotated[Path | None, typer.Option(help="Write a report as a page.")] = None,
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
) -> None:
    """Choose layers and settings on dev questions, and keep the choice in the aligner."""
    from carot.alignment import Aligner
    from carot.evaluation.sweep import sweep as run
    from carot.evaluation.tasks import get_task
    from carot.files import require_file_or_nothing, write_atomically
    from carot.reporting.evaluation_report import html_report
    from carot.reporting.tables import results_table

    if html is not None:
        require_file_or_nothing(html)
    fitted, opened = Aligner.from_pretrained(aligner), get_task(task, data)
    sets = [numbers(part.replace("+", ","), "--layers") or [] for part in layers.split(",")]
    values = {"theta": decimals(theta, "--theta"), "rho": decimals(rho, "--rho")}
    loaded, tokenizer = load(model, dtype, device_map)
    results = run(
        loaded,
        tokenizer,
        fitted,
        opened,
        names(languages) or [],
        layers=sets,
        methods=names(methods) or [],
        settings=values,
        dev=dev,
        test=test,
        data=data,
        seed=seed,
        batch_size=batch_size,
        output=output,
        progress=True,
    )
    Console().print(results_table(results["test"]))
    for method, chosen in results["chosen"].items():
        typer.echo(f"{method}: " + ", ".join(f"{key} {value}" for key, value in chosen.items()))
    if "carot" in results["chosen"] and Path(aligner).is_dir():
        fitted.save_pretrained(aligner)
        typer.echo(f"{aligner}: keeps the choice as its default")
    if html is not None:
        write_atomically(html, html_report([results["test"]], sweep=results))
