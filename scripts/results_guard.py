"""The guard against wrong English: what it lets through, what it turns off, and at what cost.

Facts of BMLAMA-17 are asked with their own English, and with that of another fact.

    python scripts/results_guard.py --data DATA/bmlama17 --aligner aligner --facts 100
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import carot
from carot.evaluation import RankingItem, accuracy, best, rank
from carot.evaluation.questions import draw_questions
from carot.evaluation.tasks import get_task
from carot.progress import track

ENGLISH = "en"
BATCH = 16


def shuffled(items: list[RankingItem]) -> list[RankingItem]:
    """Give every question the English of another one with another text."""
    order = torch.randperm(len(items), generator=torch.Generator().manual_seed(0)).tolist()
    place = {row: order[(at + 1) % len(order)] for at, row in enumerate(order)}
    return [items[place[row]] for row in range(len(items))]


def steered_rows(
    model: carot.CarotModel, items: list[RankingItem], english: list[RankingItem]
) -> list[bool]:
    """Say which questions the guard lets through."""
    rows: list[bool] = []
    for start in range(0, len(items), BATCH):
        part = slice(start, start + BATCH)
        _, how = model.generate(
            [item.prompt for item in items[part]],
            [item.prompt for item in english[part]],
            return_steering=True,
            max_new_tokens=1,
            do_sample=False,
        )
        rows += [row.steered for row in how]
    return rows


def main() -> None:
    """Ask, and print one row for each language."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--aligner", required=True)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--layers", type=int, nargs="+")
    parser.add_argument("--languages", nargs="+", default=["es", "ru", "vi"])
    parser.add_argument("--facts", type=int, default=100)
    parser.add_argument("--skip", type=int, default=0)
    options = parser.parse_args()
    loaded, tokenizer = carot.load_model(options.model)
    aligner = carot.Aligner.from_pretrained(options.aligner)
    models = {
        name: carot.wrap(loaded, tokenizer, aligner, layers=options.layers, min_match=least)
        for name, least in (("guarded", None), ("all", 0.0))
    }
    task = get_task("bmlama", options.data)
    drawn = draw_questions(task, options.languages, options.skip + options.facts)
    asked = {
        language: [item for item in rows[options.skip :] if isinstance(item, RankingItem)]
        for language, rows in drawn.items.items()
    }
    english, wrong = asked[ENGLISH], shuffled(asked[ENGLISH])
    first = models["all"].layers[0]
    table = Table(title=f"{options.facts} facts, the guard of layer {first}, in %")
    columns = ("", "kept", "turned off", "none", "true", "true, guard", "wrong", "wrong, guard")
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    sums: list[list[float]] = []
    runs = [("all", None), ("all", english), ("guarded", english), ("all", wrong)]
    runs.append(("guarded", wrong))
    with track("asking", len(runs) * len(options.languages)) as advance:
        for language in options.languages:
            items = asked[language]
            kept = steered_rows(models["guarded"], items, english)
            passed = steered_rows(models["guarded"], items, wrong)
            shares = [sum(kept) / len(items), 1 - sum(passed) / len(items)]
            for name, source in runs:
                scores = rank(models[name], items, source, batch_size=BATCH)
                shares.append(accuracy(best(scores), items))
                advance(1)
            table.add_row(language, *(f"{100 * share:.1f}" for share in shares))
            sums.append(shares)
    means = [sum(column) / len(sums) for column in zip(*sums, strict=True)]
    table.add_row("mean", *(f"{100 * share:.1f}" for share in means), style="bold")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
