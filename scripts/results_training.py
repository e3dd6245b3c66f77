"""Train with each objective on the same data, and compare accuracy and RankC before and after.

Instructions are KLAR facts of half of the relations, in English and Spanish; sentences to align are
from NTREX-128, in all languages. Facts of the other relations are asked for, in languages that have
instructions and in languages that have none. Every run is kept in --output and not repeated.

    python scripts/results_training.py --data DATA --output DIR --runs before sft:0 carot:1
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from carot import Aligner, evaluate, fit_aligner, load_model
from carot.corpora import ParallelCorpus
from carot.evaluation.items import Item, RankingItem, Skipped
from carot.evaluation.tasks import get_task
from carot.files import write_atomically
from carot.training import Instruction, Recipe, train
from carot.training.drift import drift
from carot.training.objectives import objective_names

LANGUAGES = ["es", "fr", "ru", "ja", "tr", "vi"]
INSTRUCTED = ["en", "es"]
RUNS = {
    "sft": ("sft", {}),
    "carot": ("carot", {}),
    "carot, weight 50": ("carot", {"schedule": {"weights": {"carot": 50.0}}}),
    "refit": ("carot", {"align": {"refit_every": 10}}),
    "midalign": ("midalign", {}),
    "solar": ("solar", {}),
}


class Relations:
    """KLAR, some of its relations."""

    max_new_tokens = 0

    def __init__(self, folder: Path, *, trained: bool) -> None:
        self.klar = get_task("klar", folder)
        self.name = f"klar, {'trained' if trained else 'other'} relations"
        self.trained = trained

    def languages(self) -> list[str]:
        """Those of KLAR."""
        return self.klar.languages()

    def load(self, language: str) -> tuple[dict[str, Item], list[Skipped]]:
        """Every second relation by name is trained on."""
        items, skipped = self.klar.load(language)
        relations = sorted({key.rpartition("-")[0] for key in items})
        kept = set(relations[0 if self.trained else 1 :: 2])
        return {key: row for key, row in items.items() if key.rpartition("-")[0] in kept}, skipped

    def is_right(self, item: Any, text: str) -> bool:
        """As KLAR does: answers are ranked, not judged."""
        return self.klar.is_right(item, text)


def instructions(folder: Path, count: int) -> list[Instruction]:
    """Facts of the trained relations with their right answers, in the instructed languages."""
    task = Relations(folder, trained=True)
    tables = {language: task.load(language)[0] for language in INSTRUCTED}
    keys = sorted(set.intersection(*(set(table) for table in tables.values())))
    order = torch.randperm(len(keys), generator=torch.Generator().manual_seed(0)).tolist()
    rows = []
    for key in (keys[place] for place in order[:count]):
        for language, table in tables.items():
            item = table[key]
            if isinstance(item, RankingItem):
                answer = item.candidates[item.answer] + item.suffix
                rows.append(Instruction(item.prompt, answer, language, key))
    return rows


def recipe(name: str, options: argparse.Namespace, seed: int) -> Recipe:
    """The same settings for every objective."""
    objective, changes = RUNS[name]
    content: dict[str, Any] = {
        "objective": objective,
        "data": {"max_length": 64, "held_out": options.held_out, "end": False},
        "align": {"layers": options.layers},
        "schedule": {"fraction": options.fraction},
        "lora": {"r": 32, "alpha": 64},
        "training": {
            "learning_rate": options.learning_rate,
            "warmup_steps": 5,
            "seed": seed,
            "save_strategy": "no",
            "disable_tqdm": True,
        },
    }
    for section, values in changes.items():
        content[section] |= values
    return Recipe.from_dict(content)


def ask(model: Any, tokenizer: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Evaluate unsteered on facts of the other relations."""
    task = Relations(options.data / "klar", trained=False)
    return evaluate(
        model,
        tokenizer,
        None,
        task,
        LANGUAGES,
        methods=["none"],
        limit=options.facts,
        progress=True,
    )


def angles(before: Aligner, model: Any, tokenizer: Any, corpus: ParallelCorpus) -> dict[str, Any]:
    """How far training has turned the subspaces that the aligner was fitted on."""
    after = fit_aligner(model, tokenizer, corpus, list(before), guard=False)
    return {str(layer): drift(before[layer], after[layer]).summary() for layer in before}


def run(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train once and evaluate; what was found is kept in a file."""
    path = options.output / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}.json"
    if path.is_file():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    model, tokenizer = load_model(options.model)
    found = {"name": name, "seed": seed}
    if name != "before":
        made = recipe(name, options, seed)
        corpus = ParallelCorpus.from_ntrex(
            options.data / "ntrex", ["en", *LANGUAGES], limit=options.sentences
        )
        aligner = None
        if "carot" in objective_names(made):
            aligner = fit_aligner(model, tokenizer, corpus, options.layers, progress=True)
        started = time.perf_counter()
        model = train(
            model,
            tokenizer,
            made,
            options.output / path.stem,
            aligner=aligner,
            instructions=instructions(options.data / "klar", options.instructions),
            corpus=corpus,
        )
        found["seconds"] = time.perf_counter() - started
        if aligner is not None:
            found["angles"] = angles(aligner, model, tokenizer, corpus)
    found["results"] = ask(model, tokenizer, options)
    write_atomically(path, json.dumps(found, ensure_ascii=False))
    return found


def show(rows: list[dict[str, Any]]) -> None:
    """Print accuracy by language, the mean of the others than English, and RankC."""
    table = Table(title="right answers in % on relations that were not trained on")
    for column in ("run", "seed", "en", *LANGUAGES, "mean", "95%", "RankC", "minutes"):
        table.add_column(column, justify="left" if column == "run" else "right")
    for row in rows:
        metrics = row["results"]["metrics"]["none"]
        low, high = metrics["mean"]["accuracy_interval"]
        table.add_row(
            row["name"],
            str(row["seed"]),
            *(f"{100 * metrics[language]['accuracy']:.1f}" for language in ("en", *LANGUAGES)),
            f"{100 * metrics['mean']['accuracy']:.1f}",
            f"{100 * low:.0f}-{100 * high:.0f}",
            f"{100 * metrics['mean']['rankc']:.1f}",
            f"{row.get('seconds', 0) / 60:.1f}",
        )
    Console(width=140).print(table)
    for row in rows:
        for layer, turned in row.get("angles", {}).items():
            values = ", ".join(f"{key} {value:.1f}" for key, value in turned.items())
            print(f"{row['name']}, seed {row['seed']}, layer {layer}: {values} (degrees)")


def main() -> None:
    """Run what is asked for, and print the table of all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--runs", nargs="+", default=["before:0", "sft:0", "carot:0"])
    parser.add_argument("--layers", type=int, nargs="+", default=[7])
    parser.add_argument("--instructions", type=int, default=320)
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--held-out", type=int, default=100)
    parser.add_argument("--facts", type=int, default=100)
    parser.add_argument("--fraction", type=float, default=0.6)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    named = [part.partition(":") for part in options.runs]
    show([run(name, int(seed or 0), options) for name, _, seed in named])


if __name__ == "__main__":
    main()
