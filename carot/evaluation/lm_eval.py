"""carot as a model of lm-evaluation-harness, which knows it as ``carot``.

The harness finds models of other packages only when they are imported, so that its command line is
started from here::

    python -m carot.evaluation.lm_eval --model carot --tasks mytask
        --model_args pretrained=demo,aligner=FOLDER,layer=5,theta=0.5,english_field=english
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import StoppingCriteria

from carot.alignment import Aligner
from carot.errors import CarotError
from carot.models import load_model, wrap
from carot.models.encoding import Span, padding_id
from carot.models.pairs import Pairs
from carot.models.scoring import CandidateRow, CandidateScore
from carot.progress import track

try:
    from lm_eval.api.registry import MODEL_REGISTRY, register_model
    from lm_eval.models.huggingface import HFLM
except ImportError as error:
    raise ImportError(
        "carot.evaluation.lm_eval needs lm-evaluation-harness; install it with "
        "pip install 'carot[lm-eval]'"
    ) from error

NAME = "carot"
NEW_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Names that tasks give the limit of new tokens, first come first served, as in the harness."""
SAMPLING = ("temperature", "top_p", "top_k", "min_p")

logger = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Context:
    """What a continuation goes on from, and what steers it.

    Parameters
    ----------
    prompt : str
        What is fed.
    span : (int, int), optional
        The characters of the prompt that are steered; all of it by default.
    english : str, optional
        None leaves it unsteered.
    english_span : (int, int), optional
        The characters of the English text that steer; all of it by default.
    """

    prompt: str
    span: Span | None = None
    english: str | None = None
    english_span: Span | None = None


@dataclass(frozen=True)
class Generation:
    """How a task wants its answers.

    Parameters
    ----------
    until : tuple of str
        An answer ends before the first of these.
    new_tokens : int
        At most so many.
    options : dict
        What else goes to Hugging Face's ``generate``.
    """

    until: tuple[str, ...]
    new_tokens: int
    options: dict[str, Any]


