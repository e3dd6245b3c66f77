"""Rows of prompts from JSONL, CSV, Parquet or a hub data set, read as they are needed."""

from __future__ import annotations

import csv
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from carot.corpora.hub import load_hub
from carot.errors import CarotError

Record = Mapping[str, Any] | str
"""The columns of a row, or what is wrong with it."""

HUB = "hub:"


@dataclass(frozen=True)
class Columns:
    """Names of the columns that are read.

    Parameters
    ----------
    prompt, english, language, id : str
        Only ``prompt`` has to be there. Rows without an id get their number, from 0.
    """

    prompt: str = "prompt"
    english: str = "english"
    language: str = "language"
    id: str = "id"


@dataclass(frozen=True)
class Row:
    """One prompt.

    Parameters
    ----------
    index : int
        Its place, from 0.
    id : str or int
        Given back with the answer.
    prompt : str
        Empty where the row cannot be read.
    english : str, optional
        Its English counterpart.
    language : str, optional
        Code of its language.
    error : str, optional
        Why the row cannot be read.
    """

    index: int
    id: str | int
    prompt: str
    english: str | None = None
    language: str | None = None
    error: str | None = None


class Rows:
    """Rows of one source, which may be gone through more than once.

    Parameters
    ----------
    name : str
        For messages.
    records : callable
        Begins at the first row.
    fingerprint : str
        Tells other content apart.
    total : int, optional
        How many there are, where that is known.
    columns : Columns
        What is read of them.

    Raises
    ------
    CarotError
        When there is no row, or the first one has no prompt column.
    """

    def __init__(
        self,
        name: str,
        records: Callable[[], Iterator[Record]],
        fingerprint: str,
        total: int | None,
        columns: Columns | None = None,
    ) -> None:
        self.name = name
        self.records = records
        self.columns = columns or Columns()
        self.fingerprint = hashlib.sha256(
            json.dumps([fingerprint, asdict(self.columns)]).encode()
        ).hexdigest()[:16]
        self.total = total
        first = next(records(), None)
        if first is None:
            raise CarotError(f"{name}: no rows; expected one prompt at least")
        for key, default in asdict(Columns()).items():
            column = getattr(self.columns, key)
            needed = key == "prompt" or column != default
            if needed and isinstance(first, Mapping) and column not in first:
                close = get_close_matches(column, list(first), n=1)
                hint = f" (did you mean {close[0]!r}?)" if close else ""
                raise CarotError(
                    f"{name}: no column {column!r}{hint}; there: {', '.join(map(str, first))}; "
                    f"name it with --{key}-column"
                )

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], columns: Columns | None = None) -> Rows:
        """Take rows that are in memory."""
        content = json.dumps(rows, sort_keys=True, default=str)
        digest = hashlib.sha256(content.encode()).hexdigest()
        return cls("rows", lambda: iter(rows), digest, len(rows), columns)

    def __iter__(self) -> Iterator[Row]:
        for index, record in enumerate(self.records()):
            yield self._row(index, record)

    def _row(self, index: int, record: Record) -> Row:
        if isinstance(record, str):
            return Row(index, index, "", error=record)
        names = self.columns
        key = record.get(names.id)
        if key is None:
            key = index
        prompt, english, language = (
            record.get(column) for column in (names.prompt, names.english, names.language)
        )
        for column, value in ((names.english, english), (names.language, language)):
            if value is not None and not isinstance(value, str):
                return _broken(index, key, prompt, f"{column!r} is {value!r}; expected a text")
        if not isinstance(prompt, str) or not prompt.strip():
            return _broken(index, key, prompt, f"{names.prompt!r} is {prompt!r}; expected a text")
        if not isinstance(key, str | int):
            error = f"{names.id!r} is {key!r}; expected text or number"
            return _broken(index, index, prompt, error)
        return Row(index, key, prompt, english or None, language or None)


def _broken(index: int, key: Any, prompt: Any, error: str) -> Row:
    sound = key if isinstance(key, str | int) else index
    return Row(index, sound, prompt if isinstance(prompt, str) else "", error=error)


def open_rows(source: str | Path, columns: Columns | None = None) -> Rows:
    """Open a file of prompts or a hub data set.

    Parameters
    ----------
    source : str or path
        ``FILE.jsonl``, ``FILE.csv``, ``FILE.tsv``, ``FILE.parquet``, or ``hub:OWNER/NAME``,
        ``hub:OWNER/NAME:SPLIT`` (``train`` by default), which is streamed.
    columns : Columns, optional
        Names of the columns that are read.

    Returns
    -------
    Rows
        A row that cannot be read has its ``error``; the others go on.

    Raises
    ------
    CarotError
        When the source cannot be opened, is empty, or lacks the prompt column.
    """
    if str(source).startswith(HUB):
        return _open_hub(str(source).removeprefix(HUB), columns)
    path = Path(source)
    if not path.is_file():
        raise CarotError(
            f"{path}: no such file; expected JSONL, CSV, TSV or Parquet, or hub:OWNER/NAME"
        )
    kind = path.suffix.lower()
    if kind == ".parquet":
        return _open_parquet(path, columns)
    if kind in (".csv", ".tsv"):
        reader = "," if kind == ".csv" else "\t"
        total = sum(1 for _ in _csv_records(path, reader))
        return Rows(str(path), lambda: _csv_records(path, reader), _digest(path), total, columns)
    total = sum(1 for _ in _json_lines(path))
    return Rows(str(path), lambda: _json_records(path), _digest(path), total, columns)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _json_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers from 1."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if line.strip():
                yield number, line


def _json_records(path: Path) -> Iterator[Record]:
    for number, line in _json_lines(path):
        try:
            record = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            yield f"line {number}: not UTF-8 (byte {error.start})"
        except json.JSONDecodeError as error:
            yield f"line {number}: not valid JSON ({error.msg})"
        else:
            if isinstance(record, dict):
                yield record
            else:
                yield f"line {number}: expected a JSON object"


def _csv_records(path: Path, delimiter: str) -> Iterator[Record]:
    csv.field_size_limit(sys.maxsize)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter)
            header = next(reader, [])
            for fields in reader:
                if len(fields) == len(header):
                    yield {name: value or None for name, value in zip(header, fields, strict=True)}
                elif fields:
                    yield f"line {reader.line_num}: {len(fields)} fields; expected {len(header)}"
    except (UnicodeDecodeError, csv.Error) as error:
        raise CarotError(f"{path}: cannot be read ({error}); save it as UTF-8 CSV") from error


def _open_parquet(path: Path, columns: Columns | None) -> Rows:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise CarotError(
            f"{path}: Parquet needs the package pyarrow; install it with pip install 'carot[eval]'"
        ) from error
    try:
        total = parquet.ParquetFile(path).metadata.num_rows
    except (OSError, ValueError) as error:
        raise CarotError(f"{path}: not readable as Parquet ({error})") from error

    def records() -> Iterator[Record]:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=1024):
            yield from batch.to_pylist()

    return Rows(str(path), records, _digest(path), total, columns)


def _open_hub(name: str, columns: Columns | None) -> Rows:
    name, _, split = name.partition(":")
    split = split or "train"
    data = load_hub(name, split=split, streaming=True)
    info = data.info
    known = (info.splits or {}).get(split)
    identity = json.dumps([name, split, str(info.version), sorted(info.download_checksums or {})])
    return Rows(
        f"{name}:{split}", lambda: iter(data), identity, known and known.num_examples, columns
    )
