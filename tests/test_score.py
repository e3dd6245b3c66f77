"""Scores of candidates: equal to a slow loop, whatever the batch."""

from __future__ import annotations

import pytest
import torch
from helpers import ENGLISH, PROMPTS, every_architecture, steered
from tiny import tiny_tokenizer

from carot import CarotError
from carot.models.scoring import default_separator, prepare_candidates

CANDIDATES = [
    ["la noche", "el día", "x"],
    ["blanco"],
    ["mañana temprano en punto", "tarde"],
    ["del pozo", "del mar", "de la lluvia fría", "a"],
]


@torch.no_grad()
def slow_scores(name: str, english: bool) -> list[list[float]]:
    """One forward pass a candidate, over prompt and candidate together."""
    model, tokenizer = steered(name, "torch"), tiny_tokenizer()
    scores = []
    for prompt, source, texts in zip(PROMPTS, ENGLISH, CANDIDATES, strict=True):
        prefix = tokenizer(prompt)["input_ids"]
        row = []
        for text in texts:
            ids = prefix + tokenizer(" " + text, add_special_tokens=False)["input_ids"]
            span = [(0, len(prompt))] if english else None
            batch = model._steerer.encode([prompt], span or [None], ["prompt"])
            states = model._steerer.read_english([source if english else None], [None])
            whole = torch.tensor([ids])
            logits = model._steerer.run(
                batch, states, lambda whole=whole: model.model(input_ids=whole).logits
            )
            log_probs = logits[0].log_softmax(-1)
            targets = ids[len(prefix) :]
            positions = range(len(prefix) - 1, len(ids) - 1)
            values = [float(log_probs[p, t]) for p, t in zip(positions, targets, strict=True)]
            row.append(sum(values) / len(values))
        scores.append(row)
    return scores


def close(a: list[list[float]], b: list[list[float]], tolerance: float = 1e-3) -> bool:
    return all(
        len(x) == len(y) and torch.allclose(torch.tensor(x), torch.tensor(y), atol=tolerance)
        for x, y in zip(a, b, strict=True)
    )


@every_architecture
@pytest.mark.parametrize("english", [True, False], ids=["steered", "unsteered"])
def test_scores_equal_a_slow_loop(name: str, english: bool) -> None:
    actual = steered(name).score(PROMPTS, CANDIDATES, ENGLISH if english else None)
    assert close(actual, slow_scores(name, english))


@every_architecture
def test_scores_do_not_depend_on_the_batch_size(name: str) -> None:
    model = steered(name)
    one, three = (model.score(PROMPTS, CANDIDATES, ENGLISH, batch_size=size) for size in (1, 3))
    assert close(one, three)


def test_both_backends_score_the_same() -> None:
    by_nnsight, by_torch = (
        steered("gemma3", hooks).score(PROMPTS, CANDIDATES, ENGLISH)
        for hooks in ("nnsight", "torch")
    )
    assert by_nnsight == by_torch


def test_a_small_logit_budget_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = steered("llama").score(PROMPTS, CANDIDATES, ENGLISH)
    monkeypatch.setattr("carot.models.scoring.LOGIT_BUDGET", 1000)
    assert close(steered("llama").score(PROMPTS, CANDIDATES, ENGLISH), expected, 1e-4)


def test_the_sum_is_the_mean_times_the_tokens() -> None:
    model = steered("llama")
    rows = prepare_candidates(tiny_tokenizer(), PROMPTS, CANDIDATES, None)
    means = model.score(PROMPTS, CANDIDATES, ENGLISH)
    sums = model.score(PROMPTS, CANDIDATES, ENGLISH, reduction="sum")
    for mean, total, row in zip(means, sums, rows, strict=True):
        for x, y, ids in zip(mean, total, row.tokens, strict=True):
            assert y == pytest.approx(x * len(ids))


def test_one_list_of_candidates_serves_all_prompts() -> None:
    model = steered("llama")
    shared = model.score(PROMPTS, ["uno", "dos"], ENGLISH)
    assert shared == model.score(PROMPTS, [["uno", "dos"]] * 4, ENGLISH)


def test_white_space_at_the_end_of_a_prompt_belongs_to_the_candidate() -> None:
    model = steered("llama")
    assert model.score(["El tren "], ["sale"]) == model.score(["El tren"], ["sale"])
    assert model.score(["El tren"], ["sale"], separator="") != model.score(["El tren"], ["sale"])


@pytest.mark.parametrize(
    ("prompt", "separator"),
    [
        ("is", " "),
        ("is ", ""),
        ("フランスの首都は", ""),
        ("法国的首都是", ""),
        ("수도는", " "),
        ("答案是：", ""),
        ("です。", ""),
        ("เมือง", ""),
    ],
)
def test_scripts_without_spaces_get_none(prompt: str, separator: str) -> None:
    assert default_separator(prompt) == separator


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ([["uno"]], "1 lists of candidates for 4 prompts"),
        ([["uno"], [], ["dos"], ["tres"]], "prompt 1 has candidates"),
        ([["uno"], ["  "], ["dos"], ["tres"]], "prompt 1: candidate '  ' is empty"),
        ([["uno"], "dos", ["dos"], ["tres"]], "prompt 1 has candidates 'dos'"),
    ],
)
def test_bad_candidates_are_named(candidates: list[list[str]], message: str) -> None:
    with pytest.raises(CarotError, match=message):
        steered("llama").score(PROMPTS, candidates)


def test_an_unknown_reduction_is_refused() -> None:
    with pytest.raises(CarotError, match="reduction='max'"):
        steered("llama").score(PROMPTS, CANDIDATES, reduction="max")  # type: ignore[arg-type]