class CarotLM(HFLM):  # type: ignore[misc]
    """A steered model for the harness.

    A document brings the English counterpart of its context in a field. The context is steered, the
    continuation never. Requests with the same context share one prefill. Without English, figures
    are those of the harness's own ``hf`` model.

    Parameters
    ----------
    pretrained : str or PreTrainedModel
        Whatever :func:`carot.load_model` loads, or a loaded model.
    aligner : str, path or Aligner
        Fitted on this model.
    layer, layers
        Where it is steered, as in :func:`carot.wrap`; several layers as ``3+7+11``.
    english_field : str
        The field of a document that holds the English counterpart of its context. A document that
        lacks it, or has it empty, runs unsteered and is counted.
    content_marker : str, optional
        Stands before and after the content in a task's ``doc_to_text``. Only what the last two of
        a context enclose is steered, so that few-shot examples and chat templates are not; all are
        taken out. The English text may hold two as well. By default all of the context is steered.
    tokenizer : str or PreTrainedTokenizerBase, optional
        By default the model's own.
    intervention, language, hooks, layers_path
        As in :func:`carot.wrap`.
    dtype, device, revision, trust_remote_code
        How ``pretrained`` is loaded.
    batch_size : int or str
        Contexts (not requests) in one batch; ``auto`` begins with ``max_batch_size`` and halves it
        when a GPU's memory does not do.
    max_batch_size : int
        Where ``auto`` begins.
    enable_thinking, chat_template_args
        As in the harness's ``hf`` model.
    **settings
        Of the method: ``theta``, ``rho``, ...

    Raises
    ------
    CarotError
        As :func:`carot.wrap` does.
    """

    def __init__(
        self,
        pretrained: Any,
        aligner: str | Path | Aligner,
        *,
        layer: int | None = None,
        layers: str | int | Sequence[int] | None = None,
        english_field: str = "english",
        content_marker: str | None = None,
        tokenizer: Any | None = None,
        intervention: str = "carot",
        language: str | None = None,
        hooks: Any = "nnsight",
        layers_path: str | None = None,
        dtype: torch.dtype | str = "auto",
        device: str | None = None,
        revision: str | None = None,
        trust_remote_code: bool | None = None,
        batch_size: int | str = 1,
        max_batch_size: int = 64,
        enable_thinking: bool | None = None,
        chat_template_args: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        model = pretrained
        if isinstance(pretrained, str):
            options = {"revision": revision, "trust_remote_code": trust_remote_code}
            given = {key: value for key, value in options.items() if value is not None}
            # The harness names a GPU by default, where there is one or not.
            elsewhere = str(device).startswith("cuda") and not torch.cuda.is_available()
            place = None if elsewhere else device
            model, own = load_model(pretrained, dtype=dtype, device_map=place, **given)
            tokenizer = tokenizer or own
        super().__init__(
            model,
            # The harness gives a tokenizer that has none a pad token; the caller's stays as it is.
            tokenizer=tokenizer if isinstance(tokenizer, str) else copy.deepcopy(tokenizer),
            batch_size=batch_size,
            max_batch_size=max_batch_size,
            enable_thinking=enable_thinking,
            chat_template_args=chat_template_args,
        )
        source = aligner if isinstance(aligner, Aligner) else Aligner.from_pretrained(aligner)
        self.carot = wrap(
            self.model,
            self.tokenizer,
            source,
            layer=layer,
            layers=_layers(layers),
            intervention=intervention,
            language=language,
            hooks=hooks,
            layers_path=layers_path,
            **{"min_match": 0.0} | settings,
        )
        self.fitted = {"languages": source.languages, "fit": source.fit}
        self.english_field = english_field
        self.content_marker = content_marker
        self.settings = {"intervention": intervention, "language": language, **settings}
        self.documents: set[Hashable] = set()
        self.without_english: set[Hashable] = set()

    def loglikelihood(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Score continuations: for each request the log-probability, and whether it is greedy.

        Raises
        ------
        CarotError
            For an empty continuation, one beyond the model's context, markers that do not pair, or
            English that is no text.
        """
        groups: dict[Context, dict[tuple[int, ...], list[int]]] = {}
        lengths: dict[Context, int] = {}
        for position, request in enumerate(requests):
            text, continuation = request.args
            context = self._context(request, text)
            stem = context.prompt.rstrip()
            continuation = context.prompt[len(stem) :] + continuation
            context = replace(context, prompt=stem) if stem else Context(self._prefix())
            if context not in lengths:
                lengths[context] = len(self.tok_encode(context.prompt))
            ids = self._continuation_ids(stem, lengths[context], continuation)
            if not ids:
                raise CarotError(f"{_name(request)}: the continuation {continuation!r} is empty")
            self._check_room(request, lengths[context], len(ids))
            groups.setdefault(context, {}).setdefault(tuple(ids), []).append(position)

        fill = padding_id(self.tokenizer)

        def score(contexts: Sequence[Context]) -> list[list[CandidateScore]]:
            rows = [
                CandidateRow(c.prompt, [list(ids) for ids in groups[c]], fill) for c in contexts
            ]
            return self.carot.score_rows(_pairs(contexts), rows, batch_size=len(rows))

        results: list[Any] = [None] * len(requests)
        longest_first = sorted(groups, key=lambda context: -lengths[context])
        with track("loglikelihood", len(requests), enabled=not disable_tqdm) as advance:
            for context, scores in self._in_batches(longest_first, score):
                for positions, value in zip(groups[context].values(), scores, strict=True):
                    for position in positions:
                        results[position] = (value.log_prob, value.is_greedy)
                        args = requests[position].args
                        self.cache_hook.add_partial("loglikelihood", args, results[position])
                    advance(len(positions))
        self._report()
        return results

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Score whole texts, unsteered: a text without a context has nothing to steer."""
        logger.warning("loglikelihood_rolling is unsteered: its texts have no context")
        totals: list[float] = super().loglikelihood_rolling(requests, disable_tqdm)
        return totals

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Generate from contexts, each up to the first of its task's stop strings.

        Raises
        ------
        CarotError
            Where context and new tokens are beyond the model's context, markers do not pair, or
            English is no text.
        """
        alike: dict[str, list[int]] = {}
        contexts: list[Context] = []
        lengths: list[int] = []
        for position, request in enumerate(requests):
            text, options = request.args
            context = self._context(request, text)
            contexts.append(context if context.prompt else Context(self._prefix()))
            lengths.append(len(self.tok_encode(contexts[-1].prompt)))
            self._check_room(request, lengths[-1], self._generation(options).new_tokens)
            alike.setdefault(json.dumps(options, sort_keys=True, default=str), []).append(position)

        results = [""] * len(requests)
        with track("generate_until", len(requests), enabled=not disable_tqdm) as advance:
            for positions in alike.values():
                generation = self._generation(requests[positions[0]].args[1])
                positions.sort(key=lambda position: -lengths[position])
                answer = partial(self._answer, contexts, generation)
                for position, text in self._in_batches(positions, answer):
                    results[position] = text
                    self.cache_hook.add_partial("generate_until", requests[position].args, text)
                    advance(1)
        self._report()
        return results

    def _answer(
        self, contexts: Sequence[Context], generation: Generation, positions: Sequence[int]
    ) -> list[str]:
        pairs = _pairs([contexts[position] for position in positions])
        eos = str(self.tok_decode([self.eot_token_id], skip_special_tokens=False))
        answers = self.carot.generate(
            pairs.prompts,
            pairs.english,
            content=pairs.spans,
            english_content=pairs.english_spans,
            max_new_tokens=generation.new_tokens,
            stopping_criteria=[StopAtText(self.tokenizer, [*generation.until, eos])],
            **generation.options,
        )
        return [cut(answer, generation.until) for answer in answers]

    def get_model_info(self) -> dict[str, Any]:
        """Return what stands in the harness's results, and how carot was set up."""
        info: dict[str, Any] = super().get_model_info()
        return info | {
            "carot": {
                **self.settings,
                "aligner": self.fitted,
                "layers": self.carot.layers,
                "english_field": self.english_field,
                "content_marker": self.content_marker,
                "documents": len(self.documents),
                "documents_without_english": len(self.without_english),
            }
        }

    def _context(self, request: Any, text: str) -> Context:
        """Find what of a request is fed and what steers it; note documents without English."""
        prompt, span = self._content(text, f"the context of {_name(request)}")
        if not prompt:  # The harness asks so for the log-probability of an answer by itself.
            return Context(prompt)
        english = request.doc.get(self.english_field) if isinstance(request.doc, Mapping) else None
        if not isinstance(english, str | None):
            raise CarotError(
                f"{_name(request)}: the field {self.english_field!r} holds "
                f"{type(english).__name__}; expected the English counterpart of the context, a text"
            )
        document = (
            id(request.doc) if request.doc_id is None else (request.task_name, request.doc_id)
        )
        self.documents.add(document)
        if not english or not english.strip():
            self.without_english.add(document)
            return Context(prompt)
        if self.content_marker is not None and span is None:
            raise CarotError(
                f"the context of {_name(request)} has no content marker {self.content_marker!r}; "
                "put it before and after the content in the task's doc_to_text"
            )
        return Context(
            prompt, span, *self._content(english, f"the English text of {_name(request)}")
        )

    def _content(self, text: str, name: str) -> tuple[str, Span | None]:
        """Take the markers out; what the last two enclose is content."""
        if self.content_marker is None or self.content_marker not in text:
            return text, None
        pieces = text.split(self.content_marker)
        if len(pieces) % 2 == 0:
            raise CarotError(
                f"{name}: the content marker {self.content_marker!r} stands {len(pieces) - 1} "
                "times; expected pairs, before and after the content"
            )
        if not pieces[-2].strip():
            raise CarotError(f"{name}: the content marker {self.content_marker!r} encloses nothing")
        whole = "".join(pieces)
        end = len(whole) - len(pieces[-1])
        return whole, (end - len(pieces[-2]), end)

    def _prefix(self) -> str:
        """Return what stands for an empty context: BOS, or EOS where there is none."""
        return str(self.tok_decode([self.prefix_token_id], skip_special_tokens=False))

    def _continuation_ids(self, stem: str, length: int, continuation: str) -> list[int]:
        """Tokenise as the harness does: what stem and continuation have beyond the stem's own."""
        if stem:
            whole: list[int] = self.tok_encode(stem + continuation)
            if len(whole) > length:
                return whole[length:]
        alone: list[int] = self.tok_encode(continuation, add_special_tokens=False)
        return alone if stem or alone[:1] != [self.prefix_token_id] else alone[1:]

    def _check_room(self, request: Any, prompt: int, more: int) -> None:
        limit = self.carot.anatomy.context_length
        if limit is not None and prompt + more > limit:
            raise CarotError(
                f"{_name(request)}: {prompt} tokens of context and {more} that follow; the model "
                f"holds {limit}: take fewer examples (num_fewshot), or fewer new tokens "
                "(max_gen_toks)"
            )

    def _generation(self, given: Mapping[str, Any]) -> Generation:
        options = dict(given)
        until = options.pop("until", None) or []
        limits = [options.pop(name, None) for name in NEW_TOKENS]
        new_tokens = next((int(limit) for limit in limits if limit is not None), self.max_gen_toks)
        sampled = options.pop("do_sample", None)
        if sampled is None:
            sampled = float(options.get("temperature") or 0) > 0
        if not sampled:
            options = {name: value for name, value in options.items() if name not in SAMPLING}
        stops = [until] if isinstance(until, str) else until
        return Generation(tuple(filter(None, stops)), new_tokens, options | {"do_sample": sampled})

    def _in_batches(
        self, items: Sequence[T], run: Callable[[Sequence[T]], Sequence[R]]
    ) -> Iterator[tuple[T, R]]:
        """Run items in batches; with ``auto``, in ever smaller ones until a GPU's memory does."""
        adaptive = self.batch_size == "auto"
        size = self.max_batch_size if adaptive else int(self.batch_size)
        while items:
            part = items[:size]
            try:
                results = run(part)
            except torch.OutOfMemoryError:
                size = len(part) // 2
                if not adaptive or not size:
                    raise
                logger.warning("out of memory; going on with batch_size=%d", size)
                torch.cuda.empty_cache()
                continue
            yield from zip(part, results, strict=True)
            items = items[size:]

    def _report(self) -> None:
        if self.without_english:
            logger.warning(
                "%d of %d documents so far have no English text in %r and ran without it",
                len(self.without_english),
                len(self.documents),
                self.english_field,
            )


class StopAtText(StoppingCriteria):
    """Stops each row of a generation when its new text holds one of some strings.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
        The model's.
    stops : sequence of str
        What stops; the part of a string that stands in the prompt does not count.
    """

    def __init__(self, tokenizer: Any, stops: Sequence[str]) -> None:
        self.tokenizer = tokenizer
        self.stops = [stop for stop in stops if stop]
        # A token is one byte at least: a string that ends in the newest one lies within these.
        self.reach = 1 + max((len(stop.encode()) for stop in self.stops), default=0)
        self.prompt_length: int | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: Any) -> Tensor:
        """Return which rows are done, shape (B,)."""
        if self.prompt_length is None:
            self.prompt_length = input_ids.shape[1] - 1
        texts = self.tokenizer.batch_decode(input_ids[:, self.prompt_length :][:, -self.reach :])
        done = [any(stop in text for stop in self.stops) for text in texts]
        return torch.tensor(done, device=input_ids.device)


def cut(text: str, stops: Sequence[str]) -> str:
    """Return a text up to the first of some strings."""
    return min((text.split(stop, 1)[0] for stop in stops), key=len, default=text)


def _layers(given: str | int | Sequence[int] | None) -> list[int] | None:
    if given is None:
        return None
    parts: Sequence[Any] = str(given).split("+") if isinstance(given, str | int) else given
    try:
        return [int(part) for part in parts]
    except ValueError as error:
        raise CarotError(f"layers={given!r}; expected numbers, as in layers=3+7+11") from error


def _name(request: Any) -> str:
    return f"document {request.doc_id} of task {request.task_name}"


def _pairs(contexts: Sequence[Context]) -> Pairs:
    return Pairs(
        [context.prompt for context in contexts],
        [context.span for context in contexts],
        [context.english for context in contexts],
        [context.english_span for context in contexts],
    )


def register() -> None:
    """Make the model known to the harness; once."""
    if NAME not in MODEL_REGISTRY:
        register_model(NAME)(CarotLM)


def main() -> None:
    """Run the harness's own command line."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


register()

if __name__ == "__main__":
    main()
