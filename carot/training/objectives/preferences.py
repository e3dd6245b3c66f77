"""Losses on preferences: DCO (arXiv 2603.04678), and DPO, which CALM uses too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from carot.models.anatomy import Anatomy, checkpoints_activations
from carot.models.continuing import cached_logits, continued_logits, new_cache, target_log_probs
from carot.models.encoding import position_ids
from carot.training.objectives.base import Batch, Kind
from carot.training.objectives.sft import response_logits

Form = Literal["absolute", "squared"]
Reduction = Literal["sum", "mean"]


def response_log_probs(anatomy: Anatomy, batch: Batch, reduction: Reduction = "sum") -> Tensor:
    """Return the log-probability of each row's response, (R,), float32, in nats.

    Parameters
    ----------
    anatomy : Anatomy
        Of the model.
    batch : mapping
        ``input_ids``, ``attention_mask`` and ``labels``, (R, S); and ``shared``, where responses
        have prompts in common, which then run once (but not with gradient checkpointing, which
        keeps no cache).
    reduction : {"sum", "mean"}
        Over the tokens of a response.
    """
    if batch.get("shared") and not checkpoints_activations(anatomy.model):
        sums = _with_shared_prompts(anatomy, batch["shared"])
    else:
        logits, targets, rows = response_logits(anatomy, batch)
        sums = torch.zeros(len(batch["labels"]), device=logits.device)
        sums = sums.index_add(0, rows, target_log_probs(logits, targets))
    if reduction == "mean":
        sums = sums / _response_tokens(batch).to(sums.device)
    return sums


def _with_shared_prompts(anatomy: Anatomy, batch: Batch) -> Tensor:
    """Run each prompt once, and its responses from its cache, through which gradients go."""
    model, ids, mask = anatomy.model, batch["response_ids"], batch["response_mask"]
    prompt_mask, owners = batch["prompt_mask"], batch["owners"]
    cache = new_cache(model)
    first = cached_logits(
        model,
        cache,
        1,
        input_ids=batch["prompt_ids"],
        attention_mask=prompt_mask,
        position_ids=position_ids(prompt_mask),
    )[:, -1]  # (Q, V)
    rows = owners.to(first.device)
    sums = first.float().log_softmax(-1)[rows, ids[:, 0].to(first.device)]
    if ids.shape[1] == 1:
        return sums
    cache.batch_select_indices(owners)
    logits, targets, rows = continued_logits(model, cache, prompt_mask[owners], ids, mask)
    return sums.index_add(0, rows, target_log_probs(logits, targets))


def _response_tokens(batch: Batch) -> Tensor:
    labels: Tensor = batch["labels"]
    return (labels[:, 1:] >= 0).sum(-1).clamp_min(1)


@dataclass(frozen=True)
class Dco:
    """Preferences of two languages agree: each takes over what the reference says of the other.

    Parameters
    ----------
    beta : float
        Weight of a language's own change.
    gamma : mapping of (str, str) to float
        From :func:`carot.training.gammas.gamma_table`.
    form : {"absolute", "squared"}
        Of both terms; the paper has the first.
    reduction : {"sum", "mean"}
        Over the tokens of a response; the paper sums.
    """

    beta: float
    gamma: Mapping[tuple[str, str], float]
    form: Form = "absolute"
    reduction: Reduction = "sum"
    name: ClassVar = "dco"
    kind: ClassVar[Kind] = "pairs"

    def loss(self, anatomy: Anatomy, batch: Batch) -> Tensor:
        """Return the mean over questions of the mean over the pairs of their candidates."""
        change, offset = changes(anatomy, batch, self.reduction)  # (P, 2)
        gammas = change.new_tensor(
            [[self.gamma[i, j], self.gamma[j, i]] for i, j in batch["languages"]]
        )
        question = batch["question"].to(change.device)
        terms = dco_loss(change, offset, self.beta, gammas[question], self.form)
        sums = terms.new_zeros(len(gammas)).index_add(0, question, terms)
        means: Tensor = sums / question.bincount(minlength=len(gammas))
        return means.mean()


@dataclass(frozen=True)
class Dpo:
    """``-log sigmoid(beta D)`` (arXiv 2305.18290), one language at a time.

    Parameters
    ----------
    beta : float
        Of DPO.
    reduction : {"sum", "mean"}
        Over the tokens of a response.
    name : str
        ``dpo``, where the right answer wins, or ``calm``, where the majority's does.
    """

    beta: float = 0.1
    reduction: Reduction = "sum"
    name: str = "dpo"
    kind: ClassVar[Kind] = "preferences"

    def loss(self, anatomy: Anatomy, batch: Batch) -> Tensor:
        """Return the mean over preferences."""
        change, _ = changes(anatomy, batch, self.reduction)
        return -logsigmoid(self.beta * change).mean()


def changes(anatomy: Anatomy, batch: Batch, reduction: Reduction) -> tuple[Tensor, Tensor]:
    """Return D and off of each side of each pair of responses, (P, sides).

    ``off = log ref(w|x) - log ref(l|x)``, ``D = log pi(w|x) - log pi(l|x) - off``, for w and l in
    ``batch["pairs"]``, (P, sides, 2).
    """
    policy = response_log_probs(anatomy, batch, reduction)
    reference = batch["reference"].to(policy.device)
    if reduction == "mean":
        reference = reference / _response_tokens(batch).to(policy.device)
    winner, loser = batch["pairs"].to(policy.device).unbind(-1)
    offset = reference[winner] - reference[loser]
    return policy[winner] - policy[loser] - offset, offset


def dco_loss(change: Tensor, offset: Tensor, beta: float, gamma: Tensor, form: Form) -> Tensor:
    """``| beta D_1 - gamma_1 off_2 | + | beta D_2 - gamma_2 off_1 |`` of each pair, (P,).

    Parameters
    ----------
    change, offset : Tensor
        Shape (P, 2): D_i and off_i of both languages.
    beta : float
        Weight of the change.
    gamma : Tensor
        Shape (P, 2): gamma_1 and gamma_2.
    form : {"absolute", "squared"}
        Of both terms.
    """
    missing = beta * change - gamma * offset.flip(-1)
    terms = missing.abs() if form == "absolute" else missing.square()
    return terms.sum(-1)
