"""Parallel sentences: line i of every language says the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

from carot.corpora.hub import load_hub
from carot.errors import CarotError
from carot.files import read_text

NTREX_CODES = {
    "ar": "arb",
    "de": "deu",
    "en": "eng",
    "es": "spa",
    "fr": "fra",
    "hi": "hin",
    "it": "ita",
    "ja": "jpn",
    "ko": "kor",
    "pt": "por",
    "ru": "rus",
    "sw": "swa",
    "tr": "tur",
    "vi": "vie",
    "zh": "zho-CN",
}
"""Two-letter codes of the NTREX-128 languages used in the papers; others go by their own code."""


class ParallelCorpus:
    """Parallel sentences in several languages; ``corpus["es"]`` is the list of one language.

    Parameters
    ----------
    texts : mapping of str to sequence of str
        For each language code its sentences, in the same order.
    name : str
        Where it is from, for messages and the aligner's record.
    limit : int, optional
        Keep this many sentences, from the start.

    Raises
    ------
    CarotError
        When the languages differ in length, or a sentence is empty.

    Examples
    --------
    >>> corpus = ParallelCorpus({"en": ["Good day."], "es": ["Buenos días."]})
    >>> corpus.languages, len(corpus)
    (['en', 'es'], 1)
    """

    def __init__(
        self,
        texts: Mapping[str, Sequence[str]],
        *,
        name: str = "given texts",
        limit: int | None = None,
    ) -> None:
        if limit is not None and limit < 1:
            raise CarotError(f"limit is {limit}; expected at least 1")
        lengths = {language: len(sentences) for language, sentences in texts.items()}
        if not lengths or not min(lengths.values()):
            raise CarotError(f"{name}: {lengths or 'no language'}; expected sentences in each")
        if len(set(lengths.values())) > 1:
            raise CarotError(
                f"{name}: languages differ in length ({_counts(lengths)}); expected line i of each "
                "to be the same sentence"
            )
        self.name = name
        self._texts = {
            language: [
                _sentence(sentence, f"{name}: sentence {number} in {language}")
                for number, sentence in enumerate(sentences[:limit], 1)
            ]
            for language, sentences in texts.items()
        }

    @property
    def languages(self) -> list[str]:
        """Language codes, in order."""
        return list(self._texts)

    def __getitem__(self, language: str) -> Sequence[str]:
        if language not in self._texts:
            raise CarotError(_unknown(language, self._texts, self.name))
        return self._texts[language]

    def __iter__(self) -> Iterator[dict[str, str]]:
        """Iterate over the sentences, each as ``{"en": "...", "es": "..."}``."""
        for row in range(len(self)):
            yield {language: sentences[row] for language, sentences in self._texts.items()}

    def __contains__(self, language: object) -> bool:
        return language in self._texts

    def __len__(self) -> int:
        """Return the number of sentences in each language."""
        return len(next(iter(self._texts.values())))

    def __repr__(self) -> str:
        return f"ParallelCorpus({self.name!r}, {len(self)} sentences, languages={self.languages})"

    def select(
        self, languages: Sequence[str] | None = None, limit: int | None = None
    ) -> ParallelCorpus:
        """Return some of the languages, and the first ``limit`` sentences."""
        chosen = self.languages if languages is None else languages
        return ParallelCorpus(
            {language: self[language] for language in chosen}, name=self.name, limit=limit
        )

    @classmethod
    def from_files(
        cls,
        paths: Mapping[str, str | Path] | str | Path,
        languages: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> ParallelCorpus:
        """Read one text file a language, one sentence a line (UTF-8).

        Parameters
        ----------
        paths : mapping, or path of a folder
            ``{"en": "eng.txt", "es": "spa.txt"}``, or a folder that holds ``en.txt``, ``es.txt``.
        languages : sequence of str, optional
            Which of them; all by default.
        limit : int, optional
            Keep this many sentences.
        """
        if isinstance(paths, str | Path):
            folder = Path(paths)
            if not folder.is_dir():
                raise CarotError(f"{folder}: no such folder; expected one with files like en.txt")
            name = str(folder)
            paths = {path.stem: path for path in sorted(folder.glob("*.txt"))}
            if not paths:
                raise CarotError(f"{folder}: no .txt file; expected files like en.txt, es.txt")
        else:
            name = ", ".join(str(path) for path in paths.values())
        chosen = list(paths) if languages is None else languages
        for language in chosen:
            if language not in paths:
                raise CarotError(_unknown(language, paths, name))
        texts = {language: read_lines(Path(paths[language])) for language in chosen}
        return cls(texts, name=name, limit=limit)

    @classmethod
    def from_jsonl(
        cls,
        path: str | Path,
        languages: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> ParallelCorpus:
        """Read rows ``{"en": "...", "es": "..."}``.

        Parameters
        ----------
        path : path
            A JSON-lines file.
        languages : sequence of str, optional
            Which keys; by default those of the first row, without ``id``.
        limit : int, optional
            Keep this many sentences.
        """
        rows = read_jsonl(path)
        if not rows:
            raise CarotError(f"{path}: no rows; expected one JSON object a line")
        chosen = [key for key in rows[0] if key != "id"] if languages is None else languages
        for number, row in enumerate(rows, 1):
            for language in chosen:
                if language not in row:
                    raise CarotError(_unknown(language, row, f"{path}, row {number}"))
        texts = {language: [row[language] for row in rows] for language in chosen}
        return cls(texts, name=str(path), limit=limit)

    @classmethod
    def from_hub(
        cls,
        dataset: str,
        columns: Mapping[str, str],
        *,
        split: str = "train",
        limit: int | None = None,
        **kwargs: Any,
    ) -> ParallelCorpus:
        """Read a hub data set whose columns are languages (needs ``carot[eval]``).

        Parameters
        ----------
        dataset : str
            Hub id, or a builder that ``datasets.load_dataset`` knows.
        columns : mapping of str to str
            Language code to column, e.g. ``{"en": "sentence_eng_Latn"}``; a dot goes into nested
            columns (``translation.en``).
        split : str
            Which split.
        limit : int, optional
            Keep this many sentences.
        **kwargs
            Passed to ``datasets.load_dataset`` (``name``, ``revision``, ``data_files``, ...).
        """
        rows = load_hub(dataset, split=split, **kwargs)
        rows = rows.select(range(min(max(limit, 0), len(rows)))) if limit is not None else rows
        texts = {
            language: [_column(row, column, dataset) for row in rows]
            for language, column in columns.items()
        }
        return cls(texts, name=dataset, limit=limit)

    @classmethod
    def from_ntrex(
        cls, folder: str | Path, languages: Sequence[str] | None = None, limit: int | None = None
    ) -> ParallelCorpus:
        """Read NTREX-128 in its original layout (``newstest2019-ref.spa.txt``).

        Parameters
        ----------
        folder : path
            The folder NTREX-128 of its repository.
        languages : sequence of str, optional
            Two-letter codes of :data:`NTREX_CODES`, or NTREX's own; by default those codes whose
            files are there.
        limit : int, optional
            Keep this many sentences.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise CarotError(f"{folder}: no such folder; expected NTREX-128's files in it")

        def file_of(language: str) -> Path:
            code = NTREX_CODES.get(language, language)
            side = "src" if code == "eng" else "ref"
            return folder / f"newstest2019-{side}.{code}.txt"

        present = [language for language in NTREX_CODES if file_of(language).is_file()]
        chosen = present if languages is None else languages
        for language in chosen:
            if not file_of(language).is_file():
                raise CarotError(_unknown(language, present, str(folder)))
        return cls(
            {language: read_lines(file_of(language)) for language in chosen},
            name=f"NTREX-128 in {folder}",
            limit=limit,
        )

    @classmethod
    def bundled(
        cls, languages: Sequence[str] | None = None, limit: int | None = None
    ) -> ParallelCorpus:
        """Read the sentences that come with carot (CC0; NOTICE says more)."""
        path = files("carot") / "data" / "sentences.jsonl"
        corpus = cls.from_jsonl(Path(str(path)))
        corpus.name = "bundled"
        return corpus.select(languages, limit)


