"""BMLAMA-17 (Qi et al., EMNLP 2023): factual clozes with candidates, aligned by line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from carot.corpora.parallel import read_lines
from carot.errors import CarotError
from carot.evaluation.items import Item, RankingItem, Skipped
from carot.evaluation.tasks.base import (
    RankingTask,
    checked,
    require_folder,
    require_language,
    sorted_out,
)

MASK = "<mask>"
HEADER = ["Prompt", "Ans"]


class Bmlama(RankingTask):
    """BMLAMA-17 from the folder ``BMLAMA17`` of its authors' repository.

    The candidate stands at the mask: it is scored together with what follows (in mid-sentence for
    Japanese, Korean and Turkish), but for closing punctuation. What steers is the English sentence
    before its mask.

    Parameters
    ----------
    data : Path
        Holds ``en.tsv``, ``es.tsv``, ...
    """

    name = "bmlama"

    def __init__(self, data: Path | None) -> None:
        self.folder = require_folder(data, self.name)

    def languages(self) -> list[str]:
        """Return the languages whose files are there."""
        return sorted(path.stem for path in self.folder.glob("*.tsv"))

    def load(self, language: str) -> tuple[dict[str, Item], list[Skipped]]:
        """Load the facts of one language by row number.

        Left out are rows whose mask comes first, whose gold answer is not among the candidates, or
        whose candidates are empty or stand twice.
        """
        require_language(language, self.languages(), self.folder)
        items, skipped = sorted_out(self._rows(self.folder / f"{language}.tsv"))
        return dict(items), skipped

    def _rows(self, path: Path) -> Iterator[RankingItem | Skipped]:
        # By position: the header of zh.tsv has one tab too many.
        header, *rows = [line.rstrip("\r").split("\t") for line in read_lines(path)] or [[]]
        if header[:2] != HEADER or any(len(row) < 3 for row in rows):
            raise CarotError(
                f"{path}: not the layout of BMLAMA-17; expected three columns or more, the first "
                f"two {HEADER}"
            )
        for number, row in enumerate(rows):
            yield self._item(str(number), *row[:3])

    @staticmethod
    def _item(number: str, sentence: str, gold: str, listed: str) -> RankingItem | Skipped:
        before, mask, after = sentence.partition(MASK)
        if not mask or not before.strip():
            return Skipped(number, "mask comes first" if mask else "no mask")
        candidates = tuple(candidate.strip() for candidate in listed.split(", "))
        suffix = after.rstrip(" .。।")
        return checked(number, before.strip(), candidates, gold.strip(), suffix=suffix)
