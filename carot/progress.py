"""Progress bars on standard error, so that standard output stays clean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def track(label: str, total: int, *, enabled: bool = True) -> Iterator[Callable[[int], None]]:
    """Show a bar of ``total`` steps; yields a function that advances it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not enabled) as progress:
        task = progress.add_task(label, total=total)
        yield lambda steps: progress.advance(task, steps)