def read_jsonl(path: str | Path) -> list[dict[str, Any]]:
    """Read a JSON-lines file of objects; an error names the line."""
    path = Path(path)
    if not path.is_file():
        raise CarotError(f"{path}: no such file")
    rows = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise CarotError(f"{path}, line {number}: not valid JSON ({error.msg})") from error
        if not isinstance(row, dict):
            raise CarotError(f"{path}, line {number}: expected a JSON object, got {line[:40]!r}")
        rows.append(row)
    return rows


def _sentence(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise CarotError(f"{where} is {type(value).__name__}; expected a text")
    if not value.strip():
        raise CarotError(f"{where} is empty; fill it in, or take the line out of every language")
    return value.strip()


def _column(row: Mapping[str, Any], path: str, where: str) -> Any:
    """Follow a dotted path of columns."""
    value: Any = row
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            known = value if isinstance(value, Mapping) else ()
            raise CarotError(_unknown(name, known, where, "column"))
        value = value[name]
    return value


def read_lines(path: Path) -> list[str]:
    """Read the lines of a UTF-8 file; an error says what is wrong with it."""
    # Not str.splitlines: it also cuts at characters that stand inside sentences, such as U+2028.
    text = read_text(path)
    return text.removesuffix("\n").split("\n") if text else []


def _unknown(key: str, known: Any, where: str, kind: str = "language") -> str:
    close = get_close_matches(key, list(known), n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"{where}: no {kind} {key!r}{hint}; there: {', '.join(sorted(known)) or 'none'}"


def _counts(lengths: Mapping[str, int]) -> str:
    return ", ".join(f"{language} {count}" for language, count in lengths.items())
