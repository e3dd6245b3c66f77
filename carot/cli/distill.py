"""``carot distill``."""

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
def distill(
    model: Model,
    aligner: AlignerFolder,
    input: Annotated[
        Path, typer.Option(help='Rows {"id", "prompt", "english", "language"} (JSONL).')
    ],
    output: Annotated[Path, typer.Option(help="JSONL file of instruction data.")],
    layers: Layers = None,
    theta: Theta = None,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens of an answer at most.")] = 64,
    batch_size: Annotated[int, typer.Option(help="Rows in one batch.")] = 16,
    min_match: Annotated[float, typer.Option(help="Least match of prompt and English.")] = 0.0,
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
    from carot.inference import read_prompts
    from carot.training.distill import distil

    require_positive(max_new_tokens=max_new_tokens, batch_size=batch_size)
    require_file_or_nothing(output)
    rows = read_prompts(input)
    for number, row in enumerate(rows, 1):
        if not isinstance(row.get("language"), str):
            raise CarotError(f"{input}, row {number}: no 'language'; expected a code such as es")
    answers = answer_file(
        rows,
        output.with_suffix(".answers.jsonl"),
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
    chosen = distil(
        read_jsonl(answers),
        [row["language"] for row in rows],
        min_match=min_match,
        faithful=faithful,
        one_line=one_line,
    )
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in chosen.rows)
    write_atomically(output, "".join(lines))
    reasons = ", ".join(f"{count} {reason}" for reason, count in chosen.dropped.items()) or "none"
    typer.echo(f"{output}: {len(chosen.rows)} rows; left out: {reasons}; all in {answers}")
