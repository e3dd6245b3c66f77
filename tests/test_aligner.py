"""Aligning one layer, what an aligner remembers of its model, and its files."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import helpers
import huggingface_hub
import pytest
import torch
from torch import Tensor

from carot.alignment import (
    Aligner,
    Alignment,
    LanguageSubspace,
    LayerAligner,
    LayerFitter,
    ModelIdentity,
    TransportSettings,
)
from carot.alignment.aligner import CONFIG_NAME, FORMAT_VERSION, WEIGHTS_NAME
from carot.errors import CarotError

CASES = range(8)  # 4 has one source token, 5 one target token, 6 is filtered away
THETAS = ["0.25", "0.5", "0.75", "1.0"]
BACKENDS = ["auto", "scaling", "log", "pot"]
HIDDEN = 24


def sentences(seed: int = 0, size: int = HIDDEN, languages: int = 3) -> tuple[Tensor, Tensor]:
    """400 vectors around a mean that is not 0 and shifts by language."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(400) % languages
    shifts = 2 * torch.randn(languages, size, generator=generator, dtype=torch.float64)
    noise = torch.randn(400, size, generator=generator, dtype=torch.float64)
    return noise + shifts[labels] + 1.5, labels


@cache
def layer(seed: int = 0) -> LayerAligner:
    return LayerFitter(HIDDEN, 3).update(*sentences(seed)).fit()


@pytest.fixture(scope="module")
def reference_layer(reference) -> LayerAligner:
    """The reference's own eraser and whitening, so that alignment alone is under test."""
    subspace = LanguageSubspace(reference["proj_left"], reference["proj_right"], reference["bias"])
    means = torch.stack(
        [reference["sentences"][reference["labels"] == label].mean(0) for label in range(6)]
    )
    return LayerAligner(subspace, reference["whitening"], means)


def states(*sizes: int, seed: int = 0) -> list[Tensor]:
    """Token states of one side for several pairs."""
    generator = torch.Generator().manual_seed(seed)
    return [1.5 + torch.randn(size, HIDDEN, generator=generator) for size in sizes]


def pad(sequences: list[Tensor], side: str = "right", extra: int = 0, fill: float = torch.nan):
    """(B, tokens, d) and the mask of what is not padding."""
    width = max(map(len, sequences)) + extra
    batch = torch.full((len(sequences), width, sequences[0].shape[-1]), fill)
    batch = batch.to(sequences[0].dtype)
    mask = torch.zeros(len(sequences), width, dtype=torch.bool)
    for index, sequence in enumerate(sequences):
        own = slice(len(sequence)) if side == "right" else slice(width - len(sequence), width)
        batch[index, own], mask[index, own] = sequence, True
    return batch, mask


def align(sources: list[Tensor], targets: list[Tensor], side="right", extra=0, **settings):
    """Align pairs in one padded batch, with NaN in the padding."""
    source, source_mask = pad(sources, side, extra)
    target, target_mask = pad(targets, side, extra)
    alignment = layer().align(
        source, target, source_mask=source_mask, target_mask=target_mask, **settings
    )
    return alignment, source_mask, target_mask


def assert_near(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """Relative in the norm and in the largest value; an all-zero expectation is met exactly."""
    difference = actual.double() - expected.double()
    assert difference.norm() <= tolerance * expected.double().norm()
    if expected.numel():
        assert difference.abs().max() <= tolerance * expected.double().abs().max()


def same_bits(actual: Tensor, expected: Tensor) -> bool:
    """Equality that holds for NaN too."""
    return actual.dtype == expected.dtype and torch.equal(
        actual.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8)
    )


