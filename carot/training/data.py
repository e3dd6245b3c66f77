"""Training data: instructions with their responses, and parallel sentences."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carot.corpora import ParallelCorpus
from carot.corpora.hub import load_hub
from carot.corpora.parallel import read_jsonl
from carot.errors import CarotError
from carot.evaluation.items import RankingItem
from carot.evaluation.tasks import open_task
from carot.interventions import ENGLISH
from carot.models.encoding import token_ids
from carot.models.scoring import prepare_candidates

COLUMNS = {
    "prompt": ("prompt", "inputs", "instruction"),
    "response": ("response", "targets", "output"),
    "language": ("language", "language_code", "lang"),
}
"""Names under which columns are found; the second ones are those of Aya."""


@dataclass(frozen=True)
class Instruction:
    """A prompt and what the model is to answer.

    Parameters
    ----------
    prompt, response : str
        Plain text, the response without what stands between the two.
    language : str
        A code.
    id : str
        The same for translations of one item.
    chat : bool
        Whether prompt and response hold a chat template's own tokens already.
    """

    prompt: str
    response: str
    language: str
    id: str
    chat: bool = False


def read_instructions(
    source: str | Path, tokenizer: Any, languages: Sequence[str] | None = None
) -> list[Instruction]:
    """Read instruction data.

    Parameters
    ----------
    source : str or path
        A JSONL file, or the id of a hub data set (``CohereLabs/aya_dataset``). Rows hold
        ``prompt``, ``response``, ``language`` and perhaps ``id``; or ``messages``, a list of
        ``{"role", "content"}`` that ends with the assistant's turn. ``task:NAME`` or
        ``task:NAME:FOLDER`` takes the questions of a ranking task with their right answers.
    tokenizer : PreTrainedTokenizerBase
        Its chat template renders ``messages``.
    languages : sequence of str, optional
        Keep these.

    Raises
    ------
    CarotError
        Naming the row in which something is missing.
    """
    if str(source).startswith("task:"):
        return task_instructions(str(source), languages)
    if Path(source).suffix == ".jsonl" or Path(source).exists():
        rows: Sequence[Mapping[str, Any]] = read_jsonl(source)
    else:
        rows = load_hub(str(source), split="train")
    made = [
        _instruction(row, f"{source}, row {number}", str(number - 1), tokenizer)
        for number, row in enumerate(rows, 1)
    ]
    kept = [row for row in made if languages is None or row.language in languages]
    if not kept:
        there = ", ".join(sorted({row.language for row in made})) or "no row"
        raise CarotError(f"{source}: nothing in {', '.join(languages or ())}; there: {there}")
    return kept


def task_instructions(source: str, languages: Sequence[str] | None = None) -> list[Instruction]:
    """Take the questions of a ranking task and their right answers; ``task:NAME[:FOLDER]``."""
    task = open_task(source)
    rows = []
    for language in languages or task.languages():
        for item in task.load(language)[0].values():
            if not isinstance(item, RankingItem):
                raise CarotError(f"{source}: answers are not ranked; expected a ranking task")
            answer = item.candidates[item.answer] + item.suffix
            rows.append(Instruction(item.prompt, answer, language, item.id))
    return rows


def _instruction(row: Mapping[str, Any], where: str, number: str, tokenizer: Any) -> Instruction:
    language = _text(row, "language", where, default="und")
    item = str(row.get("id", number))
    if "messages" not in row:
        prompt, response = (_text(row, key, where) for key in ("prompt", "response"))
        return Instruction(prompt, response, language, item)
    messages = row["messages"]
    if not messages or messages[-1].get("role") != "assistant":
        raise CarotError(f"{where}: messages must end with the assistant's turn")
    if not getattr(tokenizer, "chat_template", None):
        raise CarotError(
            f"{where} holds messages, and the tokenizer has no chat template; give prompt and "
            "response, or a model with a template"
        )
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    prompt = tokenizer.apply_chat_template(
        messages[:-1], tokenize=False, add_generation_prompt=True
    )
    if not whole.startswith(prompt):
        raise CarotError(
            f"{where}: the chat template changes earlier turns when it is continued; give prompt "
            "and response instead"
        )
    return Instruction(prompt, whole[len(prompt) :], language, item, chat=True)


def _text(row: Mapping[str, Any], key: str, where: str, default: str | None = None) -> str:
    for name in COLUMNS[key]:
        if name in row:
            value = row[name]
            if not isinstance(value, str) or not value.strip():
                raise CarotError(f"{where}: {name!r} is {value!r:.40}; expected a text")
            return value
    if default is None:
        raise CarotError(f"{where}: no {key!r}; there: {', '.join(map(str, row))}")
    return default


@dataclass(frozen=True)
class EncodedInstruction:
    """Token ids of prompt and response, and where the response begins."""

    ids: list[int]
    response_start: int
    language: str
    id: str


def encode_instruction(
    tokenizer: Any, row: Instruction, *, separator: str | None, end: bool, max_length: int
) -> EncodedInstruction | None:
    """Tokenise prompt and response, ended by exactly one EOS; None where no response is left."""
    if row.chat:
        prompt = token_ids(tokenizer, row.prompt)
        response = tokenizer(row.response, add_special_tokens=False)["input_ids"]
    else:
        candidates = prepare_candidates(tokenizer, [row.prompt], [[row.response]], separator)[0]
        prompt, response = token_ids(tokenizer, candidates.prompt), candidates.tokens[0]
        if end and tokenizer.eos_token_id is not None and response[-1] != tokenizer.eos_token_id:
            response = [*response, tokenizer.eos_token_id]
    ids = [*prompt, *response][:max_length]
    if len(ids) <= len(prompt) or not prompt:
        return None
    return EncodedInstruction(ids, len(prompt), row.language, row.id)


class InstructionData:
    """Encoded instructions; ``batches`` draws from them for ever.

    Parameters
    ----------
    rows : sequence of EncodedInstruction
        At least one.
    """

    def __init__(self, rows: Sequence[EncodedInstruction]) -> None:
        self.rows = list(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> EncodedInstruction:
        return self.rows[index]

    def batches(self, size: int, seed: int) -> Iterator[list[int]]:
        """Yield batches of rows, in an order of the seed's; each pass takes every row once."""
        return _full_batches(len(self), size, seed)

    def batches_of_items(self, size: int, seed: int) -> Iterator[list[int]]:
        """Yield batches that hold the translations of an item together.

        An item with more than ``size`` rows keeps its English one and as many others as fit.
        """
        items: dict[str, list[int]] = {}
        for index, row in enumerate(self.rows):
            items.setdefault(row.id, []).append(index)
        generator = random.Random(seed)
        batch: list[int] = []
        while True:
            for item in generator.sample(sorted(items), len(items)):
                rows = generator.sample(items[item], len(items[item]))
                rows.sort(key=lambda index: self.rows[index].language != ENGLISH)
                rows = rows[:size]
                if batch and len(batch) + len(rows) > size:
                    yield batch
                    batch = []
                batch = batch + rows


