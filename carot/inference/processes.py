"""Which of several processes this is, as launchers say in the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass

from carot.errors import CarotError


@dataclass(frozen=True)
class Processes:
    """One of the processes that share a job.

    Parameters
    ----------
    rank : int
        Number of this process, from 0.
    count : int
        How many there are.
    """

    rank: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.count:
            raise CarotError(f"process {self.rank} of {self.count}; expected 0 to {self.count - 1}")

    @classmethod
    def launched(cls) -> Processes:
        """Read ``RANK`` and ``WORLD_SIZE``, which accelerate, torchrun and others set."""
        rank, count = (os.environ.get(name) for name in ("RANK", "WORLD_SIZE"))
        if rank is None or count is None:
            return cls()
        if not (rank.isdigit() and count.isdigit()):
            raise CarotError(f"RANK is {rank!r} and WORLD_SIZE {count!r}; expected whole numbers")
        return cls(int(rank), int(count))

    @property
    def is_main(self) -> bool:
        """Whether this is the process that speaks and puts the results together."""
        return self.rank == 0