# Against POT and concept-erasure in float64


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize("case", CASES)
def test_a_pair_alone_is_aligned_as_in_the_reference(
    reference, reference_layer, case, theta, backend
):
    alignment = reference_layer.align(
        reference[f"{case}.source"].float(),
        reference[f"{case}.target"].float(),
        theta=float(theta),
        backend=backend,
    )
    assert_near(alignment.plan, reference[f"{case}.{theta}.plan"])
    assert_near(alignment.interpolation, reference[f"{case}.{theta}.interpolation"])
    assert_near(alignment.hidden, reference[f"{case}.{theta}.aligned"])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_one_padded_batch_is_aligned_as_in_the_reference(
    reference, reference_layer, side, theta, backend
):
    source, source_mask = pad([reference[f"{case}.source"].float() for case in CASES], side)
    target, target_mask = pad([reference[f"{case}.target"].float() for case in CASES], side)
    alignment = reference_layer.align(
        source,
        target,
        source_mask=source_mask,
        target_mask=target_mask,
        theta=float(theta),
        backend=backend,
    )
    for case in CASES:
        rows, columns = target_mask[case], source_mask[case]
        plan = alignment.plan[case]
        assert_near(plan[rows][:, columns], reference[f"{case}.{theta}.plan"])
        assert (plan[~(rows[:, None] & columns)] == 0).all()
        interpolation = alignment.interpolation[case]
        assert_near(interpolation[rows], reference[f"{case}.{theta}.interpolation"])
        assert (interpolation[~rows] == 0).all()
        assert_near(alignment.hidden[case][rows], reference[f"{case}.{theta}.aligned"])


def test_a_fit_on_the_references_sentences_aligns_as_the_reference(reference):
    fitter = LayerFitter(48, 6).update(reference["sentences"], reference["labels"])
    alignment = fitter.fit().align(reference["3.source"].float(), reference["3.target"].float())
    assert_near(alignment.hidden, reference["3.0.5.aligned"])


# Shapes and dtypes


def test_the_result_has_the_shapes_of_the_target():
    source, target = torch.stack(states(6, 6)), torch.stack(states(9, 9, seed=1))
    alignment = layer().align(source, target)
    assert alignment.hidden.shape == (2, 9, HIDDEN)
    assert alignment.plan.shape == (2, 9, 6)
    assert alignment.interpolation.shape == (2, 9)


