"""Batch inference measured: decoding speed, batches of like length, and memory.

1. Seconds of a new token after a steered prefill, against plain ``model.generate`` on the same
   batch; both take turns, and the medians are compared.
2. Rows in a second of a file of mixed lengths, in batches of like length and in batches in the
   order of the file, under the same budget of tokens.
3. Peak memory of processes that answer a file and one of ten times its rows.

    python scripts/bench_generate.py --model demo
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import carot
from carot.inference import generate_file, open_rows
from carot.models.encoding import encode

LAYERS = [3, 7]


def steered(name: str) -> carot.CarotModel:
    """Load a model and fit it on the bundled sentences."""
    model, tokenizer = carot.load_model(name)
    corpus = carot.ParallelCorpus.bundled(["en", "es", "fr"], limit=60)
    aligner = carot.fit_aligner(model, tokenizer, corpus, layers=LAYERS, guard=False)
    return carot.wrap(model, tokenizer, aligner, layers=LAYERS)


def mixed(count: int) -> list[dict[str, str]]:
    """Make prompts of one to twelve sentences, most of them short, as in real files."""
    corpus = carot.ParallelCorpus.bundled(["en", "es"])
    draw = random.Random(0)
    rows = []
    for _ in range(count):
        length = min(12, 1 + int(draw.expovariate(0.6)))
        chosen = [draw.randrange(len(corpus)) for _ in range(length)]
        sides = {code: " ".join(corpus[code][row] for row in chosen) for code in ("en", "es")}
        rows.append({"prompt": sides["es"], "english": sides["en"]})
    return rows


def seconds_of(call: Any) -> float:
    """Time one call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def decoding(model: carot.CarotModel, runs: int, new: int) -> None:
    """Compare the seconds of new tokens behind the first."""
    rows = mixed(8)
    prompts, english = [row["prompt"] for row in rows], [row["english"] for row in rows]
    batch = encode(model.tokenizer, prompts, device=model.anatomy.input_device)
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}

    def ask(kind: str, count: int) -> float:
        options = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False}
        if kind == "plain":
            return seconds_of(lambda: model.model.generate(**inputs, **options))  # type: ignore[operator]
        return seconds_of(lambda: model.generate(prompts, english, **options))

    found: dict[str, list[float]] = {"plain": [], "steered": []}
    for turn in range(runs + 1):
        for kind in sorted(found, reverse=bool(turn % 2)):
            first, all_of_them = ask(kind, 1), ask(kind, 1 + new)
            if turn:  # the first turn warms up
                found[kind].append((all_of_them - first) / new)
    plain, moved = (statistics.median(found[kind]) for kind in ("plain", "steered"))
    print(f"decoding: plain {1000 * plain:.1f} ms, steered {1000 * moved:.1f} ms a token (8 rows)")
    print(f"  steered runs at {plain / moved:.3f} of the speed")


def in_order(model: carot.CarotModel, rows: list[dict[str, str]], budget: int) -> Iterator[Any]:
    """Yield batches in the order of the file, as large as the budget lets them be."""
    batch: list[dict[str, str]] = []
    width = 0
    for row in rows:
        [(prompt, english)] = model.check([row["prompt"]], [row["english"]])
        new = max(width, prompt + 8, english)
        if batch and (len(batch) + 1) * new > budget:
            yield batch
            batch, new = [], max(prompt + 8, english)
        batch.append(row)
        width = new
    yield batch


def throughput(model: carot.CarotModel, count: int, budget: int, runs: int) -> None:
    """Compare whole jobs."""
    rows = mixed(count)
    options = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}

    def ordered() -> None:
        for batch in in_order(model, rows, budget):
            model.generate(
                [row["prompt"] for row in batch], [row["english"] for row in batch], **options
            )

    def bucketed() -> None:
        with tempfile.TemporaryDirectory() as folder:
            generate_file(
                model,
                rows,
                Path(folder) / "answers.jsonl",
                settings={},
                max_batch_tokens=budget,
                **options,
            )

    found: dict[str, list[float]] = {"order": [], "like": []}
    for _ in range(runs):
        found["order"].append(seconds_of(ordered))
        found["like"].append(seconds_of(bucketed))
    order, like = (count / statistics.median(found[kind]) for kind in ("order", "like"))
    print(f"{count} rows of mixed lengths, {budget} tokens a batch:")
    print(
        f"  in order {order:.2f} rows/s, like lengths {like:.2f} rows/s: {like / order:.2f} times"
    )


def memory(name: str, count: int) -> None:
    """Compare peaks of processes of their own."""
    peaks = []
    for rows in (count, 10 * count):
        outcome = subprocess.run(
            [sys.executable, __file__, "--model", name, "--only-answer", str(rows)],
            check=True,
            capture_output=True,
            text=True,
        )
        peaks.append(int(outcome.stdout.split()[-1]))
    print(f"peak memory: {count} rows {peaks[0]} MiB, {10 * count} rows {peaks[1]} MiB")
    print(f"  {peaks[1] / peaks[0]:.3f} times for ten times the rows")


def only_answer(name: str, count: int) -> None:
    """Answer a file, and print the peak memory of this process in MiB."""
    model = steered(name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prompts.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for number in range(count):
                row = {"prompt": f"El número {number} es", "english": f"The number {number} is"}
                file.write(json.dumps(row) + "\n")
        output = Path(folder) / "answers.jsonl"
        generate_file(
            model, open_rows(path), output, settings={}, max_batch_tokens=512, max_new_tokens=1
        )
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--budget", type=int, default=2048)
    parser.add_argument("--memory-rows", type=int, default=200)
    parser.add_argument("--only-answer", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only_answer:
        only_answer(options.model, options.only_answer)
        return
    model = steered(options.model)
    decoding(model, options.runs, options.new_tokens)
    throughput(model, options.rows, options.budget, options.runs)
    del model
    memory(options.model, options.memory_rows)


if __name__ == "__main__":
    main()
