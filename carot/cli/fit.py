"""``carot fit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from carot.cli import app
from carot.cli.options import DeviceMap, Dtype, Model, load, names, numbers


@app.command()
def fit(
    model: Model,
    output: Annotated[Path, typer.Option(help="Folder that the aligner is written to.")],
    corpus: Annotated[
        str,
        typer.Option(help="Folder of en.txt, es.txt, ...; FILE.jsonl; ntrex:FOLDER; or bundled."),
    ] = "bundled",
    languages: Annotated[
        str | None, typer.Option(help="As en,es,fr; all of the corpus by default.")
    ] = None,
    layers: Annotated[str | None, typer.Option(help="As 3,5,7; every third by default.")] = None,
    limit: Annotated[int | None, typer.Option(help="Sentences of each language.")] = None,
    max_length: Annotated[int, typer.Option(help="Tokens of a sentence that are used.")] = 64,
    batch_size: Annotated[int, typer.Option(help="Sentences in one forward pass.")] = 32,
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
) -> None:
    """Fit an aligner of MODEL on parallel text."""
    from carot.corpora import open_corpus
    from carot.files import require_folder_or_nothing
    from carot.models import fit_aligner

    require_folder_or_nothing(output)
    chosen = numbers(layers, "--layers")
    parallel = open_corpus(corpus, names(languages), limit)
    loaded, tokenizer = load(model, dtype, device_map)
    aligner = fit_aligner(
        loaded,
        tokenizer,
        parallel,
        chosen,
        max_length=max_length,
        batch_size=batch_size,
        progress=True,
    )
    aligner.save_pretrained(output)
    typer.echo(f"{output}: layers {', '.join(map(str, aligner))} of {aligner.model.name}")
