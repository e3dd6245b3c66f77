"""Progress bars on standard error, so that standard output stays clean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class _Rate(ProgressColumn):
    """Steps in a second, over the last ones."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:.1f} {self.unit}/s")


@contextmanager
def track(
    label: str, total: int | None, *, enabled: bool = True, unit: str = "steps"
) -> Iterator[Callable[[int], None]]:
    """Show a bar of ``total`` steps, with rate and time left; yields what advances it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(unit),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not enabled) as progress:
        task = progress.add_task(label, total=total)
        yield lambda steps: progress.advance(task, steps)
