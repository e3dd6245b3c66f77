"""Going on from cached prompts, with several continuations of each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from carot.models.anatomy import cache_argument, last_logits, text_config
from carot.models.head import head_at


def new_cache(model: nn.Module) -> DynamicCache:
    """Return an empty KV cache with the kinds of layers that the model has."""
    return DynamicCache(config=text_config(model))


def cached_logits(model: nn.Module, cache: Any, keep: int, **inputs: Tensor) -> Tensor:
    """Logits of the last ``keep`` positions at least, (B, keep or more, V), filling the cache."""
    arguments = {cache_argument(model): cache, "use_cache": True} | last_logits(model, keep)
    logits: Tensor = model(**inputs, **arguments).logits
    return logits


def target_log_probs(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the log-probability of each target, (N,), float32, from logits (N, V)."""
    return logits.float().log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def continued_logits(
    model: nn.Module, cache: Any, prompt_mask: Tensor, ids: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logits of all tokens of the continuations but the first, which prompts predict.

    Parameters
    ----------
    model : nn.Module
        The causal language model.
    cache : DynamicCache
        Of the prompts, one row for each continuation.
    prompt_mask : Tensor
        Shape (R, P), of the prompts, which are padded on the left.
    ids, mask : Tensor
        Shape (R, T), the continuations, padded on the right; the mask is boolean.

    Returns
    -------
    logits : Tensor
        Shape (N, V).
    targets, rows : Tensor
        Shape (N,): the tokens that they predict, and the continuation of each.
    """
    valid = mask[:, 1:]
    width = valid.shape[1]
    places = torch.arange(width, device=ids.device)
    with head_at(model, valid) as picked:
        logits = cached_logits(
            model,
            cache,
            width,
            input_ids=ids[:, :-1],
            attention_mask=torch.cat([prompt_mask, valid.to(prompt_mask.dtype)], -1),
            position_ids=prompt_mask.sum(-1, keepdim=True) + places,
        )
    rows, at = (where.to(logits.device) for where in valid.nonzero(as_tuple=True))
    logits = logits[0] if picked else logits[:, -width:][rows, at]
    return logits, ids[:, 1:].to(logits.device)[rows, at], rows
