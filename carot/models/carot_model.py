"""CarotModel: a causal language model whose prefill takes English states along."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from carot.alignment import Aligner, Guard
from carot.errors import CarotError, require_positive
from carot.interventions import Method
from carot.models import hooks, tracing
from carot.models.anatomy import dissect
from carot.models.calls import observed_calls
from carot.models.encoding import Batch, Content, padding_id, special_ids
from carot.models.limits import (
    refuse_beyond_context,
    refuse_long_candidates,
    refuse_split_prefill,
)
from carot.models.pairs import Pairs, Translate, resolve_english
from carot.models.scoring import (
    CandidateRow,
    CandidateScore,
    Reduction,
    prepare_candidates,
    score_batch,
)
from carot.models.steering import EnglishMemory, Seen, Steerer, steerings
from carot.models.view import AlignmentView, token_labels

BACKENDS: dict[str, ModuleType] = {"nnsight": tracing, "torch": hooks}


class CarotModel:
    """A causal language model that is steered with English counterparts of its prompts.

    Made by :func:`carot.wrap`. The Hugging Face model inside is not changed: states are read and
    replaced by hooks that live for one call.

    Parameters
    ----------
    model : PreTrainedModel
        A decoder-only model, perhaps PEFT-wrapped or multimodal.
    tokenizer : PreTrainedTokenizerBase
        Its tokenizer; its settings are not changed.
    aligner : Aligner, optional
        Fitted on this model; None where nothing is steered.
    method : mapping of int to Intervention
        What is done at each layer that is steered; each sees the states as they then are. Empty
        for the model as it is.
    hooks : {"nnsight", "torch"}
        Who registers the hooks. nnsight is the default; plain torch hooks do the same and let
        several threads use one model.
    layers_path : str, optional
        Where the decoder layers are, for an architecture in which they are not found.
    english_memory : EnglishMemory, optional
        Keeps English states between calls.
    min_match : float or Guard
        Rows whose prompt and English match less (:func:`carot.alignment.match_quality`, at the
        first layer) are not steered: one number for all, or a guard's for each language.
    translate : callable, optional
        Makes the English of prompts that are given without, see :func:`carot.wrap`.

    Raises
    ------
    CarotError
        When a layer is out of range or was not fitted, or the aligner is another model's.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        aligner: Aligner | None,
        method: Method,
        *,
        hooks: Literal["nnsight", "torch"] = "nnsight",
        layers_path: str | None = None,
        english_memory: EnglishMemory | None = None,
        min_match: float | Guard = 0.0,
        translate: Translate | None = None,
    ) -> None:
        self.anatomy = dissect(model, layers_path)
        if method:
            self.anatomy.check_layers(list(method))
        difference = aligner and aligner.model.difference(self.anatomy.identity())
        if aligner is not None and difference is not None:
            raise CarotError(
                f"the aligner was fitted on {aligner.model.name!r}, and this model has "
                f"{difference}; fit an aligner on this model"
            )
        if hooks not in BACKENDS:
            raise CarotError(f"hooks={hooks!r}; expected one of {', '.join(BACKENDS)}")
        self.guard = min_match if isinstance(min_match, Guard) else Guard(min_match)
        if not 0 <= self.guard.threshold <= 1:
            raise CarotError(f"min_match is {min_match}; expected 0 (no guard) to 1")
        self.model = model
        self.tokenizer = tokenizer
        self.aligner = aligner
        self.layers = sorted(method)
        self.translate = translate
        self._steerer = Steerer(
            self.anatomy, tokenizer, aligner, method, BACKENDS[hooks], english_memory, self.guard
        )

    @torch.no_grad()
    def generate(
        self,
        prompts: str | Sequence[str],
        english: str | Sequence[str | None] | None = None,
        *,
        content: Content | None = None,
        english_content: Content | None = None,
        return_ids: bool = False,
        return_steering: bool = False,
        skip_special_tokens: bool = True,
        **generate_kwargs: Any,
    ) -> Any:
        """Generate, steering the prefill of each prompt that has an English counterpart.

        Parameters
        ----------
        prompts : str or sequence of str
            B prompts; one batch.
        english : str or sequence, optional
            For each prompt its English translation, or None to leave that row unsteered (or to the
            pivot, where the model was wrapped with one).
        content : str or sequence, optional
            The part of each prompt that is steered (the question inside a few-shot prompt or a
            chat template): a marker that encloses it and is taken out, or characters [start, end).
        english_content : str or sequence, optional
            The same for the English side; a ``content`` marker holds for both.
        return_ids : bool
            Return what ``model.generate`` returns.
        return_steering : bool
            Return with it a list that says how each prompt was steered.
        skip_special_tokens : bool
            Leave special tokens out of the text.
        **generate_kwargs
            Anything that Hugging Face's ``generate`` takes: ``max_new_tokens``, ``num_beams``,
            ``do_sample``, ``generation_config``, ``stopping_criteria``, ``streamer``, ...

        Returns
        -------
        list of str, str, or what ``model.generate`` returns
            The new text of each prompt (``num_return_sequences`` of them, in its order); a single
            string where ``prompts`` was one and one sequence was asked for. With
            ``return_steering`` a pair of this and a list of :class:`carot.models.Steering`.

        Raises
        ------
        CarotError
            For rows that do not match, texts beyond the context, or an option under which the
            prefill is not one pass (``prefill_chunk_size``, ``use_cache=False``).
        """
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        pairs = self._pairs(texts, english, content, english_content)
        if not len(pairs):
            return ([], []) if return_steering else []
        config, limit = self.model.generation_config, self.anatomy.context_length
        refuse_split_prefill(config, generate_kwargs)
        batch = self._steerer.encode_prompts(pairs)
        refuse_beyond_context(batch, limit, config, generate_kwargs, pairs.first)
        states = self._steerer.read_english(pairs.english, pairs.english_spans)
        if "stop_strings" in generate_kwargs:
            generate_kwargs.setdefault("tokenizer", self.tokenizer)
        if getattr(config, "pad_token_id", None) is None:
            generate_kwargs.setdefault("pad_token_id", padding_id(self.tokenizer))
        inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
        seen: dict[int, Seen] | None = {} if return_steering else None
        output = self._steerer.run(
            batch,
            states,
            lambda: self.model.generate(**inputs, **generate_kwargs),  # type: ignore[operator]
            seen,
        )
        if return_ids:
            answers = output
        else:
            answers = self._texts(output, batch, skip_special_tokens)
            if isinstance(prompts, str) and len(answers) == 1:
                answers = answers[0]
        if seen is None:
            return answers
        return answers, steerings(len(pairs), states, batch.content_mask, seen)

    def _pairs(
        self,
        prompts: Sequence[str],
        english: str | Sequence[str | None] | None,
        content: Content | None,
        english_content: Content | None,
    ) -> Pairs:
        pairs = Pairs.resolve(prompts, english, content, english_content)
        missing = self._steerer.needs_source and not all(pairs.english)
        return pairs.filled(self.translate) if missing and self.translate else pairs

    def _texts(self, output: Any, batch: Batch, skip_special_tokens: bool) -> list[str]:
        ids = output if isinstance(output, Tensor) else output.sequences
        new = ids[:, batch.input_ids.shape[1] :]
        return list(self.tokenizer.batch_decode(new, skip_special_tokens=skip_special_tokens))

    def check(
        self,
        prompts: Sequence[str],
        english: Sequence[str | None] | None = None,
        *,
        content: Content | None = None,
        english_content: Content | None = None,
        **generate_kwargs: Any,
    ) -> list[tuple[int, int]]:
        """Raise the CarotError that :meth:`generate` would raise for one of these rows, at once.

        For long jobs, which would else meet a bad row in their last batch.

        Returns
        -------
        list of (int, int)
            Tokens of each prompt and of its English counterpart (0 without).
        """
        config, limit = self.model.generation_config, self.anatomy.context_length
        refuse_split_prefill(config, generate_kwargs)
        pairs = Pairs.resolve(list(prompts), english, content, english_content)
        lengths = []
        for row in range(len(pairs)):
            here = pairs[row : row + 1]
            batch = self._steerer.encode_prompts(here)
            refuse_beyond_context(batch, limit, config, generate_kwargs, here.first)
            other = 0
            if here.english[0]:
                names = [f"English text {row}"]
                encoded = self._steerer.encode([here.english[0]], here.english_spans, names)
                other = encoded.input_ids.shape[1]
            lengths.append((batch.input_ids.shape[1], other))
        return lengths

    @torch.no_grad()
    def score(
        self,
        prompts: Sequence[str],
        candidates: Sequence[str] | Sequence[Sequence[str]],
        english: Sequence[str | None] | None = None,
        *,
        content: Content | None = None,
        english_content: Content | None = None,
        separator: str | None = None,
        reduction: Reduction = "mean",
        batch_size: int = 16,
    ) -> list[list[float]]:
        """Log-probability of each candidate as the continuation of its prompt.

        Candidates share their prompt's (steered) prefill; the head runs on scored positions only.

        Parameters
        ----------
        prompts : sequence of str
            B prompts; white space at their end moves to the candidates.
        candidates : sequence of str, or of sequences of str
            The same candidates for all prompts, or a list for each.
        english, content, english_content
            As in :meth:`generate`.
        separator : str, optional
            What stands between prompt and candidate. By default one space, or nothing where the
            prompt ends in white space or in a script that is written without spaces.
        reduction : {"mean", "sum"}
            Over the tokens of a candidate.
        batch_size : int
            Prompts in one batch; it does not change the scores.

        Returns
        -------
        list of list of float
            In nats, one list for each prompt in the order of its candidates.

        Raises
        ------
        CarotError
            For rows that do not match, an empty candidate, or a prompt beyond the context.
        """
        if reduction not in ("mean", "sum"):
            raise CarotError(f"reduction={reduction!r}; expected mean or sum")
        pairs = self._pairs(list(prompts), english, content, english_content)
        rows = prepare_candidates(self.tokenizer, pairs.prompts, candidates, separator)
        scores = self.score_rows(pairs, rows, batch_size=batch_size)
        return [[score.reduced(reduction) for score in row] for row in scores]

    @torch.no_grad()
    def score_rows(
        self, pairs: Pairs, rows: Sequence[CandidateRow], *, batch_size: int = 16
    ) -> list[list[CandidateScore]]:
        """Score candidates that are tokenised already: what :meth:`score` does with its own.

        Parameters
        ----------
        pairs : Pairs
            B prompts with their English counterparts and what is content on both sides.
        rows : sequence of CandidateRow
            For each prompt the text that is fed, and its candidates.
        batch_size : int
            Prompts in one batch.

        Returns
        -------
        list of list of CandidateScore
        """
        require_positive(batch_size=batch_size)
        scores: list[list[CandidateScore]] = []
        for start in range(0, len(pairs), batch_size):
            part = slice(start, start + batch_size)
            here = pairs[part]
            stems = [row.prompt for row in rows[part]]
            batch = self._steerer.encode_prompts(replace(here, prompts=stems))
            refuse_long_candidates(batch, rows[part], self.anatomy.context_length, start)
            states = self._steerer.read_english(here.english, here.english_spans, here.first)
            scores += score_batch(
                self.model,
                batch,
                rows[part],
                partial(self._steerer.run, batch, states),
            )
        return scores

    @torch.no_grad()
    def align(
        self,
        prompt: str,
        english: str,
        *,
        layer: int | None = None,
        content: Content | None = None,
        english_content: Content | None = None,
    ) -> AlignmentView:
        """Show which English tokens move onto which tokens of the prompt.

        Parameters
        ----------
        prompt, english : str
            One pair.
        layer : int, optional
            One of this model's layers; the first by default.
        content, english_content
            As in :meth:`generate`.

        Returns
        -------
        AlignmentView
            Tokens of both sides, the plan and the interpolation, at content tokens.

        Raises
        ------
        CarotError
            When the layer is not steered, or one side has no content token.
        """
        layer = self.layers[0] if layer is None else layer
        if layer not in self.layers:
            raise CarotError(f"layer {layer} is not steered here; expected one of {self.layers}")
        if not self._steerer.needs_source:
            raise CarotError("this method moves no English states; there is no alignment to show")
        pairs = Pairs.resolve([prompt], [english], content, english_content)
        batch = self._steerer.encode_prompts(pairs)
        states = self._steerer.read_english(pairs.english, pairs.english_spans)
        if states is None or not bool(batch.content_mask.any() and states.batch.content_mask.any()):
            raise CarotError("prompt and English text need at least one content token each")
        seen: dict[int, Seen] = {}
        self._steerer.run(batch, states, lambda: self._steerer.forward(batch), seen)
        here, there = batch.content_mask[0].cpu(), states.batch.content_mask[0].cpu()
        return AlignmentView(
            prompt_tokens=token_labels(self.tokenizer, batch.input_ids[0].cpu()[here]),
            english_tokens=token_labels(self.tokenizer, states.batch.input_ids[0].cpu()[there]),
            plan=seen[layer].alignment.plan[0].cpu()[here][:, there],
            interpolation=seen[layer].alignment.interpolation[0].cpu()[here],
            layer=layer,
        )

    @contextmanager
    def intervene(
        self,
        english: str | Sequence[str | None],
        *,
        english_content: Content | None = None,
    ) -> Iterator[None]:
        """Steer the calls that other code makes to the model inside this ``with`` block.

        Torch hooks steer every prefill that the model runs in this thread, whoever calls it:
        ``model(**inputs)``, ``model.generate(**inputs)``, a pipeline. Steps that go on from a
        non-empty cache are left alone. Rows are those of the call, or a multiple of them (beams).
        All tokens but special ones and padding are content. The moved states carry no gradient.

        Parameters
        ----------
        english : str or sequence
            For each row of the calls inside, its English counterpart or None.
        english_content : str or sequence, optional
            As in :meth:`generate`.

        Raises
        ------
        CarotError
            Inside the block, when a call's rows do not match, its token ids cannot be seen, or
            several tokens go on from a cache (a prefill in pieces).
        """
        given, spans = resolve_english(
            [english] if isinstance(english, str) else list(english), english_content
        )
        with torch.no_grad():
            states = self._steerer.read_english(given, spans)
        if states is None:
            yield
            return
        seen: dict[int, Seen] | None = {} if self.guard.is_on else None
        with observed_calls(self.anatomy, special_ids(self.tokenizer)) as call:

            def edit(index: int, output: Any) -> Any:
                if not call.is_prefill:
                    return None
                if seen and index == self.layers[0]:
                    seen.clear()
                mask = call.content_mask_of(len(given))
                hidden = hooks.states_of(output)
                new = self._steerer.edit(index, hidden, mask, states, seen)
                return hooks.with_states(output, new)

            with hooks.registered(self._steerer.modules, edit):
                yield
