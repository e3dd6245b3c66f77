"""What tasks share: reading original files or hub data sets, and making questions of rows."""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any, ClassVar, TypeVar

from carot.corpora.hub import load_hub
from carot.corpora.parallel import read_jsonl
from carot.errors import CarotError
from carot.evaluation.items import GenerationItem, RankingItem, Skipped, Span
from carot.files import read_text

Question = TypeVar("Question", RankingItem, GenerationItem)

ANSWER_CUES = {
    "ar": "الإجابة:",
    "de": "Antwort:",
    "en": "Answer:",
    "es": "Respuesta:",
    "fr": "Réponse :",
    "hi": "उत्तर:",
    "ja": "答え:",
    "ko": "정답:",
    "ru": "Ответ:",
    "sw": "Jibu:",
    "tr": "Cevap:",
    "vi": "Trả lời:",
    "zh": "答案:",
}
"""What asks for the answer; other languages have the English one."""


class RankingTask:
    """A task whose answers are ranked candidates."""

    max_new_tokens = 0

    def is_right(self, item: GenerationItem, text: str) -> bool:
        """Refuse: nothing is generated."""
        raise CarotError(f"item {item.id} is ranked, not generated")


class Benchmark(ABC):
    """Rows of a benchmark: one file a language, or one configuration of a hub data set.

    A subclass says what its languages are called there, in which file, and in which data set.

    Parameters
    ----------
    data : Path, optional
        The folder of the original files; the hub data set where there is none.
    """

    name: str
    codes: ClassVar[Mapping[str, str]]
    """For each language code what the benchmark calls it."""

    def __init__(self, data: Path | None) -> None:
        self.folder = data

    @abstractmethod
    def path(self, folder: Path, language: str) -> Path:
        """Return where the rows of a language are."""

    @abstractmethod
    def hub(self, language: str) -> tuple[str, str | None, str]:
        """Return data set, configuration and split of a language."""

    def languages(self) -> list[str]:
        """Return the languages whose files are there, or all of the hub data set."""
        if self.folder is None:
            return list(self.codes)
        return [code for code in self.codes if self.path(self.folder, code).is_file()]

    def where(self, language: str) -> str:
        """Name the source of a language, for messages."""
        if self.folder is None:
            return " ".join(part for part in self.hub(language) if part)
        return str(self.path(self.folder, language))

    def rows(self, language: str) -> list[dict[str, Any]]:
        """Return the rows of a language as its source has them."""
        known = self.languages()
        if self.folder is None or language not in self.codes:
            require_language(language, known, self.folder or self.name)
            dataset, config, split = self.hub(language)
            hint = "; or name a folder with --data"
            return [dict(row) for row in load_hub(dataset, config, split=split, hint=hint)]
        if language not in known:
            raise CarotError(
                f"{self.path(self.folder, language)}: no such file; languages there: "
                f"{', '.join(known) or 'none'}"
            )
        return self.read(self.path(self.folder, language))

    def read(self, path: Path) -> list[dict[str, Any]]:
        """Return the rows of an original file."""
        return read_rows(path)


def own_codes(languages: Iterable[str]) -> dict[str, str]:
    """Return languages that a benchmark calls by their own code."""
    return {language: language for language in languages}


def require_language(language: str, known: Iterable[str], where: str | Path) -> None:
    """Raise a CarotError where a task has no such language."""
    known = sorted(known)
    if language not in known:
        raise CarotError(f"{where}: no language {language!r}; there: {', '.join(known) or 'none'}")


def require_folder(folder: Path | None, task: str) -> Path:
    """Return the folder of a task that has no hub data set."""
    if folder is None:
        raise CarotError(f"task {task} reads its original files; name their folder with --data")
    return folder


def require_same_rows(ids: Iterable[str], english: Iterable[str], where: str) -> None:
    """Raise a CarotError where rows joined on their number are not as many as in English."""
    here, there = set(ids), set(english)
    if here != there:
        odd = min(here ^ there)
        raise CarotError(
            f"{where}: {len(here)} rows, {len(there)} in English, first difference {odd}; expected "
            "the same, since rows are joined on their number"
        )


