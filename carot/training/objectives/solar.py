"""SOLAR: responses in other languages mean what the English one means (arXiv 2606.26466)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from carot.interventions import ENGLISH
from carot.models.anatomy import Anatomy
from carot.training.objectives.base import Batch, Kind
from carot.training.objectives.sft import embed, response_logits


@dataclass(frozen=True)
class Solar:
    """Cross-entropy, and the cosine of mean soft tokens with those of the English response.

    Parameters
    ----------
    top_k : int
        Tokens that make a soft token.
    temperature : float
        Of their probabilities.
    strength : float
        Lambda, of the cosine term.
    """

    top_k: int = 30
    temperature: float = 1.0
    strength: float = 0.5
    name: ClassVar = "solar"
    kind: ClassVar[Kind] = "instructions"

    def loss(self, anatomy: Anatomy, batch: Batch) -> Tensor:
        """Return the mean over response tokens, plus the mean over rows that have an English one.

        A non-English row without an English translation in the batch has the cross-entropy alone.
        """
        logits, targets, rows = response_logits(anatomy, batch)
        loss = cross_entropy(logits.float(), targets)
        pairs = english_of(batch["items"], batch["languages"])
        if not pairs:
            return loss
        means = mean_soft_tokens(self.soft_tokens(anatomy, logits), rows, len(batch["items"]))
        here = means[[row for row, _ in pairs]]
        english = means[[row for _, row in pairs]].detach()
        return loss + self.strength * (1 - cosine_similarity(english, here, dim=-1)).mean()

    def soft_tokens(self, anatomy: Anatomy, logits: Tensor) -> Tensor:
        """``e_t = sum_v p~(v) E[v]``, p~ renormalised over the top k: (N, V) to (N, d)."""
        values, tokens = logits.float().topk(min(self.top_k, logits.shape[-1]), dim=-1)  # (N, k)
        # Renormalising the k largest of a softmax is the softmax over them.
        probabilities = (values / self.temperature).softmax(-1)
        embedded = embed(anatomy, tokens).to(probabilities)  # (N, k, d)
        return torch.einsum("nk,nkd->nd", probabilities, embedded)


def mean_soft_tokens(soft: Tensor, rows: Tensor, count: int) -> Tensor:
    """Return each row's mean over its response positions: (N, d) and (N,) to (count, d)."""
    sums = torch.zeros(count, soft.shape[-1], dtype=soft.dtype, device=soft.device)
    sizes = torch.bincount(rows, minlength=count).clamp_min(1).unsqueeze(-1)
    return sums.index_add(0, rows, soft) / sizes


def english_of(items: list[str], languages: list[str]) -> list[tuple[int, int]]:
    """Pair each non-English row with the row of its English translation, where there is one."""
    english = {
        item: row
        for row, (item, language) in enumerate(zip(items, languages, strict=True))
        if language == ENGLISH
    }
    return [
        (row, english[item])
        for row, (item, language) in enumerate(zip(items, languages, strict=True))
        if language != ENGLISH and item in english
    ]
