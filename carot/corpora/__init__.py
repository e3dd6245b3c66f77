"""Parallel text."""

from carot.corpora.parallel import ParallelCorpus

__all__ = ["ParallelCorpus"]
