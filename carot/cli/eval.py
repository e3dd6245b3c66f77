"""``carot eval``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from carot.cli import app
from carot.cli.options import DeviceMap, Dtype, Layers, Model, PivotName, load, names, numbers

Task = Annotated[str, typer.Option(help="demo, bmlama, klar, mgsm, xquad, ...")]
Data = Annotated[Path | None, typer.Option(help="Folder of the task's original files.")]
Languages = Annotated[str, typer.Option(help="Target languages, as es,ja.")]
Methods = Annotated[str, typer.Option(help="As none,carot,lang_vec,mlrs,last_token,no_leace.")]


@app.command(name="eval")
def evaluate(
    model: Model,
    task: Task,
    languages: Languages,
    output: Annotated[Path, typer.Option(help="JSON file of the results.")],
    aligner: Annotated[
        str | None, typer.Option(help="Folder or hub id of an aligner; not needed for none alone.")
    ] = None,
    data: Data = None,
    methods: Methods = "none,carot",
    layers: Layers = None,
    theta: Annotated[float | None, typer.Option(help="Perplexity filter, in (0, 1].")] = None,
    strength: Annotated[float | None, typer.Option(help="Of lang_vec.")] = None,
    sweep: Annotated[
        Path | None, typer.Option(help="Take each method's layers and settings from this sweep.")
    ] = None,
    pivot: PivotName = "given",
    min_match: Annotated[float, typer.Option(help="Ask unsteered below this match.")] = 0.0,
    limit: Annotated[int | None, typer.Option(help="Questions in each language.")] = None,
    skip: Annotated[int, typer.Option(help="Leave out as many first (a sweep's dev).")] = 0,
    seed: Annotated[int, typer.Option(help="Of the draw and the intervals.")] = 0,
    batch_size: Annotated[int, typer.Option(help="Questions in one batch.")] = 16,
    html: Annotated[Path | None, typer.Option(help="Write a report as a page.")] = None,
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
) -> None:
    """Evaluate methods on a benchmark, against the unsteered model."""
    from carot.alignment import Aligner
    from carot.evaluation.runner import evaluate as run
    from carot.evaluation.sweep import chosen_setups
    from carot.evaluation.tasks import get_task
    from carot.files import require_file_or_nothing, write_atomically
    from carot.pivots import open_pivot
    from carot.reporting.evaluation_report import html_report
    from carot.reporting.tables import results_table

    if html is not None:
        require_file_or_nothing(html)
    fitted = None if aligner is None else Aligner.from_pretrained(aligner)
    opened = get_task(task, data)
    given = {"theta": theta, "strength": strength}
    settings: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    loaded, tokenizer = load(model, dtype, device_map)
    results = run(
        loaded,
        tokenizer,
        fitted,
        opened,
        names(languages) or [],
        methods=names(methods) or [],
        data=data,
        setups=None if sweep is None else chosen_setups(sweep),
        layers=numbers(layers, "--layer"),
        pivot=open_pivot(pivot, loaded, tokenizer),
        min_match=min_match,
        limit=limit,
        skip=skip,
        seed=seed,
        batch_size=batch_size,
        output=output,
        progress=True,
        **settings,
    )
    Console().print(results_table(results))
    if html is not None:
        write_atomically(html, html_report([results]))
