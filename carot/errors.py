"""The exception that carot raises for a mistake that its user can mend."""

from __future__ import annotations


class CarotError(ValueError):
    """A mistake that the user can mend.

    The message is one line: what came, where, what was expected, and the mend.
    The command line prints it and exits with code 2.
    """


def require_positive(**values: float) -> None:
    """Raise a CarotError that names the first value which is not at least 1."""
    for name, value in values.items():
        if value < 1:
            raise CarotError(f"{name} is {value}; expected at least 1")
