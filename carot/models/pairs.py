"""Prompts and their English counterparts, as callers give them, made into rows that match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from carot.errors import CarotError
from carot.models.encoding import Content, Span, resolve_content

Translate = Callable[[Sequence[str], Sequence[str | None]], list[str | None]]
"""(contents of prompts, their English where there is some) -> English for all that can have it."""


@dataclass(frozen=True)
class Pairs:
    """B prompts, with English counterparts where there are any; markers are taken out.

    Parameters
    ----------
    prompts : list of str
        The prompts.
    spans : list of (Span or None)
        The content of each prompt, or None for all of it.
    english : list of (str or None)
        None (or an empty text) leaves the row unsteered.
    english_spans : list of (Span or None)
        The content of each English text.
    first : int
        Number of the first row, where these are part of more; for messages.
    """

    prompts: list[str]
    spans: list[Span | None]
    english: list[str | None]
    english_spans: list[Span | None]
    first: int = 0

    def __len__(self) -> int:
        return len(self.prompts)

    def __getitem__(self, part: slice) -> Pairs:
        return Pairs(
            self.prompts[part],
            self.spans[part],
            self.english[part],
            self.english_spans[part],
            self.first + (part.start or 0),
        )

    def filled(self, translate: Translate) -> Pairs:
        """Return these rows with English for those that had none, made of their content."""
        contents = [
            text if span is None else text[slice(*span)]
            for text, span in zip(self.prompts, self.spans, strict=True)
        ]
        return replace(self, english=translate(contents, self.english))

    @classmethod
    def resolve(
        cls,
        prompts: Sequence[str],
        english: str | Sequence[str | None] | None,
        content: Content | None = None,
        english_content: Content | None = None,
    ) -> Pairs:
        """Check what a caller gave, and find the content of both sides.

        A ``content`` marker holds for the English side too, unless ``english_content`` is given.

        Raises
        ------
        CarotError
            When counts do not match, or markers and spans do not fit.
        """
        if english is None:
            english = [None] * len(prompts)
        given = [english] if isinstance(english, str) else list(english)
        if len(given) != len(prompts):
            raise CarotError(
                f"{len(given)} English texts for {len(prompts)} prompts; expected one for each, or "
                "None where there is none"
            )
        if english_content is None and isinstance(content, str):
            english_content = content
        texts, spans = resolve_content(prompts, content, "prompt")
        return cls(texts, spans, *resolve_english(given, english_content))


def resolve_english(
    english: Sequence[str | None], content: Content | None
) -> tuple[list[str | None], list[Span | None]]:
    """Find the content of English texts; rows without a text keep None."""
    rows = [row for row, text in enumerate(english) if text]
    if content is not None and not isinstance(content, str):
        if len(content) != len(english):
            raise CarotError(
                f"{len(content)} English content spans for {len(english)} English texts; expected "
                "as many"
            )
        content = [content[row] for row in rows]
    texts, spans = resolve_content(
        [english[row] or "" for row in rows], content, "English text", rows
    )
    given: list[str | None] = [None] * len(english)
    placed: list[Span | None] = [None] * len(english)
    for row, text, span in zip(rows, texts, spans, strict=True):
        given[row], placed[row] = text, span
    return given, placed
