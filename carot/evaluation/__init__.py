"""Measuring what steering changes."""

from carot.evaluation.items import GenerationItem, RankingItem, Skipped, Task
from carot.evaluation.ranking import accuracy, best, rank

__all__ = ["GenerationItem", "RankingItem", "Skipped", "Task", "accuracy", "best", "rank"]
