"""What tasks share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from carot.errors import CarotError
from carot.evaluation.items import GenerationItem, RankingItem, Skipped


class RankingTask:
    """A task whose answers are ranked candidates."""

    max_new_tokens = 0

    def is_right(self, item: GenerationItem, text: str) -> bool:
        """Refuse: nothing is generated."""
        raise CarotError(f"item {item.id} is ranked, not generated")


def require_language(language: str, known: Iterable[str], where: str | Path) -> None:
    """Raise a CarotError where a task has no such language."""
    known = sorted(known)
    if language not in known:
        raise CarotError(f"{where}: no language {language!r}; there: {', '.join(known) or 'none'}")


def require_folder(folder: Path | None, task: str) -> Path:
    """Return the folder of a task that has no hub data set."""
    if folder is None:
        raise CarotError(f"task {task} reads its original files; name their folder with --data")
    return folder


def checked(
    item_id: str,
    prompt: str,
    candidates: tuple[str, ...],
    gold: str,
    *,
    suffix: str = "",
    source: str | None = None,
) -> RankingItem | Skipped:
    """Make a ranking item of a row, or say why it is none.

    A row is skipped where a candidate is empty or stands twice, or the gold answer is none of
    them: its accuracy would mean nothing.
    """
    if not all(candidates):
        return Skipped(item_id, "empty candidate")
    if len(set(candidates)) < len(candidates):
        return Skipped(item_id, "duplicate candidates")
    if gold not in candidates:
        return Skipped(item_id, "gold not among candidates")
    return RankingItem(
        item_id, prompt, candidates, candidates.index(gold), suffix=suffix, source=source
    )


def sorted_out(
    rows: Iterable[RankingItem | Skipped],
) -> tuple[dict[str, RankingItem], list[Skipped]]:
    """Part questions from rows that are none; an id that stands twice is an error."""
    items: dict[str, RankingItem] = {}
    skipped = []
    for row in rows:
        if isinstance(row, Skipped):
            skipped.append(row)
        elif row.id in items:
            raise CarotError(f"the id {row.id!r} stands twice")
        else:
            items[row.id] = row
    return items, skipped
