"""What an objective is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from torch import Tensor

from carot.models.anatomy import Anatomy

Kind = Literal["instructions", "parallel", "pairs", "preferences"]
Batch = Mapping[str, Any]
"""Tensors of one kind of data; :mod:`carot.training.collate` says which."""


class Objective(Protocol):
    """A loss on one kind of data: one file each, found by name."""

    @property
    def name(self) -> str:
        """The name that recipes and logs use."""
        ...

    @property
    def kind(self) -> Kind:
        """The data that it takes."""
        ...

    def loss(self, anatomy: Anatomy, batch: Batch) -> Tensor:
        """Return the mean loss of a micro-batch, over what :func:`count` counts.

        Parameters
        ----------
        anatomy : Anatomy
            Of the model in training.
        batch : mapping
            Of this objective's kind.
        """
        ...


def count(kind: Kind, batch: Batch) -> int:
    """Return over how many things a micro-batch's loss is a mean: response tokens, or rows."""
    if kind == "instructions":
        return int((batch["labels"][:, 1:] >= 0).sum())
    return len(batch["source_ids"] if kind == "parallel" else batch["languages"])
