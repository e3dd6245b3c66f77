"""Pivots: where the English of a prompt comes from when the user has none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from carot.errors import CarotError
from carot.interventions import ENGLISH
from carot.languages import base_language, detect, script_of
from carot.pivots.base import Pivot
from carot.pivots.cache import Cached
from carot.pivots.command import Command
from carot.pivots.self_translation import SelfTranslation
from carot.pivots.seq2seq import Seq2Seq

KINDS = ("given", "self", "seq2seq:NAME", "command:PROGRAM ...")
"""What :func:`open_pivot` takes."""


def open_pivot(
    text: str, model: Any = None, tokenizer: Any = None, *, cached: bool = True
) -> Pivot | None:
    """Make a pivot of its name.

    Parameters
    ----------
    text : str
        ``given`` (only what the user has), ``self``, ``seq2seq:NAME`` or ``command:PROGRAM ...``.
    model, tokenizer : optional
        What is steered; ``self`` needs both.
    cached : bool
        Keep translations on disk, see :class:`Cached`.

    Returns
    -------
    Pivot or None
        None for ``given``.

    Raises
    ------
    CarotError
        For another name, or where the pivot cannot be made.
    """
    kind, _, rest = text.partition(":")
    pivot: Pivot
    if text == "given":
        return None
    if text == "self":
        if model is None or tokenizer is None:
            raise CarotError("pivot 'self' needs the model and its tokenizer; hand both over")
        pivot = SelfTranslation(model, tokenizer)
    elif kind == "seq2seq" and rest.strip():
        pivot = Seq2Seq(rest.strip())
    elif kind == "command" and rest.strip():
        pivot = Command(rest.strip())
    else:
        forms = {form.partition(":")[0]: form for form in KINDS}
        close = get_close_matches(kind, forms, n=1)
        hint = f" (did you mean {forms[close[0]]!r}?)" if close else ""
        raise CarotError(f"no pivot {text!r}{hint}; expected one of {', '.join(KINDS)}")
    return Cached(pivot) if cached else pivot


def translate_missing(
    pivot: Pivot | None,
    prompts: Sequence[str],
    english: Sequence[str | None] | None = None,
    languages: Sequence[str | None] | None = None,
    *,
    among: Iterable[str] | None = None,
) -> tuple[list[str | None], list[str | None]]:
    """Give each prompt its English.

    Parameters
    ----------
    pivot : Pivot, optional
        Translates; None leaves everything as it is given.
    prompts : sequence of str
        B prompts, or the part of each that is steered.
    english : sequence, optional
        The English of each, None or empty where there is none.
    languages : sequence, optional
        The language code of each, None where it is not known: it is detected where the prompt has
        no English.
    among : iterable of str, optional
        Codes that detection chooses from; all that it knows by default.

    Returns
    -------
    english, languages : list
        English prompts keep None, and so do those without a letter.

    Raises
    ------
    CarotError
        When the numbers of rows differ; else as the pivot and :func:`carot.languages.detect`.
    """
    nothing = [None] * len(prompts)
    translations: list[str | None] = list(nothing if english is None else english)
    codes: list[str | None] = list(nothing if languages is None else languages)
    for what, given in (("English texts", translations), ("languages", codes)):
        if len(given) != len(prompts):
            raise CarotError(f"{len(given)} {what} for {len(prompts)} prompts; expected as many")
    if pivot is None:
        return translations, codes
    open_rows = [row for row, text in enumerate(translations) if not text]
    if unknown := [row for row in open_rows if codes[row] is None]:
        found = detect([prompts[row] for row in unknown], among)
        for row, code in zip(unknown, found, strict=True):
            codes[row] = code
    foreign = [
        row
        for row in open_rows
        if base_language(codes[row] or "") != ENGLISH and script_of(prompts[row]) is not None
    ]
    if foreign:
        made = pivot.translate([prompts[row] for row in foreign], [codes[row] for row in foreign])
        for row, text in zip(foreign, made, strict=True):
            translations[row] = text
    return translations, codes


__all__ = [
    "KINDS",
    "Cached",
    "Command",
    "Pivot",
    "SelfTranslation",
    "Seq2Seq",
    "open_pivot",
    "translate_missing",
]
