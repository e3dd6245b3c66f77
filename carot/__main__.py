"""``python -m carot``."""

from carot.cli import main

main()
