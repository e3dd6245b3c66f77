"""The steps of one steered call: encode, read the English states, replace the prefill's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from carot.alignment import (
    Aligner,
    Alignment,
    Guard,
    LayerAligner,
    match_quality,
    prompt_languages,
)
from carot.errors import CarotError
from carot.interventions import Intervention, Method
from carot.models.anatomy import Anatomy, last_logits
from carot.models.encoding import Batch, Span, encode
from carot.models.pairs import Pairs


@dataclass(frozen=True)
class EnglishStates:
    """English states of the steered rows of one batch, ready to be moved.

    Parameters
    ----------
    rows : Tensor
        Shape (R,): the rows of the batch that are steered.
    states : dict of int to Tensor
        For each layer, shape (R, n, d).
    batch : Batch
        The encoded English texts, R rows.
    """

    rows: Tensor
    states: dict[int, Tensor]
    batch: Batch

    @classmethod
    def absent(cls, rows: int, device: torch.device) -> EnglishStates:
        """Stand for no English at all, where the method does without: every row is steered."""
        nothing = torch.zeros(rows, 0, dtype=torch.long, device=device)
        return cls(torch.arange(rows), {}, Batch(nothing, nothing, nothing.bool()))


class EnglishMemory:
    """English states kept between calls, for trying many settings on the same questions.

    Parameters
    ----------
    layers : sequence of int
        Every layer that will be asked for: one English pass reads them all.
    """

    def __init__(self, layers: Sequence[int]) -> None:
        self.layers = sorted(set(layers))
        self.kept: dict[tuple[Any, ...], EnglishStates] = {}


def needs_source(step: Intervention) -> bool:
    """Whether an intervention needs English states; one that does not says so."""
    return bool(getattr(step, "needs_source", True))


@dataclass(frozen=True)
class Seen:
    """What was seen when one layer was steered.

    Parameters
    ----------
    alignment : Alignment
        Of the rows that are steered.
    match : Tensor
        At the first layer, one value for each of them, see :func:`carot.alignment.match_quality`.
    least : Tensor
        The match that is asked of each of them.
    """

    alignment: Alignment
    match: Tensor
    least: Tensor


@dataclass(frozen=True)
class Steering:
    """How one row was steered.

    Parameters
    ----------
    steered : bool
        Whether its states were moved.
    reason : str, optional
        Why they were not.
    match : float, optional
        How well prompt and English match at the first layer, see
        :func:`carot.alignment.match_quality`.
    interpolation : float, optional
        How far its content tokens moved, in [0, 1]: the mean over tokens and layers.
    """

    steered: bool
    reason: str | None = None
    match: float | None = None
    interpolation: float | None = None


def steerings(
    count: int,
    english: EnglishStates | None,
    content_mask: Tensor,
    seen: dict[int, Seen],
) -> list[Steering]:
    """Return how each of ``count`` rows was steered; ``content_mask`` is the prompts', (B, S)."""
    rows = [Steering(False, "no English")] * count
    if english is None or not seen:
        return rows
    mask = content_mask.cpu()[english.rows]
    moved = torch.stack([step.alignment.interpolation.float().cpu() for step in seen.values()])
    moved = moved.mean(0)  # (R, S)
    interpolation = (moved * mask).sum(-1) / mask.sum(-1).clamp_min(1)
    first = seen[min(seen)]
    match, least = first.match.float().tolist(), first.least.tolist()
    with_english = english.batch.input_ids.shape[1] > 0
    for place, row in enumerate(english.rows.tolist()):
        quality = match[place] if with_english else None
        if quality is not None and quality < least[place]:
            reason = f"match {quality:.2f} below {least[place]:.2f}"
            rows[row] = Steering(False, reason, quality)
        else:
            rows[row] = Steering(True, None, quality, float(interpolation[place]))
    return rows


OFF = Guard(0.0)
"""The guard that refuses nothing."""


