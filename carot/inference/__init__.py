"""Batch inference: a file of prompts becomes a file of answers."""

from carot.inference.engine import generate_file
from carot.inference.processes import Processes
from carot.inference.rows import Columns, Row, Rows, open_rows

__all__ = ["Columns", "Processes", "Row", "Rows", "generate_file", "open_rows"]
