"""Objectives: one file each, one readable loss method each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext

from carot.alignment import Aligner, TransportSettings
from carot.errors import CarotError
from carot.models.anatomy import Anatomy, dissect, has_new_adapter
from carot.training.gammas import gamma_table
from carot.training.objectives.base import Batch, Kind, Objective, count
from carot.training.objectives.carot import Carot
from carot.training.objectives.midalign import MidAlign
from carot.training.objectives.preferences import Dco, Dpo
from carot.training.objectives.sft import Sft
from carot.training.objectives.solar import Solar
from carot.training.recipe import Recipe, nearest

KINDS: dict[str, Kind] = {
    "sft": "instructions",
    "sft_gold": "instructions",
    "solar": "instructions",
    "dco": "pairs",
    "dpo": "preferences",
    "calm": "preferences",
    "carot": "parallel",
    "midalign": "parallel",
}
"""What each objective is trained on; a run has one objective on instructions, and one on each kind
of preferences."""


def objective_names(recipe: Recipe) -> list[str]:
    """Return the objectives of a recipe, those on parallel sentences last.

    Raises
    ------
    CarotError
        For a name that is not known, or two objectives on the same instructions or preferences.
    """
    names = [name.strip() for name in recipe.objective.split("+")]
    for name in names:
        if name not in KINDS:
            raise CarotError(f"objective {name!r}{nearest(name, list(KINDS))}")
    aligning = [name for name in names if KINDS[name] == "parallel"]
    own = [name for name in names if name not in aligning] or ["sft"]
    kinds = [KINDS[name] for name in own]
    if len(set(names)) < len(names) or len(set(kinds)) < len(kinds):
        raise CarotError(
            f"objective {recipe.objective!r}: expected each once, and one of those on the same "
            "data: sft, sft_gold, solar; dpo, calm"
        )
    for name in recipe.schedule.weights:
        if name not in {*own, *aligning}:
            raise CarotError(f"schedule.weights names {name!r}; this run has {recipe.objective}")
    return [*own, *aligning]


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


def _sft_gold(recipe: Recipe, anatomy: Anatomy, aligner: Aligner | None) -> Objective:
    return Sft("sft_gold")


def _dco(recipe: Recipe, anatomy: Anatomy, aligner: Aligner | None) -> Objective:
    settings = recipe.preferences
    table = gamma_table(
        recipe.data.languages or [],
        settings.beta,
        settings.gamma,
        allow_inconsistent=settings.allow_inconsistent,
    )
    return Dco(settings.beta, table, settings.form, settings.reduction)


def _dpo(recipe: Recipe, anatomy: Anatomy, aligner: Aligner | None) -> Objective:
    return Dpo(recipe.preferences.dpo_beta, recipe.preferences.reduction)


def _calm(recipe: Recipe, anatomy: Anatomy, aligner: Aligner | None) -> Objective:
    return Dpo(recipe.preferences.dpo_beta, recipe.preferences.reduction, "calm")


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
    if (difference := aligner.model.difference(anatomy.identity())) is not None:
        raise CarotError(
            f"the aligner was fitted on {aligner.model.name!r}, and this model has {difference}; "
            "fit an aligner on this model, or name none"
        )
    settings = recipe.align
    layers = settings.layers or [aligner.default_layer()]
    anatomy.check_layers(layers)
    for layer in layers:
        aligner[layer]
    transport = TransportSettings(settings.theta, settings.epsilon, settings.rho)
    if settings.teacher == "current":
        return Carot(aligner, layers, transport)
    if has_new_adapter(anatomy.model):
        return Carot(aligner, layers, transport, frozen=anatomy.model.disable_adapter)
    teacher = copy.deepcopy(anatomy.model).requires_grad_(False).eval()
    return Carot(aligner, layers, transport, dissect(teacher), nullcontext)


OBJECTIVES: dict[str, Callable[[Recipe, Anatomy, Aligner | None], Objective]] = {
    "sft": _sft,
    "sft_gold": _sft_gold,
    "dco": _dco,
    "dpo": _dpo,
    "calm": _calm,
    "carot": _carot,
    "midalign": _midalign,
    "solar": _solar,
}
"""Makers of objectives by name."""

__all__ = [
    "KINDS",
    "OBJECTIVES",
    "Batch",
    "Carot",
    "Dco",
    "Dpo",
    "Kind",
    "MidAlign",
    "Objective",
    "Sft",
    "Solar",
    "count",
    "make_objectives",
    "objective_names",
]
