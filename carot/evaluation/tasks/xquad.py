"""XQuAD (Artetxe et al., ACL 2020): answers to be found in a paragraph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from carot.evaluation.items import GenerationItem, Item, Skipped
from carot.evaluation.tasks.base import (
    Benchmark,
    answer_cue,
    cell,
    field,
    many,
    own_codes,
    read_json,
    sorted_out,
)
from carot.evaluation.text_metrics import exact_match, first_line

LANGUAGES = ("en", "ar", "de", "el", "es", "hi", "ro", "ru", "th", "tr", "vi", "zh")


class Xquad(Benchmark):
    """XQuAD, all of which is a test set.

    The prompt is paragraph, question and an answer cue. An answer is right if its first line is one
    of the right ones after SQuAD's normalisation.

    Parameters
    ----------
    data : Path, optional
        The original files ``xquad.es.json``; of a part of them ``xquad.part.es.json``. By default
        the hub data set ``google/xquad``, configurations ``xquad.es``, split ``validation``.
    """

    name = "xquad"
    max_new_tokens = 100
    codes = own_codes(LANGUAGES)

    def path(self, folder: Path, language: str) -> Path:
        """Return ``xquad.<language>.json``, else a part of it."""
        whole = folder / f"xquad.{language}.json"
        parts = sorted(folder.glob(f"xquad.*.{language}.json"))
        return parts[0] if parts and not whole.is_file() else whole

    def hub(self, language: str) -> tuple[str, str | None, str]:
        """Return the configuration of a language."""
        return "google/xquad", f"xquad.{language}", "validation"

    def read(self, path: Path) -> list[dict[str, Any]]:
        """Return the questions of a file, as the hub data set names its columns."""
        where = str(path)
        return [
            {
                "id": cell(question, "id", where),
                "context": cell(paragraph, "context", where),
                "question": cell(question, "question", where),
                "answers": {
                    "text": [cell(a, "text", where) for a in many(question, "answers", where)]
                },
            }
            for article in many(read_json(path), "data", where)
            for paragraph in many(article, "paragraphs", where)
            for question in many(paragraph, "qas", where)
        ]

    def load(self, language: str) -> tuple[dict[str, Item], list[Skipped]]:
        """Load the questions of one language by the data set's own ids."""
        items, skipped = sorted_out(self._items(language))
        return dict(items), skipped

    def is_right(self, item: GenerationItem, text: str) -> bool:
        """Compare the first line of a text with the right answers."""
        return exact_match(first_line(text), item.answers)

    def _items(self, language: str) -> Iterator[GenerationItem | Skipped]:
        for number, row in enumerate(self.rows(language), 1):
            where = f"{self.where(language)}, row {number}"
            item_id = cell(row, "id", where)
            listed = many(field(row, "answers", where), "text", where)
            answers = tuple(str(answer).strip() for answer in listed if str(answer).strip())
            context, question = cell(row, "context", where), cell(row, "question", where)
            if not answers or not question:
                yield Skipped(item_id, "no answer" if question else "no question")
                continue
            body = f"{context}\n{question}"
            prompt = f"{body}\n{answer_cue(language)}"
            yield GenerationItem(item_id, prompt, answers, content=(0, len(body)))
