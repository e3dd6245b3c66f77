"""The language-model head, run where its logits are needed only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from carot.models.anatomy import without_adapter


@contextmanager
def head_at(model: nn.Module, positions: Tensor) -> Iterator[list[bool]]:
    """Run the head at some of the last W positions only; its logits then are (1, N, V).

    With a vocabulary of 100,000 tokens and more, it is the head that costs, also on padding.

    Parameters
    ----------
    model : nn.Module
        The causal language model.
    positions : Tensor
        Boolean, shape (R, W).

    Yields
    ------
    list of bool
        Empty as long as the head has not run so: where a model does not call a head module.
    """
    head = getattr(without_adapter(model), "get_output_embeddings", lambda: None)()
    thread = threading.get_ident()
    picked: list[bool] = []

    def pick(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if threading.get_ident() != thread or not args:
            return None
        picked.append(True)
        hidden = args[0][:, -positions.shape[1] :]
        return (hidden[positions.to(hidden.device)].unsqueeze(0), *args[1:])

    handle = None if head is None else head.register_forward_pre_hook(pick)
    try:
        yield picked
    finally:
        if handle is not None:
            handle.remove()
