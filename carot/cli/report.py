"""``carot report``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from carot.cli import app
from carot.errors import CarotError


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
    from carot.reporting.tables import latex_table, markdown_table

    loaded = [_read(path) for path in results]
    if markdown is None and latex is None and html is None:
        typer.echo(markdown_table(loaded))
    for path, make in ((markdown, markdown_table), (latex, latex_table), (html, html_report)):
        if path is not None:
            write_atomically(path, make(loaded))


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise CarotError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise CarotError(f"{path}: not valid JSON ({error})") from error
    content = content.get("test", content) if isinstance(content, dict) else content
    if not isinstance(content, dict) or "metrics" not in content:
        raise CarotError(f"{path}: no metrics in it; expected what carot eval or carot sweep wrote")
    return content
