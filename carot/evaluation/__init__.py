"""Measuring what steering changes."""

from carot.evaluation.ranking import RankingItem, accuracy, predict

__all__ = ["RankingItem", "accuracy", "predict"]
