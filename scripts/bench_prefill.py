"""Cost of a steered prefill against an unsteered one, and against its floor.

The English pass runs up to layer L, so a steered prefill cannot cost less than
1 + (L + 1) / layers * n / m of an unsteered one, n and m being the tokens of the English and of the
target batch. Runs of all variants take turns; the medians are compared.

    python scripts/bench_prefill.py --model demo --layer 5 --batch 16 --tokens 60
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import carot
from carot.models.encoding import encode


def texts_of_length(tokenizer: object, language: str, rows: int, tokens: int) -> list[str]:
    """Join bundled sentences of one language into texts of about so many tokens."""
    sentences = list(carot.ParallelCorpus.bundled([language, "de"])[language])
    texts, position = [], 0
    for _ in range(rows):
        text = ""
        while len(tokenizer(text)["input_ids"]) < tokens:  # type: ignore[operator]
            text = f"{text} {sentences[position % len(sentences)]}".strip()
            position += 1
        ids = tokenizer(text)["input_ids"][:tokens]  # type: ignore[operator]
        texts.append(tokenizer.decode(ids, skip_special_tokens=True))  # type: ignore[attr-defined]
    return texts


def main() -> None:
    """Time the variants in turn and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--layer", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--dtype", default="auto")
    arguments = parser.parse_args()

    model, tokenizer = carot.load_model(arguments.model, dtype=arguments.dtype)
    corpus = carot.ParallelCorpus.bundled(["en", "es", "fr"], limit=100)
    aligner = carot.fit_aligner(model, tokenizer, corpus, layers=[arguments.layer], guard=False)
    steered = {
        hooks: carot.wrap(model, tokenizer, aligner, layer=arguments.layer, hooks=hooks)  # type: ignore[arg-type]
        for hooks in ("nnsight", "torch")
    }
    prompts = texts_of_length(tokenizer, "es", arguments.batch, arguments.tokens)
    english = texts_of_length(tokenizer, "en", arguments.batch, arguments.tokens)
    m, n = encode(tokenizer, prompts), encode(tokenizer, english)
    layers = len(steered["torch"].anatomy.layers)
    floor = 1 + (arguments.layer + 1) / layers * n.input_ids.numel() / m.input_ids.numel()

    def prefill(model: carot.CarotModel, english: list[str] | None) -> Callable[[], object]:
        return lambda: model.generate(prompts, english, max_new_tokens=1, do_sample=False)

    variants = {
        "unsteered": prefill(steered["torch"], None),
        "steered, nnsight": prefill(steered["nnsight"], english),
        "steered, torch hooks": prefill(steered["torch"], english),
    }
    times: dict[str, list[float]] = {name: [] for name in variants}
    for run in range(arguments.runs + 2):
        for name, call in variants.items():
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if run >= 2:  # the first two warm up
                times[name].append(time.perf_counter() - start)
    plain = statistics.median(times["unsteered"])
    print(
        f"{arguments.model}, layer {arguments.layer} of {layers}, batch {arguments.batch}, "
        f"{n.input_ids.shape[1]} English and {m.input_ids.shape[1]} target tokens, "
        f"{arguments.runs} runs in turn, {torch.get_num_threads()} threads"
    )
    print(f"floor 1 + (L + 1) / layers * n / m = {floor:.3f}")
    for name, values in times.items():
        median = statistics.median(values)
        pairs = [a / b for a, b in zip(values, times["unsteered"], strict=True)]
        ratio = statistics.median(pairs)
        print(
            f"{name:22} {1000 * median:8.1f} ms   x {ratio:.3f} of unsteered, "
            f"x {ratio / floor:.3f} of the floor"
            if name != "unsteered"
            else f"{name:22} {1000 * plain:8.1f} ms"
        )


if __name__ == "__main__":
    main()