def test_a_pair_without_batch_dimension_equals_a_batch_of_one():
    (source,), (target,) = states(6), states(9, seed=1)
    source_mask, target_mask = torch.arange(6) > 1, torch.arange(9) > 2
    alone = layer().align(source, target, source_mask=source_mask, target_mask=target_mask)
    batch = layer().align(
        source[None], target[None], source_mask=source_mask[None], target_mask=target_mask[None]
    )
    for name in ("hidden", "plan", "interpolation"):
        assert torch.equal(getattr(alone, name), getattr(batch, name)[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_states_are_aligned_in_float32_and_returned_in_their_dtype(dtype):
    source, target = states(12)[0].to(dtype), states(9, seed=1)[0].to(dtype)
    alignment = layer().align(source, target)
    full = layer().align(source.float(), target.float())
    assert alignment.hidden.dtype == dtype
    assert alignment.plan.dtype == alignment.interpolation.dtype == torch.float32
    assert torch.equal(alignment.plan, full.plan)
    assert torch.equal(alignment.interpolation, full.interpolation)
    assert torch.equal(alignment.hidden, full.hidden.to(dtype))
    assert (full.interpolation > 0).any()


def test_the_sources_dtype_may_differ_from_the_targets():
    source, target = states(12)[0], states(9, seed=1)[0].bfloat16()
    assert layer().align(source, target).hidden.dtype == torch.bfloat16
    assert layer().align(source.bfloat16(), target.float()).hidden.dtype == torch.float32


def test_states_are_not_changed_in_place_and_carry_no_gradient():
    source, target = states(12)[0].requires_grad_(), states(9, seed=1)[0].requires_grad_()
    before = source.detach().clone(), target.detach().clone()
    assert not layer().align(source, target).hidden.requires_grad
    assert torch.equal(source, before[0])
    assert torch.equal(target, before[1])


# What moves, and what does not


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backend", BACKENDS)
def test_tokens_that_do_not_move_keep_their_bits(backend, dtype):
    sources, targets = states(12, 3, 8), states(9, 14, 5, seed=1)
    source, source_mask = pad([source.to(dtype) for source in sources], "left")
    target, target_mask = pad([target.to(dtype) for target in targets], "left", extra=2)
    source_mask[2] = False  # a pair whose English side has no content
    target_mask[0, -4:-2] = False  # special tokens inside the prompt
    masks = {"source_mask": source_mask, "target_mask": target_mask}
    alignment = layer().align(source, target, **masks, theta=0.35, backend=backend)
    still = alignment.interpolation == 0
    assert still[~target_mask].all()
    assert still[2].all()
    assert still[:2][target_mask[:2]].any(), "the filter should hold some tokens back"
    assert same_bits(alignment.hidden[still], target[still])
    assert alignment.hidden[still].isnan().any(), "padding with NaN should be among them"
    assert alignment.hidden[target_mask].isfinite().all()
    moved = ~still
    assert moved.any()
    assert (alignment.hidden[moved] != target[moved]).any(-1).all()


@pytest.mark.parametrize("garbage", [torch.nan, torch.inf, 1e30])
def test_what_stands_outside_the_masks_takes_no_part(garbage):
    sources, targets = states(12, 3), states(9, 14, seed=1)
    results = []
    for fill in (garbage, 0.0):
        source, source_mask = pad(sources, fill=fill)
        target, target_mask = pad(targets, fill=fill)
        alignment = layer().align(source, target, source_mask=source_mask, target_mask=target_mask)
        results.append((alignment.plan, alignment.interpolation, alignment.hidden[target_mask]))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("how", ["masked", "absent"])
def test_a_side_without_tokens_leaves_the_target_as_it_is(side, how):
    sizes = {"source": 7, "target": 5}
    if how == "absent":
        sizes[side] = 0
    source, target = states(sizes["source"])[0][None], states(sizes["target"], seed=1)[0][None]
    mask = torch.full((1, sizes[side]), how == "absent")
    alignment = layer().align(source, target, **{f"{side}_mask": mask})
    assert torch.equal(alignment.hidden, target)
    assert alignment.plan.shape == (1, sizes["target"], sizes["source"])
    assert (alignment.plan == 0).all()
    assert (alignment.interpolation == 0).all()


def test_a_batch_of_no_pairs_gives_no_pairs():
    alignment = layer().align(torch.zeros(0, 5, HIDDEN), torch.zeros(0, 4, HIDDEN))
    assert alignment.hidden.shape == (0, 4, HIDDEN)


def test_the_order_of_a_batch_does_not_matter():
    sources, targets = states(12, 3, 8, 1), states(9, 14, 5, 6, seed=1)
    order = [2, 0, 3, 1]
    straight, _, _ = align(sources, targets)
    shuffled, _, mask = align([sources[i] for i in order], [targets[i] for i in order])
    assert_near(shuffled.plan, straight.plan[order])
    assert_near(shuffled.interpolation, straight.interpolation[order])
    assert_near(shuffled.hidden[mask], straight.hidden[order][mask])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("extra", [1, 40, 200])
def test_the_amount_of_padding_does_not_matter(extra, side):
    sources, targets = states(12, 3, 8, 1), states(9, 14, 5, 6, seed=1)
    padded, _, mask = align(sources, targets, side, extra)
    for index, (source, target) in enumerate(zip(sources, targets, strict=True)):
        alone = layer().align(source, target)
        assert_near(padded.hidden[index][mask[index]], alone.hidden)
        assert_near(padded.interpolation[index][mask[index]], alone.interpolation)


@pytest.mark.parametrize("theta", [0.25, 1.0])
@pytest.mark.parametrize("single", ["source", "target", "both"])
@pytest.mark.parametrize("padded", [False, True])
def test_one_token_on_either_side_means_the_plain_mean_of_the_source(padded, single, theta):
    n = 1 if single in ("source", "both") else 7
    m = 1 if single in ("target", "both") else 5
    (source,), (target,) = states(n), states(m, seed=1)
    if padded:  # beside a longer pair
        alignment, _, mask = align([source, states(9)[0]], [target, states(8)[0]], theta=theta)
        hidden, interpolation = alignment.hidden[0][mask[0]], alignment.interpolation[0][mask[0]]
    else:
        alignment = layer().align(source, target, theta=theta)
        hidden, interpolation = alignment.hidden, alignment.interpolation
    subspace = layer().subspace.to("cpu", torch.float32)
    agnostic_source, _ = subspace.split(source)
    _, specific_target = subspace.split(target)
    torch.testing.assert_close(interpolation, torch.ones(m))
    assert_near(hidden, agnostic_source.mean(0) + specific_target)


@pytest.mark.parametrize("theta", [0.5, 1.0])
def test_moved_states_keep_their_language_specific_part(theta):
    (source,), (target,) = states(12), states(9, seed=1)
    alignment = layer().align(source.double(), target.double(), theta=theta)
    agnostic, specific = layer().subspace.split(alignment.hidden)
    old_agnostic, old_specific = layer().subspace.split(target.double())
    moved = alignment.interpolation > 0
    assert (agnostic - old_agnostic)[moved].norm(dim=-1).min() > 0.1
    assert_near(specific, old_specific, 1e-9)


def test_the_new_agnostic_part_interpolates_towards_the_transported_source():
    (source,), (target,) = states(12), states(9, seed=1)
    alignment = layer().align(source.double(), target.double(), theta=0.4)
    agnostic_source, _ = layer().subspace.split(source.double())
    agnostic_target, specific = layer().subspace.split(target.double())
    moved_some = 0
    for i in range(9):  # Eq. by hand, one token at a time
        mass = alignment.plan[i].sum()
        alpha = min(1.0, 9 * mass.item())
        assert alignment.interpolation[i].item() == pytest.approx(alpha)
        expected = agnostic_target[i]
        if mass > 0:
            moved_some += 1
            transported = (alignment.plan[i] / mass) @ agnostic_source
            expected = alpha * transported + (1 - alpha) * agnostic_target[i]
        torch.testing.assert_close(alignment.hidden[i], expected + specific[i])
    assert 0 < moved_some < 9


def test_a_target_that_equals_its_source_stays_near_itself():
    (source,) = states(10)
    alignment = layer().align(source, source)
    assert alignment.plan.argmax(-1).tolist() == list(range(10))
    assert (alignment.hidden - source).norm() < 0.1 * source.norm()


def test_a_smaller_theta_moves_fewer_tokens():
    (source,), (target,) = states(12), states(20, seed=1)
    moved = [
        int((layer().align(source, target, theta=theta).interpolation > 0).sum())
        for theta in (0.2, 0.4, 0.6, 1.0)
    ]
    assert moved == sorted(moved)
    assert moved[0] < moved[-1] == 20


# Mistakes


def test_a_wrong_hidden_size_names_the_side_the_shape_and_the_size():
    (source,), (target,) = states(6), states(4, seed=1)
    with pytest.raises(CarotError, match=rf"target .*\(1, 4, 23\).* {HIDDEN}"):
        layer().align(source, target[:, :-1])
    with pytest.raises(CarotError, match=rf"source .*\(1, 6, 23\).* {HIDDEN}"):
        layer().align(source[:, :-1], target)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize(
    "mask",
    [torch.ones(2, 5, dtype=torch.long), torch.ones(2, 4).bool(), torch.ones(5).bool()],
    ids=["integers", "short", "one for both"],
)
def test_a_wrong_mask_is_refused_by_name(side, mask):
    source, target = torch.stack(states(5, 5)), torch.stack(states(5, 5, seed=1))
    with pytest.raises(CarotError, match=rf"{side}_mask .*boolean .*\(2, 5\)"):
        layer().align(source, target, **{f"{side}_mask": mask})


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("side", ["source", "target"])
def test_states_that_are_not_finite_name_their_side_and_row(side, value):
    sides = {"source": torch.stack(states(5, 5)), "target": torch.stack(states(5, 5, seed=1))}
    sides[side][1, 2, 3] = value
    with pytest.raises(CarotError, match=rf"{side} .*row 1 .*finite"):
        layer().align(**sides)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("theta", 0.0),
        ("theta", -0.5),
        ("theta", 1.01),
        ("theta", torch.nan),
        ("epsilon", 0.0),
        ("rho", -1.0),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(name, value):
    (source,), (target,) = states(6), states(4, seed=1)
    with pytest.raises(CarotError, match=f"{name} is {value}"):
        layer().align(source, target, **{name: value})
    with pytest.raises(CarotError, match=f"{name} is {value}"):
        TransportSettings(**{name: value})


def test_an_unknown_solver_is_refused():
    with pytest.raises(CarotError, match=r"solver .* is 'sinkhorn'.*auto, scaling, log or pot"):
        TransportSettings(solver="sinkhorn")


def test_another_number_of_sources_than_targets_is_refused():
    with pytest.raises(CarotError, match="2 sources for 3 targets"):
        layer().align(torch.stack(states(5, 5)), torch.stack(states(5, 5, 5)))


# The model's identity

IDENTITY = ModelIdentity("demo", "gemma3_text", 640, 18, torch.linspace(-0.3, 0.2, 64).tolist())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"model_type": "llama"}, "model type llama instead of gemma3_text"),
        ({"hidden_size": 1152}, "hidden size 1152 instead of 640"),
        ({"num_layers": 26}, "num layers 26 instead of 18"),
        ({"fingerprint": [-value for value in IDENTITY.fingerprint]}, "weights"),
        ({"fingerprint": [1.1 * value for value in IDENTITY.fingerprint]}, "weights"),
        ({"fingerprint": IDENTITY.fingerprint[:-1]}, "weights"),
    ],
    ids=["type", "size", "layers", "other weights", "scaled weights", "length"],
)
def test_another_model_is_told_apart(change, expected):
    assert expected in IDENTITY.difference(replace(IDENTITY, **change))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_same_model_in_another_dtype_is_the_same(dtype):
    rounded = torch.tensor(IDENTITY.fingerprint).to(dtype).tolist()
    assert IDENTITY.difference(replace(IDENTITY, fingerprint=rounded)) is None


