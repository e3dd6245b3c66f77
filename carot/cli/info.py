"""``carot info``."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from carot.cli import app


@app.command()
def info(
    aligner: Annotated[str, typer.Argument(help="Folder or hub id of an aligner.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what an aligner holds."""
    from carot.alignment import Aligner

    fitted = Aligner.from_pretrained(aligner)
    content = fitted.describe()
    if as_json:
        typer.echo(json.dumps(content, ensure_ascii=False))
        return
    Console().print(_summary(content))


def _summary(content: dict[str, Any]) -> Table:
    from carot.alignment import Guard

    model, fit = content["model"], content["fit"]
    table = Table(
        title=Text(
            f"{model['name']} ({model['model_type']}, {model['num_layers']} layers, "
            f"hidden size {model['hidden_size']})"
        ),
        caption=Text(
            f"languages {', '.join(content['languages'])}; "
            + ", ".join(f"{key} {value}" for key, value in (fit | content["defaults"]).items())
        ),
    )
    columns = ("layer", "language directions", "whitened dimensions", "guard", "keeps", "refuses")
    for column in columns:
        table.add_column(column, justify="right")
    for row in content["layers"]:
        guard = row["guard"]
        shown = (
            ("none", "", "")
            if guard is None
            else (str(Guard(**guard)), f"{guard['kept']:.0%}", f"{guard['refused']:.0%}")
        )
        table.add_row(str(row["layer"]), str(row["directions"]), str(row["whitened"]), *shown)
    return table
