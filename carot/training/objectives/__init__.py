"""Objectives: one file each, one readable loss method each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext

from carot.alignment import Aligner, TransportSettings
from carot.errors import CarotError
from carot.models.anatomy import Anatomy, dissect
from carot.training.objectives.base import Batch, Kind, Objective, count
from carot.training.objectives.carot import Carot
from carot.training.objectives.midalign import MidAlign
from carot.training.objectives.sft import Sft
from carot.training.objectives.solar import Solar
from carot.training.recipe import Recipe, nearest

LANGUAGE_MODEL = ("sft", "solar")
"""Objectives that hold the language-model loss; a run has one of them."""


def objective_names(recipe: Recipe) -> list[str]:
    """Return the objectives of a recipe, the one with the language-model loss first.

    Raises
    ------
    CarotError
        For a name that is not known, or both of :data:`LANGUAGE_MODEL`.
    """
    names = [name.strip() for name in recipe.objective.split("+")]
    for name in names:
        if name not in OBJECTIVES:
            raise CarotError(f"objective {name!r}{nearest(name, list(OBJECTIVES))}")
    for name in recipe.schedule.weights:
        if name not in {*names, "sft"}:
            raise CarotError(f"schedule.weights names {name!r}; this run has {recipe.objective}")
    own = [name for name in LANGUAGE_MODEL if name in names]
    if len(own) > 1 or len(set(names)) < len(names):
        raise CarotError(
            f"objective {recipe.objective!r}: expected each once, and one of "
            f"{', '.join(LANGUAGE_MODEL)} at most: solar holds the loss of sft"
        )
    return [*(own or ["sft"]), *(name for name in names if name not in LANGUAGE_MODEL)]


def make_objectives(
    recipe: Recipe, anatomy: Anatomy, aligner: Aligner | None
) -> list[tuple[Objective, float]]:
    """Make a recipe's objectives for a model, each with its weight.

    Parameters
    ----------
    recipe : Recipe
        What is trained.
    anatomy : Anatomy
        Of the model.
    aligner : Aligner, optional
        Needed by ``carot``.
    """
    return [
        (OBJECTIVES[name](recipe, anatomy, aligner), recipe.schedule.weights.get(name, 1.0))
        for name in objective_names(recipe)
    ]


def _sft(recipe: Recipe, anatomy: Anatomy, aligner: Aligner | None) -> Objective:
    return Sft()


def _solar(recipe: Recipe, anatomy: Anatomy, aligner: Aligner | None) -> Objective:
    settings = recipe.solar
    return Solar(settings.top_k, settings.temperature, settings.strength)


def _midalign(recipe: Recipe, anatomy: Anatomy, aligner: Aligner | None) -> Objective:
    settings = recipe.midalign
    layer = len(anatomy.layers) // 2 if settings.layer is None else settings.layer
    anatomy.check_layers([layer])
    return MidAlign(layer, settings.temperature, settings.symmetric)


def _carot(recipe: Recipe, anatomy: Anatomy, aligner: Aligner | None) -> Objective:
    if aligner is None:
        raise CarotError("the objective carot needs an aligner")
    settings = recipe.align
    layers = settings.layers or [aligner.default_layer()]
    anatomy.check_layers(layers)
    for layer in layers:
        aligner[layer]
    transport = TransportSettings(settings.theta, settings.epsilon, settings.rho)
    if settings.teacher == "current":
        return Carot(aligner, layers, transport)
    if hasattr(anatomy.model, "disable_adapter"):
        return Carot(aligner, layers, transport, frozen=anatomy.model.disable_adapter)
    teacher = copy.deepcopy(anatomy.model).requires_grad_(False).eval()
    return Carot(aligner, layers, transport, dissect(teacher), nullcontext)


OBJECTIVES: dict[str, Callable[[Recipe, Anatomy, Aligner | None], Objective]] = {
    "sft": _sft,
    "carot": _carot,
    "midalign": _midalign,
    "solar": _solar,
}
"""Makers of objectives by name."""

__all__ = [
    "LANGUAGE_MODEL",
    "OBJECTIVES",
    "Batch",
    "Carot",
    "Kind",
    "MidAlign",
    "Objective",
    "Sft",
    "Solar",
    "count",
    "make_objectives",
    "objective_names",
]
