"""Rows made ready for the model, in batches of like length."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from carot.errors import CarotError
from carot.inference.rows import Row
from carot.models import CarotModel
from carot.models.chat import chat_frame
from carot.models.encoding import Span, resolve_content

WINDOW = 2048
"""Rows that are read and sorted by length together."""


@dataclass(frozen=True)
class Side:
    """A text as the model is given it, and the characters that are steered (None for all)."""

    text: str
    span: Span | None

    @property
    def content(self) -> str:
        """What is steered, alone."""
        return self.text if self.span is None else self.text[slice(*self.span)]


class Form:
    """How the texts of rows become what the model is given.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
        Its chat template is used.
    chat : bool
        Each text is the one turn of a user.
    marker : str, optional
        Encloses the content of each text, and is taken out.
    """

    def __init__(self, tokenizer: Any, *, chat: bool = False, marker: str | None = None) -> None:
        self.frame = chat_frame(tokenizer) if chat else ("", "")
        self.chat = chat
        self.marker = marker

    def of(self, text: str, name: str, *, marked: bool = True) -> Side:
        """Make one side; a CarotError says so where its marker is wrong."""
        [plain], [span] = resolve_content([text], self.marker if marked else None, name)
        if not self.chat:
            return Side(plain, span)
        before, behind = self.frame
        start, end = span or (0, len(plain))
        return Side(before + plain + behind, (start + len(before), end + len(before)))


@dataclass(frozen=True)
class Ready:
    """A row that can be asked.

    Parameters
    ----------
    row : Row
        As it was read.
    prompt : Side
        The prompt.
    english : Side, optional
        Its English counterpart.
    width : int
        Tokens that it takes: those of the prompt and new ones, or of the English text.
    """

    row: Row
    prompt: Side
    english: Side | None
    width: int


def make_ready(row: Row, model: CarotModel, form: Form, options: Mapping[str, Any]) -> Ready:
    """Check a row and measure it.

    Parameters
    ----------
    row : Row
        As read.
    model : CarotModel
        Will be asked.
    form : Form
        Of both sides.
    options : mapping
        Of ``generate``.

    Raises
    ------
    CarotError
        Saying what is wrong with the row.
    """
    if row.error is not None:
        raise CarotError(row.error)
    try:
        prompt = form.of(row.prompt, "prompt")
        english = None if row.english is None else form.of(row.english, "English text")
        [(length, other)] = model.check(
            [prompt.text],
            [None if english is None else english.text],
            content=[prompt.span],
            english_content=[None if english is None else english.span],
            **options,
        )
    except CarotError as error:
        raise CarotError(without_number(error)) from error
    return Ready(row, prompt, english, max(length + (options.get("max_new_tokens") or 0), other))


def without_number(error: CarotError) -> str:
    """Return a message about the only row of a call without that row's number in it."""
    return re.sub(r"\b(prompt|English text) 0\b", r"\1", str(error))


def windows(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the rows some thousand at a time."""
    iterator = iter(rows)
    while window := list(islice(iterator, WINDOW)):
        yield window


def bucket(rows: Iterable[Ready], max_tokens: int, max_rows: int | None) -> list[list[Ready]]:
    """Share rows among batches of like width, the widest first.

    A batch takes ``max_tokens`` at most, padding counted (a row that alone takes more is a batch),
    and ``max_rows`` rows. What they are depends on the rows alone.
    """
    batches: list[list[Ready]] = []
    for row in sorted(rows, key=lambda row: (-row.width, row.row.index)):
        last = batches[-1] if batches else []
        fits = last and (len(last) + 1) * last[0].width <= max_tokens
        if fits and (max_rows is None or len(last) < max_rows):
            last.append(row)
        else:
            batches.append([row])
    return batches
