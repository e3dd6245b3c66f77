"""Match quality: a translation is told from another text."""

from __future__ import annotations

import pytest
import torch
from helpers import ENGLISH, PROMPTS, aligner_of, both_backends, steered

from carot.alignment import match_quality


def states(seed: int, tokens: int, batch: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.ones(batch, tokens, dtype=torch.bool)
    mask[0, 0] = False
    return torch.randn(batch, tokens, 32, generator=generator), mask


def test_match_is_the_mean_best_cosine() -> None:
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
        best = [
            max(float(torch.cosine_similarity(here, there, dim=0)) for there in sides[1])
            for here in sides[0]
        ]
        assert float(found[row]) == pytest.approx(sum(best) / len(best))


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
