"""Preferences across languages: DCO, DPO, CALM, their data and their reference."""

from __future__ import annotations

import copy
import json
import math
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import aligner_of, every_architecture, refusal
from peft import LoraConfig, get_peft_model
from tiny import corpus, tiny_model, tiny_tokenizer
from torch import Tensor

from carot.evaluation.questions import draw_questions
from carot.evaluation.runner import evaluate
from carot.evaluation.tasks import get_task
from carot.models.anatomy import dissect
from carot.training import Recipe, train
from carot.training.collate import Collator
from carot.training.data import (
    EncodedComparison,
    EncodedInstruction,
    Instruction,
    encode_instruction,
)
from carot.training.gammas import gamma_table, gammas_of_weights
from carot.training.objectives import Dco, Dpo
from carot.training.objectives.preferences import changes, dco_loss, response_log_probs
from carot.training.preferences import (
    Choice,
    calm_comparisons,
    dco_comparisons,
    gold_comparisons,
    read_items,
)
from carot.training.reference import Reference, weights_fingerprint

LANGUAGES = ["en", "es", "ru"]
ITEMS = {
    str(n): {
        language: Choice(
            f"{language} question {n} is", tuple(f"{word}{n}" for word in "abcd"), n % 4
        )
        for language in LANGUAGES
    }
    for n in range(12)
}


# The optimum, on models whose distribution is a table


def product_of_experts(first: Tensor, second: Tensor, weight: float) -> Tensor:
    """``pi_1 ~ ref_1 ref_2^(gamma_1 / beta)`` (Lemma 1)."""
    return (first + weight * second).log_softmax(-1)


def trained_tables(beta: float, gammas: tuple[float, float], steps: int = 4000) -> tuple[Any, Any]:
    """Tables of log-probabilities in two languages before and after DCO on all pairs."""
    generator = torch.Generator().manual_seed(0)
    reference = (2 * torch.randn(2, 5, generator=generator, dtype=torch.float64)).log_softmax(-1)
    logits = reference.clone().requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    pairs = torch.tensor(list(combinations(range(5), 2)))
    gamma = torch.tensor([gammas] * len(pairs), dtype=torch.float64)
    for _ in range(steps):
        policy = logits.log_softmax(-1)
        offset = (reference[:, pairs[:, 0]] - reference[:, pairs[:, 1]]).T
        change = (policy[:, pairs[:, 0]] - policy[:, pairs[:, 1]]).T - offset
        loss = dco_loss(change, offset, beta, gamma, "absolute").mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return reference, logits.detach().log_softmax(-1)


@pytest.mark.parametrize(
    ("beta", "gammas"), [(1.0, (1.0, 1.0)), (1.0, (0.5, 2.0)), (2.0, (4.0, 1.0))]
)
def test_dco_converges_to_the_product_of_experts(beta: float, gammas: tuple[float, float]) -> None:
    reference, policy = trained_tables(beta, gammas)
    for here, gamma in enumerate(gammas):
        expected = product_of_experts(reference[here], reference[1 - here], gamma / beta)
        assert torch.allclose(policy[here], expected, atol=0.02)
    assert policy[0].argsort().tolist() == policy[1].argsort().tolist()
    assert reference[0].argsort().tolist() != reference[1].argsort().tolist()


def test_without_the_constraint_rankings_need_not_agree() -> None:
    _, policy = trained_tables(1.0, (0.2, 0.2))
    assert policy[0].argsort().tolist() != policy[1].argsort().tolist()


# Losses


def test_dco_by_hand() -> None:
    change = torch.tensor([[0.5, -1.0], [0.0, 2.0]])
    offset = torch.tensor([[1.0, 3.0], [-1.0, 0.5]])
    gamma = torch.tensor([[2.0, 0.5], [2.0, 0.5]])
    # Row 1: |0.5 - 2 * 3| + |-1 - 0.5 * 1| = 7; row 2: |0 - 2 * 0.5| + |2 + 0.5 * 1| = 3.5.
    assert dco_loss(change, offset, 1.0, gamma, "absolute").tolist() == pytest.approx([7, 3.5])
    squares = [5.5**2 + 1.5**2, 1.0 + 2.5**2]
    assert dco_loss(change, offset, 1.0, gamma, "squared").tolist() == pytest.approx(squares)


