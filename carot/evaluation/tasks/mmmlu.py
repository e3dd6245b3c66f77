"""MMMLU (OpenAI, 2024): MMLU (Hendrycks et al., ICLR 2021) translated by professionals."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carot.evaluation.items import Item, RankingItem, Skipped
from carot.evaluation.tasks.base import (
    Benchmark,
    RankingTask,
    cell,
    field,
    inside,
    lettered,
    multiple_choice,
    require_same_rows,
    sorted_out,
)

LETTERS = ("A", "B", "C", "D")

LOCALES = {
    "en": "EN-US",
    "ar": "AR-XY",
    "bn": "BN-BD",
    "de": "DE-DE",
    "es": "ES-LA",
    "fr": "FR-FR",
    "hi": "HI-IN",
    "id": "ID-ID",
    "it": "IT-IT",
    "ja": "JA-JP",
    "ko": "KO-KR",
    "pt": "PT-BR",
    "sw": "SW-KE",
    "yo": "YO-NG",
    "zh": "ZH-CN",
}


@dataclass(frozen=True)
class _Row:
    id: str
    question: str
    options: tuple[str, ...]
    gold: str


class Mmmlu(Benchmark, RankingTask):
    """MMMLU, its test set.

    The prompt is the question with lettered options and an answer cue, the candidates are the
    letters.

    Its rows have no id: they are joined on the subject and the row's number within it, in the
    order of the file. Each subject must have as many rows as in English, and a row whose gold
    letter is not the English one is left out: it is another question.

    Parameters
    ----------
    data : Path, optional
        The original files ``mmlu_ES-LA.csv`` (columns Question, A, B, C, D, Answer, Subject), with
        the same columns ``mmlu.csv`` for English: this folder, or the one that holds it as
        ``test``. By default the hub data set ``openai/MMMLU``, configurations ``ES_LA``, and for
        English ``cais/mmlu``, configuration ``all``.
    """

    name = "mmmlu"
    codes = LOCALES

    def __init__(self, data: Path | None) -> None:
        super().__init__(inside(data, "test"))

    def path(self, folder: Path, language: str) -> Path:
        """Return ``mmlu_<LOCALE>.csv``, ``mmlu.csv`` for English."""
        return folder / ("mmlu.csv" if language == "en" else f"mmlu_{self.codes[language]}.csv")

    def hub(self, language: str) -> tuple[str, str | None, str]:
        """Return the configuration of a language; English is MMLU itself."""
        if language == "en":
            return "cais/mmlu", "all", "test"
        return "openai/MMMLU", self.codes[language].replace("-", "_"), "test"

    def load(self, language: str) -> tuple[dict[str, Item], list[Skipped]]:
        """Load the questions of one language by subject and number, ``anatomy/0``."""
        rows = list(self._numbered(language))
        golds = {row.id: row.gold for row in rows}
        if language != "en" and "en" in self.languages():
            golds = {row.id: row.gold for row in self._numbered("en")}
            require_same_rows((row.id for row in rows), golds, self.where(language))
        items, skipped = sorted_out(_item(row, golds[row.id], language) for row in rows)
        return dict(items), skipped

    def _numbered(self, language: str) -> Iterator[_Row]:
        counts: Counter[str] = Counter()
        for number, row in enumerate(self.rows(language), 1):
            where = f"{self.where(language)}, row {number}"
            subject, question, options, gold = _columns(row, where)
            yield _Row(f"{subject}/{counts[subject]}", question, options, gold)
            counts[subject] += 1


def _columns(row: Any, where: str) -> tuple[str, str, tuple[str, ...], str]:
    """Return subject, question, options and the letter of the right one."""
    if "choices" in row:  # MMLU itself
        choices = tuple(str(choice).strip() for choice in row["choices"])
        index = field(row, "answer", where)
        gold = LETTERS[index] if index in range(len(LETTERS)) else str(index)
        return cell(row, "subject", where), cell(row, "question", where), choices, gold
    # A few translations have a file name there: college_mathematics_test.csv_sw-KE.csv.
    subject = re.sub(r"_test[.-].*", "", cell(row, "Subject", where))
    options = tuple(cell(row, letter, where) for letter in LETTERS)
    return subject, cell(row, "Question", where), options, cell(row, "Answer", where)


def _item(row: _Row, english_gold: str, language: str) -> RankingItem | Skipped:
    if row.gold != english_gold:
        return Skipped(row.id, "gold differs from English")
    body = lettered(row.question, row.options)
    return multiple_choice(row.id, body, row.options, row.gold, language)
