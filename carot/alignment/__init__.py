"""The method itself: tensors in, tensors out."""

from carot.alignment.aligner import Aligner, ModelIdentity
from carot.alignment.fit import LayerFitter, sentence_vectors
from carot.alignment.layer import Alignment, LayerAligner, TransportSettings
from carot.alignment.match import Guard, match_quality, prompt_languages
from carot.alignment.subspace import LanguageSubspace
from carot.alignment.transport import perplexity_filter, unbalanced_sinkhorn

__all__ = [
    "Aligner",
    "Alignment",
    "Guard",
    "LanguageSubspace",
    "LayerAligner",
    "LayerFitter",
    "ModelIdentity",
    "TransportSettings",
    "match_quality",
    "perplexity_filter",
    "prompt_languages",
    "sentence_vectors",
    "unbalanced_sinkhorn",
]
