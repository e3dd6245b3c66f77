"""What the tables, the plots and the page read in an evaluation's results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from carot.errors import CarotError

Results = Mapping[str, Any]
"""One evaluation, as it is written to JSON."""

FORMAT = 1
ENGLISH = "en"
MEAN = "mean"


def checked(list_of_results: Sequence[Results]) -> list[Results]:
    """Return the results; a CarotError where there are none, or of another format."""
    if not list_of_results:
        raise CarotError("no results to report; expected one evaluation or more")
    for results in list_of_results:
        if results.get("format") != FORMAT:
            raise CarotError(
                f"results of format {results.get('format')!r}; this version of carot reads format "
                f"{FORMAT}: run the evaluation again, or report with the version that wrote them"
            )
    return list(list_of_results)


def names_of(list_of_results: Sequence[Results]) -> list[tuple[str, str]]:
    """Return model and task of each; the second run of the same two is ``#2``."""
    seen: Counter[tuple[str, str]] = Counter()
    names = []
    for results in list_of_results:
        model, task = str(results["model"]["name"]), str(results["task"])
        seen[model, task] += 1
        count = seen[model, task]
        names.append((model, task if count == 1 else f"{task} #{count}"))
    return names


def methods_of(results: Results) -> list[str]:
    """Return the methods in their order, those without numbers among them."""
    return list(dict.fromkeys([*results["methods"], *results["metrics"]]))


def number(results: Results, method: str, language: str, metric: str) -> float | None:
    """Return one number, or None where it is not there."""
    value = results["metrics"].get(method, {}).get(language, {}).get(metric)
    return None if value is None else float(value)


def read_results(path: Path) -> Results:
    """Read what `carot eval` or `carot sweep` (its test part) wrote.

    Raises
    ------
    CarotError
        When the file cannot be read, or holds something else.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise CarotError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise CarotError(f"{path}: not valid JSON ({error})") from error
    content = content.get("test", content) if isinstance(content, dict) else content
    if not isinstance(content, dict) or "metrics" not in content:
        raise CarotError(f"{path}: no metrics in it; expected what carot eval or carot sweep wrote")
    return content
