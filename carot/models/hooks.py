"""Reading and replacing layer states with torch forward hooks.

The same two acts as :mod:`carot.models.tracing`, for code that calls the module itself (a training
loop, an evaluation harness) and for threads: a hook acts only in the thread that registered it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

Edit = Callable[[int, Tensor], Tensor]
"""(layer, states (B, S, d)) -> new states: what an intervention registers."""


class _StopForward(Exception):  # noqa: N818 - a signal, not an error
    """Ends a forward pass at the deepest layer that is read."""


def states_of(output: Any) -> Tensor:
    """Return the states of a block's output: a tensor in transformers 5, a tuple's first before."""
    states: Tensor = output if isinstance(output, Tensor) else output[0]
    return states


def with_states(output: Any, states: Tensor) -> Any:
    """Return a block's output with other states."""
    return states if isinstance(output, Tensor) else (states, *output[1:])


@contextmanager
def registered(
    layers: Mapping[int, nn.Module], on_output: Callable[[int, Any], Any]
) -> Iterator[None]:
    """Call ``on_output(layer, output)`` after each layer, in this thread; None changes nothing."""
    owner = threading.get_ident()
    with ExitStack() as stack:
        for index, layer in layers.items():

            def hook(_module: nn.Module, _args: Any, output: Any, index: int = index) -> Any:
                return on_output(index, output) if threading.get_ident() == owner else None

            stack.callback(layer.register_forward_hook(hook).remove)
        yield


def plain(call: Callable[[], Any]) -> Any:
    """Run ``call`` as it is."""
    return call()


def read(layers: Mapping[int, nn.Module], call: Callable[[], Any]) -> dict[int, Tensor]:
    """Run ``call`` up to the deepest of the layers and return each layer's states, (B, S, d)."""
    states: dict[int, Tensor] = {}

    def keep(index: int, output: Any) -> None:
        states[index] = states_of(output)
        if len(states) == len(layers):
            raise _StopForward

    with registered(layers, keep):
        try:
            call()
        except _StopForward:
            return states
    raise RuntimeError("the forward pass ended before it reached all layers")


def replace(layers: Mapping[int, nn.Module], edit: Edit, call: Callable[[], Any]) -> Any:
    """Run ``call``; when a layer runs first (the prefill), its states go through ``edit``."""
    waiting = set(layers)

    def swap(index: int, output: Any) -> Any:
        if index not in waiting:
            return None
        waiting.remove(index)
        return with_states(output, edit(index, states_of(output)))

    with registered(layers, swap):
        return call()
