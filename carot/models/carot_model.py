"""CarotModel: a causal language model whose prefill takes English states along."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from carot.alignment import Aligner, Alignment
from carot.errors import CarotError
from carot.interventions import Intervention, get_intervention
from carot.models import hooks, tracing
from carot.models.anatomy import accepts, dissect, text_config, without_adapter
from carot.models.calls import ObservedCall, observed_calls
from carot.models.encoding import Batch, Content, encode, padding_id, resolve_content, special_ids
from carot.models.scoring import Reduction, prepare_candidates, score_batch
from carot.models.view import AlignmentView, token_labels

BACKENDS: dict[str, ModuleType] = {"nnsight": tracing, "torch": hooks}


@dataclass(frozen=True)
class Steering:
    """English states of the steered rows of one batch, ready to be moved.

    Parameters
    ----------
    rows : Tensor
        Shape (R,): the rows of the batch that are steered.
    states : dict of int to Tensor
        For each layer, shape (R, n, d).
    source_mask : Tensor
        Boolean, shape (R, n).
    """

    rows: Tensor
    states: dict[int, Tensor]
    source_mask: Tensor


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
    aligner : Aligner
        Fitted on this model.
    layers : sequence of int
        Layers at which the prefill is steered; each aligns the states as they then are.
    intervention : Intervention
        What is done at each layer.
    hooks : {"nnsight", "torch"}
        Who registers the hooks. nnsight is the default; plain torch hooks do the same and suit
        threads.
    layers_path : str, optional
        Where the decoder layers are, for an architecture in which they are not found.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        aligner: Aligner,
        layers: Sequence[int],
        intervention: Intervention,
        *,
        hooks: Literal["nnsight", "torch"] = "nnsight",
        layers_path: str | None = None,
    ) -> None:
        self.anatomy = dissect(model, layers_path)
        self.anatomy.check_layers(list(layers))
        if (difference := aligner.model.difference(self.anatomy.identity())) is not None:
            raise CarotError(
                f"the aligner was fitted on {aligner.model.name!r}, and this model has "
                f"{difference}; fit an aligner on this model"
            )
        if hooks not in BACKENDS:
            raise CarotError(f"hooks={hooks!r}; expected one of {', '.join(BACKENDS)}")
        self.model = model
        self.tokenizer = tokenizer
        self.aligner = aligner
        self.layers = sorted(layers)
        self.intervention = intervention
        self._backend = BACKENDS[hooks]
        self._modules = {index: self.anatomy.layers[index] for index in self.layers}
        self._fitted = {
            index: aligner[index].to(self.anatomy.device_of(index), torch.float32)
            for index in self.layers
        }
        self._special = special_ids(tokenizer)

    @property
    def device(self) -> torch.device:
        """Where token ids go: the device of the input embedding."""
        embedding = without_adapter(self.model).get_input_embeddings()  # type: ignore[operator]
        device: torch.device = embedding.weight.device
        return device

    # Generation

    @torch.no_grad()
    def generate(
        self,
        prompts: str | Sequence[str],
        english: str | Sequence[str | None] | None = None,
        *,
        content: Content | None = None,
        english_content: Content | None = None,
        return_ids: bool = False,
        skip_special_tokens: bool = True,
        **generate_kwargs: Any,
    ) -> Any:
        """Generate, steering the prefill of each prompt that has an English counterpart.

        Parameters
        ----------
        prompts : str or sequence of str
            B prompts; one batch.
        english : str or sequence, optional
            For each prompt its English translation, or None to leave that row unsteered.
        content : str or sequence, optional
            The part of each prompt that is steered (the question inside a few-shot prompt or a
            chat template): a marker that encloses it and is taken out, or characters [start, end).
        english_content : str or sequence, optional
            The same for the English side; a ``content`` marker holds for both.
        return_ids : bool
            Return what ``model.generate`` returns.
        skip_special_tokens : bool
            Leave special tokens out of the text.
        **generate_kwargs
            Anything that Hugging Face's ``generate`` takes: ``max_new_tokens``, ``num_beams``,
            ``do_sample``, ``generation_config``, ``stopping_criteria``, ``streamer``, ...

        Returns
        -------
        list of str, str, or what ``model.generate`` returns
            The new text of each prompt (``num_return_sequences`` of them, in its order); a single
            string where ``prompts`` was one and one sequence was asked for.

        Raises
        ------
        CarotError
            For rows that do not match, texts beyond the context, or an option under which the
            prefill is not one pass (``prefill_chunk_size``, ``use_cache=False``).
        """
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        if not texts:
            return []
        self._refuse_split_prefill(generate_kwargs)
        batch, run = self._prepare(texts, english, content, english_content)
        if "stop_strings" in generate_kwargs:
            generate_kwargs.setdefault("tokenizer", self.tokenizer)
        if getattr(self.model.generation_config, "pad_token_id", None) is None:
            generate_kwargs.setdefault("pad_token_id", padding_id(self.tokenizer))
        output = run(
            lambda: self.model.generate(  # type: ignore[operator]
                input_ids=batch.input_ids, attention_mask=batch.attention_mask, **generate_kwargs
            )
        )
        if return_ids:
            return output
        ids = output if isinstance(output, Tensor) else output.sequences
        answers = self.tokenizer.batch_decode(
            ids[:, batch.input_ids.shape[1] :], skip_special_tokens=skip_special_tokens
        )
        return answers[0] if isinstance(prompts, str) and len(answers) == 1 else answers

    def _refuse_split_prefill(self, generate_kwargs: dict[str, Any]) -> None:
        config = generate_kwargs.get("generation_config") or self.model.generation_config
        for name, good in (("prefill_chunk_size", None), ("use_cache", True)):
            value = generate_kwargs.get(name, getattr(config, name, good))
            if value not in (good, None):
                raise CarotError(
                    f"{name}={value} cannot be steered: the English states enter once, in a "
                    f"prefill of one pass, and go on from its cache; leave {name} out"
                )

    # Scoring

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
        """
        texts = list(prompts)
        given = self._per_row(english, texts, "English texts")
        texts, spans = resolve_content(texts, content, "prompt")
        english_content = self._english_content(content, english_content)
        given, english_spans = self._resolve_english(given, english_content)
        rows = prepare_candidates(self.tokenizer, texts, candidates, separator)
        scores: list[list[float]] = []
        for start in range(0, len(texts), batch_size):
            part = slice(start, start + batch_size)
            batch, run = self._encode_and_steer(
                [row.prompt for row in rows[part]], spans[part], given[part], english_spans[part]
            )
            scores += score_batch(self.model, batch, rows[part], run, reduction)
        return scores

    # Looking inside

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
        """
        layer = self.layers[0] if layer is None else layer
        if layer not in self.layers:
            raise CarotError(f"layer {layer} is not steered here; expected one of {self.layers}")
        english_content = self._english_content(content, english_content)
        texts, spans = resolve_content([prompt], content, "prompt")
        given, english_spans = self._resolve_english([english], english_content)
        batch = self._encode(texts, spans, "prompt")
        steering = self._read_english(given, english_spans)
        source = self._encode([given[0] or ""], english_spans, "English text")
        if not (bool(batch.content_mask.any()) and steering and bool(source.content_mask.any())):
            raise CarotError("prompt and English text need at least one content token each")
        seen: dict[int, Alignment] = {}
        self._backend.replace(
            self._modules,
            lambda index, hidden: self._edit(index, hidden, batch.content_mask, steering, seen),
            lambda: self.model(**batch.model_inputs(), **self._head_of_last_position()),
        )
        target_tokens, source_tokens = batch.content_mask[0], source.content_mask[0]
        return AlignmentView(
            prompt_tokens=token_labels(self.tokenizer, batch.input_ids[0][target_tokens]),
            english_tokens=token_labels(self.tokenizer, source.input_ids[0][source_tokens]),
            plan=seen[layer].plan[0].to(target_tokens.device)[target_tokens][:, source_tokens].cpu(),
            interpolation=seen[layer].interpolation[0].cpu()[target_tokens.cpu()],
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
        All tokens but special ones and padding are content.

        Parameters
        ----------
        english : str or sequence
            For each row of the calls inside, its English counterpart or None.
        english_content : str or sequence, optional
            As in :meth:`generate`.

        Raises
        ------
        CarotError
            Inside the block, when a call's rows do not match or its token ids cannot be seen.
        """
        texts: list[str | None] = [english] if isinstance(english, str) else list(english)
        given, spans = self._resolve_english(texts, english_content)
        with torch.no_grad():
            steering = self._read_english(given, spans)
        if steering is None:
            yield
            return
        with observed_calls(self.anatomy, self._special) as call:

            def edit(index: int, output: Any) -> Any:
                if not call.is_prefill:
                    return None
                self._check_rows(call, len(texts))
                mask = call.content_mask[:: call.content_mask.shape[0] // len(texts)]
                states = hooks.states_of(output)
                return hooks.with_states(output, self._edit(index, states, mask, steering))

            with hooks.registered(self._modules, edit):
                yield

    def _check_rows(self, call: ObservedCall, expected: int) -> None:
        rows = call.content_mask.shape[0]
        if rows % expected:
            raise CarotError(
                f"the model was called with {rows} rows inside intervene() with {expected} English "
                "texts; expected as many, or a multiple"
            )

    # The steps of one steered call

    def _prepare(
        self,
        texts: list[str],
        english: str | Sequence[str | None] | None,
        content: Content | None,
        english_content: Content | None,
    ) -> tuple[Batch, Callable[[Callable[[], Any]], Any]]:
        given = self._per_row(english, texts, "English texts")
        english_content = self._english_content(content, english_content)
        texts, spans = resolve_content(texts, content, "prompt")
        given, english_spans = self._resolve_english(given, english_content)
        return self._encode_and_steer(texts, spans, given, english_spans)

    def _encode_and_steer(
        self, texts: list[str], spans: list[Any], english: list[str | None], english_spans: list[Any]
    ) -> tuple[Batch, Callable[[Callable[[], Any]], Any]]:
        """Encode the prompts, and return with them what runs a call with their prefill steered."""
        batch = self._encode(texts, spans, "prompt")
        steering = self._read_english(english, english_spans)

        def run(call: Callable[[], Any]) -> Any:
            if steering is None:
                return call()
            return self._backend.replace(
                self._modules,
                lambda index, hidden: self._edit(index, hidden, batch.content_mask, steering),
                call,
            )

        return batch, run

    def _encode(self, texts: Sequence[str], spans: Sequence[Any], name: str) -> Batch:
        return encode(
            self.tokenizer,
            texts,
            spans=spans,
            device=self.device,
            context_length=self.anatomy.context_length,
            name=name,
        )

    def _read_english(self, english: list[str | None], spans: list[Any]) -> Steering | None:
        """Run the English pass up to the deepest layer; None where no row is steered."""
        rows = [row for row, text in enumerate(english) if text]
        if not rows:
            return None
        batch = self._encode(
            [english[row] or "" for row in rows], [spans[row] for row in rows], "English text"
        )
        inputs = batch.model_inputs() | self._head_of_last_position()
        states = self._backend.read(
            self._modules, lambda: self.model(**inputs, use_cache=False)
        )
        return Steering(torch.tensor(rows), states, batch.content_mask)

    def _edit(
        self,
        layer: int,
        hidden: Tensor,
        content_mask: Tensor,
        steering: Steering,
        seen: dict[int, Alignment] | None = None,
    ) -> Tensor:
        """Replace the states of the steered rows of one prefill, (B * repeats, S or more, d)."""
        repeats = hidden.shape[0] // content_mask.shape[0]
        length = content_mask.shape[1]
        rows = steering.rows.to(hidden.device)
        # Beams and several return sequences repeat each row: they are aligned once.
        target = hidden[::repeats, :length][rows]
        alignment = self.intervention(
            self._fitted[layer],
            steering.states[layer],
            target,
            steering.source_mask,
            content_mask.to(hidden.device)[rows],
        )
        if seen is not None:
            seen[layer] = alignment
        new = hidden.clone()
        for repeat in range(repeats):
            new[rows * repeats + repeat, :length] = alignment.hidden
        return new

    def _head_of_last_position(self) -> dict[str, int]:
        if accepts(without_adapter(self.model).forward, "logits_to_keep"):
            return {"logits_to_keep": 1}
        return {}

    # Arguments

    def _per_row(
        self, english: str | Sequence[str | None] | None, texts: Sequence[str], name: str
    ) -> list[str | None]:
        if english is None:
            return [None] * len(texts)
        given = [english] if isinstance(english, str) else list(english)
        if len(given) != len(texts):
            raise CarotError(
                f"{len(given)} {name} for {len(texts)} prompts; expected one for each, or None "
                "where there is none"
            )
        return given

    def _english_content(self, content: Content | None, english: Content | None) -> Content | None:
        if english is None and isinstance(content, str):
            return content
        return english

    def _resolve_english(
        self, english: Sequence[str | None], content: Content | None
    ) -> tuple[list[str | None], list[Any]]:
        """Take markers out of the English texts; rows without English keep None."""
        rows = [row for row, text in enumerate(english) if text]
        if content is not None and not isinstance(content, str):
            if len(content) != len(english):
                raise CarotError(
                    f"{len(content)} English content spans for {len(english)} English texts; "
                    "expected as many"
                )
            content = [content[row] for row in rows]
        texts, spans = resolve_content([english[row] or "" for row in rows], content, "English text")
        given: list[str | None] = [None] * len(english)
        placed: list[Any] = [None] * len(english)
        for row, text, span in zip(rows, texts, spans, strict=True):
            given[row], placed[row] = text, span
        return given, placed


def wrap(
    model: nn.Module,
    tokenizer: Any,
    aligner: Aligner,
    *,
    layer: int | None = None,
    layers: Sequence[int] | None = None,
    intervention: str | Intervention = "carot",
    hooks: Literal["nnsight", "torch"] = "nnsight",
    layers_path: str | None = None,
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
        The layer that is steered; by default the fitted one nearest to 0.3 of the depth.
    layers : sequence of int, optional
        Several layers instead: each aligns the states as they then are.
    intervention : str or Intervention
        By name, or your own.
    hooks : {"nnsight", "torch"}
        Who registers the hooks.
    layers_path : str, optional
        Where the decoder layers are, for an architecture in which they are not found.
    **settings
        Of the intervention; for ``carot``: ``theta`` (0.5), ``rho`` (0.5), ``epsilon`` (0.05),
        ``solver`` ("auto").

    Returns
    -------
    CarotModel

    Examples
    --------
    >>> steered = carot.wrap(model, tokenizer, aligner, layer=5, theta=0.5)  # doctest: +SKIP
    """
    if layer is not None and layers is not None:
        raise CarotError(f"layer={layer} and layers={list(layers)}; expected one of the two")
    if layers is None:
        layers = [aligner.default_layer() if layer is None else layer]
    if isinstance(intervention, str):
        try:
            intervention = get_intervention(intervention, **settings)
        except TypeError as error:
            raise CarotError(f"{error}; see the settings in the documentation of wrap") from error
    elif settings:
        raise CarotError(f"{sorted(settings)} do not go with an intervention that is made already")
    return CarotModel(
        model, tokenizer, aligner, layers, intervention, hooks=hooks, layers_path=layers_path
    )


__all__ = ["CarotModel", "Steering", "text_config", "wrap"]
