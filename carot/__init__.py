"""Make a multilingual language model answer as well in any language as it does in English."""

from importlib.metadata import version as _version

from carot.alignment import Aligner, Alignment, LayerAligner
from carot.corpora import ParallelCorpus
from carot.errors import CarotError
from carot.models import AlignmentView, CarotModel, fit_aligner, load_model, wrap

__version__ = _version("carot")

__all__ = [
    "Aligner",
    "Alignment",
    "AlignmentView",
    "CarotError",
    "CarotModel",
    "LayerAligner",
    "ParallelCorpus",
    "__version__",
    "fit_aligner",
    "load_model",
    "wrap",
]
