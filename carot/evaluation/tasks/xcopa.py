"""XCOPA (Ponti et al., EMNLP 2020): which of two sentences is the cause, or the effect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from carot.errors import CarotError
from carot.evaluation.items import Item, RankingItem, Skipped
from carot.evaluation.tasks.base import (
    Benchmark,
    RankingTask,
    cell,
    checked,
    inside,
    own_codes,
    read_rows,
    sorted_out,
)
from carot.models.scoring import default_separator

CONNECTIVES = {
    "en": {"cause": "because", "effect": "so"},
    "et": {"cause": "sest", "effect": "seetõttu"},
    "ht": {"cause": "poukisa", "effect": "donk sa"},
    "id": {"cause": "karena", "effect": "maka"},
    "it": {"cause": "perché", "effect": "quindi"},
    "qu": {"cause": "imataq", "effect": "chaymi"},
    "sw": {"cause": "kwa sababu", "effect": "kwa hiyo"},
    "ta": {"cause": "காரணமாக", "effect": "எனவே"},
    "th": {"cause": "เพราะ", "effect": "ดังนั้น"},
    "tr": {"cause": "çünkü", "effect": "bu yüzden"},
    "vi": {"cause": "bởi vì", "effect": "vì vậy"},
    "zh": {"cause": "因为", "effect": "所以"},
}
"""Because and so; those of lm-evaluation-harness."""

FIRST_TEST_ID = 501
"""COPA numbers its development set from 1 to 500, its test set from 501; XCOPA's from 0."""

COPA = "copa-test.xml"


class Xcopa(Benchmark, RankingTask):
    """XCOPA, its test set.

    The prompt is the premise without its full stop and a connective (because, so), the candidates
    are the two choices, going on in lower case.

    English is not in XCOPA: it is COPA's test set, of which XCOPA is the translation. Item 501
    there has ``idx`` 0 here.

    Parameters
    ----------
    data : Path, optional
        The original files ``et/test.et.jsonl``: this folder, or the one that holds it as ``data``;
        English in it is COPA's ``copa-test.xml``, or ``en/test.en.jsonl`` written like the others.
        By default the hub data set ``cambridgeltl/xcopa``, configurations ``et``, and for English
        ``pkavumba/balanced-copa``, whose test set is COPA's.
    """

    name = "xcopa"
    codes = own_codes(CONNECTIVES)

    def __init__(self, data: Path | None) -> None:
        super().__init__(inside(data, "data"))

    def path(self, folder: Path, language: str) -> Path:
        """Return ``<language>/test.<language>.jsonl``, or COPA's own file for English."""
        path = folder / language / f"test.{language}.jsonl"
        return folder / COPA if language == "en" and not path.is_file() else path

    def hub(self, language: str) -> tuple[str, str | None, str]:
        """Return the configuration of a language; English is COPA."""
        if language == "en":
            return "pkavumba/balanced-copa", None, "test"
        return "cambridgeltl/xcopa", language, "test"

    def read(self, path: Path) -> list[dict[str, Any]]:
        """Return the rows of a file of XCOPA or COPA."""
        return _read_copa(path) if path.name == COPA else read_rows(path)

    def load(self, language: str) -> tuple[dict[str, Item], list[Skipped]]:
        """Load the questions of one language by ``idx``."""
        items, skipped = sorted_out(self._items(language))
        return dict(items), skipped

    def _items(self, language: str) -> Iterator[RankingItem | Skipped]:
        for number, row in enumerate(self.rows(language), 1):
            where = f"{self.where(language)}, row {number}"
            idx = str(_copa_idx(row, where)) if "id" in row else cell(row, "idx", where)
            asked = cell(row, "question", where)
            if asked not in CONNECTIVES[language]:
                raise CarotError(f"{where}: question is {asked!r}; expected cause or effect")
            premise = cell(row, "premise", where).rstrip(".。!?！？")
            if not premise:
                yield Skipped(idx, "empty premise")
                continue
            choices = [
                _going_on(cell(row, name, where), language) for name in ("choice1", "choice2")
            ]
            prompt = premise + default_separator(premise) + CONNECTIVES[language][asked]
            gold = dict(zip("01", choices, strict=True)).get(cell(row, "label", where), "")
            yield checked(idx, prompt, tuple(choices), gold)


def _copa_idx(row: dict[str, Any], where: str) -> int:
    number = cell(row, "id", where)
    if not number.isdecimal() or not 0 <= int(number) - FIRST_TEST_ID < 500:
        raise CarotError(f"{where}: id is {number!r}; expected one of COPA's test set, 501 to 1000")
    return int(number) - FIRST_TEST_ID


def _going_on(choice: str, language: str) -> str:
    """Return a choice in mid-sentence: its first letter in lower case."""
    if language == "en" and choice.split("'")[0].split(" ")[0] == "I":
        return choice
    first = {"I": "ı", "İ": "i"}.get(choice[:1]) if language == "tr" else None
    return (first or choice[:1].lower()) + choice[1:]


def _read_copa(path: Path) -> list[dict[str, Any]]:
    try:
        items = list(ElementTree.parse(path).iter("item"))
    except ElementTree.ParseError as error:
        raise CarotError(f"{path}: not valid XML ({error})") from error
    labels = {"1": 0, "2": 1}
    return [
        {
            "id": item.get("id"),
            "premise": item.findtext("p"),
            "choice1": item.findtext("a1"),
            "choice2": item.findtext("a2"),
            "question": item.get("asks-for"),
            "label": labels.get(item.get("most-plausible-alternative", "")),
        }
        for item in items
    ]
