"""The one exception type that carot raises for a mistake that its user can mend."""

from __future__ import annotations


class CarotError(ValueError):
    """A mistake that the user can mend.

    The message is one line: what came, where, what was expected, and the mend.
    The command line prints it and exits with code 2.
    """
