"""Translations on disk: a text is translated once, over runs and processes."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from carot.errors import CarotError, require_positive
from carot.files import require_file_or_nothing
from carot.models.loading import cache_folder
from carot.pivots.base import Pivot

CACHE_FILE = "pivots.sqlite"
PATIENCE = 60.0
"""Seconds that a process waits for another that writes."""

_TABLE = "CREATE TABLE IF NOT EXISTS translations (key BLOB PRIMARY KEY, english TEXT)"


class Cached:
    """A pivot that remembers.

    A translation is found again under what the pivot depends on (:meth:`Pivot.describe`), the
    language and the text. The file holds digests of these, and the English as it is.

    Parameters
    ----------
    pivot : Pivot
        Gives what is not there yet.
    path : path, optional
        An SQLite file; by default ``pivots.sqlite`` in ``$CAROT_CACHE``, else ``~/.cache/carot``.
    batch_size : int
        Texts that are translated before they are written: an interrupted run loses no more.
    """

    def __init__(
        self, pivot: Pivot, path: str | Path | None = None, *, batch_size: int = 64
    ) -> None:
        require_positive(batch_size=batch_size)
        self.pivot = pivot
        self.name = pivot.name
        self.path = cache_folder() / CACHE_FILE if path is None else Path(path)
        self.batch_size = batch_size
        self._read([])  # a file that cannot be used is refused before the work

    def describe(self) -> dict[str, Any]:
        """Return what the pivot inside says: memory changes nothing."""
        return self.pivot.describe()

    def translate(
        self, prompts: Sequence[str], languages: Sequence[str | None]
    ) -> list[str | None]:
        """Look up, and translate what is missing; the same text in one language once.

        Raises
        ------
        CarotError
            As the pivot inside, and when the file cannot be used.
        """
        origin = json.dumps(self.pivot.describe(), sort_keys=True)
        wanted = {
            _key(origin, language, prompt): (prompt, language)
            for prompt, language in zip(prompts, languages, strict=True)
        }
        known = self._read(list(wanted))
        # Of one language and like length, so that few batches of the pivot are padded or split.
        missing = sorted(
            (key for key in wanted if key not in known),
            key=lambda key: (wanted[key][1] or "", len(wanted[key][0])),
        )
        for start in range(0, len(missing), self.batch_size):
            part = missing[start : start + self.batch_size]
            texts = [wanted[key][0] for key in part]
            english = self.pivot.translate(texts, [wanted[key][1] for key in part])
            new = dict(zip(part, english, strict=True))
            self._write(new)
            known |= new
        return [
            known[_key(origin, language, prompt)]
            for prompt, language in zip(prompts, languages, strict=True)
        ]

    def _read(self, keys: Sequence[bytes]) -> dict[bytes, str | None]:
        query = "SELECT key, english FROM translations WHERE key = ?"
        with self._database() as database:
            return dict(row for key in keys for row in database.execute(query, (key,)))

    def _write(self, rows: dict[bytes, str | None]) -> None:
        with self._database() as database, database:
            database.executemany("INSERT OR REPLACE INTO translations VALUES (?, ?)", rows.items())

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """Open the file for a moment: no connection is shared by threads or forks."""
        require_file_or_nothing(self.path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=PATIENCE)) as database:
                database.execute("PRAGMA journal_mode = WAL")
                database.execute(_TABLE)
                yield database
        except (sqlite3.Error, OSError) as error:
            raise CarotError(
                f"{self.path}: translations cannot be kept there ({error}); remove the file, or "
                "name another"
            ) from error


def _key(origin: str, language: str | None, text: str) -> bytes:
    return hashlib.sha256(json.dumps([origin, language, text]).encode()).digest()
