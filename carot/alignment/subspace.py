"""The language subspace: a hidden state is a language-agnostic and a language-specific part."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LanguageSubspace:
    """The affine map that takes the language out of hidden states.

    ``E(h) = h - (h - bias) right^T left^T`` is the LEACE eraser (Belrose et al. 2023,
    arXiv 2306.03819, Theorem 4.3) in its low-rank form. ``E(h)`` is the language-agnostic
    part A of h, and ``S = h - E(h)`` is the language-specific part (CAROT, arXiv 2609.06381).

    Parameters
    ----------
    left : Tensor
        Shape (d, k).
    right : Tensor
        Shape (k, d).
    bias : Tensor
        Shape (d,). The mean of the sentence vectors: the point that erasure leaves in place.
    """

    left: Tensor
    right: Tensor
    bias: Tensor

    def agnostic(self, hidden: Tensor) -> Tensor:
        """Return E(h), the language-agnostic part.

        Parameters
        ----------
        hidden : Tensor
            Shape (..., d), in the dtype of the subspace.

        Returns
        -------
        Tensor
            Shape (..., d).
        """
        return hidden - (hidden - self.bias) @ self.right.mT @ self.left.mT

    def split(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return (A, S): the language-agnostic and language-specific parts of (..., d) states."""
        agnostic = self.agnostic(hidden)
        return agnostic, hidden - agnostic

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> LanguageSubspace:
        """Return this subspace on a device, optionally in another dtype."""
        return LanguageSubspace(
            self.left.to(device, dtype), self.right.to(device, dtype), self.bias.to(device, dtype)
        )
