"""Make a multilingual language model answer as well in any language as it does in English."""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from carot.alignment import Aligner, Alignment, LayerAligner
    from carot.corpora import ParallelCorpus
    from carot.errors import CarotError
    from carot.evaluation.runner import evaluate
    from carot.evaluation.sweep import sweep
    from carot.models import (
        AlignmentView,
        CarotModel,
        calibrate_guard,
        fit_aligner,
        load_model,
        wrap,
    )
    from carot.training import Recipe, train, train_dco

__version__ = _version("carot")

_HOMES = {
    "Aligner": "carot.alignment",
    "Alignment": "carot.alignment",
    "AlignmentView": "carot.models",
    "CarotError": "carot.errors",
    "CarotModel": "carot.models",
    "LayerAligner": "carot.alignment",
    "ParallelCorpus": "carot.corpora",
    "Recipe": "carot.training",
    "calibrate_guard": "carot.models",
    "evaluate": "carot.evaluation.runner",
    "fit_aligner": "carot.models",
    "load_model": "carot.models",
    "sweep": "carot.evaluation.sweep",
    "train": "carot.training",
    "train_dco": "carot.training",
    "wrap": "carot.models",
}
"""Imported when first asked for: the command line should not wait for torch to show its help."""

__all__ = [
    "Aligner",
    "Alignment",
    "AlignmentView",
    "CarotError",
    "CarotModel",
    "LayerAligner",
    "ParallelCorpus",
    "Recipe",
    "__version__",
    "calibrate_guard",
    "evaluate",
    "fit_aligner",
    "load_model",
    "sweep",
    "train",
    "train_dco",
    "wrap",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'carot' has no attribute {name!r}")
    return getattr(_import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
