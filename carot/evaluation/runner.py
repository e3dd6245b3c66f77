"""Running an evaluation: every method asks every language the same questions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from carot.alignment import Aligner
from carot.errors import CarotError, require_positive
from carot.evaluation.items import GenerationItem, Item, RankingItem, Task
from carot.evaluation.questions import Questions, draw_questions
from carot.evaluation.ranking import best, rank
from carot.evaluation.summary import UNSTEERED, summarise
from carot.evaluation.tasks import get_task
from carot.interventions import (
    CHOOSES_LAYERS,
    ENGLISH,
    METHODS,
    Method,
    make_method,
    method_settings,
)
from carot.journal import Journal
from carot.models import CarotModel, wrap
from carot.models.steering import EnglishMemory
from carot.pivots import Pivot
from carot.progress import track
from carot.versions import package_versions

FORMAT = 1

Row = dict[str, Any]
"""One answer: method, language, id, right, and answer with scores or text."""


@dataclass(frozen=True)
class Setup:
    """How a method is set up.

    Parameters
    ----------
    method : str
        ``none``, or one of :data:`carot.interventions.METHODS`.
    layers : tuple of int
        Where it works.
    settings : dict
        Of the method: ``theta``, ``strength``, ...
    """

    method: str
    layers: tuple[int, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    def wrap(
        self,
        model: Any,
        tokenizer: Any,
        aligner: Aligner,
        language: str,
        memory: EnglishMemory | None = None,
        pivot: Pivot | None = None,
        min_match: float = 0.0,
    ) -> CarotModel:
        """Wrap a model for prompts of one language."""
        method = self.make(aligner, language)
        return wrap(
            model,
            tokenizer,
            aligner,
            layers=list(method),
            intervention=method,
            language=language,
            english_memory=memory,
            pivot=pivot,
            min_match=min_match,
        )

    def make(self, aligner: Aligner, language: str) -> Method:
        """Return what is done at each layer; a CarotError where the aligner lacks what it needs."""
        method = make_method(self.method, aligner, self.layers, language, **self.settings)
        for layer in method:
            aligner[layer]
        return method

    def describe(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"layers": list(self.layers), **self.settings}


def default_setup(
    method: str, aligner: Aligner, layers: Sequence[int] | None, settings: Mapping[str, Any]
) -> Setup:
    """Set a method up with those of the settings that it takes, and the aligner's own defaults."""
    if method == UNSTEERED:
        return Setup(method)
    known = method_settings(method)
    chosen = {**aligner.defaults, **settings}
    own = {key: chosen[key] for key in known if key in chosen}
    if method in CHOOSES_LAYERS:
        return Setup(method, tuple(make_method(method, aligner, (), **own)), own)
    return Setup(method, tuple(layers or aligner.default_layers()), own)


