"""MidAlign: middle-layer states of translations find each other (arXiv 2502.14830)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, pad

from carot.models.anatomy import Anatomy
from carot.models.states import layer_states
from carot.training.objectives.base import Batch, Kind


@dataclass(frozen=True)
class MidAlign:
    """In-batch InfoNCE on the cosine of mean-pooled states; gradients reach both sides.

    Parameters
    ----------
    layer : int
        Whose states.
    temperature : float
        Divides the cosines.
    symmetric : bool
        Both directions, or only from source to target.
    """

    layer: int
    temperature: float = 0.1
    symmetric: bool = True
    name: ClassVar = "midalign"
    kind: ClassVar[Kind] = "parallel"

    def loss(self, anatomy: Anatomy, batch: Batch) -> Tensor:
        """Return the mean over pairs."""
        width = max(batch[f"{side}_ids"].shape[1] for side in ("source", "target"))

        def both(key: str) -> Tensor:  # (2B, S), padded on the left as the sides are
            sides = (batch[f"{side}_{key}"] for side in ("source", "target"))
            return torch.cat([pad(side, (width - side.shape[1], 0)) for side in sides])

        states = layer_states(anatomy, [self.layer], both("ids"), both("mask"))[self.layer]
        pooled = mean_pool(states, both("content").to(states.device))
        source, target = pooled.chunk(2)
        return info_nce(
            source, target, batch["sentences"], self.temperature, symmetric=self.symmetric
        )


def mean_pool(states: Tensor, content: Tensor) -> Tensor:
    """Return the mean state over content tokens: (B, S, d) and (B, S) to (B, d), float32."""
    weights = content.float().unsqueeze(-1)
    return (states.float() * weights).sum(1) / weights.sum(1).clamp_min(1)


def info_nce(
    source: Tensor, target: Tensor, sentences: Tensor, temperature: float, *, symmetric: bool
) -> Tensor:
    """``-log exp(cos(s_i, t_i) / tau) / sum_j exp(cos(s_i, t_j) / tau)``, the mean over i.

    Parameters
    ----------
    source, target : Tensor
        Shape (B, d); row i of both belongs together.
    sentences : Tensor
        Shape (B,); the same sentence in another language is no wrong answer and left out.
    temperature : float
        tau.
    symmetric : bool
        The mean with the other direction.
    """
    cosine = normalize(source, dim=-1) @ normalize(target, dim=-1).T / temperature  # (B, B)
    sentences = sentences.to(cosine.device)
    same = sentences[:, None] == sentences[None, :]
    same.fill_diagonal_(False)
    cosine = cosine.masked_fill(same, float("-inf"))
    right = torch.arange(len(cosine), device=cosine.device)
    loss = cross_entropy(cosine, right)
    return (loss + cross_entropy(cosine.T, right)) / 2 if symmetric else loss
