"""Generating for a file of prompts, so that an interrupted run can go on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from carot.corpora.parallel import read_jsonl
from carot.errors import CarotError, require_positive
from carot.journal import Journal
from carot.models import CarotModel
from carot.progress import track


def read_prompts(path: str | Path) -> list[dict[str, Any]]:
    """Read rows ``{"id", "prompt", "english"}``; ``english`` may be missing or null.

    Raises
    ------
    CarotError
        Naming the row that lacks a prompt or repeats an id.
    """
    rows = read_jsonl(path)
    if not rows:
        raise CarotError(f"{path}: no rows; expected one JSON object a line")
    seen: set[Any] = set()
    for number, row in enumerate(rows, 1):
        row.setdefault("id", number - 1)
        for key, optional in (("prompt", False), ("english", True)):
            value = row.get(key)
            if not (isinstance(value, str) and value) and not (optional and value is None):
                raise CarotError(f"{path}, row {number}: {key!r} is {value!r}; expected a text")
        if not isinstance(row["id"], str | int):
            raise CarotError(
                f"{path}, row {number}: 'id' is {row['id']!r}; expected text or number"
            )
        if row["id"] in seen:
            raise CarotError(f"{path}, row {number}: the id {row['id']!r} stands twice")
        seen.add(row["id"])
    return rows


def generate_file(
    model: CarotModel,
    rows: Sequence[Mapping[str, Any]],
    output: str | Path,
    *,
    settings: Mapping[str, Any],
    batch_size: int = 16,
    content: str | None = None,
    progress: bool = False,
    **generate_kwargs: Any,
) -> Path:
    """Answer each row, and write it with ``answer`` and how it was steered, in input order.

    Rows are ``{"id", "prompt", "answer", "steered", "match", "interpolation"}``, the last three
    those of :class:`carot.models.Steering`.

    Rows are appended to ``<output>.partial``, batch by batch; the file takes its name when it is
    whole. Started again with the same settings, a run goes on after the rows that are there.

    Parameters
    ----------
    model : CarotModel
        Steers each row that has an English text.
    rows : sequence of mapping
        From :func:`read_prompts`.
    output : path
        A JSON-lines file.
    settings : mapping
        What the answers depend on beside rows and aligner, as JSON; a partial file of other
        settings is refused.
    batch_size : int
        Rows in one batch.
    content : str, optional
        Marker around the content of prompts and English texts.
    progress : bool
        Show a progress bar.
    **generate_kwargs
        As in :meth:`CarotModel.generate`.

    Raises
    ------
    CarotError
        When the partial file was made with other settings.
    """
    require_positive(batch_size=batch_size)
    prompts, english = [row["prompt"] for row in rows], [row.get("english") for row in rows]
    model.check(prompts, english, content=content, **generate_kwargs)
    identity = json.dumps([[row["id"] for row in rows], prompts, english], sort_keys=True)
    begun = {
        **settings,
        "rows": hashlib.sha256(identity.encode()).hexdigest()[:16],
        "aligner digest": model.aligner and model.aligner.digest(),
    }
    journal = Journal(output, begun)
    done = len(journal.rows)
    with track("generating", len(rows), enabled=progress) as advance:
        advance(done)
        for start in range(done, len(rows), batch_size):
            part = rows[start : start + batch_size]
            answers, steering = model.generate(
                prompts[start : start + batch_size],
                english[start : start + batch_size],
                content=content,
                return_steering=True,
                **generate_kwargs,
            )
            journal.append(
                {
                    "id": row["id"],
                    "prompt": row["prompt"],
                    "answer": answer,
                    "steered": how.steered,
                    "match": _rounded(how.match),
                    "interpolation": _rounded(how.interpolation),
                }
                for row, answer, how in zip(part, answers, steering, strict=True)
            )
            advance(len(part))
    journal.finish()
    return journal.output


def _rounded(value: float | None) -> float | None:
    """Cut off what padding changes in the last digits."""
    return None if value is None else round(value, 4)
