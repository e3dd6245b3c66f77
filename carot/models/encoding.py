"""Texts to padded batches: token ids, masks, position ids, and which tokens are content."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from carot.errors import CarotError

Span = tuple[int, int]
"""Characters [start, end) of a text."""

Content = str | Sequence[Span | None]
"""Which part of each text is content: a marker that encloses it, or one span for each text."""


@dataclass(frozen=True)
class Batch:
    """A padded batch of B texts of at most S tokens.

    Parameters
    ----------
    input_ids : Tensor
        Shape (B, S).
    attention_mask : Tensor
        Shape (B, S), 1 on real tokens.
    content_mask : Tensor
        Boolean, shape (B, S): the tokens that are fitted, aligned and replaced.
    """

    input_ids: Tensor
    attention_mask: Tensor
    content_mask: Tensor

    def __len__(self) -> int:
        return self.input_ids.shape[0]

    @property
    def position_ids(self) -> Tensor:
        """Positions counted over real tokens, shape (B, S)."""
        return position_ids(self.attention_mask)

    def model_inputs(self) -> dict[str, Tensor]:
        """Return what a model's forward takes."""
        return {
            "input_ids": self.input_ids,
            "attention_mask": self.attention_mask,
            "position_ids": self.position_ids,
        }


def position_ids(attention_mask: Tensor) -> Tensor:
    """Count positions over real tokens; without this a left-padded batch is silently wrong."""
    return (attention_mask.long().cumsum(-1) - 1).clamp_min(0)


