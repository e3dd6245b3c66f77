"""Generating for many prompts: in batches of like length, by several processes, resumably."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from carot.errors import CarotError, require_positive
from carot.inference.batches import Form, Ready, bucket, make_ready, windows, without_number
from carot.inference.journal import RowJournal
from carot.inference.processes import Processes
from carot.inference.rows import Row, Rows
from carot.interventions import ENGLISH
from carot.languages import base_language, detectable
from carot.models import CarotModel, Steering
from carot.pivots import Pivot, translate_missing
from carot.progress import track

MAX_BATCH_TOKENS = 4096
"""Tokens of a batch, padding and new ones counted."""

Answer = tuple[int, dict[str, Any]]
"""A row's number, and what is written for it."""


def generate_file(
    model: CarotModel,
    rows: Rows | Sequence[Mapping[str, Any]],
    output: str | Path,
    *,
    settings: Mapping[str, Any],
    pivot: Pivot | None = None,
    chat: bool = False,
    content: str | None = None,
    max_batch_tokens: int = MAX_BATCH_TOKENS,
    batch_size: int | None = None,
    processes: Processes | None = None,
    progress: bool = False,
    **generate_kwargs: Any,
) -> Path:
    """Answer each row, steered by its English counterpart, and write all in input order.

    A row of the output is ``{"id", "language", "prompt", "english", "answer", "steered", "reason",
    "match", "interpolation"}``, the last four those of :class:`carot.models.Steering`; a row that
    cannot be answered is ``{"id", "prompt", "error"}``, and the others go on.

    Answers are kept beside the output as they come. Started again with the same settings, an
    interrupted run goes on, and its output is the same. Batches hold rows of like length; one for
    which memory runs out is halved. Memory does not grow with the number of rows.

    Parameters
    ----------
    model : CarotModel
        Steers each row that has an English text.
    rows : Rows or sequence of mapping
        From :func:`carot.inference.open_rows`, or ``{"id", "prompt", "english", "language"}``.
    output : path
        A JSON-lines file.
    settings : mapping
        What the answers depend on beside rows and aligner, as JSON; a run of other settings is not
        gone on with.
    pivot : Pivot, optional
        Makes the English of rows that have none.
    chat : bool
        Texts are turns of a user: the chat template goes around both sides, and is not steered.
    content : str, optional
        Marker around the content of prompts and English texts.
    max_batch_tokens : int
        Tokens of one batch, padding and new ones counted.
    batch_size : int, optional
        Rows of one batch at most.
    processes : Processes, optional
        Which of several processes this is; what the launcher says by default. They share the rows;
        the main one puts the answers together.
    progress : bool
        Show a progress bar.
    **generate_kwargs
        As in :meth:`CarotModel.generate`.

    Returns
    -------
    Path
        The output; whole as soon as the main process has returned.

    Raises
    ------
    CarotError
        When an unfinished output was made with other settings.
    """
    require_positive(
        max_batch_tokens=max_batch_tokens, batch_size=1 if batch_size is None else batch_size
    )
    rows = rows if isinstance(rows, Rows) else Rows.of(rows)
    processes = processes or Processes.launched()
    model.check([], **generate_kwargs)
    form = Form(model.tokenizer, chat=chat, marker=content)
    begun = {
        **settings,
        "chat": chat,
        "content_marker": content,
        "pivot": pivot and pivot.describe(),
        "rows": rows.fingerprint,
        "aligner digest": model.aligner and model.aligner.digest(),
        "min_match": asdict(model.guard),
    }
    journal = RowJournal(output, begun, processes)
    answering = _Answering(model, form, pivot, generate_kwargs)
    enabled = progress and processes.is_main
    total = 0
    with track("generating", rows.total, enabled=enabled, unit="rows") as advance:
        for turn, window in enumerate(windows(rows)):
            total += len(window)
            if all(journal.has(row.index) for row in window):
                advance(len(window))
                continue
            ready, failed = answering.prepare(window)
            if processes.is_main:
                journal.append(failed)
            advance(len(failed))
            batches = bucket(ready, max_batch_tokens, batch_size)
            mine = batches[(processes.rank - turn) % processes.count :: processes.count]
            for place, batch in enumerate(mine, 1):
                if not all(journal.has(ready.row.index) for ready in batch):
                    journal.append(answering.answer(batch))
                # The other processes are taken to be as far with theirs.
                advance(len(ready) * place // len(mine) - len(ready) * (place - 1) // len(mine))
    journal.finish(total)
    return journal.output


class _Answering:
    """Asks batches, and halves those that cannot be asked in one."""

    def __init__(
        self, model: CarotModel, form: Form, pivot: Pivot | None, options: Mapping[str, Any]
    ) -> None:
        self.model = model
        self.form = form
        self.pivot = pivot
        self.options = options
        self.limit: int | None = None  # tokens for which memory has sufficed, once it has run out
        self.among: list[str] | None = None  # languages that detection chooses from

    def prepare(self, window: Sequence[Row]) -> tuple[list[Ready], list[Answer]]:
        """Return the rows that can be asked, and what is written for the others."""
        if self.pivot is not None and any(not (row.english or row.language) for row in window):
            # Looked up here, so that a missing package ends the job and not each of its rows.
            self.among = detectable(self.model.aligner.languages if self.model.aligner else [])
        ready: list[Ready] = []
        failed: list[Answer] = []
        for row in window:
            try:
                ready.append(make_ready(row, self.model, self.form, self.options))
            except CarotError as error:
                failed.append(_failed(row, str(error)))
        return ready, failed

    def answer(self, batch: Sequence[Ready]) -> list[Answer]:
        """Answer a batch; what goes wrong with one row is written for that row alone."""
        tokens = len(batch) * max(ready.width for ready in batch)
        if len(batch) == 1 or self.limit is None or tokens <= self.limit:
            try:
                return self._ask(batch)
            except CarotError as error:
                reason = without_number(error)
            except RuntimeError as error:
                if not _out_of_memory(error):
                    raise
                reason = f"memory ran out for {tokens} tokens; shorten it, or ask for less"
                self.limit = tokens // 2
            _give_memory_back()
            if len(batch) == 1:
                return [_failed(batch[0].row, reason)]
        half = len(batch) // 2
        return self.answer(batch[:half]) + self.answer(batch[half:])

    def _ask(self, batch: Sequence[Ready]) -> list[Answer]:
        batch = self._with_english(batch)
        sides = [None if _is_english(ready.row) else ready.english for ready in batch]
        answers, steering = self.model.generate(
            [ready.prompt.text for ready in batch],
            [None if side is None else side.text for side in sides],
            content=[ready.prompt.span for ready in batch],
            english_content=[None if side is None else side.span for side in sides],
            return_steering=True,
            **self.options,
        )
        return [
            _answered(ready.row, answer, how)
            for ready, answer, how in zip(batch, answers, steering, strict=True)
        ]

    def _with_english(self, batch: Sequence[Ready]) -> list[Ready]:
        """Let the pivot translate the content of prompts that have no English."""
        if self.pivot is None:
            return list(batch)
        english, languages = translate_missing(
            self.pivot,
            [ready.prompt.content for ready in batch],
            [ready.row.english for ready in batch],
            [ready.row.language for ready in batch],
            among=self.among,
        )
        filled = []
        for ready, text, language in zip(batch, english, languages, strict=True):
            side = ready.english
            if side is None and text:
                side = self.form.of(text, "English text", marked=False)
            row = replace(ready.row, english=text, language=language)
            filled.append(replace(ready, row=row, english=side))
        return filled


def _is_english(row: Row) -> bool:
    return base_language(row.language or "") == ENGLISH


def _answered(row: Row, answer: str, how: Steering) -> Answer:
    return row.index, {
        "id": row.id,
        "language": row.language,
        "prompt": row.prompt,
        "english": row.english,
        "answer": answer,
        "steered": how.steered,
        "reason": "already English" if _is_english(row) else how.reason,
        "match": _rounded(how.match),
        "interpolation": _rounded(how.interpolation),
    }


def _failed(row: Row, error: str) -> Answer:
    return row.index, {"id": row.id, "prompt": row.prompt or None, "error": error}


def _rounded(value: float | None) -> float | None:
    """Cut off what padding changes in the last digits."""
    return None if value is None else round(value, 4)


def _out_of_memory(error: RuntimeError) -> bool:
    """Whether an error is the lack of memory, of a GPU's or of the processor's."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _give_memory_back() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
