"""Fitting an aligner: a parallel corpus goes through the model once, for all layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import torch
from torch import nn

from carot.alignment import Aligner, LayerFitter, sentence_vectors
from carot.corpora import ParallelCorpus
from carot.errors import CarotError, require_positive
from carot.interventions import ENGLISH
from carot.models import tracing
from carot.models.anatomy import dissect, last_logits
from carot.models.calibration import calibrate_guard
from carot.models.encoding import Batch, encode
from carot.progress import track

MAX_LENGTH = 64
"""Tokens of a sentence that are used (paper)."""

CALIBRATION_PAIRS = 128
"""Sentences of each language on which the guard is calibrated."""

WINDOW = 1024
"""Sentences that are sorted by length together, so that batches carry little padding."""


def default_layers(num_layers: int) -> list[int]:
    """Return every third layer but the last, or the middle one of a very shallow model."""
    return list(range(3, num_layers - 1, 3)) or [num_layers // 2]


@torch.no_grad()
def fit_aligner(
    model: nn.Module,
    tokenizer: Any,
    corpus: ParallelCorpus,
    layers: Sequence[int] | None = None,
    *,
    max_length: int = MAX_LENGTH,
    batch_size: int = 32,
    guard: bool = True,
    layers_path: str | None = None,
    progress: bool = False,
) -> Aligner:
    """Fit language subspace and whitening of several layers in one pass over a corpus.

    Then the guard against wrong translations is calibrated on some of its sentences. Each forward
    pass stops at the deepest of the layers. Statistics are float64; memory does not grow with the
    corpus.

    Parameters
    ----------
    model, tokenizer
        A decoder-only Hugging Face model and its tokenizer.
    corpus : ParallelCorpus
        At least two languages; a few hundred sentences or more in each.
    layers : sequence of int, optional
        Layers to fit; every third by default.
    max_length : int
        Tokens of a sentence that are used.
    batch_size : int
        Sentences in one forward pass.
    guard : bool
        Calibrate the guard, which takes 128 sentences of each language once more.
    layers_path : str, optional
        Where the decoder layers are, for an architecture in which they are not found.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Aligner

    Raises
    ------
    CarotError
        When a layer is out of range, a sentence has no content token, or states are not finite.
    """
    require_positive(batch_size=batch_size)
    if max_length < 2:
        raise CarotError(
            f"max_length is {max_length}; expected at least 2 tokens, BOS and one more"
        )
    anatomy = dissect(model, layers_path)
    max_length = min(max_length, anatomy.context_length or max_length)
    chosen = default_layers(len(anatomy.layers)) if layers is None else sorted(layers)
    anatomy.check_layers(chosen)
    fitters = {layer: LayerFitter(anatomy.hidden_size, len(corpus.languages)) for layer in chosen}
    modules = {layer: anatomy.layers[layer] for layer in chosen}
    options = {"use_cache": False} | last_logits(model)
    batches = _batches(tokenizer, corpus, batch_size, max_length, anatomy.input_device)
    with track("fitting", len(corpus) * len(corpus.languages), enabled=progress) as advance:
        for batch, labels in batches:
            states = tracing.read(modules, partial(model, **batch.model_inputs(), **options))
            for layer, hidden in states.items():
                vectors = sentence_vectors(hidden, batch.content_mask.to(hidden.device))
                _update(fitters[layer], vectors, labels, layer)
            advance(len(batch))
    aligner = Aligner(
        {layer: fitter.fit() for layer, fitter in fitters.items()},
        corpus.languages,
        anatomy.identity(),
        {
            "sentences": len(corpus),
            "corpus": corpus.name,
            "max_length": max_length,
            "carot": version("carot"),
            "transformers": version("transformers"),
            "torch": version("torch"),
        },
    )
    if not guard or ENGLISH not in corpus:
        return aligner
    prompts, english = _calibration_pairs(corpus, batch_size)
    return calibrate_guard(
        model,
        tokenizer,
        aligner,
        prompts,
        english,
        max_length=max_length,
        batch_size=batch_size,
        layers_path=layers_path,
        progress=progress,
    )


def _calibration_pairs(corpus: ParallelCorpus, size: int) -> tuple[list[str], list[str]]:
    """Take sentences of each other language, with the English ones.

    ``size`` of them stand in one language after another: each such batch has the same English.
    """
    order = torch.randperm(len(corpus), generator=torch.Generator().manual_seed(0)).tolist()
    # Of like length together: little padding, and wrong pairs that length does not tell apart.
    rows = sorted(order[:CALIBRATION_PAIRS], key=lambda row: len(corpus[ENGLISH][row]))
    others = [language for language in corpus.languages if language != ENGLISH]
    pairs = [
        (corpus[language][row], corpus[ENGLISH][row])
        for start in range(0, len(rows), size)
        for language in others
        for row in rows[start : start + size]
    ]
    return [prompt for prompt, _ in pairs], [english for _, english in pairs]


def _update(fitter: LayerFitter, vectors: torch.Tensor, labels: list[int], layer: int) -> None:
    try:
        fitter.update(vectors, torch.tensor(labels))
    except CarotError as error:
        raise CarotError(f"layer {layer}: {error}") from error


def _batches(
    tokenizer: Any, corpus: ParallelCorpus, size: int, max_length: int, device: torch.device
) -> Iterator[tuple[Batch, list[int]]]:
    """Yield batches of sentences of like length, with the index of each one's language."""
    languages = corpus.languages
    sentences = [(label, row) for row in range(len(corpus)) for label in range(len(languages))]
    for start in range(0, len(sentences), WINDOW):
        window = [
            (label, row, corpus[languages[label]][row])
            for label, row in sentences[start : start + WINDOW]
        ]
        window.sort(key=lambda entry: len(entry[2].encode()))
        for first in range(0, len(window), size):
            part = window[first : first + size]
            batch = encode(
                tokenizer,
                [text for _, _, text in part],
                device=device,
                truncate_to=max_length,
                names=(
                    names := [f"sentence {row + 1} in {languages[label]}" for label, row, _ in part]
                ),
            )
            for name, (_, _, text), content in zip(names, part, batch.content_mask, strict=True):
                if not bool(content.any()):
                    raise CarotError(
                        f"{name} ({text[:40]!r}) has no content token; take it out of the corpus"
                    )
            yield batch, [label for label, _, _ in part]
