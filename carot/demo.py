"""The demonstration: a real model answers bundled questions better, and the run is reported."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from carot.corpora import ParallelCorpus
from carot.errors import CarotError, require_positive
from carot.evaluation import RankingItem, accuracy, best, rank
from carot.evaluation.tasks.demo import DemoFacts
from carot.files import require_folder_or_nothing, write_atomically
from carot.models import CarotModel, fit_aligner, load_model, wrap
from carot.models.anatomy import dissect
from carot.models.loading import DEMO_MODEL, DEMO_NAME
from carot.progress import track
from carot.reporting.demo_report import demo_html
from carot.versions import package_versions

DEMO_LANGUAGES = ("es", "fr", "de", "ru", "vi", "tr")
DEMO_LAYERS = (3, 7, 11)
DEMO_FACTS = 48
EXAMPLES = 6
BATCH = 16


def run_demo(
    output: str | Path = "carot-demo",
    *,
    model_name: str = "demo",
    languages: Sequence[str] = DEMO_LANGUAGES,
    layers: Sequence[int] | None = None,
    theta: float = 0.5,
    facts: int = DEMO_FACTS,
    progress: bool = False,
) -> dict[str, Any]:
    """Fit on the bundled corpus, answer the bundled facts with and without steering, and report.

    Parameters
    ----------
    output : path
        Folder for ``report.json`` and ``report.html``.
    model_name : str
        As in :func:`carot.load_model`.
    languages : sequence of str
        Target languages of the bundled facts.
    layers : sequence of int, optional
        Layers at which the prefill is steered; by default 3, 7 and 11 of the demo model, and the
        one at 0.3 of the depth of another.
    theta : float
        Perplexity filter.
    facts : int
        How many of the bundled facts are asked in each language.
    progress : bool
        Show progress bars.

    Returns
    -------
    dict
        What ``report.json`` holds; every number is measured in this run.
    """
    require_positive(facts=facts)
    if not languages or "en" in languages:
        raise CarotError(f"languages are {list(languages)}; expected some, without English")
    require_folder_or_nothing(Path(output))
    questions = {language: _questions(language, facts) for language in ("en", *languages)}
    clock = [time.perf_counter()]
    model, tokenizer = load_model(model_name)
    clock.append(time.perf_counter())
    if layers is None:
        depth = len(dissect(model).layers)
        layers = DEMO_LAYERS if model_name == DEMO_MODEL else [round(0.3 * depth)]
    corpus = ParallelCorpus.bundled(["en", *languages])
    aligner = fit_aligner(model, tokenizer, corpus, layers=layers, guard=False, progress=progress)
    clock.append(time.perf_counter())
    steered = wrap(model, tokenizer, aligner, layers=layers, theta=theta)
    answers = _answer(steered, questions, progress)
    clock.append(time.perf_counter())

    english = accuracy(answers["en", "unsteered"], questions["en"])
    table = {
        language: {
            "facts": len(questions[language]),
            "unsteered": accuracy(answers[language, "unsteered"], questions[language]),
            "steered": accuracy(answers[language, "steered"], questions[language]),
            "english": english,
        }
        for language in languages
    }
    report = {
        "model": DEMO_NAME if model_name == DEMO_MODEL else model_name,
        "layers": list(layers),
        "theta": theta,
        "fit": aligner.fit,
        "facts": len(questions["en"]),
        "seconds": dict(
            zip(
                ("prepare", "fit", "score"),
                (round(b - a, 1) for a, b in itertools.pairwise(clock)),
                strict=True,
            )
        ),
        "versions": package_versions(),
        "languages": table,
        "mean": {
            column: sum(row[column] for row in table.values()) / len(table)
            for column in ("unsteered", "steered", "english")
        },
        "examples": _examples(answers, questions, languages),
        "alignment": _alignment(steered, questions, answers, languages[0]),
    }
    page = demo_html(report)
    text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
    write_atomically(Path(output) / "report.json", text)
    write_atomically(Path(output) / "report.html", page)
    return report


Answers = dict[tuple[str, str], list[int]]


def _questions(language: str, count: int) -> list[RankingItem]:
    """Return so many of the bundled facts, spread evenly over the relations."""
    items = [
        item for item in DemoFacts().load(language)[0].values() if isinstance(item, RankingItem)
    ]
    count = min(count, len(items))
    return [items[index * len(items) // count] for index in range(count)]


def _answer(model: CarotModel, questions: dict[str, list[RankingItem]], progress: bool) -> Answers:
    english = questions["en"]
    runs = [
        (language, kind)
        for language in questions
        for kind in ("unsteered", "steered")
        if language != "en" or kind == "unsteered"
    ]
    answers: Answers = {run: [] for run in runs}
    with track("answering", len(runs) * len(english), enabled=progress) as advance:
        for language, kind in runs:
            for start in range(0, len(english), BATCH):
                items = questions[language][start : start + BATCH]
                source = english[start : start + BATCH] if kind == "steered" else None
                answers[language, kind] += best(rank(model, items, source, batch_size=BATCH))
                advance(len(items))
    return answers


def _changed(
    answers: Answers, questions: dict[str, list[RankingItem]], language: str, mended: bool
) -> list[int]:
    """Rows that steering mended, or spoilt."""
    rows = zip(
        answers[language, "unsteered"],
        answers[language, "steered"],
        questions[language],
        strict=True,
    )
    return [
        row
        for row, (before, after, item) in enumerate(rows)
        if before != after and (after if mended else before) == item.answer
    ]


def _examples(
    answers: Answers, questions: dict[str, list[RankingItem]], languages: Sequence[str]
) -> list[dict[str, str]]:
    """Return a mended answer of each language, then spoilt ones, so that both are seen."""
    picked = [
        (language, row)
        for mended in (True, False)
        for language in languages
        for row in _changed(answers, questions, language, mended)[:1]
    ]
    return [
        {
            "language": language,
            "prompt": (item := questions[language][row]).prompt,
            "english": questions["en"][row].prompt,
            "unsteered": item.candidates[answers[language, "unsteered"][row]],
            "steered": item.candidates[answers[language, "steered"][row]],
            "gold": item.candidates[item.answer],
        }
        for language, row in picked[: EXAMPLES + 2]
    ]


def _alignment(
    model: CarotModel, questions: dict[str, list[RankingItem]], answers: Answers, language: str
) -> dict[str, Any]:
    row = (_changed(answers, questions, language, mended=True) or [0])[0]
    prompt, english = questions[language][row].prompt, questions["en"][row].prompt
    view = model.align(prompt, english)
    return {"language": language, "prompt": prompt, "english": english} | view.to_dict()
