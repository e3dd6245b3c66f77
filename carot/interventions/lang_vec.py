"""Lang Vec: move every token by the difference of the languages' means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from carot.alignment import Alignment, LayerAligner
from carot.interventions.base import moved_everywhere


@dataclass(frozen=True)
class LangVec:
    """``h + strength (mean_src - mean_tgt)``, a baseline of the CAROT paper (arXiv 2609.06381).

    Parameters
    ----------
    source, target : int
        Rows of the two languages in the aligner's means.
    strength : float
        The paper tries .5, 1, 1.5 and 2.
    """

    source: int
    target: int
    strength: float = 1.0

    needs_source: ClassVar[bool] = False

    def __call__(
        self,
        layer: LayerAligner,
        source: Tensor,
        target: Tensor,
        source_mask: Tensor,
        target_mask: Tensor,
    ) -> Alignment:
        """Return the moved states."""
        dtype = torch.promote_types(target.dtype, torch.float32)
        means = layer.means.to(target.device, dtype)
        change = self.strength * (means[self.source] - means[self.target])
        return moved_everywhere(target.to(dtype) + change, target, target_mask, source.shape[1])
