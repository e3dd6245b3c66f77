"""``carot distill``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from carot.cli import app
from carot.cli.options import (
    AlignerFolder,
    BatchSize,
    DeviceMap,
    Dtype,
    Input,
    Layers,
    Marker,
    MaxBatchTokens,
    MinMatch,
    Model,
    PivotName,
    Theta,
    run_settings,
    wrapped,
)


@app.command()
def distill(
    model: Model,
    aligner: AlignerFolder,
    input: Input,
    output: Annotated[Path, typer.Option(help="JSONL file of instruction data.")],
    layers: Layers = None,
    theta: Theta = None,
    pivot: PivotName = "given",
    max_new_tokens: Annotated[int, typer.Option(help="Tokens of an answer at most.")] = 64,
    max_batch_tokens: MaxBatchTokens = 4096,
    batch_size: BatchSize = None,
    min_match: MinMatch = None,
    faithful: Annotated[bool, typer.Option(help="Drop answers in another language.")] = True,
    one_line: Annotated[bool, typer.Option(help="Keep the first line of each answer.")] = False,
    content_marker: Marker = None,
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
) -> None:
    """Write steered answers as instruction data for `carot train --objective sft`."""
    import json

    from carot.corpora.parallel import read_jsonl
    from carot.errors import CarotError, require_positive
    from carot.files import require_file_or_nothing, write_atomically
    from carot.inference import Processes, generate_file, open_rows
    from carot.models.wrapping import guard_at
    from carot.pivots import open_pivot
    from carot.training.distill import distil

    require_positive(
        max_new_tokens=max_new_tokens,
        max_batch_tokens=max_batch_tokens,
        batch_size=1 if batch_size is None else batch_size,
    )
    require_file_or_nothing(output)
    rows = open_rows(input)
    for row in rows:
        if row.error is None and row.language is None:
            raise CarotError(
                f"{input}, row {row.index + 1}: no 'language'; expected a code such as es"
            )
    # Every row is steered: another least match may be tried on the same answers.
    steered = wrapped(model, aligner, layers, theta, dtype, device_map, 0.0)
    answers = generate_file(
        steered,
        rows,
        output.with_suffix(".answers.jsonl"),
        settings=run_settings(
            steered,
            model=model,
            aligner=aligner,
            input=input,
            theta=theta,
            max_new_tokens=max_new_tokens,
            dtype=dtype,
        ),
        pivot=open_pivot(pivot, steered.model, steered.tokenizer),
        content=content_marker,
        max_batch_tokens=max_batch_tokens,
        batch_size=batch_size,
        progress=True,
        max_new_tokens=max_new_tokens,
        do_sample=False,
    )
    if not Processes.launched().is_main:
        return
    chosen = distil(
        read_jsonl(answers),
        min_match=guard_at(steered.aligner, steered.layers[0]) if min_match is None else min_match,
        faithful=faithful,
        one_line=one_line,
    )
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in chosen.rows)
    write_atomically(output, "".join(lines))
    reasons = ", ".join(f"{count} {reason}" for reason, count in chosen.dropped.items()) or "none"
    typer.echo(f"{output}: {len(chosen.rows)} rows; left out: {reasons}; all in {answers}")
