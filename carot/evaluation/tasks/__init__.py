"""Where questions come from, one file each."""

from carot.evaluation.tasks.bmlama import load_bmlama
from carot.evaluation.tasks.demo import load_demo

__all__ = ["load_bmlama", "load_demo"]
