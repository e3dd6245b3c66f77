"""The four verbs on the demo model: fit an aligner, generate, score candidates, look inside.

The demo model is a small base model: it continues a text, and is often wrong, steered or not.

    python examples/quickstart.py
"""

from rich import print as show

import carot
from carot.reporting import heatmap_terminal

LANGUAGES = ["en", "es", "fr", "de", "ru", "vi", "tr"]


def main() -> None:
    """Fit at layer 7, then do everything without and with the English counterparts."""
    model, tokenizer = carot.load_model("demo")
    corpus = carot.ParallelCorpus.bundled(LANGUAGES, limit=100)
    aligner = carot.fit_aligner(model, tokenizer, corpus, layers=[7])
    steered = carot.wrap(model, tokenizer, aligner, layer=7, theta=0.5)

    prompts = ["El idioma oficial de Brasil es el", "Die Hauptstadt des Landes Italien heißt"]
    english = ["The official language of Brazil is", "The capital of Italy is"]
    options = {"max_new_tokens": 6, "do_sample": False}
    plain = steered.generate(prompts, **options)
    moved = steered.generate(prompts, english, **options)
    for prompt, before, after in zip(prompts, plain, moved, strict=True):
        print(f"{prompt} ...\n  without {before!r}\n  with    {after!r}")

    questions = ["La capital de Kenia es", "La moneda oficial de México se llama"]
    sources = ["The capital of Kenya is", "The official currency of Mexico is the"]
    candidates = [["Copenhague", "Nairobi", "Estocolmo"], ["dinar", "peso", "euro"]]
    before = steered.score(questions, candidates)
    after = steered.score(questions, candidates, sources)
    print("\nMean log-probability of each candidate, in nats")
    for row, question in enumerate(questions):
        print(f"{question} ...")
        for name, scores in (("without", before[row]), ("with", after[row])):
            ranked = sorted(zip(scores, candidates[row], strict=True), reverse=True)
            print(f"  {name:8}" + ", ".join(f"{text} {score:.2f}" for score, text in ranked))

    print()
    show(heatmap_terminal(steered.align(prompts[0], english[0])))


if __name__ == "__main__":
    main()
