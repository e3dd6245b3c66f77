"""Scoring candidates: one prefill for each prompt, its cache shared by the candidates."""

from __future__ import annotations

import copy
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from carot.errors import CarotError
from carot.models.continuing import cached_logits, continued_logits, new_cache, target_log_probs
from carot.models.encoding import Batch, padding_id, token_ids

Reduction = Literal["mean", "sum"]

LOGIT_BUDGET = 2**26
"""Logits held at once while candidates are scored (256 MiB in float32)."""

UNSPACED_SCRIPTS = ("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
"""Beside those of wide characters: Chinese and Japanese, and their punctuation."""


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
    name = unicodedata.name(prompt[-1], "")
    wide = unicodedata.east_asian_width(prompt[-1]) in "WF" and not name.startswith("HANGUL")
    return "" if wide or name.startswith(UNSPACED_SCRIPTS) else " "


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
        prefix = token_ids(tokenizer, stem)
        tokens = []
        for text in texts:
            whole = token_ids(tokenizer, stem + between + text)
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
    cache = new_cache(model)
    first = run(lambda: cached_logits(model, cache, 1, **batch.model_inputs()))[:, -1]  # (B, V)
    log_probs = first.float().log_softmax(-1)
    best = log_probs.argmax(-1).tolist()
    totals = [[float(log_probs[i, ids[0]]) for ids in row.tokens] for i, row in enumerate(rows)]
    greedy = [[best[i] == ids[0] for ids in row.tokens] for i, row in enumerate(rows)]

    longer = [
        (i, j) for i, row in enumerate(rows) for j, ids in enumerate(row.tokens) if len(ids) > 1
    ]
    # Alike lengths together: little padding.
    longer.sort(key=lambda pair: len(rows[pair[0]].tokens[pair[1]]))
    while longer:
        size, positions = 0, 0
        while size < len(longer):
            i, j = longer[-1 - size]
            positions += len(rows[i].tokens[j]) - 1
            if size and positions * first.shape[-1] > LOGIT_BUDGET:
                break
            size += 1
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
    index = torch.tensor(owners, device=batch.input_ids.device)
    width = max(map(len, tokens))
    ids = torch.tensor([row + [fill] * (width - len(row)) for row in tokens], device=index.device)
    lengths = torch.tensor([len(row) for row in tokens], device=index.device)
    mask = torch.arange(width, device=index.device) < lengths[:, None]
    cache.batch_select_indices(index)
    prompt_mask = batch.attention_mask[index]
    logits, targets, rows = continued_logits(model, cache, prompt_mask, ids, mask)
    log_probs = target_log_probs(logits, targets)
    missed = (logits.argmax(-1) != targets).float()
    sums = torch.zeros(len(tokens), device=logits.device)
    return list(
        zip(
            sums.index_add(0, rows, log_probs).tolist(),
            (sums.index_add(0, rows, missed) == 0).tolist(),
            strict=True,
        )
    )
