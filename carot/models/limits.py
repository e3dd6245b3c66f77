"""What a model cannot do, said before it tries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from carot.errors import CarotError
from carot.models.encoding import Batch
from carot.models.scoring import CandidateRow


def refuse_split_prefill(generation_config: Any, options: Mapping[str, Any]) -> None:
    """Refuse options of ``generate`` under which the prefill is not one pass with a cache."""
    config = options.get("generation_config") or generation_config
    for name, whole in (("prefill_chunk_size", None), ("use_cache", True)):
        value = options.get(name, getattr(config, name, whole))
        if value not in (whole, None):
            raise CarotError(
                f"{name}={value} cannot be steered: the English states enter once, in a prefill "
                f"of one pass, and go on from its cache; leave {name} out"
            )


def refuse_beyond_context(
    batch: Batch,
    limit: int | None,
    generation_config: Any,
    options: Mapping[str, Any],
    first: int,
) -> None:
    """Refuse prompts that leave no room for new tokens; ``first`` is the first one's number."""
    config = options.get("generation_config") or generation_config
    new = options.get("max_new_tokens", getattr(config, "max_new_tokens", None)) or 0
    for number, length in enumerate(batch.attention_mask.sum(-1).tolist(), first):
        if limit is not None and length + new > limit:
            raise CarotError(
                f"prompt {number} of {length} tokens and {new} new ones exceed the model's context "
                f"of {limit}; shorten one of them"
            )


def refuse_long_candidates(
    batch: Batch, rows: Sequence[CandidateRow], limit: int | None, first: int
) -> None:
    """Refuse prompts that leave no room for a candidate; ``first`` is the first one's number."""
    lengths = batch.attention_mask.sum(-1).tolist()
    for number, (length, row) in enumerate(zip(lengths, rows, strict=True), first):
        longest = max(map(len, row.tokens))
        if limit is not None and length + longest > limit:
            raise CarotError(
                f"prompt {number} has {length} tokens and a candidate {longest}; the model's "
                f"context holds {limit}: shorten one of them"
            )
