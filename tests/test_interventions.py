"""The method's ablations and baselines, as pure functions of states and masks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import ENGLISH, PROMPTS, aligner_of, logits
from tiny import corpus, tiny_model, tiny_tokenizer
from torch import Tensor

import carot
from carot import CarotError, LayerAligner
from carot.alignment import LayerFitter
from carot.interventions import METHODS, Carot, LangVec, LastToken, Mlrs, make_method
from carot.interventions.last_token import last_of
from carot.interventions.mlrs import language_basis

D, LANGUAGES = 12, 3


@pytest.fixture(scope="module")
def layer() -> LayerAligner:
    generator = torch.manual_seed(0)
    labels = torch.arange(300) % LANGUAGES
    shift = 3 * torch.randn(LANGUAGES, D, generator=generator)
    x = torch.randn(300, D, generator=generator) + shift[labels]
    return LayerFitter(D, LANGUAGES).update(x, labels).fit().to("cpu", torch.float32)


@pytest.fixture
def states() -> dict[str, Tensor]:
    """Two rows; the second is left-padded on both sides, with garbage under the mask."""
    generator = torch.manual_seed(1)
    target, source = (torch.randn(2, n, D, generator=generator) for n in (5, 4))
    target_mask, source_mask = torch.ones(2, 5).bool(), torch.ones(2, 4).bool()
    target_mask[1, :2] = source_mask[1, :1] = False
    target[1, :2], source[1, :1] = 1e4, -1e4
    return {
        "source": source,
        "target": target,
        "source_mask": source_mask,
        "target_mask": target_mask,
    }


def every_step(layer: LayerAligner) -> dict[str, Any]:
    return {
        "carot": Carot(theta=1.0),
        "no_leace": make_method("no_leace", aligner_of("llama"), [1], theta=1.0)[1],
        "no_filter": make_method("no_filter", aligner_of("llama"), [1])[1],
        "last_token": LastToken(),
        "lang_vec": LangVec(0, 1, 1.5),
        "mlrs": Mlrs(0.3),
    }


every_method = pytest.mark.parametrize("name", METHODS)


@every_method
def test_tokens_outside_the_content_stay_bit_identical(
    name: str, layer: LayerAligner, states: dict[str, Tensor]
) -> None:
    moved = every_step(layer)[name](layer, **states).hidden
    outside = ~states["target_mask"]
    assert torch.equal(moved[outside], states["target"][outside])
    assert not torch.allclose(moved[0], states["target"][0])


@every_method
def test_rows_do_not_depend_on_their_neighbours_nor_on_padding(
    name: str, layer: LayerAligner, states: dict[str, Tensor]
) -> None:
    step = every_step(layer)[name]
    together = step(layer, **states).hidden[1, 2:]
    alone = step(
        layer,
        states["source"][1:, 1:],
        states["target"][1:, 2:],
        states["source_mask"][1:, 1:],
        states["target_mask"][1:, 2:],
    ).hidden[0]
    assert torch.allclose(together, alone, atol=1e-5)


@every_method
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_comes_back_as_it_came(
    name: str, dtype: torch.dtype, layer: LayerAligner, states: dict[str, Tensor]
) -> None:
    halves = {key: x.to(dtype) if x.is_floating_point() else x for key, x in states.items()}
    moved = every_step(layer)[name](layer, **halves).hidden
    assert moved.dtype == dtype
    expected = every_step(layer)[name](layer, **states).hidden
    inside = states["target_mask"]
    assert (moved.float() - expected)[inside].abs().mean() < 0.05


def test_the_last_token_takes_the_agnostic_part_of_the_last_english_token(
    layer: LayerAligner, states: dict[str, Tensor]
) -> None:
    moved = LastToken()(layer, **states).hidden
    agnostic = layer.subspace.agnostic
    for row in range(2):
        expected = (
            states["target"][row, -1]
            - agnostic(states["target"][row, -1])
            + agnostic(states["source"][row, -1])
        )
        assert torch.allclose(moved[row, -1], expected, atol=1e-4)
    assert torch.equal(moved[:, :-1], states["target"][:, :-1])


def test_the_last_of_a_mask_is_its_last_true() -> None:
    mask = torch.tensor([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]).bool()
    assert last_of(mask).int().tolist() == [[0, 0, 0, 1, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]


def test_lang_vec_adds_the_difference_of_the_means(
    layer: LayerAligner, states: dict[str, Tensor]
) -> None:
    moved = LangVec(source=2, target=0, strength=0.5)(layer, **states).hidden
    change = 0.5 * (layer.means[2] - layer.means[0])
    assert torch.allclose(moved[0], states["target"][0] + change, atol=1e-5)


def test_without_erasure_the_whole_state_is_moved(layer: LayerAligner) -> None:
    source, target = torch.randn(1, 1, D), torch.randn(1, 3, D)
    mask = torch.ones(1, 3).bool()
    step = make_method("no_leace", aligner_of("llama"), [1])[1]
    moved = step(layer, source, target, mask[:, :1], mask).hidden
    assert torch.allclose(moved, source.expand(1, 3, D), atol=1e-5)


def test_the_language_basis_spans_the_differences_of_the_means(layer: LayerAligner) -> None:
    basis = language_basis(layer.means.double())
    assert basis.shape == (D, LANGUAGES - 1)
    assert torch.allclose(basis.T @ basis, torch.eye(LANGUAGES - 1, dtype=torch.float64))
    differences = (layer.means[1:] - layer.means[0]).double()
    assert torch.allclose(differences @ basis @ basis.T, differences, atol=1e-5)


def test_mlrs_weakens_or_strengthens_the_language_subspace_alone(
    layer: LayerAligner, states: dict[str, Tensor]
) -> None:
    basis = language_basis(layer.means.double()).float()
    for strength in (0.1, -0.4):
        moved = Mlrs(strength)(layer, **states).hidden[0]
        before = states["target"][0]
        assert torch.allclose(moved @ basis, (1 - strength) * before @ basis, atol=1e-4)
        rest = torch.eye(D) - basis @ basis.T
        assert torch.allclose(moved @ rest, before @ rest, atol=1e-4)


def test_mlrs_works_in_two_groups_of_layers() -> None:
    aligner = carot.fit_aligner(
        tiny_model("llama"), tiny_tokenizer(), corpus(), layers=[0, 1, 2, 3]
    )
    method = make_method("mlrs", aligner, [], middle=0.2, last=-0.3)
    assert {layer: step.strength for layer, step in method.items()} == {2: 0.2, 3: -0.3}
    with pytest.raises(CarotError, match="mlrs works in the middle and the last third of 4 layers"):
        make_method("mlrs", aligner_of("llama"), [1])


@pytest.mark.parametrize("hooks", ["nnsight", "torch"])
def test_methods_without_a_source_steer_every_row_and_read_no_english(hooks: str) -> None:
    model = carot.wrap(
        tiny_model("llama"),
        tiny_tokenizer(),
        aligner_of("llama"),
        layer=1,
        hooks=hooks,
        intervention="lang_vec",
        language="es",
    )
    moved = logits(model, PROMPTS, None)
    assert torch.equal(moved, logits(model, PROMPTS, ENGLISH))
    plain = carot.wrap(tiny_model("llama"), tiny_tokenizer(), aligner_of("llama"), layer=1)
    assert (moved[0] - logits(plain, PROMPTS, None)[0]).abs().amax(-1).min() > 1e-3


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("magic", {}, "no intervention 'magic'; expected one of carot, no_leace"),
        ("carot", {"strength": 2}, "carot has no setting 'strength'; expected theta, epsilon"),
        ("no_filter", {"theta": 0.5}, "no_filter has no setting 'theta'"),
        ("last_token", {"theta": 0.5}, "last_token has no setting 'theta'; expected none"),
        ("lang_vec", {}, "lang_vec needs the language of the prompts"),
        ("lang_vec", {"language": "xx"}, "lang_vec needs the mean of 'xx'"),
    ],
)
def test_bad_methods_get_one_clear_line(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(CarotError, match=message):
        make_method(name, aligner_of("llama"), [1], **arguments)
