"""Reading and replacing layer states through nnsight: the default way in and out of a model.

nnsight puts a controller in the place of a module's ``forward``. Here only the layers that are
touched get one, and they lose it when the call ends, so that the wrapped model stays the user's.
One thread at a time: nnsight's interleaving belongs to one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import nnsight
from torch import Tensor, nn

from carot.models.hooks import Edit, states_of, with_states

_LOCK = threading.RLock()


def _run(call: Callable[[], Any]) -> Any:
    return call()


@contextmanager
def _observed(layers: Mapping[int, nn.Module]) -> Iterator[tuple[Any, dict[int, Any]]]:
    """Wrap the layers for nnsight, and afterwards take back what wrapping did to their modules."""
    modules = [module for layer in layers.values() for module in layer.modules()]
    with _LOCK:
        before = [dict(module.__dict__) for module in modules]
        root = nnsight.NNsight(nn.ModuleDict({str(index): layers[index] for index in layers}))
        after = [dict(module.__dict__) for module in modules]
        try:
            yield root, {index: getattr(root, str(index)) for index in sorted(layers)}
        finally:
            for module, old, new in zip(modules, before, after, strict=True):
                for name in new:
                    if name not in old:
                        del module.__dict__[name]
                    elif new[name] is not old[name]:
                        module.__dict__[name] = old[name]


def plain(call: Callable[[], Any]) -> Any:
    """Run ``call`` as it is, but never while another thread's call is traced."""
    with _LOCK:
        return call()


def read(layers: Mapping[int, nn.Module], call: Callable[[], Any]) -> dict[int, Tensor]:
    """Run ``call`` up to the deepest of the layers and return each layer's states, (B, S, d)."""
    with _observed(layers) as (root, envoys):
        with root.trace(call, fn=_run) as tracer:
            outputs = {index: states_of(envoy.output) for index, envoy in envoys.items()}
            states = nnsight.save(outputs)
            tracer.stop()
    result: dict[int, Tensor] = states
    return result


def replace(layers: Mapping[int, nn.Module], edit: Edit, call: Callable[[], Any]) -> Any:
    """Run ``call``; when a layer runs first (the prefill), its states go through ``edit``."""
    with _observed(layers) as (root, envoys):
        with root.trace(call, fn=_run) as tracer:
            for index, envoy in envoys.items():
                output = envoy.output
                envoy.output = with_states(output, edit(index, states_of(output)))
            result = nnsight.save(tracer.result)
    return result
