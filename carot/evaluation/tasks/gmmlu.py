"""Global-MMLU (Singh et al., ACL 2025): MMLU in 42 languages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from carot.evaluation.items import Item, RankingItem, Skipped
from carot.evaluation.tasks.base import (
    Benchmark,
    RankingTask,
    cell,
    lettered,
    multiple_choice,
    own_codes,
    sorted_out,
)

LANGUAGES = (
    "en am ar bn cs de el es fa fil fr ha he hi id ig it ja ko ky lt mg ms ne nl ny pl pt ro ru si "
    "sn so sr sv sw te tr uk vi yo zh"
)

OPTIONS = ("option_a", "option_b", "option_c", "option_d")

FILES = ("test.jsonl", "test.csv", "test-00000-of-00001.parquet")


class Gmmlu(Benchmark, RankingTask):
    """Global-MMLU, its test set.

    The prompt is the question with lettered options and an answer cue, the candidates are the
    letters.

    Parameters
    ----------
    data : Path, optional
        The original files ``es/test-00000-of-00001.parquet``, or exported to ``es/test.jsonl`` or
        ``es/test.csv`` (columns sample_id, question, option_a to option_d, answer). By default the
        hub data set ``CohereForAI/Global-MMLU``, configurations ``es``.
    """

    name = "gmmlu"
    codes = own_codes(LANGUAGES.split())

    def path(self, folder: Path, language: str) -> Path:
        """Return the first of its files that is there."""
        files = [folder / language / name for name in FILES]
        return next((path for path in files if path.is_file()), files[0])

    def hub(self, language: str) -> tuple[str, str | None, str]:
        """Return the configuration of a language."""
        return "CohereForAI/Global-MMLU", language, "test"

    def load(self, language: str) -> tuple[dict[str, Item], list[Skipped]]:
        """Load the questions of one language by ``sample_id``."""
        items, skipped = sorted_out(self._items(language))
        return dict(items), skipped

    def _items(self, language: str) -> Iterator[RankingItem | Skipped]:
        for number, row in enumerate(self.rows(language), 1):
            where = f"{self.where(language)}, row {number}"
            options = [cell(row, option, where) for option in OPTIONS]
            yield multiple_choice(
                cell(row, "sample_id", where),
                lettered(cell(row, "question", where), options),
                options,
                cell(row, "answer", where),
                language,
            )
