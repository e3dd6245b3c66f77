"""What several test files share: refusals, and steering with the tiny models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from tiny import ARCHITECTURES, corpus, tiny_model, tiny_tokenizer
from torch import Tensor

import carot
from carot import CarotError

PROMPTS = [
    "La luna sale por detrás de las colinas.",
    "Pan",
    "El tren que va a la costa sale a las siete",
    "Agua fría",
]
ENGLISH = [
    "The moon rises behind the hills.",
    "Bread",
    "The train to the coast leaves at seven",
    "Cold water from the well",
]
LAYER = 1

ANSWER_KEYS = [
    "id",
    "language",
    "prompt",
    "english",
    "answer",
    "steered",
    "reason",
    "match",
    "interpolation",
]
"""Of a row of an answered file, in order."""

every_architecture = pytest.mark.parametrize("name", ARCHITECTURES)
both_backends = pytest.mark.parametrize("hooks", ["nnsight", "torch"])


def refusal(call, *args, **kwargs) -> str:
    """The one line that something is refused with."""
    with pytest.raises(CarotError) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


@cache
def aligner_of(name: str) -> carot.Aligner:
    return carot.fit_aligner(tiny_model(name), tiny_tokenizer(), corpus(), layers=[LAYER, 2])


def steered(name: str, hooks: str = "nnsight", **kwargs: Any) -> carot.CarotModel:
    kwargs.setdefault("layers", [LAYER])
    kwargs.setdefault("min_match", 0.0)  # A guard has its own tests.
    if "intervention" not in kwargs:
        kwargs["theta"] = 1.0
    return carot.wrap(tiny_model(name), tiny_tokenizer(), aligner_of(name), hooks=hooks, **kwargs)


def logits(model: carot.CarotModel, prompts: Sequence[str], english: Any, **kwargs: Any) -> Tensor:
    """Logits of three steps, shape (3, B, V)."""
    output = model.generate(
        prompts,
        english,
        return_ids=True,
        max_new_tokens=3,
        min_new_tokens=3,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
        **kwargs,
    )
    return torch.stack(output.logits)


def footprint(model: Any) -> list[Any]:
    """Everything in which a hook or a replaced forward would show."""
    return [
        (
            name,
            sorted(vars(module)),
            vars(module).get("forward"),
            len(module._forward_hooks),
            len(module._forward_pre_hooks),
        )
        for name, module in model.named_modules()
    ]
