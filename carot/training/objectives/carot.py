"""CAROT: target states move to where transport would put them (arXiv 2609.06381, Eq. 9)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from carot.alignment import Aligner, LayerAligner, TransportSettings
from carot.models.anatomy import Anatomy
from carot.models.states import layer_states
from carot.training.objectives.base import Batch, Kind

SMALLEST_NORM = 1e-8
"""Floor of the denominator (Eq. 9)."""


class Carot:
    """The CAROT loss at some layers; the mean over them.

    Parameters
    ----------
    aligner : Aligner
        Eraser and whitening; replaced when it is fitted again.
    layers : sequence of int
        Where states are aligned.
    settings : TransportSettings
        Of the transport.
    teacher : Anatomy, optional
        A frozen model that gives the source states; the model in training by default.
    frozen : callable, optional
        A context in which the model in training is as it was before (its adapter off).
    """

    name = "carot"
    kind: Kind = "parallel"

    def __init__(
        self,
        aligner: Aligner,
        layers: Sequence[int],
        settings: TransportSettings,
        teacher: Anatomy | None = None,
        frozen: Any = nullcontext,
    ) -> None:
        self.aligner = aligner
        self.layers = list(layers)
        self.settings = settings
        self.teacher = teacher
        self.frozen = frozen

    def loss(self, anatomy: Anatomy, batch: Batch) -> Tensor:
        """Return the mean over pairs and layers; gradients reach the target states only."""
        source = self._source_states(anatomy, batch)
        target = layer_states(anatomy, self.layers, batch["target_ids"], batch["target_mask"])
        losses = [
            carot_loss(
                self.aligner[layer],
                source[layer],
                target[layer],
                batch["source_content"],
                batch["target_content"],
                self.settings,
            )
            for layer in self.layers
        ]
        return torch.stack([loss.to(losses[0].device) for loss in losses]).mean()

    def _source_states(self, anatomy: Anatomy, batch: Batch) -> dict[int, Tensor]:
        context: AbstractContextManager[Any] = self.frozen()
        with torch.no_grad(), context, _without_dropout(anatomy):
            return layer_states(
                self.teacher or anatomy, self.layers, batch["source_ids"], batch["source_mask"]
            )


def carot_loss(
    fitted: LayerAligner,
    source: Tensor,
    target: Tensor,
    source_mask: Tensor,
    target_mask: Tensor,
    settings: TransportSettings,
) -> Tensor:
    """``mean_i |(a_i - a^_i) W|^2 / max(|a^_i W|^2, 1e-8)`` over content tokens, then pairs.

    Parameters
    ----------
    fitted : LayerAligner
        Of the layer.
    source : Tensor
        Shape (B, n, d), English states.
    target : Tensor
        Shape (B, m, d), states that are trained; a^ is made of them without their gradient.
    source_mask, target_mask : Tensor
        Boolean, shapes (B, n) and (B, m): the content tokens.
    settings : TransportSettings
        Of the transport that makes a^.

    Returns
    -------
    Tensor
        A scalar, float32 (float64 for float64 states).
    """
    dtype = torch.promote_types(target.dtype, torch.float32)
    fitted = fitted.to(target.device, dtype)
    target = target.to(dtype)
    source_mask, target_mask = source_mask.to(target.device), target_mask.to(target.device)
    with torch.no_grad():
        aligned = fitted.align(
            source.to(target),
            target,
            source_mask=source_mask,
            target_mask=target_mask,
            theta=settings.theta,
            epsilon=settings.epsilon,
            rho=settings.rho,
            backend=settings.solver,
        ).hidden
        # The language-specific part is the same in both: E takes it out again.
        wanted = fitted.subspace.agnostic(aligned) @ fitted.whitening  # (B, m, r)
        norm = wanted.square().sum(-1).clamp_min(SMALLEST_NORM)  # (B, m)
    now = fitted.subspace.agnostic(target) @ fitted.whitening
    distance = (now - wanted).square().sum(-1) / norm
    content = target_mask.to(dtype)
    return ((distance * content).sum(-1) / content.sum(-1).clamp_min(1)).mean()


class _without_dropout:  # noqa: N801 - a context
    """Source states are a target, which dropout would blur."""

    def __init__(self, anatomy: Anatomy) -> None:
        self.training = [module for module in anatomy.model.modules() if module.training]

    def __enter__(self) -> None:
        for module in self.training:
            module.training = False

    def __exit__(self, *_: object) -> None:
        for module in self.training:
            module.training = True
