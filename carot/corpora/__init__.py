"""Parallel text."""

from __future__ import annotations

from collections.abc import Sequence

from carot.corpora.parallel import ParallelCorpus

__all__ = ["ParallelCorpus", "open_corpus"]


def open_corpus(
    name: str, languages: Sequence[str] | None = None, limit: int | None = None
) -> ParallelCorpus:
    """Open a corpus by what a command line says.

    Parameters
    ----------
    name : str
        ``bundled``, ``ntrex:FOLDER``, a ``.jsonl`` file, or a folder of ``en.txt``, ``es.txt``.
    languages : sequence of str, optional
        Which languages.
    limit : int, optional
        Sentences of each.
    """
    if name == "bundled":
        return ParallelCorpus.bundled(languages, limit)
    if name.startswith("ntrex:"):
        return ParallelCorpus.from_ntrex(name.removeprefix("ntrex:"), languages, limit)
    if name.endswith(".jsonl"):
        return ParallelCorpus.from_jsonl(name, languages, limit)
    return ParallelCorpus.from_files(name, languages, limit)
