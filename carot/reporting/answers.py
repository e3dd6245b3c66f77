"""What a finished run of ``carot generate`` came to: one line, or a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from carot.errors import CarotError
from carot.inference.batches import Form
from carot.models import AlignmentView, CarotModel
from carot.reporting.run_report import write_run_report
from carot.reporting.run_summary import summarise_run


def read_answers(path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of an answered file, one after another."""
    with Path(path).open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def count_answers(path: str | Path) -> str:
    """Say in a line how many rows were steered, were not, and failed."""
    total = steered = failed = 0
    first = ""
    for row in read_answers(path):
        total += 1
        steered += bool(row.get("steered"))
        failed += "error" in row
        first = first or row.get("error", "")
    said = f"{total} rows, {steered} steered, {total - steered - failed} not, {failed} failed"
    return f"{said} (the first: {first})" if first else said


def report_run(
    model: CarotModel,
    answers: str | Path,
    page: str | Path,
    *,
    settings: Mapping[str, Any],
    seconds: float | None = None,
    chat: bool = False,
    content: str | None = None,
) -> None:
    """Write a page that sums a run up, with the alignments of the worst matches.

    Parameters
    ----------
    model : CarotModel
        That answered.
    answers : path
        What :func:`carot.inference.generate_file` wrote.
    page : path
        HTML file.
    settings : mapping
        Of the run; shown.
    seconds : float, optional
        How long it took.
    chat, content
        As given to :func:`carot.inference.generate_file`.
    """
    summary = summarise_run(read_answers(answers))
    form = Form(model.tokenizer, chat=chat, marker=content)
    heatmaps: dict[str | int, AlignmentView] = {}
    for row in summary.worst:
        prompt = form.of(row["prompt"], "prompt")
        english = _english_of(form, row["english"])
        with suppress(CarotError):  # a side without a content token has no alignment
            heatmaps[row["id"]] = model.align(
                prompt.text,
                english.text,
                content=[prompt.span],
                english_content=[english.span],
            )
    write_run_report(
        summary,
        Path(page),
        title=str(answers),
        settings=settings,
        guard=model.guard,
        seconds=seconds,
        heatmaps=heatmaps,
    )


def _english_of(form: Form, text: str) -> Any:
    """Make the English side again: a pivot's has no marker."""
    try:
        return form.of(text, "English text")
    except CarotError:
        return form.of(text, "English text", marked=False)
