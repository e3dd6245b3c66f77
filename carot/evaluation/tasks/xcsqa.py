"""X-CSQA (Lin et al., ACL 2021): commonsense questions with five options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from carot.errors import CarotError
from carot.evaluation.items import Item, RankingItem, Skipped
from carot.evaluation.tasks.base import (
    Benchmark,
    RankingTask,
    answer_cue,
    cell,
    checked,
    field,
    inside,
    lettered,
    many,
    own_codes,
    sorted_out,
)

LANGUAGES = "en ar de es fr hi it ja nl pl pt ru sw ur vi zh"


class Xcsqa(Benchmark, RankingTask):
    """X-CSQA, its development set: the answers of the test set are hidden.

    The prompt is the question with lettered options and an answer cue, the candidates are the
    texts of the options. The translations are a machine's: rows whose options became the same are
    left out.

    Parameters
    ----------
    data : Path, optional
        The original files ``X-CSQA/en/dev.jsonl`` (Japanese in ``jap``): this folder, or the one
        that holds it. By default the hub data set ``INK-USC/xcsr``, configurations ``X-CSQA-en``,
        split ``validation``.
    """

    name = "xcsqa"
    codes = own_codes(LANGUAGES.split()) | {"ja": "jap"}

    def __init__(self, data: Path | None) -> None:
        super().__init__(inside(data, "X-CSQA"))

    def path(self, folder: Path, language: str) -> Path:
        """Return ``<language>/dev.jsonl``."""
        return folder / self.codes[language] / "dev.jsonl"

    def hub(self, language: str) -> tuple[str, str | None, str]:
        """Return the configuration of a language."""
        return "INK-USC/xcsr", f"X-CSQA-{self.codes[language]}", "validation"

    def load(self, language: str) -> tuple[dict[str, Item], list[Skipped]]:
        """Load the questions of one language by the data set's own ids."""
        items, skipped = sorted_out(self._items(language))
        return dict(items), skipped

    def _items(self, language: str) -> Iterator[RankingItem | Skipped]:
        for number, row in enumerate(self.rows(language), 1):
            where = f"{self.where(language)}, row {number}"
            question = field(row, "question", where)
            options = _options(question, where)
            texts = tuple(options.values())
            body = lettered(cell(question, "stem", where), texts)
            yield checked(
                cell(row, "id", where),
                f"{body}\n{answer_cue(language)}",
                texts,
                options.get(cell(row, "answerKey", where), ""),
                content=(0, len(body)),
            )


def _options(question: Any, where: str) -> dict[str, str]:
    """Return texts by label, A first; the hub has lists of each, the files a list of pairs."""
    choices = field(question, "choices", where)
    if isinstance(choices, Mapping):
        labels, texts = many(choices, "label", where), many(choices, "text", where)
        if len(labels) != len(texts):
            raise CarotError(f"{where}: {len(labels)} labels for {len(texts)} options")
        pairs = {label: str(text or "").strip() for label, text in zip(labels, texts, strict=True)}
    else:
        pairs = {
            cell(choice, "label", where): cell(choice, "text", where)
            for choice in many(question, "choices", where)
        }
    if sorted(pairs) != [*"ABCDE"]:
        raise CarotError(f"{where}: options {', '.join(pairs)}; expected A, B, C, D, E")
    return dict(sorted(pairs.items()))
