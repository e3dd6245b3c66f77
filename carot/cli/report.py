"""``carot report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from carot.cli import app


@app.command()
def report(
    results: Annotated[list[Path], typer.Argument(help="JSON files of carot eval.")],
    markdown: Annotated[Path | None, typer.Option(help="Write a Markdown table.")] = None,
    latex: Annotated[Path | None, typer.Option(help="Write a LaTeX table.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page.")] = None,
) -> None:
    """Merge results into one table; Markdown on the screen unless a file is named."""
    from carot.files import write_atomically
    from carot.reporting.evaluation_report import html_report
    from carot.reporting.results import read_results
    from carot.reporting.tables import latex_table, markdown_table

    loaded = [read_results(path) for path in results]
    if markdown is None and latex is None and html is None:
        typer.echo(markdown_table(loaded))
    for path, make in ((markdown, markdown_table), (latex, latex_table), (html, html_report)):
        if path is not None:
            write_atomically(path, make(loaded))
