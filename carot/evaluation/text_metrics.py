"""Comparing a generated answer with the right ones, as SQuAD and MLQA do."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

ARTICLES = {"a", "an", "the"}

UNSPACED = re.compile(
    "[\u0e00-\u0e7f\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
"""Thai, kana and Chinese characters: scripts without spaces, compared by character."""


def first_line(text: str) -> str:
    """Return the answer at the start of a generated text: its first line that is not empty."""
    return text.strip().partition("\n")[0].strip()


def tokens(text: str) -> list[str]:
    """Return what is compared: lower case, no punctuation, no English article.

    Words, but single characters of Chinese, Japanese kana and Thai.

    Examples
    --------
    >>> tokens("The Eiffel-Tower, in 巴黎!")
    ['eiffeltower', 'in', '巴', '黎']
    """
    kept = "".join(character for character in text.lower() if not _is_punctuation(character))
    spaced = UNSPACED.sub(lambda match: f" {match.group()} ", kept)
    return [token for token in spaced.split() if token not in ARTICLES]


def exact_match(text: str, answers: Sequence[str]) -> bool:
    """Tell whether a text has the same tokens in the same order as one of the answers."""
    given = tokens(text)
    return any(given == tokens(answer) for answer in answers)


def f1(text: str, answers: Sequence[str]) -> float:
    """Return the harmonic mean of token precision and recall, for the closest answer."""
    return max((_f1(tokens(text), tokens(answer)) for answer in answers), default=0.0)


def _f1(given: list[str], expected: list[str]) -> float:
    if not given or not expected:
        return float(given == expected)
    common = sum((Counter(given) & Counter(expected)).values())
    return 2 * common / (len(given) + len(expected))


def _is_punctuation(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character).startswith("P")
