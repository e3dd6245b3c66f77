"""Training: what steering does at inference becomes a target, and goes into the weights."""

from carot.training.data import Instruction, read_instructions
from carot.training.dco import train_dco
from carot.training.recipe import Recipe
from carot.training.run import train

__all__ = ["Instruction", "Recipe", "read_instructions", "train", "train_dco"]