def test_swapping_languages_with_their_gammas_changes_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    change, offset, gamma = torch.randn(3, 6, 2, generator=generator)
    there = dco_loss(change, offset, 1.5, gamma, "absolute")
    swapped = dco_loss(change.flip(-1), offset.flip(-1), 1.5, gamma.flip(-1), "absolute")
    assert torch.allclose(there, swapped)
    # Winner and loser swapped: both D and off change their sign.
    assert torch.allclose(dco_loss(-change, -offset, 1.5, gamma, "absolute"), there)


def encoded(sides: int, count: int = 3, candidates: int = 2) -> list[EncodedComparison]:
    tokenizer = tiny_tokenizer()
    rows = []
    comparisons = gold_comparisons(ITEMS, seed=1)
    if sides == 2:
        comparisons = dco_comparisons(ITEMS, candidates=candidates, seed=1)
    for number, row in enumerate(comparisons[:count]):
        made = [
            encode_instruction(
                tokenizer,
                Instruction(
                    side.prompt + " it" * number, text * (1 + number), side.language, row.id
                ),
                separator=None,
                end=False,
                max_length=64,
            )
            for side in row.sides
            for text in side.responses
        ]
        languages = tuple(side.language for side in row.sides)
        values = tuple(-3.0 - 0.3 * n for n in range(len(made)))
        rows.append(EncodedComparison(row.id, languages, tuple(made), values))  # type: ignore[arg-type]
    return rows


def collated(rows: list[EncodedComparison]) -> Any:
    return Collator(tiny_tokenizer(), 64).comparisons(rows)


GAMMAS = gamma_table(LANGUAGES, 1.0, gammas_of_weights({"en": 2.0, "es": 1.0, "ru": 0.5}))


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_response_log_probs_are_those_of_a_plain_forward(reduction: Any) -> None:
    anatomy, batch = dissect(tiny_model("llama")), collated(encoded(2))
    with torch.no_grad():
        found = response_log_probs(anatomy, batch, reduction)
        rows = [row for comparison in encoded(2) for row in comparison.rows]
        for row, value in zip(rows, found.tolist(), strict=True):
            logits = anatomy.model(torch.tensor([row.ids])).logits[0].log_softmax(-1)
            tokens = [
                float(logits[place - 1, row.ids[place]])
                for place in range(row.response_start, len(row.ids))
            ]
            expected = sum(tokens) / (len(tokens) if reduction == "mean" else 1)
            assert value == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("objective", "rows"),
    [
        (Dco(1.0, GAMMAS), encoded(2)),
        (Dco(1.0, GAMMAS), [*encoded(2, 1), *encoded(2, 2, candidates=4)]),
        (Dpo(), encoded(1)),
    ],
    ids=["dco", "dco with 2 and 4 candidates", "dpo"],
)
def test_a_loss_is_the_mean_over_its_rows_whatever_their_padding(objective: Any, rows: Any) -> None:
    anatomy = dissect(tiny_model("llama"))
    with torch.no_grad():
        together = float(objective.loss(anatomy, collated(rows)))
        alone = [float(objective.loss(anatomy, collated([row]))) for row in rows]
    assert together == pytest.approx(sum(alone) / len(alone), rel=1e-4)


def loss_and_gradients(name: str, batch: Any, *, checkpointing: bool = False) -> Any:
    anatomy = dissect(copy.deepcopy(tiny_model(name)))
    if checkpointing:
        anatomy.model.train().gradient_checkpointing_enable({"use_reentrant": False})
    loss = Dco(1.0, GAMMAS).loss(anatomy, batch)
    loss.backward()
    named = anatomy.model.named_parameters()
    return loss.detach(), {key: one.grad for key, one in named if one.grad is not None}


@every_architecture
def test_a_prompt_that_runs_once_for_its_responses_changes_nothing(name: str) -> None:
    batch = collated([*encoded(2, 1), *encoded(2, 2, candidates=4)])
    assert batch["shared"]["prompt_mask"].sum(-1).unique().numel() > 1
    loss, expected = loss_and_gradients(name, {**batch, "shared": {}})
    shared, found = loss_and_gradients(name, batch)
    assert float(shared) == pytest.approx(float(loss), rel=1e-5)
    assert found.keys() == expected.keys()
    for key, gradient in expected.items():
        size = float(gradient.abs().max())
        assert torch.allclose(found[key], gradient, rtol=1e-3, atol=1e-4 * size + 1e-9), key


