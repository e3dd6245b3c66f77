"""How well two sides match: whether an English text is a translation of the prompt at all."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from carot.alignment.layer import LayerAligner


def match_quality(
    fitted: LayerAligner,
    source: Tensor,
    target: Tensor,
    source_mask: Tensor,
    target_mask: Tensor,
) -> Tensor:
    """``mean_i max_j cos((a_tgt,i - bias) W, (a_src,j - bias) W)`` over content tokens.

    Each target token looks for the English token that is nearest to it in the whitened
    language-agnostic space; translations find nearer ones than other texts do.

    Parameters
    ----------
    fitted : LayerAligner
        Of the layer.
    source, target : Tensor
        Shapes (B, n, d) and (B, m, d), states before anything is moved.
    source_mask, target_mask : Tensor
        Boolean, shapes (B, n) and (B, m): content tokens.

    Returns
    -------
    Tensor
        Shape (B,), in [-1, 1], float32 (float64 for float64 states); 0 for a row in which one
        side has no content token.
    """
    dtype = torch.promote_types(target.dtype, torch.float32)
    fitted = fitted.to(target.device, dtype)
    source_mask, target_mask = source_mask.to(target.device), target_mask.to(target.device)

    def directions(states: Tensor, mask: Tensor) -> Tensor:  # (B, tokens, r)
        states = states.to(target.device, dtype).masked_fill(~mask.unsqueeze(-1), 0)
        agnostic = fitted.subspace.agnostic(states) - fitted.subspace.bias
        return normalize(agnostic @ fitted.whitening, dim=-1)

    cosine = directions(target, target_mask) @ directions(source, source_mask).mT  # (B, m, n)
    cosine = cosine.masked_fill(~source_mask.unsqueeze(-2), -1)
    both = target_mask & source_mask.any(-1, keepdim=True)  # (B, m)
    if source.shape[1] == 0:
        return torch.zeros(len(target), dtype=dtype, device=target.device)
    best = cosine.amax(-1).masked_fill(~both, 0)
    mean: Tensor = best.sum(-1) / both.sum(-1).clamp_min(1)
    return mean
