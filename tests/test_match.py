"""Match quality: a translation is told from another text."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from helpers import (
    ENGLISH,
    LAYER,
    PROMPTS,
    aligner_of,
    both_backends,
    logits,
    refusal,
    steered,
)
from tiny import corpus, tiny_model, tiny_tokenizer

import carot
from carot.alignment import Aligner, Guard, match_quality
from carot.alignment.match import LEAST_PAIRS


def states(seed: int, tokens: int, batch: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.ones(batch, tokens, dtype=torch.bool)
    mask[0, 0] = False
    return torch.randn(batch, tokens, 32, generator=generator), mask


def test_match_is_the_geometric_mean_of_best_cosines_of_both_sides() -> None:
    fitted = aligner_of("llama")[1].to("cpu", torch.float64)
    source, source_mask = states(0, 5)
    target, target_mask = states(1, 4)
    found = match_quality(fitted, source.double(), target.double(), source_mask, target_mask)
    for row in range(3):
        sides = [
            (fitted.subspace.agnostic(side[row][mask[row]].double()) - fitted.subspace.bias)
            @ fitted.whitening
            for side, mask in ((target, target_mask), (source, source_mask))
        ]
        halves = []
        for these, those in (sides, sides[::-1]):
            best = [max(torch.cosine_similarity(x, y, dim=0).item() for y in those) for x in these]
            halves.append(sum(math.log(max(value, 0.02)) for value in best) / len(best) / 2)
        assert float(found[row]) == pytest.approx(math.exp(sum(halves)))


def test_the_same_states_match_fully_and_padding_does_not_count() -> None:
    fitted = aligner_of("llama")[1]
    target, mask = states(1, 4)
    found = match_quality(fitted, target.flip(1), target, mask.flip(1), mask)
    assert found.tolist() == pytest.approx([1, 1, 1], abs=1e-5)
    padded = torch.cat([torch.full((3, 2, 32), float("nan")), target], 1)
    wide = torch.cat([torch.zeros(3, 2, dtype=torch.bool), mask], 1)
    assert match_quality(fitted, padded, target, wide, mask).tolist() == pytest.approx([1, 1, 1])


def test_a_row_without_tokens_matches_nothing() -> None:
    fitted = aligner_of("llama")[1]
    target, mask = states(1, 4)
    nothing = torch.zeros_like(mask)
    assert match_quality(fitted, target, target, nothing, mask).tolist() == [0, 0, 0]
    assert match_quality(fitted, target, target, mask, nothing).tolist() == [0, 0, 0]
    empty = target[:, :0], mask[:, :0]
    assert match_quality(fitted, empty[0], target, empty[1], mask).tolist() == [0, 0, 0]


@both_backends
@pytest.mark.parametrize("options", [{}, {"num_beams": 2}])
def test_generate_tells_how_each_row_was_steered(hooks: str, options: dict[str, int]) -> None:
    model = steered("llama", hooks)
    english = [ENGLISH[0], None, *ENGLISH[2:]]
    kwargs = {"max_new_tokens": 2, "do_sample": False, **options}
    answers, how = model.generate(PROMPTS, english, return_steering=True, **kwargs)
    assert answers == model.generate(PROMPTS, english, **kwargs)
    assert [row.steered for row in how] == [True, False, True, True]
    assert (how[1].match, how[1].interpolation) == (None, None)
    for prompt, text, row in zip(PROMPTS, english, how, strict=True):
        if text is not None:
            _, [alone] = model.generate([prompt], [text], return_steering=True, **kwargs)
            assert row.match == pytest.approx(alone.match, abs=1e-4)
            assert row.interpolation == pytest.approx(alone.interpolation, abs=1e-4)
            assert 0 < row.interpolation <= 1
    assert model.generate([], [], return_steering=True) == ([], [])


def test_a_method_without_english_has_no_match() -> None:
    model = steered("llama", intervention="lang_vec", language="es")
    _, [how] = model.generate(PROMPTS[:1], return_steering=True, max_new_tokens=1)
    assert how.steered
    assert how.match is None


@both_backends
@pytest.mark.parametrize("layers", [[LAYER], [LAYER, 2]])
def test_a_row_below_the_guard_is_as_without_english(hooks: str, layers: list[int]) -> None:
    _, how = steered("llama", hooks, layers=layers).generate(
        PROMPTS, ENGLISH, return_steering=True, max_new_tokens=1
    )
    order = sorted(range(len(PROMPTS)), key=lambda row: how[row].match)
    between = (how[order[0]].match + how[order[1]].match) / 2
    guarded = steered("llama", hooks, layers=layers, min_match=between)
    weak = order[0]
    found = logits(guarded, PROMPTS, ENGLISH)
    plain = logits(guarded, PROMPTS, [None] * len(PROMPTS))
    moved = logits(steered("llama", hooks, layers=layers), PROMPTS, ENGLISH)
    for row in range(len(PROMPTS)):
        assert torch.equal(found[:, row], (plain if row == weak else moved)[:, row])
        assert not torch.equal(moved[:, row], plain[:, row])
    _, how = guarded.generate(PROMPTS, ENGLISH, return_steering=True, max_new_tokens=1)
    assert [row.steered for row in how] == [row != weak for row in range(len(PROMPTS))]
    assert how[weak].reason == f"match {how[weak].match:.2f} below {between:.2f}"
    assert how[weak].interpolation is None


def test_calls_inside_intervene_are_guarded_too() -> None:
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    inputs = tokenizer(PROMPTS[:1], return_tensors="pt")
    plain = model(**inputs).logits
    for least, same in ((1.0, True), (0.0, False)):
        with steered("llama", min_match=least, layers=[LAYER, 2]).intervene(ENGLISH[:1]):
            for _ in range(2):  # every prefill is judged by itself
                assert torch.equal(model(**inputs).logits, plain) is same


def test_a_guard_keeps_the_share_that_is_asked_for() -> None:
    true = [("es", 0.1 * step) for step in range(1, 11)]
    wrong = [("es", match) for match in (0.05, 0.15, 0.25, 0.35)]
    guard = Guard.calibrate(true, wrong, keep=0.8)
    assert guard == Guard(pytest.approx(0.2), {}, kept=0.9, refused=0.5, pairs=10)
    assert Guard.calibrate(true, wrong, keep=1.0).kept == 1
    assert str(guard) == "0.200"
    assert "keep is 0" in refusal(Guard.calibrate, true, wrong, keep=0)
    assert "no pair" in refusal(Guard.calibrate, [], wrong)


def test_a_language_with_enough_pairs_has_a_threshold_of_its_own() -> None:
    high = [("es", 0.5 + 0.001 * step) for step in range(LEAST_PAIRS)]
    low = [("tr", 0.2 + 0.001 * step) for step in range(LEAST_PAIRS)]
    few = [("ru", 0.01)] * (LEAST_PAIRS - 1)
    guard = Guard.calibrate([*high, *low, *few], [("es", 0.4), ("tr", 0.4)], keep=0.9)
    assert guard.languages == {"es": pytest.approx(0.504), "tr": pytest.approx(0.204)}
    assert (guard.of("es"), guard.of("ru")) == (guard.languages["es"], guard.threshold)
    assert guard.threshold == 0.01
    assert (guard.refused, guard.pairs) == (0.5, 3 * LEAST_PAIRS - 1)
    assert guard.kept == pytest.approx((3 * LEAST_PAIRS - 9) / (3 * LEAST_PAIRS - 1), abs=0.01)
    assert str(guard) == "0.204 to 0.504, by language"


def test_states_say_which_language_a_prompt_is_in() -> None:
    aligner = aligner_of("llama")
    fitted = aligner[LAYER]
    for place in range(len(aligner.languages)):
        near = fitted.means[place] + 1e-3 * torch.randn(5, 32).to(fitted.means.dtype)
        assert fitted.nearest_language(near).tolist() == [place] * 5


@both_backends
def test_each_row_is_judged_by_the_threshold_of_its_language(hooks: str) -> None:
    languages = aligner_of("llama").languages
    _, how = steered("llama", hooks).generate(
        PROMPTS, ENGLISH, return_steering=True, max_new_tokens=1
    )

    def kept(refused: list[str]) -> list[bool]:
        guard = Guard(0.0, {name: float(name in refused) for name in languages})
        _, rows = steered("llama", hooks, min_match=guard).generate(
            PROMPTS, ENGLISH, return_steering=True, max_new_tokens=1
        )
        return [row.steered for row in rows]

    assert all(row.steered for row in how)
    assert not any(kept(languages))
    alone = [kept([name]) for name in languages]
    # Each prompt is near to one language, and is refused with that one only.
    assert all([*column].count(False) == 1 for column in zip(*alone, strict=True))
    texts = {name: corpus()[name][:8] for name in ("es", "ru")}
    for name, prompts in texts.items():
        guard = Guard(0.0, {name: 1.0})
        _, rows = steered("llama", hooks, min_match=guard).generate(
            list(prompts), corpus()["en"][:8], return_steering=True, max_new_tokens=1
        )
        assert sum(not row.steered for row in rows) >= 7
        assert rows[0].reason is not None
        assert rows[0].reason.endswith("below 1.00")


def test_the_guard_is_calibrated_on_fitting_kept_with_the_aligner_and_used(tmp_path: Path) -> None:
    aligner = aligner_of("llama")
    assert set(aligner.guards) == set(aligner)
    for guard in aligner.guards.values():
        assert guard.kept >= 0.95
        assert guard.pairs == len(corpus()) * (len(corpus().languages) - 1)
    aligner.save_pretrained(tmp_path)
    assert Aligner.from_pretrained(tmp_path).guards == aligner.guards
    wrapped = carot.wrap(tiny_model("llama"), tiny_tokenizer(), aligner, layers=[2, LAYER])
    assert wrapped.guard == aligner.guards[LAYER]
    parts = (tiny_model("llama"), tiny_tokenizer())
    without = carot.fit_aligner(*parts, corpus(), [LAYER], guard=False)
    assert without.guards == {}
    assert carot.wrap(tiny_model("llama"), tiny_tokenizer(), without).guard == Guard(0.0)
    assert "min_match is 2" in refusal(steered, "llama", min_match=2)


def test_a_guard_is_calibrated_anew_on_prompts_of_ones_own() -> None:
    parts = (tiny_model("llama"), tiny_tokenizer(), aligner_of("llama"))
    alone = carot.calibrate_guard(*parts, PROMPTS, ENGLISH, batch_size=2, keep=0.5)
    together = carot.calibrate_guard(*parts, PROMPTS, ENGLISH, keep=0.5)
    _, how = steered("llama").generate(PROMPTS, ENGLISH, return_steering=True, max_new_tokens=1)
    for guard in (alone.guards[LAYER], together.guards[LAYER]):
        assert guard.pairs == len(PROMPTS)
        kept = sum(row.match >= guard.threshold - 1e-4 for row in how)
        assert guard.kept == kept / len(PROMPTS)
    assert "English text 1 is None" in refusal(
        carot.calibrate_guard, *parts, PROMPTS, [ENGLISH[0], None, *ENGLISH[2:]]
    )
