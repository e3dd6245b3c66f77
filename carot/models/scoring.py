"""Scoring candidates: one prefill for each prompt, its cache shared by the candidates."""

from __future__ import annotations

import copy
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from carot.errors import CarotError
from carot.models.anatomy import accepts, cache_argument, text_config, without_adapter
from carot.models.encoding import Batch, padding_id

Reduction = Literal["mean", "sum"]

LOGIT_BUDGET = 2**26
"""Logits held at once while candidates are scored (256 MiB in float32)."""

UNSPACED_SCRIPTS = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")


@dataclass(frozen=True)
class CandidateRow:
    """A prompt and the token ids of each of its candidates."""

    prompt: str
    tokens: list[list[int]]
    fill: int


@dataclass(frozen=True)
class CandidateScore:
    """What the model thinks of one candidate.

    Parameters
    ----------
    log_prob : float
        Of the whole candidate, in nats.
    tokens : int
        How many it has.
    is_greedy : bool
        Whether greedy decoding would have written it.
    """

    log_prob: float
    tokens: int
    is_greedy: bool

    def reduced(self, reduction: Reduction) -> float:
        """Return the sum, or the mean over its tokens."""
        return self.log_prob if reduction == "sum" else self.log_prob / self.tokens


def default_separator(prompt: str) -> str:
    """Return a space, or nothing after white space and after scripts written without spaces."""
    if not prompt or prompt[-1].isspace():
        return ""
    return "" if unicodedata.name(prompt[-1], "").startswith(UNSPACED_SCRIPTS) else " "


def prepare_candidates(
    tokenizer: Any,
    prompts: Sequence[str],
    candidates: Sequence[str] | Sequence[Sequence[str]],
    separator: str | None,
) -> list[CandidateRow]:
    """Tokenise candidates as continuations of their prompts.

    A candidate's tokens are those that prompt and candidate have beyond the prompt's own; where the
    tokenizer merges across the boundary, the candidate is tokenised by itself.

    Raises
    ------
    CarotError
        For a prompt without candidates, or a candidate without tokens.
    """
    lists = _candidate_lists(prompts, candidates)
    fill = padding_id(tokenizer)
    rows = []
    for row, (prompt, texts) in enumerate(zip(prompts, lists, strict=True)):
        stem = prompt.rstrip()
        between = default_separator(prompt) if separator is None else separator
        between = prompt[len(stem) :] + between
        prefix = _ids(tokenizer, stem)
        tokens = []
        for text in texts:
            whole = _ids(tokenizer, stem + between + text)
            merged = whole[: len(prefix)] != prefix
            continuation = (
                tokenizer(between + text, add_special_tokens=False)["input_ids"]
                if merged
                else whole[len(prefix) :]
            )
            if not text.strip() or not continuation:
                raise CarotError(f"prompt {row}: candidate {text!r} is empty; expected text")
            tokens.append(list(continuation))
        rows.append(CandidateRow(stem, tokens, fill))
    return rows


def _ids(tokenizer: Any, text: str) -> list[int]:
    has_bos = bool(tokenizer.bos_token) and text.startswith(tokenizer.bos_token)
    return list(tokenizer(text, add_special_tokens=not has_bos)["input_ids"])


def _candidate_lists(
    prompts: Sequence[str], candidates: Sequence[str] | Sequence[Sequence[str]]
) -> list[list[str]]:
    if candidates and all(isinstance(candidate, str) for candidate in candidates):
        return [list(candidates) for _ in prompts]  # type: ignore[arg-type]
    if len(candidates) != len(prompts):
        raise CarotError(
            f"{len(candidates)} lists of candidates for {len(prompts)} prompts; expected one for "
            "each, or one list of strings for all"
        )
    for row, texts in enumerate(candidates):
        if isinstance(texts, str) or not texts:
            raise CarotError(f"prompt {row} has candidates {texts!r}; expected a list of strings")
    return [list(texts) for texts in candidates]


