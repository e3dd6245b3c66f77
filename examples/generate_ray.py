"""Answer a file on a cluster that runs Ray: batches are mapped over actors that hold a model each.

Needs ``pip install "ray[data]"``. Without a cluster Ray starts one on this machine.

    python examples/generate_ray.py prompts.jsonl answers --aligner aligner --actors 2 --gpus 1
"""

import argparse

import ray

import carot


class Steered:
    """One actor: a wrapped model."""

    def __init__(self, model: str, aligner: str) -> None:
        loaded, tokenizer = carot.load_model(model)
        fitted = carot.Aligner.from_pretrained(aligner)
        self.model = carot.wrap(loaded, tokenizer, fitted)

    def __call__(self, batch: dict) -> dict:
        """Answer a batch, steered where there is English."""
        prompts = [str(prompt) for prompt in batch["prompt"]]
        english = [text or None for text in batch.get("english", [None] * len(prompts))]
        answers, steering = self.model.generate(
            prompts, english, return_steering=True, max_new_tokens=32, do_sample=False
        )
        return batch | {
            "answer": answers,
            "steered": [how.steered for how in steering],
            "match": [how.match for how in steering],
        }


def main() -> None:
    """Map a JSONL file of prompts to a folder of answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--aligner", required=True)
    parser.add_argument("--actors", type=int, default=1)
    parser.add_argument("--gpus", type=float, default=0)
    options = parser.parse_args()
    rows = ray.data.read_json(options.input, lines=True)
    answered = rows.map_batches(
        Steered,
        fn_constructor_args=(options.model, options.aligner),
        batch_size=16,
        concurrency=options.actors,
        num_gpus=options.gpus,
    )
    answered.write_json(options.output)


if __name__ == "__main__":
    main()
