"""MGSM (Shi et al., ICLR 2023): word problems of grade-school mathematics."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from carot.errors import CarotError
from carot.evaluation.items import GenerationItem, Item, Skipped
from carot.evaluation.tasks.base import (
    Benchmark,
    cell,
    own_codes,
    require_same_rows,
    sorted_out,
)
from carot.files import read_text

INSTRUCTIONS = {
    "en": "Solve this problem step by step. Give the final answer at the end as a number.",
    "bn": "এই সমস্যাটি ধাপে ধাপে সমাধান করুন। শেষে চূড়ান্ত উত্তরটি একটি সংখ্যা হিসেবে দিন।",
    "de": "Löse diese Aufgabe Schritt für Schritt. Gib am Ende die endgültige Antwort als Zahl an.",
    "es": "Resuelve este problema paso a paso. Da al final la respuesta definitiva como un número.",
    "fr": "Résous ce problème étape par étape. À la fin, donne la réponse finale en chiffres.",
    "ja": "次の問題を順を追って解いてください。最後に最終的な答えを数字で示してください。",
    "ru": "Реши эту задачу шаг за шагом. В конце дай окончательный ответ в виде числа.",
    "sw": "Tatua swali hili hatua kwa hatua. Mwishoni toa jibu la mwisho kama nambari.",
    "te": "ఈ సమస్యను దశలవారీగా పరిష్కరించండి. చివరలో తుది సమాధానాన్ని సంఖ్యగా ఇవ్వండి.",
    "th": "แก้โจทย์นี้ทีละขั้นตอน แล้วให้คำตอบสุดท้ายเป็นตัวเลขไว้ท้ายสุด",
    "zh": "请逐步解答这道题，并在最后用数字给出最终答案。",
}

CUES = {
    "en": "Step-by-Step Answer:",
    "bn": "ধাপে ধাপে উত্তর:",
    "de": "Schritt-für-Schritt-Antwort:",
    "es": "Respuesta paso a paso:",
    "fr": "Réponse étape par étape :",
    "ja": "ステップごとの答え:",
    "ru": "Пошаговое решение:",
    "sw": "Jibu la Hatua kwa Hatua:",
    "te": "దశలవారీగా సమాధానం:",
    "th": "คำตอบทีละขั้นตอน:",
    "zh": "逐步解答:",
}
"""Those of the paper's examples."""

NUMBER = re.compile(
    r"""
    (?P<sign>(?<![\w)])[-−])?
    (?<!\d)
    (?P<whole>
        [1-9]\d{0,2} (?P<mark>[.,٬'’\u0020\u00a0\u2009\u202f]) \d{3} (?:(?P=mark)\d{3})* (?!\d)
        | [1-9]\d? (?:,\d{2})+ ,\d{3} (?!\d)    # lakh: 1,14,200
        | \d+
    )
    (?: [.,٫] (?P<part>\d+) )?
    """,
    re.VERBOSE,
)


class Mgsm(Benchmark):
    """MGSM, its test set, solved step by step without examples.

    The prompt is an instruction in the language (solve step by step, give the final answer at the
    end as a number), the problem, and the cue of the paper's examples. The examples themselves are
    not in the original files. An answer is right if its last number is the right one: digits of any
    script, with or without marks between thousands, which a mark before three digits is taken for.

    Rows have no id: they are joined on the row's number. Each language must have as many rows as
    English, and a row whose answer is not the English one is left out.

    Parameters
    ----------
    data : Path, optional
        The original files ``mgsm_es.tsv``. By default the hub data set ``juletxara/mgsm``,
        configurations ``es``.
    """

    name = "mgsm"
    max_new_tokens = 500
    codes = own_codes(INSTRUCTIONS)

    def path(self, folder: Path, language: str) -> Path:
        """Return ``mgsm_<language>.tsv``."""
        return folder / f"mgsm_{language}.tsv"

    def hub(self, language: str) -> tuple[str, str | None, str]:
        """Return the configuration of a language."""
        return "juletxara/mgsm", language, "test"

    def read(self, path: Path) -> list[dict[str, Any]]:
        """Return the rows of a file without header, as the hub data set names its columns."""
        rows = []
        for number, line in enumerate(read_text(path).removesuffix("\n").split("\n"), 1):
            question, *answers = line.removesuffix("\r").split("\t")
            if len(answers) != 1:
                raise CarotError(
                    f"{path}, line {number}: {1 + len(answers)} columns; expected two, the problem "
                    "and its answer"
                )
            rows.append({"question": question, "answer_number": answers[0]})
        return rows

    def load(self, language: str) -> tuple[dict[str, Item], list[Skipped]]:
        """Load the problems of one language by row number."""
        rows = self._numbered(language)
        golds = {number: gold for number, (_, gold) in rows.items()}
        if language != "en" and "en" in self.languages():
            golds = {number: gold for number, (_, gold) in self._numbered("en").items()}
            require_same_rows(rows, golds, self.where(language))
        items, skipped = sorted_out(self._items(rows, golds, language))
        return dict(items), skipped

    def is_right(self, item: GenerationItem, text: str) -> bool:
        """Compare the last number of a text with the right one."""
        given = last_number(text)
        return given is not None and given in [last_number(answer) for answer in item.answers]

    def _numbered(self, language: str) -> dict[str, tuple[str, Decimal | None]]:
        """Return problem and answer by row number."""
        table = {}
        for number, row in enumerate(self.rows(language)):
            where = f"{self.where(language)}, row {number + 1}"
            gold = last_number(cell(row, "answer_number", where))
            table[str(number)] = (cell(row, "question", where), gold)
        return table

    @staticmethod
    def _items(
        rows: dict[str, tuple[str, Decimal | None]],
        golds: dict[str, Decimal | None],
        language: str,
    ) -> Iterator[GenerationItem | Skipped]:
        start = f"{INSTRUCTIONS[language]}\n\n"
        for number, (question, gold) in rows.items():
            if not question or gold is None:
                yield Skipped(number, "no problem" if gold is not None else "answer is no number")
            elif gold != golds[number]:
                yield Skipped(number, "gold differs from English")
            else:
                span = (len(start), len(start) + len(question))
                prompt = f"{start}{question}\n\n{CUES[language]}"
                yield GenerationItem(number, prompt, (f"{gold:f}",), content=span)


def last_number(text: str) -> Decimal | None:
    """Return the last number of a text.

    Examples
    --------
    >>> last_number("3 + 4 = 7, times 1,000 is 7.000,50.")
    Decimal('7000.5')
    """
    western = "".join(
        str(unicodedata.decimal(character)) if character.isdecimal() else character
        for character in text
    )
    numbers = list(NUMBER.finditer(western))
    if not numbers:
        return None
    found = numbers[-1]
    whole = re.sub(r"\D", "", found["whole"])
    number = Decimal(f"{whole}.{found['part'] or 0}").normalize()
    return -number if found["sign"] else number
