"""Answer a file of prompts in batches; rows without an English text are not steered.

What ``carot generate`` does, from Python. Stopped and started again with the same settings and the
same output, it goes on after the last batch that was written. With
``pivot=open_pivot("self", model, tokenizer)`` (:mod:`carot.pivots`) the model itself translates the
rows that have no English.

    python examples/generate_batch.py
"""

import json
import tempfile
from pathlib import Path

import carot
from carot.inference import generate_file, open_rows

LANGUAGES = ["en", "es", "fr", "de", "ru", "vi", "tr"]
ROWS = [
    {
        "id": "brazil",
        "prompt": "El idioma oficial de Brasil es el",
        "english": "The official language of Brazil is",
    },
    {
        "id": "germany",
        "prompt": "La capital de Alemania es",
        "english": "The capital of Germany is",
    },
    {"id": "sky", "prompt": "Por la noche el cielo es"},
]


def main() -> None:
    """Write a file of prompts, answer it, and print the rows of the output."""
    folder = Path(tempfile.mkdtemp(prefix="carot-"))
    prompts, output = folder / "prompts.jsonl", folder / "answers.jsonl"
    prompts.write_text("".join(json.dumps(row) + "\n" for row in ROWS), "utf-8")
    rows = open_rows(prompts)  # or CSV, Parquet, a hub data set

    model, tokenizer = carot.load_model("demo")
    corpus = carot.ParallelCorpus.bundled(LANGUAGES, limit=100)
    aligner = carot.fit_aligner(model, tokenizer, corpus, layers=[7])
    steered = carot.wrap(model, tokenizer, aligner, layer=7, theta=0.5)

    # Whatever the answers depend on: an unfinished output of other settings is refused.
    settings = {"model": "demo", "layers": [7], "theta": 0.5, "max_new_tokens": 8}
    options = {"max_new_tokens": 8, "do_sample": False}
    generate_file(steered, rows, output, settings=settings, **options)
    print(f"{output}:\n{output.read_text('utf-8')}", end="")


if __name__ == "__main__":
    main()
