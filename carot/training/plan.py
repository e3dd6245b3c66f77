"""Which rows each step trains on, decided before the run, so that it can be resumed and shared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch.utils.data import Dataset, Sampler

Key = tuple[str, int]
"""A kind of data (``instructions``, ``parallel``) and the number of a row."""


class Mixture(Dataset[tuple[str, Any]]):
    """Rows of several kinds under keys ``(kind, number)``."""

    def __init__(self, data: Mapping[str, Sequence[Any]]) -> None:
        self.data = data

    def __len__(self) -> int:
        return sum(map(len, self.data.values()))

    def __getitem__(self, key: Key) -> tuple[str, Any]:
        kind, number = key
        return kind, self.data[kind][number]


def step_kinds(
    steps: int, kinds: Sequence[str], fraction: float, *, alternate: bool
) -> list[set[str]]:
    """Return for each optimizer step the kinds of data that it trains on.

    Parameters
    ----------
    steps : int
        Language-model steps.
    kinds : sequence of str
        Those of the run: ``instructions`` first, then what is aligned on.
    fraction : float
        The first part of the language-model steps in which the others take part.
    alternate : bool
        Each of the others in a step of its own behind a language-model step, or all in one step.

    Examples
    --------
    >>> [sorted(kinds) for kinds in step_kinds(2, ["a", "b"], 0.5, alternate=True)]
    [['a'], ['b'], ['a']]
    """
    first, *others = kinds
    planned: list[set[str]] = []
    for step in range(steps):
        taking_part = others if step < round(fraction * steps) else []
        if alternate:
            planned += [{first}, *({kind} for kind in taking_part)]
        else:
            planned.append({first, *taking_part})
    return planned


class StepPlan(Sampler[list[Key]]):
    """Micro-batches of all steps, in order.

    A step's micro-batches (accumulation times processes of them) hold the same kinds of data, so
    that alternation counts optimizer steps.

    Parameters
    ----------
    kinds : sequence of set of str
        From :func:`step_kinds`.
    batches : mapping of str to callable
        For each kind, a function that begins an endless stream of batches of rows.
    per_step : int
        Micro-batches of one step, over all processes.
    """

    def __init__(
        self, kinds: Sequence[set[str]], batches: Mapping[str, Any], per_step: int
    ) -> None:
        self.kinds = kinds
        self.begin = batches
        self.per_step = per_step

    def __len__(self) -> int:
        return len(self.kinds) * self.per_step

    def __iter__(self) -> Iterator[list[Key]]:
        streams = {kind: begin() for kind, begin in self.begin.items()}
        for kinds in self.kinds:
            for _ in range(self.per_step):
                yield [(kind, row) for kind in sorted(kinds) for row in next(streams[kind])]
