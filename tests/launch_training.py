"""A short training run for tests of several processes; started by accelerate."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import torch

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parent))

from helpers import aligner_of  # noqa: E402
from tiny import corpus, tiny_model, tiny_tokenizer  # noqa: E402

from carot.training import Instruction, Recipe, train  # noqa: E402
from carot.training.preferences import Choice  # noqa: E402

ROWS = [
    Instruction(f"The {language} capital {n} is", f"city {n}{'!' * (n % 5)}", language, str(n))
    for n in range(16)
    for language in ("en", "es")
]

ITEMS = {
    str(n): {
        language: Choice(
            f"The capital of the {language} country of number {n} is", ("one", "two cities", "no")
        )
        for language in ("en", "es")
    }
    for n in range(16)
}

if __name__ == "__main__":
    made = Recipe.from_dict(json.loads(sys.argv[1]))
    train(
        copy.deepcopy(tiny_model("llama")),
        tiny_tokenizer(),
        made,
        sys.argv[2],
        aligner=aligner_of("llama"),
        instructions=ROWS,
        corpus=corpus(),
        items=ITEMS,
    )