def special_ids(tokenizer: Any) -> set[int]:
    """Return the ids that are never content: BOS, EOS, padding, and every added special token."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return set(tokenizer.all_special_ids) | {
        index for index, token in added.items() if token.special
    }


def content_mask(input_ids: Tensor, attention_mask: Tensor, special: set[int]) -> Tensor:
    """Mark the tokens that are neither padding nor special.

    A row that does not begin with a special token leaves out its first token instead: whatever
    stands first is the attention sink, with a norm far above all others.

    Parameters
    ----------
    input_ids, attention_mask : Tensor
        Shape (B, S).
    special : set of int
        From :func:`special_ids`.

    Returns
    -------
    Tensor
        Boolean, shape (B, S).
    """
    real = attention_mask.bool()
    ordinary = ~torch.isin(input_ids, torch.tensor(sorted(special), device=input_ids.device))
    first = real & (real.cumsum(-1) == 1)
    return real & ordinary & ~first


def padding_id(tokenizer: Any) -> int:
    """Return the id that fills padding; no result depends on it, the attention mask hides it."""
    if tokenizer.pad_token_id is not None:
        return int(tokenizer.pad_token_id)
    warnings.warn(
        f"{type(tokenizer).__name__} has no pad token; padding with its EOS token under the "
        "attention mask, which changes no result",
        stacklevel=2,
    )
    return int(tokenizer.eos_token_id or 0)


def resolve_content(
    texts: Sequence[str],
    content: Content | None,
    name: str,
    numbers: Sequence[int] | None = None,
) -> tuple[list[str], list[Span | None]]:
    """Turn ``content`` into texts without markers and one span (or None) for each.

    Parameters
    ----------
    texts : sequence of str
        B texts.
    content : str or sequence, optional
        A marker that stands once before and once after the content of each text, and is taken
        out; or for each text the characters [start, end) of its content.
    name : str
        What the texts are, for messages.
    numbers : sequence of int, optional
        Their numbers, for messages; counted from 0 by default.

    Raises
    ------
    CarotError
        When a marker does not stand exactly twice, or a span does not fit its text.
    """
    numbers = range(len(texts)) if numbers is None else numbers
    if content is None:
        return list(texts), [None] * len(texts)
    if isinstance(content, str):
        pieces = [text.split(content) if content else [] for text in texts]
        for row, piece in zip(numbers, pieces, strict=True):
            if len(piece) != 3:
                raise CarotError(
                    f"{name} {row}: the content marker {content!r} stands {max(len(piece) - 1, 0)} "
                    "times; expected twice, before and after the content"
                )
            if not piece[1]:
                raise CarotError(f"{name} {row}: the content marker {content!r} encloses nothing")
        spans = [(len(piece[0]), len(piece[0]) + len(piece[1])) for piece in pieces]
        return ["".join(piece) for piece in pieces], list(spans)
    if len(content) != len(texts):
        raise CarotError(f"{len(content)} content spans for {len(texts)} {name}s; expected as many")
    for row, text, span in zip(numbers, texts, content, strict=True):
        if span is not None and not 0 <= span[0] < span[1] <= len(text):
            raise CarotError(
                f"{name} {row}: the content span {tuple(span)} does not fit its {len(text)} "
                "characters; expected 0 <= start < end <= length"
            )
    return list(texts), list(content)


def encode(
    tokenizer: Any,
    texts: Sequence[str],
    *,
    spans: Sequence[Span | None] | None = None,
    device: torch.device | str = "cpu",
    padding_side: str = "left",
    truncate_to: int | None = None,
    context_length: int | None = None,
    names: Sequence[str] | None = None,
) -> Batch:
    """Tokenise texts into one padded batch; the tokenizer's own padding settings stay untouched.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
        Special tokens are added as it does, but a text that begins with BOS gets no second one.
    texts : sequence of str
        B texts.
    spans : sequence, optional
        For each text its content, in characters, or None for all of it.
    device : torch.device
        Where the tensors go.
    padding_side : {"left", "right"}
        Generation needs left.
    truncate_to : int, optional
        Keep this many tokens at most, cutting at the end.
    context_length : int, optional
        Refuse longer texts.
    names : sequence of str, optional
        What each text is, for messages: ``prompt 0``, ``prompt 1``, ... by default.

    Raises
    ------
    CarotError
        When a text has no token, is longer than the context, or a span covers no token.
    """
    if not texts:
        raise CarotError("no text to encode; expected one at least")
    spans = spans or [None] * len(texts)
    names = names or [f"prompt {row}" for row in range(len(texts))]
    rows = [
        _encode_one(tokenizer, text, span, truncate_to, name)
        for text, span, name in zip(texts, spans, names, strict=True)
    ]
    for name, (ids, _) in zip(names, rows, strict=True):
        if not ids:
            raise CarotError(f"{name} is empty and the tokenizer adds no BOS; expected text")
        if context_length is not None and len(ids) > context_length:
            raise CarotError(
                f"{name} has {len(ids)} tokens; the model's context holds {context_length}: "
                "shorten it"
            )
    width = max(len(ids) for ids, _ in rows)
    fill = padding_id(tokenizer) if any(len(ids) < width for ids, _ in rows) else 0

    def padded(values: list[int], blank: int) -> list[int]:
        blanks = [blank] * (width - len(values))
        return blanks + values if padding_side == "left" else values + blanks

    input_ids = torch.tensor([padded(ids, fill) for ids, _ in rows])
    attention = torch.tensor([padded([1] * len(ids), 0) for ids, _ in rows])
    inside = torch.tensor([padded([int(x) for x in inside], 0) for _, inside in rows]).bool()
    content = content_mask(input_ids, attention, special_ids(tokenizer)) & inside
    return Batch(input_ids.to(device), attention.to(device), content.to(device))


def begins_with_bos(tokenizer: Any, text: str) -> bool:
    """Whether a text (a chat template's, say) brings its BOS along and needs no second one."""
    return bool(tokenizer.bos_token) and text.startswith(tokenizer.bos_token)


def token_ids(tokenizer: Any, text: str) -> list[int]:
    """Tokenise one text with the special tokens that it does not bring along."""
    special = not begins_with_bos(tokenizer, text)
    return list(tokenizer(text, add_special_tokens=special)["input_ids"])


def _encode_one(
    tokenizer: Any, text: str, span: Span | None, limit: int | None, name: str
) -> tuple[list[int], list[bool]]:
    """Token ids of one text, and for each whether it overlaps the span."""
    if not isinstance(text, str):
        raise CarotError(f"{name} is {type(text).__name__}; expected a string")
    if span is not None and not tokenizer.is_fast:
        raise CarotError(
            f"{type(tokenizer).__name__} gives no character offsets, which content spans need; "
            "load a fast tokenizer"
        )
    encoded = tokenizer(
        text,
        add_special_tokens=not begins_with_bos(tokenizer, text),
        return_offsets_mapping=span is not None,
        verbose=False,
    )
    ids = list(encoded["input_ids"])[:limit]
    if span is None:
        return ids, [True] * len(ids)
    inside = [
        start < span[1] and end > span[0] and start < end
        for start, end in encoded["offset_mapping"][:limit]
    ]
    if not any(inside):
        raise CarotError(f"{name}: the content span {tuple(span)} covers no token")
    return ids, inside