def test_with_gradient_checkpointing_prompts_run_with_each_response() -> None:
    batch = collated(encoded(2, candidates=4))
    loss, expected = loss_and_gradients("llama", batch)
    again, found = loss_and_gradients("llama", batch, checkpointing=True)
    assert float(again) == pytest.approx(float(loss), rel=1e-5)
    for key, gradient in expected.items():
        assert torch.allclose(found[key], gradient, rtol=1e-3, atol=1e-5), key


def test_prompts_are_shared_where_that_saves_enough() -> None:
    def rows(prompt: int, response: int) -> list[EncodedInstruction]:
        ids = list(range(3, 3 + prompt))
        return [
            EncodedInstruction([*ids, *[100 + row] * response], prompt, "en", "0")
            for row in range(30)
        ]

    collator = Collator(tiny_tokenizer(), 64)
    made = collator.shared(rows(10, 2))
    assert made["prompt_ids"].shape == (1, 10)
    assert made["owners"].tolist() == [0] * 30
    assert made["response_ids"].tolist() == [[100 + row] * 2 for row in range(30)]
    assert collator.shared(rows(2, 20)) == {}
    one = collator.shared(rows(10, 1))
    batch = {**collator.instructions(rows(10, 1)), "shared": one}
    anatomy = dissect(tiny_model("llama"))
    with torch.no_grad():
        found, alone = (
            response_log_probs(anatomy, given) for given in (batch, {**batch, "shared": {}})
        )
    assert torch.allclose(found, alone, atol=1e-5)


def test_gammas_go_with_their_languages() -> None:
    anatomy, rows = dissect(tiny_model("llama")), encoded(2)
    batch = collated(rows)
    with torch.no_grad():
        change, offset = changes(anatomy, batch, "sum")
        expected = sum(
            abs(float(change[row, side]) - GAMMAS[here, there] * float(offset[row, 1 - side]))
            for row, comparison in enumerate(rows)
            for side, (here, there) in enumerate([comparison.languages, comparison.languages[::-1]])
        ) / len(rows)
        assert float(Dco(1.0, GAMMAS).loss(anatomy, batch)) == pytest.approx(expected, rel=1e-5)


def test_every_two_candidates_of_a_question_are_compared() -> None:
    anatomy, [comparison] = dissect(tiny_model("llama")), encoded(2, 1, candidates=4)
    here, there = comparison.languages
    with torch.no_grad():
        sums = response_log_probs(anatomy, collated([comparison])).reshape(2, 4)
        found = float(Dco(1.5, GAMMAS).loss(anatomy, collated([comparison])))
    reference = torch.tensor(comparison.reference).reshape(2, 4)
    terms = []
    for winner, loser in combinations(range(4), 2):
        offset = reference[:, winner] - reference[:, loser]
        change = sums[:, winner] - sums[:, loser] - offset
        terms.append(abs(1.5 * change[0] - GAMMAS[here, there] * offset[1]))
        terms[-1] += abs(1.5 * change[1] - GAMMAS[there, here] * offset[0])
    assert found == pytest.approx(float(sum(terms)) / 6, rel=1e-5)


