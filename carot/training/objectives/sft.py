"""SFT: the next-token loss on responses (``LM`` in the papers)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from carot.models.anatomy import Anatomy, without_adapter
from carot.models.encoding import position_ids
from carot.models.head import head_at
from carot.training.objectives.base import Batch, Kind


@dataclass(frozen=True)
class Sft:
    """Cross-entropy over the tokens of the responses, the head run on those positions only."""

    name: str = "sft"
    kind: ClassVar[Kind] = "instructions"

    def loss(self, anatomy: Anatomy, batch: Batch) -> Tensor:
        """Return the mean over response tokens."""
        logits, targets, _ = response_logits(anatomy, batch)
        return cross_entropy(logits.float(), targets)


def response_logits(anatomy: Anatomy, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logits that predict response tokens, those tokens, and the row of each.

    Returns
    -------
    logits : Tensor
        Shape (N, V), N response tokens of all rows.
    targets, rows : Tensor
        Shape (N,).
    """
    labels = batch["labels"]
    positions = torch.zeros_like(labels, dtype=torch.bool)
    positions[:, :-1] = labels[:, 1:] >= 0  # a position predicts the token behind it
    with head_at(anatomy.model, positions) as picked:
        output = anatomy.model(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            position_ids=position_ids(batch["attention_mask"]),
            use_cache=False,
        )
    logits = output.logits
    device = logits.device
    rows, places = (index.to(device) for index in positions.nonzero(as_tuple=True))
    logits = logits[0] if picked else logits[rows, places]
    return logits, labels.to(device)[rows, places + 1], rows


def embed(anatomy: Anatomy, ids: Tensor) -> Tensor:
    """Embed token ids of any shape (...) with the model's input embedding, (..., d)."""
    embedded: Tensor = without_adapter(anatomy.model).get_input_embeddings()(ids)
    return embedded
