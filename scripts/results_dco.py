"""Train on preferences of BMLAMA-17, and compare RankC and accuracy on held-out facts.

The first facts of a draw are trained on, the next ones are asked for before and after. Every run is
kept in --output and not repeated.

    python scripts/results_dco.py --data DATA/bmlama17 --output DIR --runs before dco:0 dco:1 dpo
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from carot import evaluate, load_model, train_dco
from carot.evaluation.tasks import get_task
from carot.files import write_atomically
from carot.training import Recipe

TWO, FOUR = ["es"], ["es", "ru", "vi"]
SQUARED = {"form": "squared", "candidates": 4}
SMALL = {"gamma": {"en": 0.25, "es": 4.0}}
RUNS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "before": ("", TWO, {}),
    "dco": ("dco", TWO, {}),
    "dco, gamma en 0.25": ("dco", TWO, SMALL),
    "dco, squared": ("dco", TWO, SQUARED),
    "dco, squared, gamma en 0.25": ("dco", TWO, SQUARED | SMALL),
    "dpo": ("dpo", TWO, {}),
    "sft_gold": ("sft_gold", TWO, {}),
    "dco+dpo, squared": ("dco+dpo", TWO, SQUARED),
    "four-before": ("", FOUR, {}),
    "four-dco": ("dco", FOUR, {}),
    "four-dco, squared": ("dco", FOUR, SQUARED),
    "four-calm": ("calm", FOUR, {}),
}
RECIPE = {
    "lora": None,
    "freeze_embeddings": True,
    "data": {"max_length": 64, "end": False},
    "schedule": {"kind": "sum", "fraction": 1.0, "epochs": 1.0},
    "training": {
        "learning_rate": 2e-5,
        "per_device_train_batch_size": 4,
        "warmup_steps": 0,
        "weight_decay": 0.0,
        "save_strategy": "no",
        "disable_tqdm": True,
    },
}


def run(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train once and evaluate; what was found is kept in a file."""
    objective, languages, preferences = RUNS[name]
    path = options.output / f"{name.replace(' ', '-').replace(',', '')}-{seed}.json"
    if path.is_file():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    model, tokenizer = load_model(options.model)
    found = {"name": name, "seed": seed}
    if objective:
        training = {**RECIPE["training"], "seed": seed, "learning_rate": options.learning_rate}  # type: ignore[dict-item]
        content = {**RECIPE, "training": training, "preferences": preferences}
        started = time.perf_counter()
        model = train_dco(
            model,
            tokenizer,
            options.output / path.stem,
            ["en", *languages],
            data=f"task:bmlama:{options.data}",
            limit=options.facts,
            objective=objective,
            recipe=Recipe.from_dict(content),
        )
        found["seconds"] = time.perf_counter() - started
    task = get_task("bmlama", options.data)
    found["results"] = evaluate(
        model,
        tokenizer,
        None,
        task,
        languages,
        methods=["none"],
        limit=options.held_out,
        skip=options.facts,
        progress=True,
    )
    write_atomically(path, json.dumps(found, ensure_ascii=False))
    return found


def show(rows: list[dict[str, Any]]) -> None:
    """Print accuracy by language with its interval, RankC with English, and clc_all."""
    table = Table(title="held-out facts, in %")
    for column in ("run", "seed", "en", *FOUR, "RankC", "clc_all", "minutes"):
        table.add_column(column, justify="left" if column == "run" else "right")
    for row in rows:
        metrics = row["results"]["metrics"]["none"]

        def accuracy(language: str, metrics: Any = metrics) -> str:
            if language not in metrics:
                return ""
            low, high = metrics[language]["accuracy_interval"]
            share = 100 * metrics[language]["accuracy"]
            return f"{share:.0f} ({100 * low:.0f}-{100 * high:.0f})"

        mean = metrics["mean"]
        table.add_row(
            row["name"],
            str(row["seed"]),
            *(accuracy(language) for language in ("en", *FOUR)),
            f"{100 * mean['rankc']:.1f}",
            f"{100 * mean['clc_all']:.1f}",
            f"{row.get('seconds', 0) / 60:.1f}",
        )
    Console(width=140).print(table)


def main() -> None:
    """Run what is asked for, and print the table of all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--runs", nargs="+", default=["before:0", "dco:0"])
    parser.add_argument("--facts", type=int, default=400)
    parser.add_argument("--held-out", type=int, default=300)
    parser.add_argument("--learning-rate", type=float, default=2e-5)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    named = [part.partition(":") for part in options.runs]
    show([run(name, int(seed or 0), options) for name, _, seed in named])


if __name__ == "__main__":
    main()
