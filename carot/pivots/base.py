"""What a pivot is, and what all of them do to a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

SENTENCE_ENDS = ".!?…。．！？｡।॥؟۔።"
QUOTED = 40
_CLOSING = "\"'»”’)]」』 "


class Pivot(Protocol):
    """Gives the English of a prompt.

    Attributes
    ----------
    name : str
        What output files record, as :func:`carot.pivots.open_pivot` takes it.
    """

    name: str

    def translate(
        self, prompts: Sequence[str], languages: Sequence[str | None]
    ) -> list[str | None]:
        """Return the English of each prompt, None where there is none to give.

        Parameters
        ----------
        prompts : sequence of str
            B prompts.
        languages : sequence of str or None
            The language code of each (``"es"``); None where it is not known.

        Raises
        ------
        CarotError
            For a language that the pivot needs and does not know, or a text that is too long.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Return what the translations depend on, as JSON: two that are equal translate alike."""
        ...


def one_line(text: str) -> str:
    """Return a text with every run of white space, line breaks among them, as one space."""
    return " ".join(text.split())


def quoted(text: str) -> str:
    """Return the beginning of a prompt, for messages: row numbers change on the way to a pivot."""
    line = one_line(text)
    return f"prompt {line!r}" if len(line) <= QUOTED else f"prompt {line[:QUOTED]!r}..."


def ended_like(source: str, english: str) -> str:
    """Take a full stop off the English of an unfinished sentence: translators like to add one.

    Examples
    --------
    >>> ended_like("La capital de Kenia es", "The capital of Kenya is.")
    'The capital of Kenya is'
    >>> ended_like("El pan es bueno.", "The bread is good.")
    'The bread is good.'
    """
    finished = source.rstrip(_CLOSING).endswith(tuple(SENTENCE_ENDS))
    return english if finished else english.removesuffix(".").rstrip()