def test_dpo_is_trl_s_loss(tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    tokenizer = tiny_tokenizer()
    reference, policy = copy.deepcopy(tiny_model("llama")), copy.deepcopy(tiny_model("llama"))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(
                0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
            )
    rows = [("The moon", " is bright", " is a cold stone"), ("Bread is", " good", " bad today")]
    data = Dataset.from_list(
        [dict(zip(("prompt", "chosen", "rejected"), r, strict=True)) for r in rows]
    )
    arguments = DPOConfig(
        str(tmp_path),
        beta=0.3,
        use_cpu=True,
        report_to="none",
        per_device_train_batch_size=2,
        bf16=False,
    )
    trainer = DPOTrainer(
        policy, reference, arguments, train_dataset=data, processing_class=tokenizer
    )
    batch = next(iter(trainer.get_train_dataloader()))
    theirs = float(trainer.compute_loss(trainer.model, batch).detach())
    encoded_rows = []
    for number, (prompt, *answers) in enumerate(rows):
        start = [1, *tokenizer(prompt, add_special_tokens=False)["input_ids"]]
        made = [
            [*start, *tokenizer(text, add_special_tokens=False)["input_ids"], 2] for text in answers
        ]
        encoded_rows.append((str(number), len(start), made))
    comparisons = []
    for key, start, made in encoded_rows:
        sides = tuple(EncodedInstruction(ids, start, "en", key) for ids in made)
        batch_here = Collator(tokenizer, 64).instructions(list(sides))
        with torch.no_grad():
            sums = response_log_probs(dissect(reference), batch_here)
        comparisons.append(EncodedComparison(key, ("en",), sides, tuple(sums.tolist())))
    with torch.no_grad():
        mine = float(Dpo(0.3).loss(dissect(policy), collated(comparisons)))
    assert mine == pytest.approx(theirs, abs=1e-5)
    assert abs(mine - math.log(2)) > 1e-3  # the policy is not the reference


# Gammas


def test_gammas_by_language_and_pair() -> None:
    assert gamma_table(["en", "es"], 1.0, {}) == {("en", "es"): 1.0, ("es", "en"): 1.0}
    assert gamma_table(["en", "es"], 2.0, {"en": 1.0, "es-en": 4.0})["es", "en"] == 4.0
    table = gamma_table(LANGUAGES, 3.0, gammas_of_weights({"en": 5.0, "es": 1.0, "ru": 0.3}, 3.0))
    for i, j in combinations(LANGUAGES, 2):
        assert table[i, j] * table[j, i] == pytest.approx(9.0)


@pytest.mark.parametrize(
    ("gamma", "message"),
    [
        ({"en": 0.5}, "gamma en-es * gamma es-en is 0.5; expected beta^2 = 1"),
        ({"fr": 1.0}, "gamma 'fr': expected a language or an ordered pair of en, es"),
        ({"en": 0.0}, "gamma 'en' is 0.0; expected a number above 0"),
    ],
)
def test_a_table_that_does_not_hold_is_refused(gamma: Any, message: str) -> None:
    assert message in refusal(gamma_table, ["en", "es"], 1.0, gamma)


def test_an_inconsistent_table_is_taken_where_it_is_asked_for() -> None:
    table = gamma_table(["en", "es"], 1.0, {"en": 0.5}, allow_inconsistent=True)
    assert table == {("en", "es"): 0.5, ("es", "en"): 1.0}
    assert "weight of 'en' is 0" in refusal(gammas_of_weights, {"en": 0, "es": 1})


# Data


def test_both_languages_have_the_same_two_candidates() -> None:
    rows = dco_comparisons(ITEMS, pairs="all", seed=3)
    assert len(rows) == 3 * len(ITEMS)
    for row in rows:
        (first, second) = row.sides
        assert first.responses == second.responses
        assert len(set(first.responses)) == 2
        assert first.prompt == f"{first.language} question {row.id} is"
    drawn = dco_comparisons(ITEMS, seed=3)
    assert len(drawn) == len(ITEMS)
    assert len({tuple(sorted(side.language for side in row.sides)) for row in drawn}) == 3
    assert drawn == dco_comparisons(ITEMS, seed=3)
    assert drawn != dco_comparisons(ITEMS, seed=4)


@pytest.mark.parametrize(("asked", "drawn"), [(3, 3), (9, 4)])
def test_as_many_candidates_are_drawn_as_there_are(asked: int, drawn: int) -> None:
    for row in dco_comparisons(ITEMS, candidates=asked):
        first, second = row.sides
        assert first.responses == second.responses
        assert len(set(first.responses)) == drawn


def test_the_right_answer_wins_in_each_language() -> None:
    rows = gold_comparisons(ITEMS)
    assert len(rows) == 3 * len(ITEMS)
    for row in rows:
        (side,) = row.sides
        assert side.responses[0] == ITEMS[row.id][side.language].candidates[int(row.id) % 4]
        assert len(set(side.responses)) == 2


def test_the_answer_of_most_languages_wins_and_ties_are_counted() -> None:
    answers = {key: {"en": 2, "es": 2, "ru": 0} for key in ITEMS}
    answers["3"] = {"en": 0, "es": 1, "ru": 2}
    vote = calm_comparisons(ITEMS, answers)
    assert vote.ties == 1
    assert Counter(row.id for row in vote.comparisons) == dict.fromkeys(set(ITEMS) - {"3"}, 3)
    assert all(row.sides[0].responses[0] == f"c{row.id}" for row in vote.comparisons)
    two = {
        key: {language: item[language] for language in ("en", "es")} for key, item in ITEMS.items()
    }
    assert "expected three or more" in refusal(calm_comparisons, two, answers)


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_items_are_joined_on_their_ids(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "language": "es", "prompt": "p", "candidates": ["a", "b"], "gold": 1},
        {"id": 2, "language": "es", "prompt": "q", "chosen": "c", "rejected": "d"},
        {"id": 2, "language": "en", "prompt": "r", "chosen": "e", "rejected": "f"},
        {"id": 1, "language": "en", "prompt": "s", "candidates": ["g", "h"], "gold": 1},
        {"id": 3, "language": "en", "prompt": "alone", "chosen": "e", "rejected": "f"},
    ]
    items = read_items(write(tmp_path / "a.jsonl", rows), ["en", "es"])
    assert set(items) == {"1", "2"}
    assert items["1"]["es"] == Choice("p", ("a", "b"), 1)
    assert items["2"]["en"] == Choice("r", ("e", "f"), 0)
    assert set(read_items(tmp_path / "a.jsonl", ["en", "es"], 1)) == {"1"}


