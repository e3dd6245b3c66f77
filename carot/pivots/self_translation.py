"""The model that is steered translates its own prompts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import StoppingCriteria, StoppingCriteriaList

from carot.corpora import ParallelCorpus
from carot.errors import CarotError, require_positive
from carot.interventions import ENGLISH
from carot.languages import base_language
from carot.models.anatomy import dissect
from carot.models.encoding import encode, padding_id, token_ids
from carot.pivots.base import ended_like, one_line, quoted
from carot.pivots.codes import NAMES, lookup
from carot.pivots.neural import batches, digest, new_tokens, weights_digest

ANY_LANGUAGE = "Original"
"""What a text is called whose language is not known."""


class SelfTranslation:
    """The causal model at hand translates, after a few examples in the language of the prompt.

    The examples come with carot, unfinished sentences and questions among them. Where it has none
    in a language, they are in several others. Decoding is greedy and ends with the line.

    Parameters
    ----------
    model : PreTrainedModel
        A decoder-only model; a base model is enough.
    tokenizer : PreTrainedTokenizerBase
        Its tokenizer.
    shots : int
        Examples before each prompt.
    max_new_tokens : int, optional
        Of a translation; by default at least twice the tokens of the prompt and 16 more.
    batch_size : int
        Prompts in one batch.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        *,
        shots: int = 4,
        max_new_tokens: int | None = None,
        batch_size: int = 16,
    ) -> None:
        require_positive(shots=shots, max_new_tokens=max_new_tokens or 1, batch_size=batch_size)
        self.name = "self"
        self.anatomy = dissect(model)
        self.model: Any = model
        self.tokenizer = tokenizer
        self.shots = shots
        self.max_new_tokens = max_new_tokens
        self.batch_size = batch_size

    def describe(self) -> dict[str, Any]:
        """Return the model, a digest of its weights, and one of the examples."""
        known = [None, *_examples().languages]
        return {
            "pivot": self.name,
            "model": self.anatomy.identity().name,
            "weights": weights_digest(self.model),
            "examples": digest([few_shot("", language, self.shots) for language in known]),
            "max_new_tokens": self.max_new_tokens,
        }

    def translate(
        self, prompts: Sequence[str], languages: Sequence[str | None]
    ) -> list[str | None]:
        """Translate; None where nothing came, or no end within ``max_new_tokens``.

        Raises
        ------
        CarotError
            When a prompt, its examples and its translation are longer than the context.
        """
        english: list[str | None] = [None] * len(prompts)
        texts = [one_line(prompt) for prompt in prompts]
        rows = [row for row, text in enumerate(texts) if text]
        full = [few_shot(texts[row], languages[row], self.shots) for row in rows]
        lengths = [len(token_ids(self.tokenizer, text)) for text in full]
        limits = [self._limit(texts[row]) for row in rows]
        for row, length, limit in zip(rows, lengths, limits, strict=True):
            self._require_room(texts[row], length, limit)
        for limit, part in batches(lengths, limits, self.batch_size):
            lines = self._complete([full[place] for place in part], limit)
            for place, line in zip(part, lines, strict=True):
                english[rows[place]] = ended_like(texts[rows[place]], line) or None
        return english

    def _limit(self, text: str) -> int:
        return self.max_new_tokens or new_tokens(len(token_ids(self.tokenizer, text)))

    def _require_room(self, text: str, length: int, limit: int) -> None:
        context = self.anatomy.context_length
        if context is not None and length + limit > context:
            raise CarotError(
                f"{quoted(text)}: with {self.shots} examples {length} tokens, and {limit} for its "
                f"translation; the model's context holds {context}: give its English, or shorten it"
            )

    def _complete(self, prompts: Sequence[str], limit: int) -> list[str]:
        """Return the line that the model goes on with; empty where it does not end."""
        batch = encode(self.tokenizer, prompts, device=self.anatomy.input_device)
        output = self.model.generate(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            max_new_tokens=limit,
            do_sample=False,
            num_beams=1,
            repetition_penalty=1.0,
            pad_token_id=padding_id(self.tokenizer),
            stopping_criteria=StoppingCriteriaList([_LineEnd(self.tokenizer)]),
        )
        new = output[:, batch.input_ids.shape[1] :]
        texts = self.tokenizer.batch_decode(new, skip_special_tokens=True)
        return [
            text.partition("\n")[0].strip() if "\n" in text or self._ends(row) else ""
            for text, row in zip(texts, new.tolist(), strict=True)
        ]

    def _ends(self, ids: Sequence[int]) -> bool:
        """Whether there is an end-of-text token."""
        named = getattr(self.model.generation_config, "eos_token_id", None)
        ends = {self.tokenizer.eos_token_id, *(named if isinstance(named, list) else [named])}
        return not ends.isdisjoint(ids)


class _LineEnd(StoppingCriteria):
    """Ends each row at its first line break."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:  # type: ignore[override]
        last = self.tokenizer.batch_decode(input_ids[:, -1:])
        return torch.tensor(["\n" in text for text in last], device=input_ids.device)


def few_shot(text: str, language: str | None, shots: int) -> str:
    """Return examples, the text, and the place for its English."""
    blocks = [*_shots(language, shots), (_label(language), text, "")]
    return "\n".join(
        f"{label}: {source}\n{NAMES[ENGLISH]}: {english}" for label, source, english in blocks
    ).rstrip()


def _shots(language: str | None, shots: int) -> list[tuple[str, str, str]]:
    """Label, text and English of the examples; the first of the file stands last."""
    corpus = _examples()
    own = base_language(language or "")
    others = [code for code in corpus.languages if code != ENGLISH]
    chosen = []
    for number, row in enumerate(list(corpus)[:shots]):
        code = own if own in others else others[number % len(others)]
        chosen.append((_label(code if language else None), row[code], row[ENGLISH]))
    return chosen[::-1]


def _label(language: str | None) -> str:
    return lookup(NAMES, language or "") or ANY_LANGUAGE


@lru_cache(maxsize=1)
def _examples() -> ParallelCorpus:
    """Short examples that are like prompts, then the bundled sentences."""
    own = ParallelCorpus.from_jsonl(Path(str(files("carot") / "pivots" / "shots.jsonl")))
    sentences = ParallelCorpus.bundled(own.languages)
    return ParallelCorpus(
        {code: [*own[code], *sentences[code]] for code in own.languages}, name="examples"
    )
