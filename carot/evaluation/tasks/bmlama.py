"""BMLAMA-17 (Qi et al., EMNLP 2023): factual clozes with candidates, aligned by line."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from carot.errors import CarotError
from carot.evaluation.ranking import RankingItem

MASK = "<mask>"


def load_bmlama(folder: str | Path, language: str) -> dict[str, RankingItem]:
    """Load the facts of one language whose mask ends the sentence, by row number.

    Parameters
    ----------
    folder : path
        The folder ``BMLAMA17`` of the authors' repository.
    language : str
        Two-letter code of a file in it.

    Returns
    -------
    dict of str to RankingItem
        The prompt is what stands before the mask. Rows whose gold answer is not among the
        candidates are left out.

    Raises
    ------
    CarotError
        When there is no such file, or it has not the columns of BMLAMA.
    """
    path = Path(folder) / f"{language}.tsv"
    if not path.is_file():
        present = ", ".join(sorted(file.stem for file in Path(folder).glob("*.tsv"))) or "none"
        raise CarotError(f"{path}: no such file; languages there: {present}")
    items = {}
    with path.open(encoding="utf-8", newline="") as lines:
        for number, row in enumerate(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)):
            item = _item(str(number), row, path)
            if item is not None:
                items[item.id] = item
    return items


def _item(number: str, row: Mapping[str, str], path: Path) -> RankingItem | None:
    try:
        prompt, gold, listed = row["Prompt"], row["Ans"], row["Candidate Ans"]
    except KeyError as error:
        raise CarotError(
            f"{path}: no column {error}; expected Prompt, Ans, Candidate Ans"
        ) from error
    before, mask, after = prompt.partition(MASK)
    candidates = tuple(candidate.strip() for candidate in listed.split(", "))
    if not mask or after.strip(" .。।") or gold.strip() not in candidates:
        return None
    return RankingItem(number, before.strip(), candidates, candidates.index(gold.strip()))