def test_the_published_six_fields_are_read(tmp_path: Path) -> None:
    row = {f"{key}_{n}": f"{key}{n}" for key in ("prompt", "chosen", "rejected") for n in (1, 2)}
    items = read_items(write(tmp_path / "a.jsonl", [row]), ["en", "es"])
    assert items == {
        "1": {
            "en": Choice("prompt1", ("chosen1", "rejected1"), 0),
            "es": Choice("prompt2", ("chosen2", "rejected2"), 0),
        }
    }


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"language": "en", "prompt": "p"}], "row 1: no 'id'"),
        ([{"id": 1, "language": "en", "prompt": " "}], "row 1: the prompt is ' '"),
        (
            [{"id": 1, "language": "en", "prompt": "p", "candidates": ["a", "a"]}],
            "two or more different candidates",
        ),
        ([{"id": 1, "language": "en", "prompt": "p", "chosen": "a"}], "different candidates"),
        (
            [{"id": 1, "language": "en", "prompt": "p", "candidates": ["a", "b"], "gold": 2}],
            "gold is 2; expected a position of 2",
        ),
        (
            [{"id": 1, "language": "en", "prompt": "p", "chosen": "a", "rejected": "b"}] * 2,
            "1 stands twice in en",
        ),
        (
            [{"id": 1, "language": "en", "prompt": "p", "chosen": "a", "rejected": "b"}],
            "no question is in all of en, es",
        ),
        (
            [
                {"id": 1, "language": "en", "prompt": "p", "candidates": ["a", "b"], "gold": 0},
                {"id": 1, "language": "es", "prompt": "p", "candidates": ["a", "b"], "gold": 1},
            ],
            "languages differ in their candidates or in the right one",
        ),
    ],
)
def test_bad_rows_are_refused(tmp_path: Path, rows: Any, message: str) -> None:
    assert message in refusal(read_items, write(tmp_path / "a.jsonl", rows), ["en", "es"])


def test_a_ranking_task_gives_items() -> None:
    items = read_items("task:demo", ["en", "es"])
    assert len(items) > 100
    choice = items["capital-AZ"]["es"]
    assert choice.prompt == "La capital de Azerbaiyán es"
    assert choice.gold is not None
    assert choice.candidates[choice.gold] == "Bakú"


def test_questions_that_are_held_out_are_those_that_skip_asks() -> None:
    task, parts = get_task("demo"), (tiny_model("llama"), tiny_tokenizer())
    drawn = draw_questions(task, ["es"], 30).ids
    assert list(read_items("task:demo", ["en", "es"], 10)) == drawn[:10]
    results = evaluate(*parts, None, task, ["es"], methods=["none"], skip=10, limit=20)
    assert {row["id"] for row in results["predictions"]} == set(drawn[10:])


# The reference


def test_the_reference_is_computed_once_and_is_the_model_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from carot.training import reference as module

    anatomy, collator = dissect(copy.deepcopy(tiny_model("llama"))), Collator(tiny_tokenizer(), 64)
    rows = [row for comparison in encoded(2) for row in comparison.rows]
    path = tmp_path / "reference.json"
    first = Reference(anatomy, path).of(rows, collator, batch_size=5)
    with torch.no_grad():
        expected = response_log_probs(anatomy, collator.instructions(rows)).tolist()
    assert first == pytest.approx(expected, abs=1e-4)
    monkeypatch.setattr(module, "response_log_probs", None)  # nothing is computed again
    assert Reference(anatomy, path).of(rows[::-1], collator) == first[::-1]
    adapted = get_peft_model(copy.deepcopy(tiny_model("llama")), LoraConfig(r=2))
    assert weights_fingerprint(adapted) == weights_fingerprint(tiny_model("llama"))
    next(p for name, p in adapted.named_parameters() if "lora_B" in name).data.add_(1)
    assert weights_fingerprint(adapted) != weights_fingerprint(tiny_model("llama"))
    other = dissect(copy.deepcopy(tiny_model("llama")))
    other.layers[1].mlp.up_proj.weight.data.add_(0.1)  # type: ignore[union-attr, operator]
    assert "holds log-probabilities of another model" in refusal(Reference, other, path)
    path.write_text("{}")
    assert "no reference log-probabilities in it" in refusal(Reference, anatomy, path)