def evaluate(
    model: Any,
    tokenizer: Any,
    aligner: Aligner | None,
    task: Task | str,
    languages: Sequence[str],
    *,
    methods: Sequence[str] = (UNSTEERED, "carot"),
    setups: Mapping[str, Setup] | None = None,
    data: str | Path | None = None,
    layers: Sequence[int] | None = None,
    pivot: Pivot | None = None,
    min_match: float = 0.0,
    limit: int | None = None,
    skip: int = 0,
    seed: int = 0,
    batch_size: int = 16,
    output: str | Path | None = None,
    progress: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Evaluate methods on a task, against the unsteered model.

    Parameters
    ----------
    model, tokenizer, aligner
        As for :func:`carot.wrap`; the aligner may be None where only ``none`` is evaluated.
    task : Task or str
        A benchmark, by name or your own.
    languages : sequence of str
        Target languages; English takes part unsteered.
    methods : sequence of str
        ``none`` and names of :data:`carot.interventions.METHODS`.
    setups : mapping of str to Setup, optional
        Layers and settings of single methods; others take ``layers`` and ``settings``.
    data : path, optional
        Folder of the task's original files.
    layers : sequence of int, optional
        Where methods work; the aligner's default otherwise.
    pivot : Pivot, optional
        Makes the English that steers, from each question; by default it is the task's own.
    min_match : float
        The guard: questions that match their English less are asked unsteered.
    limit : int, optional
        Questions in each language, drawn with ``seed``.
    skip : int
        Questions at the start of the draw that are left out: as many as a sweep's ``dev``, with the
        same languages and seed, leaves out those that it chose on.
    seed : int
        Of the draw and of the bootstrap.
    batch_size : int
        Questions in one batch.
    output : path, optional
        JSON file for the results. Answers are kept beside it as they come; started again with the
        same arguments, an interrupted run goes on.
    progress : bool
        Show a progress bar.
    **settings
        Of the methods that take them (``theta``, ``strength``, ...).

    Returns
    -------
    dict
        What the JSON file holds: metrics by method and language, every answer, and everything
        needed to repeat the run.
    """
    task = get_task(task, data) if isinstance(task, str) else task
    questions = draw_questions(task, languages, None if limit is None else skip + limit, seed)
    if not 0 <= skip < len(questions):
        raise CarotError(f"skip is {skip}; expected 0 to {len(questions) - 1}, one less than drawn")
    return evaluate_questions(
        model,
        tokenizer,
        aligner,
        task,
        questions.part(skip, len(questions)),
        _all_setups(aligner, methods, setups or {}, layers, settings),
        seed=seed,
        batch_size=batch_size,
        output=output,
        progress=progress,
        pivot=pivot,
        min_match=min_match,
        record={"data": None if data is None else str(data), "limit": limit, "skip": skip},
    )


def _all_setups(
    aligner: Aligner | None,
    methods: Sequence[str],
    setups: Mapping[str, Setup],
    layers: Sequence[int] | None,
    settings: Mapping[str, Any],
) -> list[Setup]:
    names = list(dict.fromkeys((UNSTEERED, *methods)))
    for name in names:
        if name != UNSTEERED and name not in METHODS:
            known = ", ".join((UNSTEERED, *METHODS))
            raise CarotError(f"no method {name!r}; expected some of {known}")
    if aligner is None:
        if len(names) > 1:
            raise CarotError(
                f"{names[1]} needs an aligner of this model; expected one, or none alone"
            )
        return [Setup(UNSTEERED)]
    taken = {key for name in names if name != UNSTEERED for key in method_settings(name)}
    if unknown := sorted(set(settings) - taken):
        raise CarotError(f"no method among {', '.join(names)} has a setting {unknown[0]!r}")
    return [setups.get(name) or default_setup(name, aligner, layers, settings) for name in names]


def evaluate_questions(
    model: Any,
    tokenizer: Any,
    aligner: Aligner | None,
    task: Task,
    questions: Questions,
    setups: Sequence[Setup],
    *,
    seed: int = 0,
    batch_size: int = 16,
    output: str | Path | None = None,
    progress: bool = False,
    pivot: Pivot | None = None,
    min_match: float = 0.0,
    record: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Evaluate on questions that were drawn already; see :func:`evaluate`."""
    require_positive(batch_size=batch_size)
    runs = [
        (setup, language)
        for setup in setups
        for language in questions.items
        if language != ENGLISH or setup.method == UNSTEERED
    ]
    for setup, language in runs:  # before the first answer, not after hours
        if aligner is not None and setup.method != UNSTEERED:
            setup.make(aligner, language)
    plain = CarotModel(model, tokenizer, aligner, {})
    identity = plain.anatomy.identity() if aligner is None else aligner.model
    results: dict[str, Any] = {
        "format": FORMAT,
        "task": task.name,
        "model": asdict(identity),
        "aligner": None if aligner is None else _describe(aligner),
        "languages": questions.languages,
        "methods": [setup.method for setup in setups],
        "settings": {setup.method: setup.describe() for setup in setups},
        "items": len(questions),
        "seed": seed,
        "pivot": pivot and pivot.describe(),
        "min_match": min_match,
        **(record or {}),
    }
    journal = None if output is None else Journal(output, results | {"ids": questions.ids})
    rows: list[Row] = []
    done = (
        {(row["method"], row["language"], row["id"]): row for row in journal.rows}
        if journal
        else {}
    )
    with track("evaluating", len(runs) * len(questions), enabled=progress) as advance:
        for setup, language in runs:
            if aligner is None or setup.method == UNSTEERED:
                steered = plain
            else:
                steered = setup.wrap(
                    model, tokenizer, aligner, language, pivot=pivot, min_match=min_match
                )
            given = setup.method != UNSTEERED and pivot is None
            english = questions.items[ENGLISH] if given else None
            for start in range(0, len(questions), batch_size):
                part = slice(start, start + batch_size)
                keys = [(setup.method, language, item) for item in questions.ids[part]]
                if not all(key in done for key in keys):
                    answers = ask(
                        steered, task, questions.items[language][part], english and english[part]
                    )
                    new = [
                        {"method": setup.method, "language": language, **answer}
                        for answer in answers
                    ]
                    done.update(zip(keys, new, strict=True))
                    if journal is not None:
                        journal.append(new)
                rows += [done[key] for key in keys]
                advance(len(keys))
    results |= summarise(rows, questions, seed=seed)
    results["skipped"] = questions.skipped
    results["versions"] = package_versions()
    results["predictions"] = rows
    if journal is not None:
        journal.finish(json.dumps(results, ensure_ascii=False) + "\n")
    return results


def _describe(aligner: Aligner) -> dict[str, Any]:
    return {"digest": aligner.digest(), "fit": aligner.fit, "layers": list(aligner)}


def ask(
    model: CarotModel, task: Task, items: Sequence[Item], english: Sequence[Item] | None
) -> list[Row]:
    """Put one batch of questions to a model.

    Parameters
    ----------
    model : CarotModel
        Answers.
    task : Task
        Judges generated answers.
    items : sequence of Item
        Questions in one language.
    english : sequence of Item, optional
        Their English counterparts, which steer.

    Returns
    -------
    list of dict
        ``id``, ``right``, and ``answer`` with ``scores``, or ``text``.
    """
    ranked = [item for item in items if isinstance(item, RankingItem)]
    if len(ranked) == len(items):
        sources = None if english is None else [e for e in english if isinstance(e, RankingItem)]
        scores = rank(model, ranked, sources, batch_size=len(ranked))
        return [
            {"id": item.id, "right": answer == item.answer, "answer": answer, "scores": row}
            for item, answer, row in zip(ranked, best(scores), scores, strict=True)
        ]
    texts = model.generate(
        [item.prompt for item in items],
        None if english is None else [item.prompt for item in english],
        content=[item.content for item in items],
        english_content=None if english is None else [item.content for item in english],
        max_new_tokens=task.max_new_tokens,
        do_sample=False,
    )
    return [
        {"id": item.id, "right": task.is_right(item, text), "text": text}
        for item, text in zip(items, texts, strict=True)
        if isinstance(item, GenerationItem)
    ]
