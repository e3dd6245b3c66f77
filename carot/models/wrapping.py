"""``carot.wrap``: from a model, an aligner and a method's name to a CarotModel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from carot.alignment import Aligner, Guard
from carot.errors import CarotError
from carot.interventions import Intervention, Method, make_method, method_settings
from carot.languages import detectable
from carot.models.anatomy import dissect
from carot.models.carot_model import CarotModel
from carot.models.pairs import Translate
from carot.models.steering import OFF, EnglishMemory

if TYPE_CHECKING:
    from carot.pivots import Pivot


def wrap(
    model: nn.Module,
    tokenizer: Any,
    aligner: Aligner,
    *,
    layer: int | None = None,
    layers: Sequence[int] | None = None,
    intervention: str | Intervention | Method = "carot",
    language: str | None = None,
    hooks: Literal["nnsight", "torch"] = "nnsight",
    layers_path: str | None = None,
    english_memory: EnglishMemory | None = None,
    min_match: float | Guard | None = None,
    pivot: str | Pivot | None = None,
    **settings: Any,
) -> CarotModel:
    """Wrap a model so that English counterparts of its prompts can steer it.

    Parameters
    ----------
    model, tokenizer
        A decoder-only Hugging Face model and its tokenizer; neither is changed.
    aligner : Aligner
        Fitted on this model.
    layer : int, optional
        The layer that is steered; by default what a sweep chose, else every fitted layer but those
        of the last quarter of the depth.
    layers : sequence of int, optional
        Several layers instead: each aligns the states as they then are.
    intervention : str, Intervention, or mapping of int to Intervention
        A method by name (``carot``, its ablations ``no_leace``, ``no_filter``, ``last_token``, the
        baselines ``lang_vec``, ``mlrs``), or your own: one for all layers, or one for each.
    language : str, optional
        Language of the prompts, for methods that work on the languages' means and for a pivot,
        which else detects it.
    hooks : {"nnsight", "torch"}
        Who registers the hooks.
    layers_path : str, optional
        Where the decoder layers are, for an architecture in which they are not found.
    english_memory : EnglishMemory, optional
        Keeps English states between calls, for trying many settings on the same questions.
    min_match : float or Guard, optional
        The guard: a row whose prompt and English match less at the first layer is not steered. By
        default what was calibrated for each language when the aligner was fitted; 0 steers every
        row.
    pivot : str or Pivot, optional
        Makes the English of prompts that are given without: ``self``, ``seq2seq:NAME``,
        ``command:PROGRAM ...``, or your own, see :mod:`carot.pivots`.
    **settings
        Of the method; for ``carot``: ``theta`` (0.5), ``rho`` (0.5), ``epsilon`` (0.05),
        ``solver`` ("auto"). The aligner's ``defaults`` stand in for what is not given.

    Returns
    -------
    CarotModel

    Raises
    ------
    CarotError
        When the aligner does not fit the model, or a setting is unknown or out of range.

    Examples
    --------
    >>> steered = carot.wrap(model, tokenizer, aligner, layer=5, theta=0.5)  # doctest: +SKIP
    """
    if layer is not None and layers is not None:
        raise CarotError(f"layer={layer} and layers={list(layers)}; expected one of the two")
    if layers is None:
        layers = aligner.default_layers() if layer is None else [layer]
    dissect(model, layers_path).check_layers(list(layers))
    if isinstance(intervention, str):
        known = method_settings(intervention)
        defaults = {key: aligner.defaults[key] for key in known if key in aligner.defaults}
        method = make_method(intervention, aligner, layers, language, **defaults | settings)
    elif settings:
        raise CarotError(f"{sorted(settings)} do not go with an intervention that is made already")
    elif isinstance(intervention, Mapping):
        method = intervention
    else:
        method = dict.fromkeys(layers, intervention)
    return CarotModel(
        model,
        tokenizer,
        aligner,
        method,
        hooks=hooks,
        layers_path=layers_path,
        english_memory=english_memory,
        min_match=guard_at(aligner, min(method, default=0)) if min_match is None else min_match,
        translate=_translate(pivot, model, tokenizer, language, aligner),
    )


def guard_at(aligner: Aligner, layer: int) -> Guard:
    """Return the guard at a first layer; one that refuses nothing where none was calibrated."""
    return aligner.guards.get(layer, OFF)


def _translate(
    pivot: str | Pivot | None,
    model: nn.Module,
    tokenizer: Any,
    language: str | None,
    aligner: Aligner,
) -> Translate | None:
    """Return what fills in missing English; None without a pivot."""
    from carot.pivots import open_pivot, translate_missing  # they use models themselves

    opened = open_pivot(pivot, model, tokenizer) if isinstance(pivot, str) else pivot
    if opened is None:
        return None

    among = detectable(aligner.languages) if language is None else None

    def translate(texts: Sequence[str], english: Sequence[str | None]) -> list[str | None]:
        languages = [language] * len(texts)
        return translate_missing(opened, texts, english, languages, among=among)[0]

    return translate
