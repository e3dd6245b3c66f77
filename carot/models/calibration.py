"""Calibrating the guard: which match true translations have, and which wrong ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from carot.alignment import Aligner, Guard, match_quality, prompt_languages
from carot.errors import CarotError, require_positive
from carot.models.anatomy import dissect
from carot.models.encoding import Batch, Content, Span, encode
from carot.models.pairs import Pairs
from carot.models.states import layer_states
from carot.progress import track

KEEP = 0.95
"""Share of true translations that the guard lets through."""


@torch.no_grad()
def calibrate_guard(
    model: nn.Module,
    tokenizer: Any,
    aligner: Aligner,
    prompts: Sequence[str],
    english: Sequence[str],
    *,
    keep: float = KEEP,
    content: Content | None = None,
    english_content: Content | None = None,
    max_length: int | None = None,
    batch_size: int = 32,
    layers_path: str | None = None,
    progress: bool = False,
) -> Aligner:
    """Return an aligner whose guard fits prompts of this kind.

    :func:`carot.fit_aligner` calibrates on sentences of its corpus. Prompts that share much of
    their wording (a template, few-shot examples) match better, right or wrong, and have a guard of
    their own. As wrong translations serve the English texts of other prompts. A language with
    enough prompts has a threshold of its own; the states say which language a prompt is in, as they
    do when prompts are steered.

    Parameters
    ----------
    model, tokenizer
        Those that the aligner was fitted on.
    aligner : Aligner
        Not changed.
    prompts, english : sequence of str
        True pairs, a hundred or more; neighbours should differ in meaning.
    keep : float
        Share of them that the guard lets through, in (0, 1].
    content, english_content
        As in :meth:`carot.CarotModel.generate`.
    max_length : int, optional
        Tokens of a text that are used; all by default.
    batch_size : int
        Pairs in one forward pass.
    layers_path : str, optional
        As in :func:`carot.fit_aligner`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Aligner
        With a :class:`carot.alignment.Guard` for each of its layers.

    Raises
    ------
    CarotError
        Without pairs, for an English text that is missing, or a share out of range.
    """
    require_positive(batch_size=batch_size)
    pairs = Pairs.resolve(list(prompts), list(english), content, english_content)
    for row, text in enumerate(pairs.english):
        if not text:
            raise CarotError(
                f"English text {row} is {text!r}; expected a translation of its prompt"
            )
    anatomy = dissect(model, layers_path)
    layers = list(aligner)
    true: dict[int, list[tuple[str, float]]] = {layer: [] for layer in layers}
    wrong: dict[int, list[tuple[str, float]]] = {layer: [] for layer in layers}

    def states_of(texts: Any, spans: list[Span | None]) -> tuple[Batch, dict[int, Tensor]]:
        batch = encode(
            tokenizer, texts, spans=spans, device=anatomy.input_device, truncate_to=max_length
        )
        return batch, layer_states(anatomy, layers, batch.input_ids, batch.attention_mask)

    read: tuple[Any, ...] = ()
    with track("calibrating", len(pairs), enabled=progress) as advance:
        for start in range(0, len(pairs), batch_size):
            here = pairs[start : start + batch_size]
            target, target_states = states_of(here.prompts, here.spans)
            if read != (side := (here.english, here.english_spans)):  # else as in the last batch
                source, source_states = states_of(*side)
                read = side
            others = [row for row, text in enumerate(here.english) if text != here.english[row - 1]]
            for layer in layers:
                sides = (source_states[layer], target_states[layer])
                masks = (source.content_mask, target.content_mask)
                nearest = prompt_languages(aligner[layer], sides[1], masks[1]).tolist()
                languages = [aligner.languages[place] for place in nearest]
                match = match_quality(aligner[layer], *sides, *masks)
                true[layer] += zip(languages, match.tolist(), strict=True)
                shifted = [side.roll(1, 0)[others] for side in (sides[0], masks[0])]
                match = match_quality(
                    aligner[layer], shifted[0], sides[1][others], shifted[1], masks[1][others]
                )
                wrong[layer] += zip([languages[row] for row in others], match.tolist(), strict=True)
            advance(len(here))
    guards = {layer: Guard.calibrate(true[layer], wrong[layer], keep) for layer in layers}
    return Aligner(
        aligner.layers, aligner.languages, aligner.model, aligner.fit, aligner.defaults, guards
    )
