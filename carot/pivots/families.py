"""How a kind of translation model is told from what language, and that English is wanted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from carot.errors import CarotError
from carot.interventions import ENGLISH
from carot.languages import base_language
from carot.pivots.codes import NLLB_CODES, lookup

MADLAD_TO_ENGLISH = "<2en>"
MARIAN_TO_ENGLISH = ">>eng<<"
_M2M_ALIASES = {"nb": "no", "nn": "no", "fil": "tl"}


@dataclass(frozen=True)
class Family:
    """What a kind of model needs.

    Parameters
    ----------
    prefix : str
        Stands before each text.
    first_token : int, optional
        The token that an English translation begins with.
    source : callable, optional
        From carot's language code to the tokenizer's ``src_lang``, None for one that the model
        does not know; missing where the model sees the language itself.
    """

    prefix: str = ""
    first_token: int | None = None
    source: Callable[[str], str | None] | None = None


def family_of(model: Any, tokenizer: Any) -> Family:
    """Tell NLLB, M2M-100, MADLAD-400 and Marian by config and vocabulary.

    Raises
    ------
    CarotError
        For another kind of model, or a Marian model into another language.
    """
    if model.config.model_type == "marian":
        return _marian(tokenizer)
    if _has(tokenizer, MADLAD_TO_ENGLISH):
        return Family(prefix=f"{MADLAD_TO_ENGLISH} ")
    if _has(tokenizer, NLLB_CODES[ENGLISH]):
        return Family(
            first_token=tokenizer.convert_tokens_to_ids(NLLB_CODES[ENGLISH]),
            source=lambda language: _nllb_code(tokenizer, language),
        )
    if hasattr(tokenizer, "lang_code_to_token") and hasattr(tokenizer, "get_lang_id"):
        return Family(
            first_token=tokenizer.get_lang_id(ENGLISH),
            source=lambda language: _m2m_code(tokenizer, language),
        )
    raise CarotError(
        f"{type(model).__name__} with {type(tokenizer).__name__} is no translation model that "
        "carot knows; expected NLLB, M2M-100, MADLAD-400 or Marian (OPUS-MT)"
    )


def _has(tokenizer: Any, token: str) -> bool:
    return tokenizer.convert_tokens_to_ids(token) not in (None, tokenizer.unk_token_id)


def _marian(tokenizer: Any) -> Family:
    if MARIAN_TO_ENGLISH in getattr(tokenizer, "supported_language_codes", ()):
        return Family(prefix=f"{MARIAN_TO_ENGLISH} ")
    target = getattr(tokenizer, "target_lang", None)
    if target is not None and base_language(target) not in (ENGLISH, "eng"):
        raise CarotError(f"this Marian model translates into {target!r}; expected one into 'en'")
    return Family()


def _nllb_code(tokenizer: Any, language: str) -> str | None:
    code = language if "_" in language and _has(tokenizer, language) else None
    code = code or lookup(NLLB_CODES, language)
    return code if code and _has(tokenizer, code) else None


def _m2m_code(tokenizer: Any, language: str) -> str | None:
    base = base_language(language)
    return next(
        (code for code in (base, _M2M_ALIASES.get(base)) if code in tokenizer.lang_code_to_token),
        None,
    )
