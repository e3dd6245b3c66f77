"""Steer only the question of a few-shot prompt or of a chat: its content, set off by a marker.

Without ``content`` every token but special ones is aligned, the shots and the template too. The
marker is any text that does not occur otherwise; it is taken out before the model sees the prompt.

    python examples/chat_and_few_shot.py
"""

import carot

MARK = "§"
LANGUAGES = ["en", "es", "fr", "de", "ru", "vi", "tr"]
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
SPANISH = "País: Francia. Capital: París.\nPaís: Japón. Capital: Tokio.\nPaís: {}. Capital:"
ENGLISH = "Country: France. Capital: Paris.\nCountry: Japan. Capital: Tokyo.\nCountry: {}. Capital:"


def main() -> None:
    """Mark the question in both kinds of prompt, generate, and show which tokens were aligned."""
    model, tokenizer = carot.load_model("demo")
    corpus = carot.ParallelCorpus.bundled(LANGUAGES, limit=100)
    aligner = carot.fit_aligner(model, tokenizer, corpus, layers=[7])
    steered = carot.wrap(model, tokenizer, aligner, layer=7, theta=0.5)
    # The demo model is a base model without a template; a chat model brings its own.
    tokenizer.chat_template = tokenizer.chat_template or TEMPLATE

    def few_shot(template: str, question: str) -> str:
        return template.format(f"{MARK}{question}{MARK}")

    def chat(question: str) -> str:
        messages = [{"role": "user", "content": f"{MARK}{question}{MARK}"}]
        return str(
            tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        )

    pairs = {
        "few-shot": (few_shot(SPANISH, "Kenia"), few_shot(ENGLISH, "Kenya")),
        "chat": (chat("¿Cuál es la capital de Perú?"), chat("What is the capital of Peru?")),
    }
    for name, (prompt, english) in pairs.items():
        answers = [
            steered.generate(prompt, source, content=MARK, max_new_tokens=8, do_sample=False)
            for source in (None, english)
        ]
        view = steered.align(prompt, english, content=MARK)
        print(f"{name}: aligned {view.prompt_tokens} with {view.english_tokens}")
        print(f"  without {answers[0]!r}\n  with    {answers[1]!r}")


if __name__ == "__main__":
    main()