class Steerer:
    """Knows how to steer one model at some layers; holds nothing of a call.

    Parameters
    ----------
    anatomy : Anatomy
        The model's parts.
    tokenizer : PreTrainedTokenizerBase
        Its tokenizer.
    aligner : Aligner, optional
        Fitted on the model; needed where a layer is steered.
    method : mapping of int to Intervention
        What is done at each layer that is steered.
    backend : module
        :mod:`carot.models.tracing` or :mod:`carot.models.hooks`.
    memory : EnglishMemory, optional
        Keeps English states between calls.
    guard : Guard
        Rows whose prompt and English match less than it asks of their language are not steered.
    """

    def __init__(
        self,
        anatomy: Anatomy,
        tokenizer: Any,
        aligner: Aligner | None,
        method: Method,
        backend: ModuleType,
        memory: EnglishMemory | None = None,
        guard: Guard = OFF,
    ) -> None:
        self.anatomy = anatomy
        self.tokenizer = tokenizer
        self.method = dict(sorted(method.items()))
        self.needs_source = any(needs_source(step) for step in method.values())
        self.backend = backend
        self.memory = memory
        self.guard = guard
        self.languages = [] if aligner is None else aligner.languages
        self.modules = {index: anatomy.layers[index] for index in self.method}
        if self.method and aligner is None:
            raise CarotError(f"layers {list(self.method)} are steered without an aligner; fit one")
        self.fitted = {
            index: aligner[index].to(anatomy.device_of(index), torch.float32)
            for index in self.modules
            if aligner is not None
        }

    def encode(
        self, texts: Sequence[str], spans: Sequence[Span | None], names: Sequence[str]
    ) -> Batch:
        """Encode texts for this model, left-padded; refuse what its context does not hold."""
        return encode(
            self.tokenizer,
            texts,
            spans=spans,
            device=self.anatomy.input_device,
            context_length=self.anatomy.context_length,
            names=names,
        )

    def encode_prompts(self, pairs: Pairs) -> Batch:
        """Encode the prompts of pairs."""
        names = [f"prompt {pairs.first + row}" for row in range(len(pairs))]
        return self.encode(pairs.prompts, pairs.spans, names)

    def read_english(
        self, english: Sequence[str | None], spans: Sequence[Span | None], first: int = 0
    ) -> EnglishStates | None:
        """Run the English pass up to the deepest layer; None where no row is to be steered."""
        if not self.method:
            return None
        if not self.needs_source:
            return EnglishStates.absent(len(english), self.anatomy.input_device)
        rows = [row for row, text in enumerate(english) if text]
        if not rows:
            return None
        key = (*english, *spans)
        if self.memory is not None and key in self.memory.kept:
            return self.memory.kept[key]
        texts = [text for text in english if text]
        names = [f"English text {first + row}" for row in rows]
        batch = self.encode(texts, [spans[row] for row in rows], names)
        layers = self.modules if self.memory is None else self.memory.layers
        modules = {index: self.anatomy.layers[index] for index in layers}
        states = self.backend.read(modules, lambda: self.forward(batch, use_cache=False))
        result = EnglishStates(torch.tensor(rows), states, batch)
        if self.memory is not None:
            self.memory.kept[key] = result
        return result

    def forward(self, batch: Batch, **kwargs: Any) -> Any:
        """Call the model on a batch, with logits at the last position only."""
        limit = last_logits(self.anatomy.model)
        return self.anatomy.model(**batch.model_inputs(), **limit, **kwargs)

    def run(
        self,
        batch: Batch,
        english: EnglishStates | None,
        call: Callable[[], Any],
        seen: dict[int, Seen] | None = None,
    ) -> Any:
        """Run a call that prefills ``batch``, steered; alignments are put into ``seen``."""
        if english is None:
            return self.backend.plain(call)
        if seen is None and self.guard.is_on:
            seen = {}

        def edit(layer: int, hidden: Tensor) -> Tensor:
            return self.edit(layer, hidden, batch.content_mask, english, seen)

        return self.backend.replace(self.modules, edit, call)

    def edit(
        self,
        layer: int,
        hidden: Tensor,
        content_mask: Tensor,
        english: EnglishStates,
        seen: dict[int, Seen] | None = None,
    ) -> Tensor:
        """Return the new states of a prefill at one layer.

        Parameters
        ----------
        layer : int
            One of this steerer's layers.
        hidden : Tensor
            Shape (B * repeats, S or more, d): beams and several return sequences repeat each row
            ``repeats`` times, and assisted decoding lets drafted tokens follow the prompt.
        content_mask : Tensor
            Boolean, shape (B, S).
        english : EnglishStates
            Of the rows that are steered; the others come back untouched, and so do those that match
            too little at the first layer.
        seen : dict of int to Seen, optional
            What was seen in this prefill at the layers before; takes what is seen here. Without it
            no match is measured.
        """
        repeats = hidden.shape[0] // content_mask.shape[0]
        length = content_mask.shape[1]
        rows = english.rows.to(hidden.device)
        target = hidden[rows * repeats, :length]
        sides = (
            self.fitted[layer],
            english.states.get(layer, target[:, :0]),
            target,
            english.batch.content_mask,
            content_mask.to(hidden.device)[rows],
        )
        alignment = self.method[layer](*sides)
        kept: Tensor | slice = slice(None)
        if seen is not None:
            if seen:
                match, least = (first := seen[min(seen)]).match, first.least
            else:
                match = match_quality(*sides)
                least = self.least_match(sides[0], target, sides[-1])
            seen[layer] = Seen(alignment, match, least)
            if self.needs_source:
                kept = (match >= least).to(hidden.device)
        new = hidden.clone()
        for repeat in range(repeats):
            new[rows[kept] * repeats + repeat, :length] = alignment.hidden[kept]
        return new

    def least_match(self, fitted: LayerAligner, target: Tensor, mask: Tensor) -> Tensor:
        """Return the match that the guard asks of each prompt, (B,); its states say its language.

        Parameters
        ----------
        fitted : LayerAligner
            Of the layer.
        target, mask : Tensor
            States and content mask of the prompts, (B, m, d) and (B, m).
        """
        if not self.guard.languages:
            return torch.full((len(target),), self.guard.threshold, device=target.device)
        least = torch.tensor([self.guard.of(language) for language in self.languages])
        return least.to(target.device)[prompt_languages(fitted, target, mask)]
