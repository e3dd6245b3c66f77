"""What pivots that run a model of their own share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import nn

VALUES_OF_EACH_WEIGHT = 16


def new_tokens(length: int) -> int:
    """Return how many tokens the translation of a text of so many tokens may have.

    A power of two, at least twice the length and 16 more: texts of one batch share the limit, so
    that no translation depends on its neighbours.
    """
    return 1 << (2 * length + 15).bit_length()


def batches(
    lengths: Sequence[int], limits: Sequence[int], batch_size: int
) -> Iterator[tuple[int, list[int]]]:
    """Yield a limit and the rows that share it, those of like length together."""
    order = sorted(range(len(lengths)), key=lambda row: (limits[row], lengths[row]))
    for limit, group in groupby(order, key=lambda row: limits[row]):
        rows = list(group)
        for start in range(0, len(rows), batch_size):
            yield limit, rows[start : start + batch_size]


def digest(value: Any) -> str:
    """Return a short digest of what JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def weights_digest(model: nn.Module) -> str:
    """Return a digest of some values of every weight, adapters included.

    Translations of a model that was trained since are then not taken for its own.
    """
    state = hashlib.sha256()
    for name, parameter in model.named_parameters():
        state.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}".encode())
        if parameter.is_meta or not parameter.numel():
            continue
        flat = parameter.detach().reshape(-1)
        index = torch.linspace(0, flat.numel() - 1, VALUES_OF_EACH_WEIGHT, dtype=torch.float64)
        values = flat[index.long().to(flat.device)].to("cpu", torch.float64)
        state.update(values.numpy().tobytes())
    return state.hexdigest()[:16]
