"""The paper's ablation without transport: only the last token takes its English counterpart."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from carot.alignment import Alignment, LayerAligner
from carot.interventions.base import moved_everywhere


def last_of(mask: Tensor) -> Tensor:
    """Mark the last True of each row, boolean, of the shape (B, m) of the mask."""
    return mask & (mask.flip(-1).cumsum(-1).flip(-1) == 1)


@dataclass(frozen=True)
class LastToken:
    """The last content token takes the language-agnostic part of the last English one."""

    def __call__(
        self,
        layer: LayerAligner,
        source: Tensor,
        target: Tensor,
        source_mask: Tensor,
        target_mask: Tensor,
    ) -> Alignment:
        """Return ``h + E(h_src) - E(h)`` at the last content token; others are unchanged."""
        dtype = torch.promote_types(target.dtype, torch.float32)
        subspace = layer.subspace.to(target.device, dtype)
        here, there = last_of(target_mask), last_of(source_mask.to(target.device))
        here = here & there.any(-1, keepdim=True)
        english = source.to(target.device, dtype).masked_fill(~there.unsqueeze(-1), 0).sum(-2)
        states = target.to(dtype)
        change = subspace.agnostic(english).unsqueeze(-2) - subspace.agnostic(states)
        return moved_everywhere(states + change, target, here, source.shape[1])
