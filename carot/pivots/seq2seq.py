"""A translation model: NLLB, M2M-100, MADLAD-400, Marian (OPUS-MT)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from carot.errors import CarotError, require_positive
from carot.pivots.base import ended_like, one_line, quoted
from carot.pivots.families import family_of
from carot.pivots.neural import batches, new_tokens, weights_digest


class Seq2Seq:
    """An encoder-decoder translates.

    Parameters
    ----------
    name_or_model : str, path or PreTrainedModel
        A hub id, a local folder, or a model in memory.
    tokenizer : PreTrainedTokenizerBase, optional
        That of a model in memory; its ``src_lang`` is as before after each call.
    num_beams : int
        Beams of the search; 1 is greedy.
    max_new_tokens : int, optional
        Of a translation; by default at least twice the tokens of the prompt and 16 more.
    batch_size : int
        Prompts in one batch.

    Raises
    ------
    CarotError
        When nothing can be loaded, or the model is of another kind.
    """

    def __init__(
        self,
        name_or_model: Any,
        tokenizer: Any = None,
        *,
        num_beams: int = 4,
        max_new_tokens: int | None = None,
        batch_size: int = 16,
    ) -> None:
        require_positive(
            num_beams=num_beams, max_new_tokens=max_new_tokens or 1, batch_size=batch_size
        )
        if isinstance(name_or_model, str | Path):
            self.source = str(name_or_model)
            self.model, self.tokenizer = _load(self.source)
        elif tokenizer is None:
            raise CarotError("a translation model in memory needs its tokenizer; hand it over too")
        else:
            self.model, self.tokenizer = name_or_model, tokenizer
            self.source = self.model.config._name_or_path or type(self.model).__name__
        self.name = f"seq2seq:{self.source}"
        self.family = family_of(self.model, self.tokenizer)
        self.num_beams = num_beams
        self.max_new_tokens = max_new_tokens
        self.batch_size = batch_size

    def describe(self) -> dict[str, Any]:
        """Return the model, a digest of its weights, and how it is decoded."""
        return {
            "pivot": "seq2seq",
            "model": self.source,
            "weights": weights_digest(self.model),
            "num_beams": self.num_beams,
            "max_new_tokens": self.max_new_tokens,
        }

    def translate(
        self, prompts: Sequence[str], languages: Sequence[str | None]
    ) -> list[str | None]:
        """Translate; None where nothing came.

        Raises
        ------
        CarotError
            For a language that the model does not know, one that is not known where the model
            needs it, and a prompt that is too long.
        """
        english: list[str | None] = [None] * len(prompts)
        texts = [one_line(prompt) for prompt in prompts]
        rows = [row for row, text in enumerate(texts) if text]
        codes = [self._code(texts[row], languages[row]) for row in rows]
        ids = self._tokenise([texts[row] for row in rows], codes)
        for row, tokens in zip(rows, ids, strict=True):
            self._require_room(texts[row], len(tokens))
        limits = [self._limit(len(tokens)) for tokens in ids]
        for limit, part in batches([len(tokens) for tokens in ids], limits, self.batch_size):
            lines = self._generate([ids[place] for place in part], limit)
            for place, line in zip(part, lines, strict=True):
                english[rows[place]] = ended_like(texts[rows[place]], one_line(line)) or None
        return english

    def _code(self, text: str, language: str | None) -> str | None:
        """Return what the tokenizer calls the language, where it is to be told."""
        if self.family.source is None:
            return None
        if language is None:
            raise CarotError(
                f"{quoted(text)}: its language is not known, and {self.source} needs it; name the "
                "language"
            )
        code = self.family.source(language)
        if code is None:
            raise CarotError(
                f"{quoted(text)}: {self.source} does not know the language {language!r}; give the "
                "English of such prompts, or another pivot"
            )
        return code

    def _tokenise(self, texts: Sequence[str], codes: Sequence[str | None]) -> list[list[int]]:
        """Token ids of each text; the tokenizer is told each language once."""
        ids: list[list[int]] = [[]] * len(texts)
        for code in dict.fromkeys(codes):
            with _source_language(self.tokenizer, code):
                for place, text in enumerate(texts):
                    if codes[place] == code:
                        ids[place] = list(self.tokenizer(self.family.prefix + text)["input_ids"])
        return ids

    def _require_room(self, text: str, length: int) -> None:
        context = getattr(self.model.config, "max_position_embeddings", None)
        if context is not None and length > context:
            raise CarotError(
                f"{quoted(text)} has {length} tokens; {self.source} takes {context}: give its "
                "English, or shorten it"
            )

    def _limit(self, length: int) -> int:
        context = getattr(self.model.config, "max_position_embeddings", None)
        # One position is the token that decoding starts from.
        return min(self.max_new_tokens or new_tokens(length), (context or length + 2**16) - 1)

    @torch.no_grad()
    def _generate(self, ids: Sequence[Sequence[int]], limit: int) -> list[str]:
        input_ids, mask = _padded(ids, self.tokenizer.pad_token_id or 0)
        device = self.model.get_input_embeddings().weight.device
        output = self.model.generate(
            input_ids=input_ids.to(device),
            attention_mask=mask.to(device),
            max_new_tokens=limit,
            num_beams=self.num_beams,
            do_sample=False,
            forced_bos_token_id=self.family.first_token,
        )
        # What decoding starts from: not every tokenizer calls its language tokens special.
        begun = 1 if self.family.first_token is None else 2
        return list(self.tokenizer.batch_decode(output[:, begun:], skip_special_tokens=True))


def _padded(ids: Sequence[Sequence[int]], fill: int) -> tuple[Tensor, Tensor]:
    width = max(len(row) for row in ids)
    rows = [[*row, *[fill] * (width - len(row))] for row in ids]
    mask = [[1] * len(row) + [0] * (width - len(row)) for row in ids]
    return torch.tensor(rows), torch.tensor(mask)


@contextmanager
def _source_language(tokenizer: Any, code: str | None) -> Iterator[None]:
    """Tell the tokenizer the language of what it is given, and put it back."""
    if code is None:
        yield
        return
    before = tokenizer.src_lang
    tokenizer.src_lang = code
    try:
        yield
    finally:
        tokenizer.src_lang = before


def _load(name: str) -> tuple[Any, Any]:
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        model: Any = AutoModelForSeq2SeqLM.from_pretrained(name, dtype="auto")
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        reason = one_line(str(error))[:200] or type(error).__name__
        raise CarotError(
            f"{name}: no translation model could be loaded ({reason}); expected a local folder or "
            "a hub id that can be reached, and for M2M-100 and Marian the package sentencepiece"
        ) from error
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), tokenizer