@pytest.mark.parametrize("change", [{"name": "a copy"}, {"fingerprint": []}])
def test_neither_name_nor_a_missing_fingerprint_tells_models_apart(change):
    assert IDENTITY.difference(replace(IDENTITY, **change)) is None
    assert replace(IDENTITY, **change).difference(IDENTITY) is None


# The collection of layers


def aligner() -> Aligner:
    return Aligner(
        {7: layer(7), 3: layer(3)},
        ["en", "es", "sw"],
        IDENTITY,
        {"corpus": "Ñandú", "sentences": 400, "max_tokens": 64},
    )


def test_an_aligner_is_a_mapping_of_its_layers_in_order():
    fitted = aligner()
    assert list(fitted) == [3, 7]
    assert len(fitted) == 2
    assert fitted[7] is layer(7)
    assert 3 in fitted
    assert 5 not in fitted


def test_a_layer_that_was_not_fitted_names_the_fitted_ones():
    with pytest.raises(CarotError, match=r"layer 5 was not fitted.*3, 7"):
        aligner()[5]


@pytest.mark.parametrize(("layers", "expected"), [([3, 7], 7), ([3, 5, 7], 5), ([0], 0)])
def test_the_default_layer_is_the_one_nearest_to_a_third_of_the_depth(layers, expected):
    # 18 layers: 0.3 of the depth is 5.4.
    fitted = Aligner(dict.fromkeys(layers, layer()), ["en", "es", "sw"], IDENTITY)
    assert fitted.default_layer() == expected


