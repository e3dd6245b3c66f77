"""The command line: thin commands over the Python API."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any

import typer

from carot.errors import CarotError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Steer a multilingual model with its own English states.",
)


def _version(show: bool) -> None:
    if show:
        from importlib.metadata import version

        typer.echo(f"carot {version('carot')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Steer a multilingual model with its own English states."""


def _one_line(message: Warning | str, *_: Any, **__: Any) -> str:
    return f"warning: {message}\n"


def main() -> None:
    """Run the command line; a mistake of the user's is one line and exit code 2."""
    warnings.formatwarning = _one_line
    from carot.cli import (  # noqa: F401
        align,
        calibrate,
        consistency,
        dco,
        demo,
        distill,
        eval,
        fit,
        generate,
        info,
        report,
        sweep,
        train,
    )

    try:
        app()
    except CarotError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
