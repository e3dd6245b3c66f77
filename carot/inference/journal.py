"""Answers of a long job, kept as they come, by one process or by several."""

from __future__ import annotations

import json
import os
import time
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from carot.files import require_file_or_nothing, write_atomically
from carot.inference.processes import Processes
from carot.journal import require_same

PAUSE = 0.5
"""Seconds between two looks at what other processes have written."""


class RowJournal:
    """Rows of an output file in the order in which they were done, for any number of processes.

    Each process appends to a shard of its own, ``<output>.partial`` or ``<output>.partial.<rank>``,
    lines of a row's number, a tab, and its JSON. Every process reads all shards at its start, so
    that a job may go on with another number of processes. Of the rows that are there only the place
    is kept in memory, 8 bytes each.

    Parameters
    ----------
    output : path
        Where the result will be.
    settings : mapping
        What the rows depend on, as JSON; shards of other settings are refused.
    processes : Processes, optional
        Which of several this is.

    Raises
    ------
    CarotError
        When shards were begun with other settings; nothing is changed then.
    """

    def __init__(
        self, output: str | Path, settings: Mapping[str, Any], processes: Processes | None = None
    ) -> None:
        self.output = Path(output)
        self.processes = processes or Processes()
        self.settings_file = self.output.with_name(self.output.name + ".journal")
        self.partial = self.output.with_name(self.output.name + ".partial")
        rank = self.processes.rank
        self.shard = self.partial.with_name(f"{self.partial.name}.{rank}") if rank else self.partial
        self._places = array("q")  # shard number << 48 | offset, or -1
        self._read: dict[Path, int] = {}
        begun = json.loads(json.dumps(settings))
        require_file_or_nothing(self.output)
        if self.settings_file.is_file() and any(path.stat().st_size for path in self._shards()):
            before = json.loads(self.settings_file.read_text("utf-8"))
            require_same(self.partial, before, begun)
            self._cut_off_half_a_line()
        else:
            for path in self._shards() if self.processes.is_main else ():
                path.unlink()
            write_atomically(self.settings_file, json.dumps(begun) + "\n")
            write_atomically(self.shard, "")
        self._look(self._shards())

    def _shards(self) -> list[Path]:
        others = self.partial.parent.glob(f"{self.partial.name}.*")
        numbered = sorted(path for path in others if path.suffix[1:].isdigit())
        return [path for path in (self.partial, *numbered) if path.is_file()]

    def _cut_off_half_a_line(self) -> None:
        if not self.shard.is_file():
            self.shard.touch()
            return
        with self.shard.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            while size:
                step = min(size, 1 << 16)
                file.seek(size - step)
                end = file.read(step).rfind(b"\n")
                if end >= 0:
                    size = size - step + end + 1
                    break
                size -= step
            file.truncate(size)

    def _look(self, shards: Iterable[Path]) -> None:
        """Take in the whole lines that were added to some shards."""
        for path in shards:
            number = list(self._read).index(path) if path in self._read else len(self._read)
            offset = self._read.setdefault(path, 0)
            with path.open("rb") as file:
                file.seek(offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._place(int(line[: line.index(b"\t")]), number << 48 | offset)
                    offset += len(line)
            self._read[path] = offset

    def _place(self, index: int, place: int) -> None:
        if index >= len(self._places):
            self._places.extend([-1] * (index + 1 - len(self._places)))
        self._places[index] = place

    def has(self, index: int) -> bool:
        """Whether a row is done."""
        return index < len(self._places) and self._places[index] >= 0

    def append(self, rows: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        """Write rows, each with its number, in one piece."""
        lines = "".join(f"{at}\t{json.dumps(row, ensure_ascii=False)}\n" for at, row in rows)
        with self.shard.open("ab") as file:
            file.write(lines.encode("utf-8"))
        self._look([self.shard])

    def finish(self, total: int) -> None:
        """Put the rows in order and give the output its name; the main process does so for all."""
        if not self.processes.is_main:
            return
        while not all(map(self.has, range(total))):
            time.sleep(PAUSE)
            self._look(self._shards())
        beside = self.output.with_name(f".{self.output.name}.{os.getpid()}")
        files: list[BinaryIO] = []
        try:
            files = [path.open("rb") for path in self._read]
            with beside.open("wb") as whole:
                for place in self._places[:total]:
                    file = files[place >> 48]
                    file.seek(place & ((1 << 48) - 1))
                    whole.write(file.readline().partition(b"\t")[2])
            beside.replace(self.output)
        finally:
            beside.unlink(missing_ok=True)
            for file in files:
                file.close()
        for path in (*self._shards(), self.settings_file):
            path.unlink()
