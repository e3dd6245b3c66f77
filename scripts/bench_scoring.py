"""Seconds to score candidates: lm-evaluation-harness's own ``hf`` model against carot.

The harness runs prompt and candidate together, once for each candidate; carot runs a prompt once
and goes on from its cache. Both are unsteered, in float32 and with the same tokens (a space stands
between prompt and candidate), and take turns.

    python scripts/bench_scoring.py --model demo --facts 100
    python scripts/bench_scoring.py --data BMLAMA17 --language es
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from collections.abc import Callable

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

import carot
from carot.evaluation.lm_eval import CarotLM
from carot.evaluation.tasks import get_task


def main() -> None:
    """Score the same candidates in turn and print seconds, ratios and the largest difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--facts", type=int, default=100)
    parser.add_argument("--data", help="a folder of BMLAMA-17, instead of the bundled facts")
    parser.add_argument("--language", default="es")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--runs", type=int, default=2)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)

    task = get_task("bmlama" if arguments.data else "demo", arguments.data)
    items = list(task.load(arguments.language)[0].values())[: arguments.facts]
    prompts = [item.prompt for item in items]
    candidates = [[text + item.suffix for text in item.candidates] for item in items]
    requests = [
        Instance("loglikelihood", {}, (prompt, f" {text}"), 0, ("facts", row, 1))
        for row, (prompt, texts) in enumerate(zip(prompts, candidates, strict=True))
        for text in texts
    ]

    model, tokenizer = carot.load_model(arguments.model, dtype=torch.float32)
    # No prompt here has an English counterpart: the aligner is there, and does nothing.
    corpus = carot.ParallelCorpus.bundled(["en", "es"], limit=20)
    aligner = carot.fit_aligner(model, tokenizer, corpus, layers=[1], guard=False)
    harness = HFLM(model, tokenizer=tokenizer, batch_size=arguments.batch)
    plugin = CarotLM(model, aligner, tokenizer=tokenizer, batch_size=arguments.batch)

    def by_score() -> list[float]:
        scores = plugin.carot.score(
            prompts, candidates, separator=" ", reduction="sum", batch_size=arguments.batch
        )
        return [value for row in scores for value in row]

    def sums(lm: HFLM) -> list[float]:
        return [value for value, _ in lm.loglikelihood(requests, disable_tqdm=True)]

    variants: dict[str, Callable[[], list[float]]] = {
        "lm_eval, hf": lambda: sums(harness),
        "lm_eval, carot": lambda: sums(plugin),
        "CarotModel.score": by_score,
    }
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    results: dict[str, list[float]] = {}
    plugin.loglikelihood(requests[:8], disable_tqdm=True)  # warms up
    for _ in range(arguments.runs):
        for name, call in variants.items():
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            start = time.perf_counter()
            results[name] = call()
            seconds[name].append(time.perf_counter() - start)

    first, *others = variants
    print(
        f"{arguments.model}, {len(items)} prompts, {len(requests)} candidates, batch "
        f"{arguments.batch}, {arguments.runs} runs in turn, {torch.get_num_threads()} threads"
    )
    print(f"{first:18} {statistics.median(seconds[first]):7.2f} s")
    for name in others:
        ratios = [a / b for a, b in zip(seconds[first], seconds[name], strict=True)]
        pairs = zip(results[first], results[name], strict=True)
        difference = max(abs(a - b) for a, b in pairs)
        print(
            f"{name:18} {statistics.median(seconds[name]):7.2f} s, {statistics.median(ratios):.2f} "
            f"times as fast, sums of log-probabilities within {difference:.1e}"
        )


if __name__ == "__main__":
    main()
