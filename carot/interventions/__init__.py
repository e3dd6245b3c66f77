"""Interventions: pure functions from the states of both sides to the target's new states."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Protocol

from torch import Tensor

from carot.alignment import Alignment, LayerAligner
from carot.errors import CarotError
from carot.interventions.carot import Carot


class Intervention(Protocol):
    """What is done to the target's states at one layer of the prefill."""

    def __call__(
        self,
        layer: LayerAligner,
        source: Tensor,
        target: Tensor,
        source_mask: Tensor,
        target_mask: Tensor,
    ) -> Alignment:
        """Return the new states of the target.

        Parameters
        ----------
        layer : LayerAligner
            What was fitted at this layer.
        source, target : Tensor
            Shapes (B, n, d) and (B, m, d).
        source_mask, target_mask : Tensor
            Boolean, shapes (B, n) and (B, m): content tokens.

        Returns
        -------
        Alignment
            States of the target in its own dtype; those outside ``target_mask`` are unchanged.
        """
        ...


_REGISTRY: dict[str, type[Any]] = {"carot": Carot}


def get_intervention(name: str, **settings: Any) -> Intervention:
    """Make an intervention by name; settings are the fields of its class."""
    if name not in _REGISTRY:
        raise CarotError(f"no intervention {name!r}; expected one of {', '.join(_REGISTRY)}")
    known = [field.name for field in fields(_REGISTRY[name])]
    for setting in settings:
        if setting not in known:
            raise CarotError(f"{name} has no setting {setting!r}; expected {', '.join(known)}")
    intervention: Intervention = _REGISTRY[name](**settings)
    return intervention


__all__ = ["Carot", "Intervention", "get_intervention"]