# Runs


def recipe(objective: str, **changes: Any) -> Recipe:
    content: dict[str, Any] = {
        "objective": objective,
        "data": {"languages": LANGUAGES, "max_length": 64},
        "align": {"layers": [1]},
        "schedule": {"steps": 3, "kind": "sum", "fraction": 1.0},
        "lora": {"r": 4, "alpha": 8, "dropout": 0.0},
        "training": {
            "per_device_train_batch_size": 4,
            "logging_steps": 1,
            "warmup_steps": 0,
            "learning_rate": 1e-2,
            "use_cpu": True,
            "disable_tqdm": True,
        },
    }
    for section, values in changes.items():
        content[section] = {**content.get(section, {}), **values}
    return Recipe.from_dict(content)


def run(output: Path, made: Recipe, model: Any = None) -> Any:
    return train(
        model or copy.deepcopy(tiny_model("llama")),
        tiny_tokenizer(),
        made,
        output,
        items=ITEMS,
        corpus=corpus(),
        aligner=aligner_of("llama"),
    )


def losses(output: Path, name: str) -> list[float]:
    history = json.loads((output / "trainer_state.json").read_text())["log_history"]
    return [row[f"loss_{name}"] for row in history if f"loss_{name}" in row]


@pytest.mark.parametrize("objective", ["dco", "dpo", "calm", "sft_gold", "dco+dpo", "carot+dco"])
def test_every_preference_objective_trains(tmp_path: Path, objective: str) -> None:
    if objective == "calm":
        with pytest.warns(UserWarning, match="no answer has most votes"):
            run(tmp_path / "out", recipe(objective))
    else:
        run(tmp_path / "out", recipe(objective))
    for name in objective.split("+"):
        assert len(losses(tmp_path / "out", name)) == 3
    assert (tmp_path / "out" / "reference.json").is_file() == (objective != "sft_gold")


def test_dco_and_carot_alternate(tmp_path: Path) -> None:
    run(tmp_path / "out", recipe("dco+carot", schedule={"kind": "alternate", "fraction": 1.0}))
    history = json.loads((tmp_path / "out" / "trainer_state.json").read_text())["log_history"]
    kinds = [key for row in history for key in row if key.startswith("loss_")]
    assert kinds == ["loss_dco", "loss_carot"] * 3


def test_at_the_start_dpo_is_log_2_and_dco_the_offsets(tmp_path: Path) -> None:
    run(tmp_path / "out", recipe("dpo"))
    assert losses(tmp_path / "out", "dpo")[0] == pytest.approx(math.log(2), abs=1e-4)


@pytest.mark.parametrize("lora", [{"r": 4}, None])
def test_dco_makes_preferences_agree(tmp_path: Path, lora: Any) -> None:
    content = recipe("dco", schedule={"steps": 60}).model_dump()
    made = Recipe.from_dict({**content, "lora": lora})
    run(tmp_path / "out", made)
    found = losses(tmp_path / "out", "dco")
    assert sum(found[-6:]) < 0.5 * sum(found[:6])


@pytest.mark.parametrize(
    ("objective", "changes", "message"),
    [
        ("dpo+calm", {}, "one of those on the same data"),
        ("dco", {"preferences": {"gamma": {"en": 0.5}}}, "expected beta^2 = 1"),
        ("dco", {"data": {"max_length": 2}}, "no comparison has its responses within"),
    ],
)
def test_recipes_that_do_not_fit_are_refused(
    tmp_path: Path, objective: str, changes: Any, message: str
) -> None:
    assert message in refusal(run, tmp_path / "out", recipe(objective, **changes))


def test_preferences_that_are_not_named_are_refused(tmp_path: Path) -> None:
    model = copy.deepcopy(tiny_model("llama"))
    made = recipe("dco")
    message = refusal(train, model, tiny_tokenizer(), made, tmp_path / "out")
    assert "needs data.preferences and data.languages" in message