def inside(data: Path | None, *names: str) -> Path | None:
    """Return the first of some subfolders that is there, else the folder itself."""
    if data is None:
        return None
    return next((data / name for name in names if (data / name).is_dir()), data)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a table by its ending: ``.jsonl``, ``.csv`` or ``.parquet``."""
    if path.suffix == ".jsonl":
        return read_jsonl(path)
    if path.suffix == ".csv":
        return read_csv(path)
    try:
        from pyarrow.parquet import read_table  # type: ignore[import-untyped]
    except ImportError as error:
        raise CarotError(
            f"{path}: parquet needs the package datasets; install it with pip install 'carot[eval]'"
        ) from error
    try:
        rows: list[dict[str, Any]] = read_table(path).to_pylist()
    except (OSError, ValueError) as error:  # pyarrow's own errors are subclasses of ValueError
        raise CarotError(f"{path}: cannot be read as parquet") from error
    return rows


def read_csv(path: Path) -> list[dict[str, Any]]:
    """Read a table with a header; an error names the row."""
    try:
        lines = [row for row in csv.reader(io.StringIO(read_text(path), newline="")) if row]
    except csv.Error as error:
        raise CarotError(f"{path}: not valid CSV ({error})") from error
    header, *rows = lines or [[]]
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise CarotError(
                f"{path}, row {number}: {len(row)} columns; expected {len(header)} as in the header"
            )
    return [dict(zip(header, row, strict=True)) for row in rows]


def read_json(path: Path) -> Any:
    """Read a JSON file; an error names the line."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise CarotError(f"{path}, line {error.lineno}: not valid JSON ({error.msg})") from error


def field(row: Any, name: str, where: str) -> Any:
    """Return a column of a row; an error names those there are."""
    if not isinstance(row, Mapping) or name not in row:
        known = [str(key) for key in row] if isinstance(row, Mapping) else []
        raise CarotError(f"{where}: no column {name!r}; there: {', '.join(known) or 'none'}")
    return row[name]


def cell(row: Any, name: str, where: str) -> str:
    """Return a column as text without outer white space and BOM; nothing for a missing value."""
    value = field(row, name, where)
    return "" if value is None else str(value).strip("\ufeff").strip()


def many(row: Any, name: str, where: str) -> list[Any]:
    """Return a column that holds a list."""
    value = field(row, name, where)
    if not isinstance(value, list):
        raise CarotError(f"{where}: {name} is {type(value).__name__}; expected a list")
    return value


def answer_cue(language: str) -> str:
    """Return what asks for the answer in a language."""
    return ANSWER_CUES.get(language, ANSWER_CUES["en"])


def lettered(question: str, options: Sequence[str], separator: str = ". ") -> str:
    """Write a question and its options ``A. ...``, one a line."""
    lines = [
        f"{letter}{separator}{option}"
        for letter, option in zip(ascii_uppercase, options, strict=False)
    ]
    return "\n".join([question, *lines])


def multiple_choice(
    item_id: str, body: str, options: Sequence[str], gold: str, language: str
) -> RankingItem | Skipped:
    """Make a question whose candidates are the letters of its options.

    Parameters
    ----------
    item_id : str
        The same in all languages.
    body : str
        Question and options, from :func:`lettered`: the part that is steered.
    options : sequence of str
        Texts of the options; a row with an empty one is skipped.
    gold : str
        Letter of the right one.
    language : str
        Decides the answer cue.
    """
    if not all(options):
        return Skipped(item_id, "empty candidate")
    letters = tuple(ascii_uppercase[: len(options)])
    prompt = f"{body}\n{answer_cue(language)}"
    return checked(item_id, prompt, letters, gold, content=(0, len(body)))


def checked(
    item_id: str,
    prompt: str,
    candidates: tuple[str, ...],
    gold: str,
    *,
    suffix: str = "",
    content: Span | None = None,
) -> RankingItem | Skipped:
    """Make a ranking item of a row, or say why it is none.

    A row is skipped where a candidate is empty or stands twice, or the gold answer is none of
    them: its accuracy would mean nothing.
    """
    if not all(candidates):
        return Skipped(item_id, "empty candidate")
    if len(set(candidates)) < len(candidates):
        return Skipped(item_id, "duplicate candidates")
    if gold not in candidates:
        return Skipped(item_id, "gold not among candidates")
    return RankingItem(
        item_id,
        prompt,
        candidates,
        candidates.index(gold),
        suffix=suffix,
        content=content,
    )


def sorted_out(
    rows: Iterable[Question | Skipped],
) -> tuple[dict[str, Question], list[Skipped]]:
    """Part questions from rows that are none; an id that stands twice is an error."""
    items: dict[str, Question] = {}
    skipped = []
    for row in rows:
        if isinstance(row, Skipped):
            skipped.append(row)
        elif row.id in items:
            raise CarotError(f"the id {row.id!r} stands twice")
        else:
            items[row.id] = row
    return items, skipped
