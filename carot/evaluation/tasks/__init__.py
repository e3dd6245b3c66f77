"""Where questions come from, one file a benchmark, and the registry that finds them by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from carot.errors import CarotError
from carot.evaluation.items import Task
from carot.evaluation.tasks.belebele import Belebele
from carot.evaluation.tasks.bmlama import Bmlama
from carot.evaluation.tasks.demo import DemoFacts
from carot.evaluation.tasks.gmmlu import Gmmlu
from carot.evaluation.tasks.klar import Klar, KlarGenerate
from carot.evaluation.tasks.mgsm import Mgsm
from carot.evaluation.tasks.mmmlu import Mmmlu
from carot.evaluation.tasks.xcopa import Xcopa
from carot.evaluation.tasks.xcsqa import Xcsqa
from carot.evaluation.tasks.xquad import Xquad

TaskFactory = Callable[[Path | None], Task]
"""Makes a task of its data folder, or of the hub data set where there is none."""

TASKS: dict[str, TaskFactory] = {
    "demo": DemoFacts,
    "bmlama": Bmlama,
    "klar": Klar,
    "klar-generate": KlarGenerate,
    "xcsqa": Xcsqa,
    "mmmlu": Mmmlu,
    "gmmlu": Gmmlu,
    "belebele": Belebele,
    "xcopa": Xcopa,
    "mgsm": Mgsm,
    "xquad": Xquad,
}


def register_task(name: str, factory: TaskFactory) -> None:
    """Make a task of one's own known by a name."""
    TASKS[name] = factory


def get_task(name: str, data: str | Path | None = None) -> Task:
    """Return a task by name.

    Parameters
    ----------
    name : str
        One of :data:`TASKS`.
    data : path, optional
        The folder of its original files; the hub data set otherwise, where there is one.

    Raises
    ------
    CarotError
        For an unknown name, or a folder that does not exist.
    """
    if name not in TASKS:
        raise CarotError(f"no task {name!r}; expected one of {', '.join(TASKS)}")
    folder = None if data is None else Path(data)
    if folder is not None and not folder.is_dir():
        raise CarotError(f"{folder}: no such folder; expected the files of {name} in it")
    return TASKS[name](folder)


def open_task(source: str) -> Task:
    """Return the task that ``task:NAME`` or ``task:NAME:FOLDER`` names."""
    _, name, *folder = source.split(":", 2)
    return get_task(name, folder[0] if folder else None)


__all__ = ["TASKS", "get_task", "register_task"]
