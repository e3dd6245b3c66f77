"""What a training step with the CAROT objective costs, against one with SFT; in one run.

Both steps have the same rows of the same length: SFT trains on every token of the target sentences,
CAROT aligns them with as many English sentences. Forward, backward and optimizer step are timed,
the two in turn.

    python scripts/bench_training.py [--model demo] [--batch-size 16] [--tokens 32] [--layer 7]
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from peft import LoraConfig, get_peft_model

from carot import fit_aligner, load_model
from carot.alignment import TransportSettings
from carot.corpora import ParallelCorpus
from carot.models.anatomy import dissect
from carot.training.objectives import Carot, MidAlign, Sft, Solar


def batches(tokenizer: Any, size: int, tokens: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same target rows, (size, tokens) without padding, as both kinds of batch."""
    corpus = ParallelCorpus.bundled(["en", "es"])
    sides = {}
    for language in corpus.languages:
        ids = tokenizer(" ".join(corpus[language]), add_special_tokens=False)["input_ids"]
        rows = torch.tensor(ids[: size * (tokens - 1)]).reshape(size, tokens - 1)
        bos = torch.full((size, 1), tokenizer.bos_token_id)
        sides[language] = torch.cat([bos, rows], 1)
    mask = torch.ones(size, tokens, dtype=torch.long)
    labels = sides["es"].clone()
    labels[:, 0] = -100
    instructions = {
        "input_ids": sides["es"],
        "attention_mask": mask,
        "labels": labels,
        "items": [str(row // 2) for row in range(size)],
        "languages": ["en", "es"] * (size // 2),
    }
    content = mask.bool()
    content[:, 0] = False
    parallel: dict[str, Any] = {"sentences": torch.arange(size)}
    for side, language in (("source", "en"), ("target", "es")):
        parallel |= {f"{side}_ids": sides[language], f"{side}_mask": mask}
        parallel[f"{side}_content"] = content
    return instructions, parallel


def main() -> None:
    """Time the objectives in turn and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--layer", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    model, tokenizer = load_model(options.model)
    corpus = ParallelCorpus.bundled(["en", "es"], limit=60)
    aligner = fit_aligner(model, tokenizer, corpus, [options.layer], guard=False)
    config = LoraConfig(task_type="CAUSAL_LM", r=64, lora_alpha=64, target_modules="all-linear")
    model = get_peft_model(model, config).train()
    anatomy = dissect(model)
    device = anatomy.input_device
    instructions, parallel = (
        {key: value.to(device) if torch.is_tensor(value) else value for key, value in made.items()}
        for made in batches(tokenizer, options.batch_size, options.tokens)
    )
    objectives: list[Any] = [
        Sft(),
        Carot(aligner, [options.layer], TransportSettings()),
        MidAlign(options.layer),
        Solar(),
    ]
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)

    def step(objective: Any) -> float:
        started = time.perf_counter()
        batch = instructions if objective.kind == "instructions" else parallel
        objective.loss(anatomy, batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    times: dict[str, list[float]] = {objective.name: [] for objective in objectives}
    for repeat in range(options.repeats + 1):
        for objective in objectives:
            seconds = step(objective)
            if repeat:  # the first round warms up
                times[objective.name].append(seconds)
    print(
        f"{options.model}, {options.batch_size} rows of {options.tokens} tokens, layer "
        f"{options.layer} of {len(anatomy.layers)}, LoRA, {torch.get_num_threads()} threads, "
        f"medians of {options.repeats}"
    )
    for name, seconds in times.items():
        ratios = [mine / sft for mine, sft in zip(seconds, times["sft"], strict=True)]
        print(
            f"{name:9} {1000 * statistics.median(seconds):8.0f} ms  "
            f"{statistics.median(ratios):.2f} of sft"
        )


if __name__ == "__main__":
    main()
