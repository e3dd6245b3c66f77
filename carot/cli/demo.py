"""``carot demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from carot.cli import app
from carot.cli.options import names


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("carot-demo"),
    languages: Annotated[str, typer.Option(help="Languages asked.")] = "es,fr,de,ru,vi,tr",
    facts: Annotated[int, typer.Option(help="Facts asked in each language.")] = 48,
    model: Annotated[str, typer.Option(help="demo, a hub id or a local folder.")] = "demo",
) -> None:
    """Watch a real model answer better: fit, ask, steer, and report."""
    from carot.demo import run_demo
    from carot.reporting.demo_report import demo_examples, demo_table

    report = run_demo(
        output, model_name=model, languages=names(languages) or [], facts=facts, progress=True
    )
    console = Console()
    console.print(demo_table(report))
    console.print(demo_examples(report))
    typer.echo(f"{output / 'report.html'} shows all of it, with a token alignment.")
