"""The bundled facts: capitals, currencies, official languages and continents."""

from __future__ import annotations

from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from carot.corpora.parallel import read_jsonl
from carot.evaluation.items import Item, RankingItem, Skipped
from carot.evaluation.tasks.base import RankingTask, require_language

FACTS = Path(str(files("carot") / "data" / "facts.jsonl"))


class DemoFacts(RankingTask):
    """Facts that come with carot, built from Unicode CLDR by ``scripts/build_facts.py``.

    Parameters
    ----------
    data : None
        They need no folder.
    """

    name = "demo"

    def __init__(self, data: Path | None = None) -> None:
        self.path = FACTS if data is None else data / "facts.jsonl"

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        return read_jsonl(self.path)

    def languages(self) -> list[str]:
        """Return the languages that every fact is written in, English first."""
        return list(self._rows[0]["prompts"])

    def load(self, language: str) -> tuple[dict[str, Item], list[Skipped]]:
        """Load the facts in one language; none is left out."""
        require_language(language, self.languages(), self.path)
        items: dict[str, Item] = {
            row["id"]: RankingItem(
                row["id"],
                row["prompts"][language],
                tuple(row["candidates"][language]),
                row["answer"],
            )
            for row in self._rows
        }
        return items, []