# Files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved aligner."""
    aligner().save_pretrained(tmp_path / "new" / "aligner")
    return tmp_path / "new" / "aligner"


def tensors_of(fitted: LayerAligner) -> list[Tensor]:
    subspace = fitted.subspace
    return [subspace.left, subspace.right, subspace.bias, fitted.whitening, fitted.means]


def test_an_aligner_comes_back_from_its_folder(folder):
    before, after = aligner(), Aligner.from_pretrained(folder)
    assert list(after) == list(before)
    assert (after.languages, after.model, after.fit) == (before.languages, before.model, before.fit)
    for index in before:
        pairs = zip(tensors_of(before[index]), tensors_of(after[index]), strict=True)
        for given, loaded in pairs:
            assert loaded.dtype == torch.float32
            assert torch.equal(loaded, given.float())


def test_a_loaded_aligner_aligns_like_the_fitted_one(folder):
    (source,), (target,) = states(12), states(9, seed=1)
    loaded: Alignment = Aligner.from_pretrained(str(folder))[3].align(source, target)
    assert torch.equal(loaded.hidden, layer(3).align(source, target).hidden)


def test_saving_leaves_two_files_and_saving_again_replaces_them(folder):
    Aligner({1: layer()}, ["en", "es", "sw"], IDENTITY).save_pretrained(folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted([CONFIG_NAME, WEIGHTS_NAME])
    assert list(Aligner.from_pretrained(folder)) == [1]


def test_a_write_that_fails_leaves_the_old_files_whole_and_nothing_beside_them(folder, monkeypatch):
    write = Path.write_bytes

    def fill_the_disk(path: Path, data: bytes) -> int:
        write(path, data[: len(data) // 2])
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fill_the_disk)
    with pytest.raises(OSError, match="No space left"):
        Aligner({1: layer()}, ["en", "es", "sw"], IDENTITY).save_pretrained(folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted([CONFIG_NAME, WEIGHTS_NAME])
    assert list(Aligner.from_pretrained(folder)) == [3, 7]


def test_a_reader_of_the_old_weights_is_not_disturbed_by_saving_anew(folder):
    old = (folder / WEIGHTS_NAME).read_bytes()
    with (folder / WEIGHTS_NAME).open("rb") as reader:
        start = reader.read(100)
        Aligner({1: layer()}, ["en", "es", "sw"], IDENTITY).save_pretrained(folder)
        assert start + reader.read() == old


refusal = partial(helpers.refusal, Aligner.from_pretrained)


@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_weights_cut_short_are_refused_by_name(folder, keep):
    weights = folder / WEIGHTS_NAME
    weights.write_bytes(weights.read_bytes()[:keep])
    assert WEIGHTS_NAME in refusal(folder)


def test_missing_weights_are_refused_by_name(folder):
    (folder / WEIGHTS_NAME).unlink()
    assert WEIGHTS_NAME in refusal(folder)


def test_a_missing_folder_is_refused_by_name(tmp_path):
    assert str(tmp_path / "missing") in refusal(tmp_path / "missing")


def test_a_name_that_is_neither_folder_nor_reachable_repository_is_refused():
    assert "nobody/nothing" in refusal("nobody/nothing", local_files_only=True)


def test_a_folder_without_a_config_is_refused_by_name(folder):
    (folder / CONFIG_NAME).unlink()
    message = refusal(folder)
    assert str(folder) in message
    assert CONFIG_NAME in message


@pytest.mark.parametrize("content", [b"", b"{'layers': [3]}", b"\xff\xfe{}", b'{"layers": [3,'])
def test_a_config_that_is_not_json_is_refused_by_name(folder, content):
    (folder / CONFIG_NAME).write_bytes(content)
    message = refusal(folder)
    assert CONFIG_NAME in message
    assert "not valid JSON" in message


def change_config(folder: Path, **changes) -> None:
    config = json.loads((folder / CONFIG_NAME).read_text("utf-8"))
    (folder / CONFIG_NAME).write_text(json.dumps(config | changes), "utf-8")


def test_a_newer_format_asks_for_an_update(folder):
    change_config(folder, format_version=FORMAT_VERSION + 1)
    message = refusal(folder)
    assert f"format {FORMAT_VERSION + 1}" in message
    assert "update carot" in message


def test_a_newer_format_asks_for_an_update_whatever_its_weights_look_like(folder):
    change_config(folder, format_version=FORMAT_VERSION + 1)
    (folder / WEIGHTS_NAME).rename(folder / "aligner-00001.safetensors")
    assert "update carot" in refusal(folder)


def test_a_config_naming_a_layer_that_the_weights_lack_is_refused(folder):
    change_config(folder, layers=[3, 9])
    assert "layers.9.left" in refusal(folder)


def test_a_key_of_the_model_that_this_version_does_not_know_is_ignored(folder):
    identity = json.loads((folder / CONFIG_NAME).read_text("utf-8"))["model"]
    change_config(folder, model=identity | {"revision": "main"})
    assert Aligner.from_pretrained(folder).model == IDENTITY


def test_pushing_uploads_what_saving_writes(monkeypatch, tmp_path):
    uploaded = {}

    class Hub:
        def create_repo(self, repo_id, **_):
            uploaded["created"] = repo_id
            return huggingface_hub.RepoUrl(f"https://huggingface.co/someone/{repo_id}")

        def upload_folder(self, *, repo_id, folder_path, **kwargs):
            uploaded["to"], uploaded["kwargs"] = repo_id, kwargs
            uploaded["files"] = sorted(path.name for path in Path(folder_path).iterdir())
            return "https://huggingface.co/commit"

    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    aligner().save_pretrained(tmp_path / "mine", push_to_hub=True, commit_message="First")
    assert uploaded == {
        "created": "mine",
        "to": "someone/mine",
        "kwargs": {"commit_message": "First"},
        "files": sorted([CONFIG_NAME, WEIGHTS_NAME]),
    }


# The hub


def test_an_aligner_goes_to_the_hub_and_comes_back(tmp_path, monkeypatch):
    stored = tmp_path / "hub"

    class Hub:
        def create_repo(self, repo_id, *, private, exist_ok):
            assert (private, exist_ok) == (True, True)
            return type("Repo", (), {"repo_id": f"me/{repo_id}"})

        def upload_folder(self, *, repo_id, folder_path, commit_message):
            assert (repo_id, commit_message) == ("me/mine", "first")
            shutil.copytree(folder_path, stored)
            return "https://hub/me/mine/commit/1"

    def download(repo_id, *, allow_patterns, revision):
        assert (repo_id, revision) == ("me/mine", "main")
        assert sorted(path.name for path in stored.iterdir()) == sorted(allow_patterns)
        return str(stored)

    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    monkeypatch.chdir(tmp_path)
    aligner = Aligner({3: layer()}, ["en", "es"], IDENTITY)
    address = aligner.push_to_hub("mine", private=True, commit_message="first")
    assert address.endswith("/commit/1")
    loaded = Aligner.from_pretrained("me/mine", revision="main")
    assert loaded.digest() == aligner.digest()


def test_defaults_of_a_sweep_are_kept_with_the_aligner(tmp_path):
    aligner = Aligner({3: layer(), 5: layer()}, ["en", "es"], IDENTITY)
    assert aligner.default_layers() == [3, 5]
    aligner.defaults = {"layers": [5]}
    assert aligner.default_layers() == [5]
    deep = Aligner({15: layer(), 16: layer()}, ["en", "es"], IDENTITY)
    assert deep.default_layers() == [15]
    aligner.defaults = {"layers": [3, 5], "theta": 0.25}
    aligner.save_pretrained(tmp_path)
    loaded = Aligner.from_pretrained(tmp_path)
    assert loaded.defaults == aligner.defaults
    assert loaded.default_layers() == [3, 5]
