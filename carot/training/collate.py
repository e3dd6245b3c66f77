"""Rows to batches of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from carot.models.encoding import encode, padding_id
from carot.training.data import EncodedComparison, EncodedInstruction

WORTH_SHARING = 128
"""Positions that must be saved where prompts run once for all their responses: a second pass reads
all weights, and writes their gradients, once more."""

IGNORED = -100
"""Label of a position that is not trained on, as in transformers."""


class Collator:
    """Make one micro-batch: a dictionary of tensors for each kind of data in it.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
        Its padding settings are not changed.
    max_length : int
        Tokens of a parallel sentence that are used.
    """

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.makers: dict[str, Callable[[list[Any]], dict[str, Any]]] = {
            "instructions": self.instructions,
            "parallel": self.parallel,
            "pairs": self.comparisons,
            "preferences": self.comparisons,
        }

    def __call__(self, rows: Sequence[tuple[str, Any]]) -> dict[str, dict[str, Any]]:
        """Collate rows ``(kind, row)``."""
        by_kind: dict[str, list[Any]] = {}
        for kind, row in rows:
            by_kind.setdefault(kind, []).append(row)
        return {kind: self.makers[kind](here) for kind, here in by_kind.items()}

    def instructions(self, rows: Sequence[EncodedInstruction]) -> dict[str, Any]:
        """Pad on the right; labels are the response's tokens. Tensors are (B, S)."""
        fill = padding_id(self.tokenizer)
        width = max(len(row.ids) for row in rows)

        def padded(values: list[list[int]], blank: int) -> Tensor:
            return torch.tensor([row + [blank] * (width - len(row)) for row in values])

        ids = [row.ids for row in rows]
        labels = [[IGNORED] * row.response_start + row.ids[row.response_start :] for row in rows]
        return {
            "input_ids": padded(ids, fill),
            "attention_mask": padded([[1] * len(row) for row in ids], 0),
            "labels": padded(labels, IGNORED),
            "items": [row.id for row in rows],
            "languages": [row.language for row in rows],
        }

    def comparisons(self, rows: Sequence[EncodedComparison]) -> dict[str, Any]:
        """Stack the responses of all sides of all rows, and compare every two of a side.

        ``pairs``, (P, sides, 2), are rows of the stack, ``question``, (P,), is the comparison that
        a pair belongs to.
        """
        batch = self.instructions([side for row in rows for side in row.rows])
        pairs, question, start = [], [], 0
        for number, row in enumerate(rows):
            sides, each = len(row.languages), len(row.rows) // len(row.languages)
            here = [
                [(start + side * each + i, start + side * each + j) for side in range(sides)]
                for i, j in combinations(range(each), 2)
            ]
            pairs += here
            question += [number] * len(here)
            start += len(row.rows)
        return {
            **{key: batch[key] for key in ("input_ids", "attention_mask", "labels")},
            "reference": torch.tensor([value for row in rows for value in row.reference]),
            "languages": [row.languages for row in rows],
            "pairs": torch.tensor(pairs),
            "question": torch.tensor(question),
            "shared": self.shared([side for row in rows for side in row.rows]),
        }

    def shared(self, rows: Sequence[EncodedInstruction]) -> dict[str, Tensor]:
        """Split rows into Q different prompts (Q, P) and R responses (R, T); ``owners`` is (R,).

        Prompts are padded on the left. Empty where sharing saves little.
        """
        prompts: dict[tuple[int, ...], int] = {}
        owners = [
            prompts.setdefault(tuple(row.ids[: row.response_start]), len(prompts)) for row in rows
        ]
        responses = [row.ids[row.response_start :] for row in rows]
        width, length = max(map(len, prompts)), max(map(len, responses))
        together = len(prompts) * width + len(rows) * (length - 1)
        alone = len(rows) * max(len(row.ids) for row in rows)
        if alone - together < WORTH_SHARING or () in prompts:
            return {}
        fill = padding_id(self.tokenizer)
        return {
            "prompt_ids": torch.tensor([[fill] * (width - len(ids)) + [*ids] for ids in prompts]),
            "prompt_mask": torch.tensor(
                [[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts]
            ),
            "response_ids": torch.tensor([ids + [fill] * (length - len(ids)) for ids in responses]),
            "response_mask": torch.tensor(
                [[at < len(ids) for at in range(length)] for ids in responses]
            ),
            "owners": torch.tensor(owners),
        }

    def parallel(self, rows: Sequence[tuple[int, str, str]]) -> dict[str, Any]:
        """Encode both sides; ids and masks are (B, n) and (B, m)."""
        batch: dict[str, Any] = {"sentences": torch.tensor([row[0] for row in rows])}
        for side, column in (("source", 1), ("target", 2)):
            names = [f"the {side} of sentence {row[0] + 1}" for row in rows]
            texts = [str(row[column]) for row in rows]
            encoded = encode(self.tokenizer, texts, truncate_to=self.max_length, names=names)
            batch[f"{side}_ids"] = encoded.input_ids
            batch[f"{side}_mask"] = encoded.attention_mask
            batch[f"{side}_content"] = encoded.content_mask
        return batch
