"""MLRS: weaken the language-specific subspace in the middle layers, strengthen it in the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from carot.alignment import Alignment, LayerAligner
from carot.interventions.base import moved_everywhere


def language_basis(means: Tensor) -> Tensor:
    """Orthonormal basis M_s of the language-specific subspace, shape (d, k - 1).

    The means M (d, k) are split as ``M ~ M_a 1^T + M_s Gamma`` with ``M_a`` orthogonal to ``M_s``
    and ``M_s`` of rank k - 1 (arXiv 2505.15257): ``M_s`` spans the differences of the means; the
    part of their average that lies outside is ``M_a``.

    Parameters
    ----------
    means : Tensor
        Shape (k, d), one language a row.
    """
    centred = means - means.mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    basis: Tensor = directions[: len(means) - 1].mT
    return basis


@dataclass(frozen=True)
class Mlrs:
    """``h - strength M_s M_s^T h`` at one layer (arXiv 2505.15257).

    Parameters
    ----------
    strength : float
        Above 0 in the middle third of the layers, below 0 in the last (paper: .1 and -.4).
    """

    strength: float

    needs_source: ClassVar[bool] = False

    def __call__(
        self,
        layer: LayerAligner,
        source: Tensor,
        target: Tensor,
        source_mask: Tensor,
        target_mask: Tensor,
    ) -> Alignment:
        """Return the states with their language-specific part weakened or strengthened."""
        dtype = torch.promote_types(target.dtype, torch.float32)
        basis = language_basis(layer.means.double()).to(target.device, dtype)
        states = target.to(dtype)
        new = states - self.strength * (states @ basis @ basis.mT)
        return moved_everywhere(new, target, target_mask, source.shape[1])
