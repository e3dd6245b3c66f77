"""Which script and which language a text is in."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from carot.errors import CarotError

if TYPE_CHECKING:
    from lingua import Language, LanguageDetector

SCRIPT_LANGUAGES = {
    "Latin": "af az bs ca ceb cs cy da de en eo es et eu fi fil fr ga gl ha hr ht hu id ig is it "
    "jv la lb lt lv mg mi ms mt nb nl nn no ny pl pt qu ro rw sk sl sm sn so sq sr st su sv sw tk "
    "tl tn tr ts uz vi wo xh yo zu",
    "Cyrillic": "be bg kk ky mk mn ru sr tg tt uk uz",
    "Arabic": "ar ckb fa ps sd ug ur",
    "Han": "ja yue zh",
    "Kana": "ja",
    "Hangul": "ko",
    "Devanagari": "hi mr ne sa",
    "Thai": "th",
    "Bengali": "as bn",
    "Telugu": "te",
    "Tamil": "ta",
    "Gujarati": "gu",
    "Gurmukhi": "pa",
    "Kannada": "kn",
    "Malayalam": "ml",
    "Oriya": "or",
    "Sinhala": "si",
    "Greek": "el",
    "Hebrew": "he yi",
    "Armenian": "hy",
    "Georgian": "ka",
    "Ethiopic": "am ti",
    "Khmer": "km",
    "Lao": "lo",
    "Myanmar": "my",
    "Tibetan": "bo dz",
}
"""Languages by the scripts that they are written in today, as :func:`script_of` names them."""

# Unicode names begin with the script; these begin with something else.
_NAMED_OTHERWISE = {
    "CJK": "Han",
    "IDEOGRAPHIC": "Han",
    "HIRAGANA": "Kana",
    "KATAKANA": "Kana",
    "KATAKANA-HIRAGANA": "Kana",
    "MODIFIER": None,
}

_LINGUA_CODES = {"no": "nb"}

FEWEST_LETTERS = 6
"""Shorter texts are the same in many languages; :func:`detect` leaves them undecided."""

FEWEST_SIGNS = 2
"""The same for scripts whose signs are words or syllables."""

_SIGNS = ("Han", "Kana", "Hangul")


def script_of(text: str) -> str | None:
    """Return the script that most letters of a text are in.

    Parameters
    ----------
    text : str
        Anything; digits, punctuation and signs do not count.

    Returns
    -------
    str or None
        A script as Unicode names it (``Latin``, ``Cyrillic``, ``Devanagari``, ...), ``Han`` or
        ``Kana``; None where there are no letters. Chinese characters count as ``Kana`` when there
        is any kana beside them: the text is Japanese then.

    Examples
    --------
    >>> [script_of(text) for text in ("Столица: Wien", "東京です", "東京", "42")]
    ['Cyrillic', 'Kana', 'Han', None]
    """
    counts = Counter(script for letter in _letters(text) if (script := _script(letter)))
    if "Kana" in counts:
        counts["Kana"] += counts.pop("Han", 0)
    return counts.most_common(1)[0][0] if counts else None


def _letters(text: str) -> Iterable[str]:
    """Letters, with full-width, half-width and styled forms brought to the plain ones."""
    plain = unicodedata.normalize("NFKC", text)
    return (letter for letter in plain if unicodedata.category(letter).startswith("L"))


@lru_cache(maxsize=4096)
def _script(letter: str) -> str | None:
    first = unicodedata.name(letter, "MODIFIER").split()[0]
    return _NAMED_OTHERWISE.get(first, first.capitalize())


class LanguageIdentifier:
    """Tells which of a few languages a text is in.

    A thin layer over lingua, which is built for short texts and works offline. Names and single
    words that are spelt the same in several languages stay a guess.

    Parameters
    ----------
    languages : iterable of str
        ISO 639-1 codes to choose from; the fewer, the better it tells them apart. What follows
        ``-`` or ``_`` in a code is left out.

    Raises
    ------
    CarotError
        When lingua is not installed, does not know a language, or there are fewer than two.

    Examples
    --------
    >>> LanguageIdentifier(["en", "es"])("La capital de Austria es Viena")  # doctest: +SKIP
    'es'
    """

    def __init__(self, languages: Iterable[str]) -> None:
        names = {_lingua_code(language): language for language in languages}
        unknown = sorted(set(names) - self.supported())
        if unknown:
            raise CarotError(
                f"lingua does not know {', '.join(repr(names[code]) for code in unknown)}; "
                "leave such languages out, or judge by script_fidelity"
            )
        if len(names) < 2:
            raise CarotError(
                f"languages={list(names.values())}: expected two or more to choose from"
            )
        self._names = names
        self._detector = _detector(frozenset(names))

    @staticmethod
    def supported() -> frozenset[str]:
        """Return the ISO 639-1 codes that can be told apart."""
        try:
            from lingua import Language
        except ImportError as error:
            raise CarotError(
                "language identification needs the package lingua-language-detector; install it "
                "with pip install 'carot[eval]'"
            ) from error
        return frozenset(_code(language) for language in Language.all())

    def __call__(self, text: str) -> str | None:
        """Return the language as it was given, or None where nothing speaks for any of them."""
        found = self._detector.detect_language_of(text)
        return None if found is None else self._names[_code(found)]


def detect(texts: Sequence[str], languages: Iterable[str] | None = None) -> list[str | None]:
    """Return the language of each text; no text has an influence on another.

    Parameters
    ----------
    texts : sequence of str
        Prompts, sentences.
    languages : iterable of str, optional
        Codes to choose from; by default all that lingua knows (75). The fewer, the surer.

    Returns
    -------
    list of str or None
        A code for each text: ISO 639-1, or as it was given. None for a text with fewer than
        :data:`FEWEST_LETTERS` letters (:data:`FEWEST_SIGNS` in Chinese, Japanese and Korean), and
        where nothing speaks for any language.

    Raises
    ------
    CarotError
        As :class:`LanguageIdentifier`.
    """
    identify = LanguageIdentifier(
        LanguageIdentifier.supported() if languages is None else languages
    )
    return [identify(text) if _long_enough(text) else None for text in texts]


def detectable(languages: Iterable[str]) -> list[str] | None:
    """Return those of some languages that can be detected, None (all) where they are too few.

    Raises
    ------
    CarotError
        When lingua is missing.
    """
    known = LanguageIdentifier.supported()
    found = [code for code in languages if code in known]
    return found if len(found) > 1 else None


def _long_enough(text: str) -> bool:
    needed = FEWEST_SIGNS if script_of(text) in _SIGNS else FEWEST_LETTERS
    return sum(1 for _ in _letters(text)) >= needed


@lru_cache(maxsize=16)
def _detector(codes: frozenset[str]) -> LanguageDetector:
    from lingua import IsoCode639_1, LanguageDetectorBuilder

    wanted = [IsoCode639_1.from_str(code) for code in sorted(codes)]
    return LanguageDetectorBuilder.from_iso_codes_639_1(*wanted).build()


def _code(language: Language) -> str:
    return str(language.iso_code_639_1.name).lower()


def _lingua_code(language: str) -> str:
    base = base_language(language)
    return _LINGUA_CODES.get(base, base)


def base_language(language: str) -> str:
    """Return a code without its region or script: ``pt`` of ``pt-BR``."""
    return language.replace("_", "-").split("-")[0].lower()
