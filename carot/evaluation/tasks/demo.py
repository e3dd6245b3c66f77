"""The bundled facts: capitals, currencies, official languages and continents."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from carot.corpora.parallel import read_jsonl
from carot.errors import CarotError
from carot.evaluation.ranking import RankingItem

FACTS = Path(str(files("carot") / "data" / "facts.jsonl"))


def demo_languages() -> list[str]:
    """Return the languages of the bundled facts, English first."""
    return list(read_jsonl(FACTS)[0]["prompts"])


def load_demo(language: str, limit: int | None = None) -> list[RankingItem]:
    """Load the bundled facts in one language.

    Parameters
    ----------
    language : str
        One of :func:`demo_languages`.
    limit : int, optional
        Keep this many, spread evenly over the relations.

    Raises
    ------
    CarotError
        For a language that is not bundled.
    """
    rows = read_jsonl(FACTS)
    if language not in rows[0]["prompts"]:
        raise CarotError(
            f"no bundled facts in {language!r}; expected one of {', '.join(rows[0]['prompts'])}"
        )
    count = min(limit or len(rows), len(rows))
    return [
        RankingItem(
            row["id"], row["prompts"][language], tuple(row["candidates"][language]), row["answer"]
        )
        for row in (rows[index * len(rows) // count] for index in range(count))
    ]
