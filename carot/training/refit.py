"""Fitting the aligner again on the way: training turns the subspaces that it was fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from carot.alignment import Aligner, LayerFitter, sentence_vectors
from carot.corpora import ParallelCorpus
from carot.interventions import ENGLISH
from carot.models.anatomy import Anatomy
from carot.models.encoding import encode
from carot.models.states import layer_states
from carot.training.drift import drift
from carot.training.objectives.carot import Carot

BATCH = 32
"""Sentences in one forward pass."""


@torch.no_grad()
def corpus_vectors(
    anatomy: Anatomy,
    tokenizer: Any,
    corpus: ParallelCorpus,
    layers: Sequence[int],
    max_length: int,
) -> dict[int, Tensor]:
    """Return the sentence vectors of a corpus, (languages, N, d) for each layer, float64.

    The model is used as it is, in evaluation mode, and put back into training.
    """
    training = anatomy.model.training
    anatomy.model.eval()
    found: dict[int, list[Tensor]] = {layer: [] for layer in layers}
    try:
        for language in corpus.languages:
            for start in range(0, len(corpus), BATCH):
                texts = corpus[language][start : start + BATCH]
                batch = encode(
                    tokenizer, texts, device=anatomy.input_device, truncate_to=max_length
                )
                states = layer_states(anatomy, layers, batch.input_ids, batch.attention_mask)
                for layer, hidden in states.items():
                    content = batch.content_mask.to(hidden.device)
                    found[layer].append(sentence_vectors(hidden, content).cpu())
    finally:
        anatomy.model.train(training)
    shape = (len(corpus.languages), len(corpus), -1)
    return {layer: torch.cat(parts).reshape(shape) for layer, parts in found.items()}


def fit_vectors(aligner: Aligner, vectors: dict[int, Tensor], languages: list[str]) -> Aligner:
    """Return an aligner whose layers in ``vectors`` are fitted on them; others stay."""
    layers = dict(aligner.layers)
    for layer, table in vectors.items():  # (L, N, d)
        fitter = LayerFitter(table.shape[-1], len(languages))
        labels = torch.arange(len(languages)).repeat_interleave(table.shape[1])
        layers[layer] = fitter.update(table.flatten(0, 1), labels).fit()
    return Aligner(layers, languages, aligner.model, aligner.fit, aligner.defaults)


def cosines_with_english(
    aligner: Aligner, layer: int, table: Tensor, languages: list[str]
) -> dict[str, float]:
    """Return the mean cosine of E(x) with the E(x) of its English sentence, by language.

    Seen from the mean, which all sentences share and which would make any two alike. ``table``
    holds the sentence vectors of the layer, (languages, N, d).
    """
    subspace = aligner[layer].subspace.to("cpu", torch.float64)
    agnostic = dict(zip(languages, subspace.agnostic(table) - subspace.bias, strict=True))
    english = agnostic.pop(ENGLISH)
    return {
        language: float(torch.cosine_similarity(x, english, dim=-1).mean())
        for language, x in agnostic.items()
    }


class Refit(TrainerCallback):
    """Fits eraser and whitening again every so many steps, and logs how far they have turned.

    Parameters
    ----------
    objective : Carot
        Gets the new aligner.
    anatomy, tokenizer
        Of the model in training.
    corpus : ParallelCorpus
        Held-out sentences.
    every : int
        Optimizer steps.
    max_length : int
        Tokens of a sentence that are used.
    """

    def __init__(
        self,
        objective: Carot,
        anatomy: Anatomy,
        tokenizer: Any,
        corpus: ParallelCorpus,
        every: int,
        max_length: int,
    ) -> None:
        self.objective = objective
        self.anatomy = anatomy
        self.tokenizer = tokenizer
        self.corpus = corpus
        self.every = every
        self.max_length = max_length
        self.measured: dict[str, float] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Fit on the held-out sentences first: later fits differ by what training changed alone."""
        if not state.global_step:
            self.refit()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Fit again where it is due; what was measured goes into the next log."""
        if state.global_step % self.every:
            return
        control.should_log = True
        self.measured = self.refit()

    def take_measured(self) -> dict[str, float]:
        """Return what was measured since the last log."""
        measured, self.measured = self.measured, {}
        return measured

    def refit(self) -> dict[str, float]:
        """Fit again; return principal angles (degrees) and cosines with English, by layer."""
        layers = self.objective.layers
        vectors = corpus_vectors(self.anatomy, self.tokenizer, self.corpus, layers, self.max_length)
        before = self.objective.aligner
        after = fit_vectors(before, vectors, self.corpus.languages)
        self.objective.aligner = after
        measured: dict[str, float] = {}
        for layer in layers:
            for name, value in drift(before[layer], after[layer]).summary().items():
                measured[f"layer_{layer}_{name}"] = value
            cosines = cosines_with_english(after, layer, vectors[layer], self.corpus.languages)
            for language, value in cosines.items():
                measured[f"layer_{layer}_cosine_{language}"] = value
        return measured
