"""Layer states for training: with gradients, and without an exception that ends the pass early."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from carot.models.anatomy import Anatomy, last_logits, without_adapter
from carot.models.encoding import position_ids
from carot.models.hooks import registered, states_of


@contextmanager
def shortened(anatomy: Anatomy, depth: int) -> Iterator[None]:
    """Let the model have its first ``depth`` decoder blocks only, for one forward pass.

    A pass that is ended by an exception would leave gradient checkpointing and sharded parameters
    half-way; a pass through fewer blocks ends as any other.
    """
    parent_path, _, name = anatomy.layers_path.rpartition(".")
    parent = without_adapter(anatomy.model).get_submodule(parent_path)
    setattr(parent, name, nn.ModuleList(list(anatomy.layers)[:depth]))
    try:
        yield
    finally:
        setattr(parent, name, anatomy.layers)


def layer_states(
    anatomy: Anatomy, layers: Sequence[int], input_ids: Tensor, attention_mask: Tensor
) -> dict[int, Tensor]:
    """Run the model up to its deepest of some layers and return each one's states.

    Parameters
    ----------
    anatomy : Anatomy
        Of the model, which may be in training.
    layers : sequence of int
        Which states.
    input_ids, attention_mask : Tensor
        Shape (B, S).

    Returns
    -------
    dict of int to Tensor
        Shape (B, S, d) each, with a gradient where gradients are on.
    """
    seen: dict[int, Tensor] = {}

    def keep(layer: int, output: Any) -> None:
        # Gradient checkpointing runs a block again in the backward pass: the first states count.
        seen.setdefault(layer, states_of(output))

    modules = {layer: anatomy.layers[layer] for layer in layers}
    with shortened(anatomy, max(layers) + 1), registered(modules, keep):
        anatomy.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids(attention_mask),
            use_cache=False,
            **last_logits(anatomy.model),
        )
    return seen