def score_batch(
    model: nn.Module,
    batch: Batch,
    rows: Sequence[CandidateRow],
    run: Callable[[Callable[[], Any]], Any],
) -> list[list[CandidateScore]]:
    """Score the candidates of one batch of prompts.

    Parameters
    ----------
    model : nn.Module
        The causal language model.
    batch : Batch
        The encoded prompts, left-padded.
    rows : sequence of CandidateRow
        One for each prompt.
    run : callable
        Runs the prefill, steered or not.
    """
    cache = DynamicCache(config=text_config(model))
    last_logits = run(lambda: _logits(model, cache, 1, **batch.model_inputs()))[:, -1]  # (B, V)
    log_probs = last_logits.float().log_softmax(-1)
    best = log_probs.argmax(-1).tolist()
    totals = [[float(log_probs[i, ids[0]]) for ids in row.tokens] for i, row in enumerate(rows)]
    greedy = [[best[i] == ids[0] for ids in row.tokens] for i, row in enumerate(rows)]

    longer = [
        (i, j) for i, row in enumerate(rows) for j, ids in enumerate(row.tokens) if len(ids) > 1
    ]
    # Alike lengths together: little padding, and the fewest positions for the head.
    longer.sort(key=lambda pair: len(rows[pair[0]].tokens[pair[1]]))
    while longer:
        longest = len(rows[longer[-1][0]].tokens[longer[-1][1]])
        size = max(1, LOGIT_BUDGET // (longest * last_logits.shape[-1]))
        part, longer = longer[-size:], longer[:-size]
        tokens = [rows[i].tokens[j] for i, j in part]
        shared = copy.deepcopy(cache) if longer else cache
        values = _continuations(model, batch, shared, [i for i, _ in part], tokens, rows[0].fill)
        for (i, j), (value, is_greedy) in zip(part, values, strict=True):
            totals[i][j] += value
            greedy[i][j] &= is_greedy
    return [
        [CandidateScore(totals[i][j], len(ids), greedy[i][j]) for j, ids in enumerate(row.tokens)]
        for i, row in enumerate(rows)
    ]


def _continuations(
    model: nn.Module,
    batch: Batch,
    cache: Any,
    owners: list[int],
    tokens: list[list[int]],
    fill: int,
) -> list[tuple[float, bool]]:
    """Score all tokens but the first, going on from the prompts' cache: the sum, and if greedy."""
    device = batch.input_ids.device
    index = torch.tensor(owners, device=device)
    width = max(map(len, tokens)) - 1
    lengths = torch.tensor([len(ids) - 1 for ids in tokens], device=device)
    padded = torch.tensor(
        [ids + [fill] * (width + 1 - len(ids)) for ids in tokens], device=device
    )  # (R, width + 1)
    valid = torch.arange(width, device=device) < lengths[:, None]  # (R, width)
    prompt_mask = batch.attention_mask[index]
    cache.batch_select_indices(index)
    logits = _logits(
        model,
        cache,
        width,
        input_ids=padded[:, :-1],
        attention_mask=torch.cat([prompt_mask, valid.to(prompt_mask.dtype)], -1),
        position_ids=prompt_mask.sum(-1, keepdim=True) + torch.arange(width, device=device),
    )
    targets, padding = padded[:, 1:].to(logits.device), ~valid.to(logits.device)
    log_probs = logits.float().log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    greedy = (logits.argmax(-1) == targets) | padding
    sums = log_probs.masked_fill(padding, 0).sum(-1)
    return list(zip(sums.tolist(), greedy.all(-1).tolist(), strict=True))


def _logits(model: nn.Module, cache: Any, keep: int, **inputs: Tensor) -> Tensor:
    """Logits of the last ``keep`` positions, (B, keep, V), filling the cache."""
    forward = without_adapter(model).forward
    limit = {"logits_to_keep": keep} if accepts(forward, "logits_to_keep") else {}
    arguments = {cache_argument(model): cache, "use_cache": True} | limit
    logits: Tensor = model(**inputs, **arguments).logits
    return logits[:, -keep:]
