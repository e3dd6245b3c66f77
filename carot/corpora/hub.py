"""Reading hub data sets through the optional package ``datasets``."""

from __future__ import annotations

from typing import Any

from carot.errors import CarotError


def load_hub(dataset: str, *arguments: Any, hint: str = "", **options: Any) -> Any:
    """Call ``datasets.load_dataset`` (needs ``carot[eval]``); a failure is one line.

    Parameters
    ----------
    dataset : str
        Hub id, or a builder that ``datasets.load_dataset`` knows.
    hint : str
        Another way out, put behind the message.
    *arguments, **options
        Passed on (``name``, ``split``, ``revision``, ``data_files``, ...).
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise CarotError(
            "hub data sets need the package datasets; install it with pip install 'carot[eval]'"
        ) from error
    try:
        return load_dataset(dataset, *arguments, **options)
    except (OSError, ValueError, RuntimeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CarotError(f"{dataset}: could not be loaded ({reason}){hint}") from error
