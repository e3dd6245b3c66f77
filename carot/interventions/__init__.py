"""Interventions: pure functions from the states of both sides to the target's new states.

A method is found by name and made for the layers of a model: :func:`make_method` returns what is
done at each layer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from carot.alignment import Aligner
from carot.errors import CarotError
from carot.interventions.base import Intervention
from carot.interventions.carot import Carot, CarotWithoutErasure
from carot.interventions.lang_vec import LangVec
from carot.interventions.last_token import LastToken
from carot.interventions.mlrs import Mlrs

Method = Mapping[int, Intervention]
"""What is done at each of the layers that are steered."""

ENGLISH = "en"


def _carot(
    aligner: Aligner, layers: Sequence[int], language: str | None, **settings: Any
) -> Method:
    return dict.fromkeys(layers, Carot(**settings))


def _no_leace(
    aligner: Aligner, layers: Sequence[int], language: str | None, **settings: Any
) -> Method:
    return dict.fromkeys(layers, CarotWithoutErasure(**settings))


def _no_filter(
    aligner: Aligner, layers: Sequence[int], language: str | None, **settings: Any
) -> Method:
    return dict.fromkeys(layers, Carot(**settings | {"theta": 1.0}))


def _last_token(aligner: Aligner, layers: Sequence[int], language: str | None) -> Method:
    return dict.fromkeys(layers, LastToken())


def _lang_vec(
    aligner: Aligner, layers: Sequence[int], language: str | None, strength: float = 1.0
) -> Method:
    if language is None:
        raise CarotError("lang_vec needs the language of the prompts; name it with language=")
    for needed in (ENGLISH, language):
        if needed not in aligner.languages:
            raise CarotError(
                f"lang_vec needs the mean of {needed!r}; this aligner holds "
                f"{', '.join(aligner.languages)}: fit one with it"
            )
    index = aligner.languages.index
    return dict.fromkeys(layers, LangVec(index(ENGLISH), index(language), strength))


def _mlrs(
    aligner: Aligner,
    layers: Sequence[int],
    language: str | None,
    middle: float = 0.1,
    last: float = -0.4,
) -> Method:
    depth = aligner.model.num_layers
    chosen = {
        layer: Mlrs(last if layer >= 2 * depth / 3 else middle)
        for layer in aligner
        if layer >= depth / 3
    }
    if not {middle, last} <= {step.strength for step in chosen.values()}:
        raise CarotError(
            f"mlrs works in the middle and the last third of {depth} layers, and this aligner "
            f"holds {', '.join(map(str, aligner))}; fit one with layers in both"
        )
    return chosen


METHODS: dict[str, Callable[..., Method]] = {
    "carot": _carot,
    "no_leace": _no_leace,
    "no_filter": _no_filter,
    "last_token": _last_token,
    "lang_vec": _lang_vec,
    "mlrs": _mlrs,
}
"""Methods by name."""

CHOOSES_LAYERS = ("mlrs",)
"""Methods that work where their paper says, whatever layers are named."""

_TRANSPORT = ("theta", "epsilon", "rho", "solver")
_SETTINGS = {
    "carot": _TRANSPORT,
    "no_leace": _TRANSPORT,
    "no_filter": _TRANSPORT[1:],
}


def method_settings(name: str) -> tuple[str, ...]:
    """Return the names of the settings that a method takes."""
    if name not in METHODS:
        raise CarotError(f"no intervention {name!r}; expected one of {', '.join(METHODS)}")
    if name in _SETTINGS:
        return _SETTINGS[name]
    return tuple(inspect.signature(METHODS[name]).parameters)[3:]


def make_method(
    name: str,
    aligner: Aligner,
    layers: Sequence[int],
    language: str | None = None,
    **settings: Any,
) -> Method:
    """Make a method by name.

    Parameters
    ----------
    name : str
        One of :data:`METHODS`.
    aligner : Aligner
        What was fitted.
    layers : sequence of int
        Where it works, unless it chooses itself.
    language : str, optional
        The language of the prompts, for methods that need it.
    **settings
        Of the method: ``theta``, ``rho``, ``epsilon``, ``solver`` for transport, ``strength`` for
        ``lang_vec``, ``middle`` and ``last`` for ``mlrs``.

    Raises
    ------
    CarotError
        For an unknown name or setting, or where the aligner lacks what the method needs.
    """
    known = method_settings(name)
    for setting in settings:
        if setting not in known:
            expected = ", ".join(known) or "none"
            raise CarotError(f"{name} has no setting {setting!r}; expected {expected}")
    return METHODS[name](aligner, layers, language, **settings)


__all__ = [
    "CHOOSES_LAYERS",
    "ENGLISH",
    "METHODS",
    "Carot",
    "CarotWithoutErasure",
    "Intervention",
    "LangVec",
    "LastToken",
    "Method",
    "Mlrs",
    "make_method",
    "method_settings",
]
