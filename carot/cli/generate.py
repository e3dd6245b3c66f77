"""``carot generate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from carot.cli import app
from carot.cli.options import (
    AlignerFolder,
    BatchSize,
    Chat,
    DeviceMap,
    Dtype,
    EnglishColumn,
    IdColumn,
    Input,
    LanguageColumn,
    Layers,
    Marker,
    MaxBatchTokens,
    MinMatch,
    Model,
    PivotName,
    PromptColumn,
    Theta,
    run_settings,
    wrapped,
)


@app.command()
def generate(
    model: Model,
    aligner: AlignerFolder,
    input: Input,
    output: Annotated[Path, typer.Option(help="JSONL file that the answers are written to.")],
    layers: Layers = None,
    theta: Theta = None,
    pivot: PivotName = "given",
    min_match: MinMatch = None,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens of an answer at most.")] = 32,
    max_batch_tokens: MaxBatchTokens = 4096,
    batch_size: BatchSize = None,
    prompt_column: PromptColumn = "prompt",
    english_column: EnglishColumn = "english",
    language_column: LanguageColumn = "language",
    id_column: IdColumn = "id",
    chat: Chat = False,
    content_marker: Marker = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page that sums the run up (HTML).")
    ] = None,
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
) -> None:
    """Answer the prompts of a file, steered by their English counterparts; greedy search.

    Started again with the same arguments, an interrupted run goes on. Several processes share the
    rows: accelerate launch -m carot generate ...
    """
    import time

    from carot.errors import require_positive
    from carot.files import require_file_or_nothing
    from carot.inference import Columns, Processes, generate_file, open_rows
    from carot.pivots import open_pivot
    from carot.reporting.answers import count_answers, report_run

    require_positive(
        max_new_tokens=max_new_tokens,
        max_batch_tokens=max_batch_tokens,
        batch_size=1 if batch_size is None else batch_size,
    )
    for path in filter(None, (output, report)):
        require_file_or_nothing(path)
    rows = open_rows(input, Columns(prompt_column, english_column, language_column, id_column))
    steered = wrapped(model, aligner, layers, theta, dtype, device_map, min_match)
    settings = run_settings(
        steered,
        model=model,
        aligner=aligner,
        input=input,
        theta=theta,
        max_new_tokens=max_new_tokens,
        dtype=dtype,
    )
    form: dict[str, Any] = {"chat": chat, "content": content_marker}
    begun_before = output.with_name(output.name + ".partial").exists()
    started = time.perf_counter()
    answers = generate_file(
        steered,
        rows,
        output,
        settings=settings,
        pivot=open_pivot(pivot, steered.model, steered.tokenizer),
        max_batch_tokens=max_batch_tokens,
        batch_size=batch_size,
        progress=True,
        max_new_tokens=max_new_tokens,
        do_sample=False,
        **form,
    )
    if not Processes.launched().is_main:
        return
    if report is not None:
        shown = settings | {"pivot": pivot, "min_match": str(steered.guard)}
        seconds = None if begun_before else time.perf_counter() - started
        report_run(steered, answers, report, settings=shown, seconds=seconds, **form)
    typer.echo(f"{answers}: {count_answers(answers)}")
