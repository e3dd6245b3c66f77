"""Whether outputs are in the language of their prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from carot.errors import CarotError
from carot.languages import SCRIPT_LANGUAGES, LanguageIdentifier, base_language, script_of


def script_fidelity(texts: Sequence[str], language: str) -> float:
    """Return the share of texts in a script of a language.

    Needs no package, and tells languages apart only where their scripts differ.

    Parameters
    ----------
    texts : sequence of str
        Outputs; one without letters counts as unfaithful.
    language : str
        Code of the language that they should be in; what follows ``-`` or ``_`` is left out.

    Raises
    ------
    CarotError
        When there are no texts, or the script of the language is not known.

    Examples
    --------
    >>> script_fidelity(["Вена", "Vienna", ""], "ru")
    0.3333333333333333
    """
    _require_texts(texts)
    base = base_language(language)
    scripts = {name for name, codes in SCRIPT_LANGUAGES.items() if base in codes.split()}
    if not scripts:
        known = sorted({code for codes in SCRIPT_LANGUAGES.values() for code in codes.split()})
        raise CarotError(
            f"language {language!r}: its script is not known; expected one of {', '.join(known)}"
        )
    return sum(script_of(text) in scripts for text in texts) / len(texts)


def fidelity(texts: Sequence[str], language: str, languages: Iterable[str]) -> float:
    """Return the share of texts that are in the language of their prompts.

    Parameters
    ----------
    texts : sequence of str
        Outputs. An empty one counts as unfaithful, and so does one without letters.
    language : str
        Code of the language that they should be in.
    languages : iterable of str
        What to choose from, English above all; ``language`` is always among them.

    Raises
    ------
    CarotError
        When there are no texts; otherwise as :class:`LanguageIdentifier`.
    """
    _require_texts(texts)
    identify = LanguageIdentifier([*languages, language])
    return sum(identify(text) == language for text in texts) / len(texts)


def _require_texts(texts: Sequence[str]) -> None:
    if not texts:
        raise CarotError("fidelity of no texts; expected one output or more")


__all__ = ["SCRIPT_LANGUAGES", "LanguageIdentifier", "fidelity", "script_fidelity", "script_of"]