@dataclass(frozen=True)
class EncodedComparison:
    """The responses of each side in turn, with the reference's log-probabilities.

    Parameters
    ----------
    id : str
        Of the question.
    languages : tuple of str
        One for each side.
    rows : tuple of EncodedInstruction
        The responses of the first side, then of the second, in the same order.
    reference : tuple of float
        Sums over the response tokens of each row, in nats.
    """

    id: str
    languages: tuple[str, ...]
    rows: tuple[EncodedInstruction, ...]
    reference: tuple[float, ...]


class ComparisonData:
    """Encoded comparisons; ``batches`` draws from them for ever.

    Parameters
    ----------
    rows : sequence of EncodedComparison
        At least one.
    """

    def __init__(self, rows: Sequence[EncodedComparison]) -> None:
        self.rows = list(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> EncodedComparison:
        return self.rows[index]

    def batches(self, size: int, seed: int) -> Iterator[list[int]]:
        """Yield batches of rows, in an order of the seed's; each pass takes every row once."""
        return _full_batches(len(self), size, seed)


class ParallelData:
    """Pairs of an English sentence and its translation into each other language.

    Parameters
    ----------
    corpus : ParallelCorpus
        English and at least one more language.
    """

    def __init__(self, corpus: ParallelCorpus) -> None:
        if ENGLISH not in corpus or len(corpus.languages) < 2:
            raise CarotError(
                f"{corpus.name}: languages {', '.join(corpus.languages)}; expected English and at "
                "least one more to align"
            )
        self.corpus = corpus
        self.languages = [language for language in corpus.languages if language != ENGLISH]

    def __len__(self) -> int:
        return len(self.corpus) * len(self.languages)

    def __getitem__(self, index: int) -> tuple[int, str, str]:
        """Return the number of the sentence, its English and its translation."""
        sentence, language = divmod(index, len(self.languages))
        return (
            sentence,
            self.corpus[ENGLISH][sentence],
            self.corpus[self.languages[language]][sentence],
        )

    def batches(self, size: int, seed: int) -> Iterator[list[int]]:
        """Yield batches of pairs, in an order of the seed's; each pass takes every pair once."""
        return _full_batches(len(self), size, seed)


def _full_batches(count: int, size: int, seed: int) -> Iterator[list[int]]:
    generator = random.Random(seed)
    waiting: list[int] = []
    while True:
        waiting += generator.sample(range(count), count)
        while len(waiting) >= size:
            yield waiting[:size]
            waiting = waiting[size:]
