"""Choosing layers and settings on dev questions, and reporting the choice once on others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from carot.alignment import Aligner
from carot.errors import CarotError, require_positive
from carot.evaluation.items import Task
from carot.evaluation.questions import Questions, draw_questions
from carot.evaluation.runner import Row, Setup, ask, evaluate_questions
from carot.evaluation.summary import UNSTEERED
from carot.evaluation.tasks import get_task
from carot.files import read_text
from carot.interventions import CHOOSES_LAYERS, ENGLISH, METHODS, method_settings
from carot.journal import Journal
from carot.models.steering import EnglishMemory
from carot.progress import track

STRENGTHS = (0.5, 1.0, 1.5, 2.0)
"""Of Lang Vec, as in the CAROT paper."""


def grid(
    method: str, layers: Sequence[Sequence[int]], settings: Mapping[str, Sequence[Any]]
) -> list[Setup]:
    """Return every combination of layers and of those settings that a method takes.

    ``mlrs`` chooses its layers itself, so that it is tried once for each of its settings.
    """
    known = [name for name in method_settings(method) if settings.get(name)]
    places = [()] if method in CHOOSES_LAYERS else [tuple(place) for place in layers]
    combinations = product(*(settings[name] for name in known))
    return [
        Setup(method, place, dict(zip(known, values, strict=True)))
        for values in combinations
        for place in places
    ]


def sweep(
    model: Any,
    tokenizer: Any,
    aligner: Aligner,
    task: Task | str,
    languages: Sequence[str],
    *,
    layers: Sequence[Sequence[int]],
    methods: Sequence[str] = ("carot",),
    settings: Mapping[str, Sequence[Any]] | None = None,
    dev: int = 60,
    test: int = 100,
    data: str | Path | None = None,
    seed: int = 0,
    batch_size: int = 16,
    output: str | Path | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Try layers and settings on dev questions; report each method's best on test questions.

    The choice is by mean accuracy over the languages, the first of equals; every method has the
    same layers and its own settings. Dev and test never share a question. The English states of
    all layers are computed once for all settings.

    Parameters
    ----------
    model, tokenizer, aligner, task, languages, data, seed, batch_size, progress
        As for :func:`carot.evaluate`.
    layers : sequence of sequence of int
        Sets of layers: ``[[3], [5], [3, 7, 11]]``.
    methods : sequence of str
        Names of :data:`carot.interventions.METHODS`.
    settings : mapping of str to sequence
        Values of ``theta``, ``rho``, ``epsilon``, ``strength``; each method takes those it knows.
    dev, test : int
        Questions in each language.
    output : path, optional
        JSON file; an interrupted sweep goes on.

    Returns
    -------
    dict
        ``rows`` (what was tried, accuracy by language), ``chosen`` by method, and ``test``, the
        results of :func:`carot.evaluate` for the chosen setups. ``aligner.defaults`` holds what
        was chosen for ``carot``.
    """
    require_positive(dev=dev, test=test, batch_size=batch_size)
    task = get_task(task, data) if isinstance(task, str) else task
    drawn = draw_questions(task, languages, dev + test, seed)
    if len(drawn) < dev + test:
        raise CarotError(
            f"task {task.name} has {len(drawn)} questions in all of these languages; expected dev "
            f"{dev} + test {test}"
        )
    for method in methods:
        if method not in METHODS:
            raise CarotError(f"no method {method!r}; expected some of {', '.join(METHODS)}")
    values = {"strength": STRENGTHS, **(settings or {})}
    setups = [setup for method in methods for setup in grid(method, layers, values)]
    for setup in setups:  # before the first answer, not after hours
        for language in languages:
            setup.make(aligner, language)
    record = {
        "task": task.name,
        "data": None if data is None else str(data),
        "seed": seed,
        "languages": list(languages),
        "dev": dev,
        "test_items": test,
        "model": asdict(aligner.model),
        "aligner": aligner.digest(),
        "tried": [{"method": setup.method, **setup.describe()} for setup in setups],
    }
    journal = None if output is None else Journal(output, record | {"ids": drawn.ids})
    rows = _try_all(
        model, tokenizer, aligner, task, drawn.part(0, dev), setups, batch_size, journal, progress
    )
    chosen = choose(setups, rows)
    if "carot" in chosen:
        aligner.defaults = chosen["carot"].describe()
    results = {
        **record,
        "rows": rows,
        "chosen": {method: setup.describe() for method, setup in chosen.items()},
        "test": evaluate_questions(
            model,
            tokenizer,
            aligner,
            task,
            drawn.part(dev, dev + test),
            [Setup(UNSTEERED), *chosen.values()],
            seed=seed,
            batch_size=batch_size,
            output=None if output is None else Path(output).with_suffix(".test.json"),
            progress=progress,
            record={"data": record["data"], "limit": test, "split": f"test, behind {dev} of dev"},
        ),
    }
    if journal is not None:
        journal.finish(json.dumps(results, ensure_ascii=False) + "\n")
    return results


def chosen_setups(path: str | Path) -> dict[str, Setup]:
    """Read what a sweep chose for each method, from its JSON file.

    Raises
    ------
    CarotError
        When the file is not the results of a sweep.
    """
    try:
        chosen = json.loads(read_text(Path(path)))["chosen"]
        return {
            method: Setup(method, tuple(values["layers"]), _without_layers(values))
            for method, values in chosen.items()
        }
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise CarotError(f"{path}: not the results of `carot sweep`") from error


def _without_layers(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != "layers"}


def _try_all(
    model: Any,
    tokenizer: Any,
    aligner: Aligner,
    task: Task,
    questions: Questions,
    setups: Sequence[Setup],
    batch_size: int,
    journal: Journal | None,
    progress: bool,
) -> list[Row]:
    """Return one row for each setup and language; language by language, for the English memory."""
    done = {(row["setup"], row["language"]): row for row in journal.rows} if journal else {}
    rows = []
    with track("trying", len(setups) * len(questions.languages), enabled=progress) as advance:
        touched = [set(setup.make(aligner, questions.languages[0])) for setup in setups]
        memory = EnglishMemory(sorted(set().union(*touched)))
        for language in questions.languages:
            for number, setup in enumerate(setups):
                row = done.get((number, language))
                if row is None:
                    steered = setup.wrap(model, tokenizer, aligner, language, memory)
                    right = []
                    for start in range(0, len(questions), batch_size):
                        part = slice(start, start + batch_size)
                        english = questions.items[ENGLISH][part]
                        answers = ask(steered, task, questions.items[language][part], english)
                        right += [answer["right"] for answer in answers]
                    row = {
                        "setup": number,
                        "method": setup.method,
                        **setup.describe(),
                        "language": language,
                        "accuracy": fmean(right),
                    }
                    if journal is not None:
                        journal.append([row])
                rows.append(row)
                advance(1)
    return rows


def choose(setups: Sequence[Setup], rows: Sequence[Row]) -> dict[str, Setup]:
    """Return each method's best setup by mean accuracy over languages, the first of equals."""
    accuracies: dict[int, list[float]] = {}
    for row in rows:
        accuracies.setdefault(row["setup"], []).append(row["accuracy"])
    best: dict[str, tuple[float, Setup]] = {}
    for number, setup in enumerate(setups):
        mean = fmean(accuracies[number])
        if setup.method not in best or mean > best[setup.method][0] + 1e-12:
            best[setup.method] = (mean, setup)
    return {method: setup for method, (_, setup) in best.items()}
