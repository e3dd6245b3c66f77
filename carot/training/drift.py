"""How far a model has turned away from what an aligner was fitted on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import subspace_angles
from torch import Tensor

from carot.alignment import LayerAligner

DIRECTIONS = 50
"""Of the covariance, the largest; as in the CAROT paper."""


@dataclass(frozen=True)
class Drift:
    """What changed between two fits of one layer.

    Parameters
    ----------
    language : Tensor
        Principal angles between the language subspaces, in degrees, smallest first.
    covariance : Tensor
        The same between the 50 largest directions of the covariance of E(x).
    """

    language: Tensor
    covariance: Tensor

    def summary(self) -> dict[str, float]:
        """Return mean and largest angles, for a log."""
        return {
            f"{name}_angle_{kind}": float(getattr(angles, kind)())
            for name, angles in (("language", self.language), ("covariance", self.covariance))
            for kind in ("mean", "max")
        }


def drift(before: LayerAligner, after: LayerAligner) -> Drift:
    """Compare two fits of one layer."""
    return Drift(
        principal_angles(before.subspace.left, after.subspace.left),
        principal_angles(largest_directions(before), largest_directions(after)),
    )


def largest_directions(fitted: LayerAligner, count: int = DIRECTIONS) -> Tensor:
    """Return the ``count`` largest directions of Cov(E(x)), (d, count).

    ``W = V / sqrt(lambda)``: the largest eigenvalue has the shortest column.
    """
    norms = fitted.whitening.norm(dim=0)
    return fitted.whitening[:, norms.argsort()[:count]]


def principal_angles(first: Tensor, second: Tensor) -> Tensor:
    """Return the principal angles between two column spaces, in degrees, smallest first.

    Parameters
    ----------
    first, second : Tensor
        Shapes (d, a) and (d, b); columns need not be independent.

    Returns
    -------
    Tensor
        Shape (min(rank a, rank b),), float64.
    """
    bases = [_basis(matrix.double()).numpy() for matrix in (first, second)]
    return torch.from_numpy(np.degrees(subspace_angles(*bases))[::-1].copy())


def _basis(matrix: Tensor) -> Tensor:
    left, values, _ = torch.linalg.svd(matrix, full_matrices=False)
    kept: Tensor = left[:, values > 1e-6 * values[0]]
    return kept
