"""What a DCO step costs, against a DPO step of TRL on as many answers; in one run.

DCO has P questions in two languages, TRL 2P preference pairs with the same tokens, and references
that are computed beforehand. Forward and backward are timed, in turn; of DCO also without a prompt
that runs once for both of its responses. ``--context 3`` puts three sentences before each question.

    python scripts/bench_dco.py [--model demo] [--pairs 4] [--context 0] [--repeats 6]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from typing import Any

import torch
from datasets import Dataset
from trl import DPOConfig, DPOTrainer

from carot import load_model
from carot.corpora import ParallelCorpus
from carot.models.anatomy import dissect
from carot.training.collate import Collator
from carot.training.data import EncodedComparison, EncodedInstruction
from carot.training.gammas import gamma_table
from carot.training.objectives import Dco
from carot.training.preferences import Comparison, dco_comparisons, read_items


def trl_batch(model: Any, tokenizer: Any, rows: list[Comparison], folder: str) -> tuple[Any, Any]:
    """A trainer of TRL and its batch: every side of every row is a preference pair."""
    columns = ("prompt", "chosen", "rejected")
    data = Dataset.from_list(
        [
            dict(zip(columns, (side.prompt, *(f" {text}" for text in side.responses)), strict=True))
            for row in rows
            for side in row.sides
        ]
    )
    arguments = DPOConfig(
        folder,
        per_device_train_batch_size=len(data),
        precompute_ref_log_probs=True,
        precompute_ref_batch_size=len(data),
        use_cpu=not torch.cuda.is_available(),
        report_to="none",
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )
    trainer = DPOTrainer(model, None, arguments, train_dataset=data, processing_class=tokenizer)
    return trainer, next(iter(trainer.get_train_dataloader()))


def own_batch(batch: Any, rows: list[Comparison], collator: Collator) -> dict[str, Any]:
    """The same token ids as TRL's batch, as comparisons of two languages."""
    ids, mask = batch["input_ids"], batch["attention_mask"]
    completion = batch["completion_mask"]
    half = len(ids) // 2  # winners, then losers
    made = []
    for place in range(len(ids)):
        real = mask[place].bool()
        start = int(completion[place][real].argmax())
        made.append(EncodedInstruction(ids[place][real].tolist(), start, "", ""))
    comparisons = [
        EncodedComparison(
            row.id,
            tuple(side.language for side in row.sides),
            tuple(made[2 * number + side + loser * half] for side in (0, 1) for loser in (0, 1)),
            (-5.0, -6.0, -5.5, -6.5),
        )
        for number, row in enumerate(rows)
    ]
    return collator.comparisons(comparisons)


def main() -> None:
    """Time both steps in turn and print medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--context", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=6)
    options = parser.parse_args()

    model, tokenizer = load_model(options.model)
    corpus = ParallelCorpus.bundled(["en", "es"])
    before = {
        language: "".join(f"{text}\n" for text in corpus[language][: options.context])
        for language in corpus.languages
    }
    items = {
        key: {
            language: replace(choice, prompt=before[language] + choice.prompt)
            for language, choice in item.items()
        }
        for key, item in read_items("task:demo", ["en", "es"], options.pairs).items()
    }
    rows = dco_comparisons(items)
    with tempfile.TemporaryDirectory() as folder:
        trainer, theirs = trl_batch(model, tokenizer, rows, folder)
        mine = own_batch(theirs, rows, Collator(tokenizer, 256))
        device = next(model.parameters()).device
        mine, theirs = (trainer._prepare_inputs(batch) for batch in (mine, theirs))
        objective, anatomy = Dco(1.0, gamma_table(["en", "es"], 1.0, {})), dissect(model)
        model.train()
        steps = {
            "trl dpo": lambda: trainer.compute_loss(model, theirs),
            "carot dco": lambda: objective.loss(anatomy, mine),
            "carot dco, each with its prompt": lambda: objective.loss(
                anatomy, {**mine, "shared": {}}
            ),
        }
        times: dict[str, list[float]] = {name: [] for name in steps}
        for repeat in range(options.repeats + 1):
            turned = list(steps.items())
            turned = turned[repeat % len(steps) :] + turned[: repeat % len(steps)]
            for name, loss in turned:  # what ran before leaves its mark
                started = time.perf_counter()
                loss().backward()
                model.zero_grad()
                if device.type == "cuda":
                    torch.cuda.synchronize()
                if repeat:  # the first round warms up
                    times[name].append(time.perf_counter() - started)
    tokens = int(mine["attention_mask"].sum())
    print(
        f"{options.model}, {options.pairs} questions in 2 languages, {tokens} tokens, "
        f"{torch.get_num_threads()} threads, medians of {options.repeats}"
    )
    for name, seconds in times.items():
        ratios = [own / trl for own, trl in zip(seconds, times["trl dpo"], strict=True)]
        median = 1000 * statistics.median(seconds)
        print(f"{name:31} {median:8.0f} ms  {statistics.median(ratios):.2f} of trl dpo")


if __name__ == "__main__":
    main()
