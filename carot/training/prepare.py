"""From what a recipe names to rows that are trained on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from carot.corpora import ParallelCorpus, open_corpus
from carot.errors import CarotError
from carot.models.anatomy import Anatomy
from carot.models.carot_model import CarotModel
from carot.training.collate import Collator
from carot.training.data import (
    ComparisonData,
    EncodedComparison,
    EncodedInstruction,
    Instruction,
    InstructionData,
    ParallelData,
    encode_instruction,
    read_instructions,
)
from carot.training.preferences import (
    Comparison,
    Item,
    calm_comparisons,
    dco_comparisons,
    gold_comparisons,
    read_items,
)
from carot.training.recipe import Data, Recipe
from carot.training.reference import Reference

REFERENCE_FILE = "reference.json"


def instruction_data(
    data: Data, given: Sequence[Instruction] | None, tokenizer: Any
) -> InstructionData:
    """Read and encode instructions, unless they are given."""
    if given is None:
        if data.instructions is None:
            raise CarotError("the recipe names no data.instructions; expected a file or a hub id")
        given = read_instructions(data.instructions, tokenizer, data.languages)
    return InstructionData(encoded_instructions(data, given, tokenizer))


def encoded_instructions(
    data: Data, rows: Sequence[Instruction], tokenizer: Any
) -> list[EncodedInstruction]:
    """Encode instructions; those without a response within the length are left out, aloud."""
    made = [
        encode_instruction(
            tokenizer, row, separator=data.separator, end=data.end, max_length=data.max_length
        )
        for row in rows
    ]
    kept = [row for row in made if row is not None]
    if not kept:
        raise CarotError(
            f"no instruction has a response within data.max_length {data.max_length} tokens"
        )
    if len(kept) < len(made):
        warnings.warn(
            f"{len(made) - len(kept)} of {len(made)} instructions left out: no response within "
            f"data.max_length {data.max_length} tokens",
            stacklevel=3,
        )
    return kept


def parallel_data(
    recipe: Recipe, corpus: ParallelCorpus | None
) -> tuple[ParallelCorpus | None, ParallelData]:
    """Return the held-out sentences, where they are needed, and the pairs to train on."""
    data = recipe.data
    if corpus is None:
        if data.parallel is None:
            raise CarotError(
                f"objective {recipe.objective!r} aligns states, and the recipe names no "
                "data.parallel; expected a corpus"
            )
        corpus = open_corpus(data.parallel, data.languages, data.limit)
    if not recipe.align.refit_every or not data.held_out:
        return None, ParallelData(corpus)
    rows = len(corpus) - data.held_out
    if rows < 1:
        raise CarotError(
            f"{corpus.name}: {len(corpus)} sentences, data.held_out keeps {data.held_out} of them; "
            "expected fewer"
        )
    held_out = ParallelCorpus(
        {language: corpus[language][rows:] for language in corpus.languages}, name=corpus.name
    )
    return held_out, ParallelData(corpus.select(limit=rows))


def preference_items(recipe: Recipe, given: Mapping[str, Item] | None) -> Mapping[str, Item]:
    """Read questions in several languages, unless they are given."""
    if given is not None:
        return given
    data = recipe.data
    if data.preferences is None or not data.languages:
        raise CarotError(
            f"objective {recipe.objective!r} needs data.preferences and data.languages; expected a "
            "file or task:NAME, and codes as [en, es]"
        )
    return read_items(data.preferences, data.languages, recipe.preferences.limit)


def gold_instructions(items: Mapping[str, Item]) -> list[Instruction]:
    """Return each question with its right answer, in each language (``sft_gold``)."""
    rows = []
    for comparison in gold_comparisons(items):
        (side,) = comparison.sides
        rows.append(Instruction(side.prompt, side.responses[0], side.language, comparison.id))
    return rows


def comparisons(
    name: str,
    recipe: Recipe,
    items: Mapping[str, Item],
    anatomy: Anatomy,
    tokenizer: Any,
    seed: int,
) -> list[Comparison]:
    """Make the comparisons of one objective."""
    if name == "dco":
        return dco_comparisons(
            items,
            pairs=recipe.preferences.pairs,
            candidates=recipe.preferences.candidates,
            seed=seed,
        )
    if name == "dpo":
        return gold_comparisons(items, seed=seed)
    vote = calm_comparisons(items, own_answers(items, anatomy, tokenizer), seed=seed)
    if vote.ties:
        warnings.warn(
            f"{vote.ties} of {len(items)} questions left out: no answer has most votes",
            stacklevel=3,
        )
    if not vote.comparisons:
        raise CarotError(f"no answer has most votes in any of {len(items)} questions")
    return vote.comparisons


def own_answers(
    items: Mapping[str, Item], anatomy: Anatomy, tokenizer: Any
) -> dict[str, dict[str, int]]:
    """Return the candidate that the model ranks first, for each question and language."""
    plain = CarotModel(anatomy.model, tokenizer, None, {})
    answers: dict[str, dict[str, int]] = {key: {} for key in items}
    for language in next(iter(items.values())):
        scores = plain.score(
            [item[language].prompt for item in items.values()],
            [list(item[language].candidates) for item in items.values()],
        )
        for key, row in zip(items, scores, strict=True):
            answers[key][language] = row.index(max(row))
    return answers


def comparison_data(
    recipe: Recipe,
    rows: Sequence[Comparison],
    tokenizer: Any,
    anatomy: Anatomy,
    collator: Collator,
    output: Path,
    batch_size: int,
) -> ComparisonData:
    """Encode comparisons, with the reference's log-probabilities (kept beside the run)."""
    data = recipe.data
    kept: list[tuple[Comparison, list[EncodedInstruction]]] = []
    for row in rows:
        made = [
            encode_instruction(
                tokenizer,
                Instruction(side.prompt, response, side.language, row.id),
                separator=data.separator,
                end=False,
                max_length=data.max_length,
            )
            for side in row.sides
            for response in side.responses
        ]
        whole = [entry for entry in made if entry is not None]
        if len(whole) == len(made):
            kept.append((row, whole))
    if not kept:
        raise CarotError(
            f"no comparison has its responses within data.max_length {data.max_length} tokens"
        )
    flat = [entry for _, made in kept for entry in made]
    sums = iter(
        Reference(anatomy, output / REFERENCE_FILE).of(
            flat, collator, batch_size=batch_size, progress=True
        )
    )
    return ComparisonData(
        [
            EncodedComparison(
                row.id,
                tuple(side.language for side in row.sides),
                tuple(made),
                tuple(next(sums) for _ in made),
            )
            for row, made in kept
        ]
    )
