"""Losses: what they are on tensors drawn by hand, and where their gradients go."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from helpers import aligner_of, every_architecture
from tiny import LAYERS, corpus, tiny_model, tiny_tokenizer
from torch import Tensor

from carot.alignment import LayerAligner, TransportSettings
from carot.alignment.subspace import LanguageSubspace
from carot.models import hooks
from carot.models.anatomy import dissect
from carot.models.states import layer_states, shortened
from carot.training.collate import Collator
from carot.training.data import EncodedInstruction, ParallelData
from carot.training.objectives import Carot, MidAlign, Sft, Solar, count
from carot.training.objectives.carot import carot_loss
from carot.training.objectives.midalign import info_nce, mean_pool
from carot.training.objectives.solar import english_of, mean_soft_tokens

SETTINGS = TransportSettings()


def fitted(d: int, seed: int = 0) -> LayerAligner:
    """An eraser of one direction, and a whitening that keeps half of the rest."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))[0]
    left, right = basis[:, :1], basis[:, :1].T
    bias = torch.randn(d, generator=generator, dtype=torch.float64)
    return LayerAligner(LanguageSubspace(left, right, bias), basis[:, 1 : d // 2 + 1] * 1.5, left.T)


def pair(m: int = 5, n: int = 4, d: int = 8, batch: int = 2) -> tuple[Tensor, Tensor, Any, Any]:
    generator = torch.Generator().manual_seed(1)
    source = torch.randn(batch, n, d, generator=generator, dtype=torch.float64)
    target = torch.randn(batch, m, d, generator=generator, dtype=torch.float64)
    source_mask = torch.ones(batch, n, dtype=torch.bool)
    target_mask = torch.ones(batch, m, dtype=torch.bool)
    source_mask[0, 0] = target_mask[1, :2] = False  # padding
    return source, target, source_mask, target_mask


def slow_carot_loss(fit: LayerAligner, source: Any, target: Any, smask: Any, tmask: Any) -> float:
    """Eq. 9, a pair and a token at a time."""
    pairs = []
    for s, t, sm, tm in zip(source, target, smask, tmask, strict=True):
        aligned = fit.align(s[sm], t[tm], backend="pot").hidden
        tokens = []
        for before, after in zip(t[tm], aligned, strict=True):
            a = fit.subspace.agnostic(before)
            wanted = fit.subspace.agnostic(after)
            up = sum(float(x.detach()) ** 2 for x in (a - wanted) @ fit.whitening)
            down = sum(float(x.detach()) ** 2 for x in wanted @ fit.whitening)
            tokens.append(up / max(down, 1e-8))
        pairs.append(sum(tokens) / len(tokens))
    return sum(pairs) / len(pairs)


def test_the_carot_loss_is_equation_9() -> None:
    source, target, source_mask, target_mask = pair()
    loss = carot_loss(fitted(8), source, target, source_mask, target_mask, SETTINGS)
    slow = slow_carot_loss(fitted(8), source, target, source_mask, target_mask)
    assert float(loss) == pytest.approx(slow, rel=1e-6)
    assert slow > 0.05


def test_the_carot_loss_of_aligned_states_is_smaller() -> None:
    source, target, source_mask, target_mask = pair()
    masks = {"source_mask": source_mask, "target_mask": target_mask}
    aligned = fitted(8).align(source, target, **masks).hidden
    before, after = (
        float(carot_loss(fitted(8), source, states, source_mask, target_mask, SETTINGS))
        for states in (target, aligned)
    )
    assert after < before / 2


def test_the_carot_loss_has_a_gradient_for_the_target_only() -> None:
    source, target, source_mask, target_mask = pair()
    source.requires_grad_()
    target.requires_grad_()
    carot_loss(fitted(8), source, target, source_mask, target_mask, SETTINGS).backward()
    assert source.grad is None
    assert target.grad is not None
    assert bool((target.grad[target_mask].abs().sum(-1) > 0).any())
    assert not bool(target.grad[~target_mask].any())


def test_the_carot_gradient_equals_finite_differences_with_a_fixed_target() -> None:
    source, target, source_mask, target_mask = pair()
    fit = fitted(8)
    aligned = fit.align(source, target, source_mask=source_mask, target_mask=target_mask).hidden
    wanted = fit.subspace.agnostic(aligned) @ fit.whitening

    def with_fixed_target(states: Tensor) -> float:
        now = fit.subspace.agnostic(states) @ fit.whitening
        ratio = (now - wanted).square().sum(-1) / wanted.square().sum(-1)
        return float(((ratio * target_mask).sum(-1) / target_mask.sum(-1)).mean())

    leaf = target.clone().requires_grad_()
    carot_loss(fit, source, leaf, source_mask, target_mask, SETTINGS).backward()
    assert leaf.grad is not None
    for place in [(0, 0, 0), (0, 3, 5), (1, 2, 1), (1, 4, 7), (1, 0, 0)]:
        step = torch.zeros_like(target)
        step[place] = 1e-5
        slope = (with_fixed_target(target + step) - with_fixed_target(target - step)) / 2e-5
        assert float(leaf.grad[place]) == pytest.approx(slope, abs=1e-8)


def test_a_target_of_nothing_does_not_divide_by_zero() -> None:
    source, target, source_mask, target_mask = pair()
    zero = LayerAligner(fitted(8).subspace, torch.zeros(8, 3, dtype=torch.float64), torch.ones(1))
    assert float(carot_loss(zero, source, target, source_mask, target_mask, SETTINGS)) == 0


def test_info_nce_by_hand() -> None:
    # Row 0 points right, row 1 up; targets are 0 and 90 degrees off.
    source = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    target = torch.tensor([[3.0, 0.0], [1.0, 0.0]])
    tau = 0.5
    sentences = torch.tensor([0, 1])
    one_way = (-math.log(0.5) - math.log(0.5)) / 2  # both targets look alike from each source
    assert float(info_nce(source, target, sentences, tau, symmetric=False)) == pytest.approx(
        one_way
    )
    # The other way target 0 finds source 0 (cosines 1 and 0); target 1 finds the wrong one.
    right, wrong = math.exp(1 / tau), 1.0
    back = (-math.log(right / (right + wrong)) - math.log(wrong / (right + wrong))) / 2
    both = float(info_nce(source, target, sentences, tau, symmetric=True))
    assert both == pytest.approx((one_way + back) / 2)


def test_the_same_sentence_in_another_language_is_no_wrong_answer() -> None:
    generator = torch.Generator().manual_seed(0)
    source, target = torch.randn(2, 3, 4, generator=generator)
    apart = info_nce(source, target, torch.tensor([0, 1, 2]), 0.1, symmetric=True)
    twice = info_nce(source, target, torch.tensor([0, 0, 2]), 0.1, symmetric=True)
    assert float(twice) < float(apart)


def test_mean_pool_takes_content_only() -> None:
    states = torch.tensor([[[9.0], [1.0], [3.0]], [[2.0], [9.0], [9.0]]])
    content = torch.tensor([[False, True, True], [True, False, False]])
    assert mean_pool(states, content).tolist() == [[2.0], [2.0]]


def test_rows_are_paired_with_their_english() -> None:
    items = ["a", "a", "b", "c", "c", "a"]
    languages = ["es", "en", "es", "en", "ru", "ru"]
    assert english_of(items, languages) == [(0, 1), (4, 3), (5, 1)]


def test_mean_soft_tokens_are_means_of_rows() -> None:
    soft = torch.tensor([[1.0], [3.0], [5.0]])
    assert mean_soft_tokens(soft, torch.tensor([0, 0, 2]), 3).tolist() == [[2.0], [0.0], [5.0]]


def encoded(seed: int = 0) -> list[EncodedInstruction]:
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for item in ("a", "b"):
        for language in ("en", "es"):
            length = 6 + len(rows)
            ids = torch.randint(3, 300, (length,), generator=generator).tolist()
            rows.append(EncodedInstruction([1, *ids], 4, language, item))
    return rows


def instructions() -> Any:
    return Collator(tiny_tokenizer(), 32).instructions(encoded())


def parallel(size: int = 4) -> Any:
    data = ParallelData(corpus())
    return Collator(tiny_tokenizer(), 32).parallel([data[index] for index in range(size)])


def fresh(name: str) -> Any:
    return dissect(copy.deepcopy(tiny_model(name)))


@every_architecture
def test_sft_is_the_models_own_loss(name: str) -> None:
    anatomy, batch = fresh(name), instructions()
    own = anatomy.model(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        labels=batch["labels"],
    ).loss
    if name == "qwen3_moe":  # its own loss adds nothing here: no router loss is asked for
        assert not anatomy.config.output_router_logits
    assert float(Sft().loss(anatomy, batch)) == pytest.approx(float(own.detach()), rel=1e-5)


@every_architecture
def test_states_of_a_shortened_model_are_those_of_the_whole(name: str) -> None:
    anatomy, batch = fresh(name), parallel()
    modules = {layer: anatomy.layers[layer] for layer in range(LAYERS)}
    ids, mask = batch["target_ids"], batch["target_mask"]
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    whole = hooks.read(
        modules,
        lambda: anatomy.model(input_ids=ids, attention_mask=mask, position_ids=positions),
    )
    for layers in ([0], [1, 2], [3]):
        for layer, states in layer_states(anatomy, layers, ids, mask).items():
            assert torch.allclose(states[mask.bool()], whole[layer][mask.bool()], atol=1e-5)


def test_the_layers_come_back_whatever_is_raised() -> None:
    anatomy = fresh("llama")
    with pytest.raises(RuntimeError, match="stop"), shortened(anatomy, 1):  # noqa: PT012
        assert len(anatomy.decoder.layers) == 1
        raise RuntimeError("stop")
    assert anatomy.decoder.layers is anatomy.layers


def carot_objective(layers: list[int], name: str = "llama") -> Carot:
    return Carot(aligner_of(name), layers, SETTINGS)


def gradients(anatomy: Any, loss: Tensor) -> dict[str, Tensor]:
    anatomy.model.zero_grad()
    loss.backward()
    return {
        name: parameter.grad.clone()
        for name, parameter in anatomy.model.named_parameters()
        if parameter.grad is not None
    }


def test_the_carot_objective_trains_layers_up_to_its_own_through_the_target() -> None:
    anatomy, batch = fresh("llama"), parallel()
    found = gradients(anatomy, carot_objective([1]).loss(anatomy, batch))
    assert any("layers.1." in name for name in found)
    assert not any("layers.2." in name or "lm_head" in name for name in found)
    # Another English changes the loss, and a model in training mode has the same source states.
    other = {
        **batch,
        "source_ids": batch["source_ids"].flip(0),
        "source_mask": batch["source_mask"].flip(0),
        "source_content": batch["source_content"].flip(0),
    }
    objective = carot_objective([1])
    assert float(objective.loss(anatomy, other)) != float(objective.loss(anatomy, batch))


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["carot", "midalign", "solar", "sft"])
def test_gradient_checkpointing_changes_no_gradient(name: str, reentrant: bool) -> None:
    objective: Any = {
        "carot": carot_objective([1, 2]),
        "midalign": MidAlign(2),
        "solar": Solar(top_k=5),
        "sft": Sft(),
    }[name]
    batch = parallel() if objective.kind == "parallel" else instructions()
    found = []
    for checkpointing in (False, True):
        anatomy = fresh("llama")
        anatomy.model.train()
        if checkpointing:
            anatomy.model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            anatomy.model.enable_input_require_grads()
        found.append(gradients(anatomy, objective.loss(anatomy, batch)))
    plain, checkpointed = found
    assert plain.keys() == checkpointed.keys()
    for key, gradient in plain.items():
        assert torch.allclose(gradient, checkpointed[key], rtol=1e-5, atol=1e-7), key


def test_the_source_pass_has_no_dropout_and_leaves_the_mode() -> None:
    anatomy = fresh("gpt2")
    anatomy.model.train()
    frozen = anatomy.layers[0].eval()
    objective = carot_objective([1], "gpt2")
    first, second = (objective._source_states(anatomy, parallel())[1] for _ in range(2))
    assert torch.equal(first, second)
    assert anatomy.model.training
    assert not frozen.training
    target = [
        layer_states(anatomy, [1], parallel()["target_ids"], parallel()["target_mask"])[1]
        for _ in range(2)
    ]
    assert not torch.equal(*target)


def test_midalign_trains_both_sides() -> None:
    anatomy, batch = fresh("llama"), parallel()
    vectors: dict[str, Tensor] = {}

    def remember(_module: Any, _args: Any, output: Tensor) -> None:
        output.retain_grad()
        vectors["embedded"] = output

    handle = anatomy.model.get_input_embeddings().register_forward_hook(remember)
    MidAlign(1).loss(anatomy, batch).backward()
    handle.remove()
    gradient = vectors["embedded"].grad
    assert gradient is not None
    source, target = gradient.abs().sum((1, 2)).chunk(2)
    assert bool((source > 0).all())
    assert bool((target > 0).all())


def test_midalign_does_not_depend_on_padding() -> None:
    anatomy, batch = fresh("llama"), parallel()
    wider = {**batch}
    for key, fill in (("ids", 0), ("mask", 0), ("content", False)):
        side = batch[f"source_{key}"]
        wider[f"source_{key}"] = torch.nn.functional.pad(side, (7, 0), value=fill)
    losses = [float(MidAlign(1).loss(anatomy, rows)) for rows in (batch, wider)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_solar_is_cross_entropy_and_the_cosine_with_english() -> None:
    anatomy, batch = fresh("llama"), instructions()
    plain = float(Sft().loss(anatomy, batch))
    assert float(Solar(strength=0).loss(anatomy, batch)) == pytest.approx(plain, rel=1e-6)
    logits = anatomy.model(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]
    ).logits
    weight = anatomy.model.get_input_embeddings().weight
    means = []
    for row in range(4):
        places = [t - 1 for t in range(batch["labels"].shape[1]) if batch["labels"][row, t] >= 0]
        soft = []
        for place in places:
            chances = (logits[row, place].double() / 0.7).softmax(-1)
            top = chances.topk(5)
            soft.append((top.values / top.values.sum()) @ weight[top.indices].double())
        means.append(torch.stack(soft).mean(0))
    cosines = [
        torch.cosine_similarity(means[0], means[1], dim=0),
        torch.cosine_similarity(means[2], means[3], dim=0),
    ]
    expected = plain + 0.5 * (1 - float(sum(cosines)) / 2)
    solar = Solar(top_k=5, temperature=0.7, strength=0.5)
    assert float(solar.loss(anatomy, batch)) == pytest.approx(expected, rel=1e-5)


def test_solar_sends_no_gradient_into_the_english_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    from carot.training.objectives import solar as module

    anatomy, batch = fresh("llama"), instructions()
    seen: dict[str, Tensor] = {}
    kept = module.response_logits

    def remember(*args: Any) -> Any:
        logits, targets, rows = kept(*args)
        seen["logits"] = logits.detach().requires_grad_()
        seen["rows"] = rows
        return seen["logits"], targets, rows

    monkeypatch.setattr(module, "response_logits", remember)
    # The cosine term alone: the difference of two strengths.
    gradient = []
    for strength in (1.0, 0.0):
        Solar(top_k=5, strength=strength).loss(anatomy, batch).backward()
        gradient.append(seen["logits"].grad)
    cosine = (gradient[0] - gradient[1]).abs().sum(-1)
    english = torch.isin(seen["rows"], torch.tensor([0, 2]))
    assert float(cosine[english].max()) == 0
    assert float(cosine[~english].max()) > 0


def test_solar_without_translations_is_cross_entropy() -> None:
    anatomy, batch = fresh("llama"), instructions()
    batch["items"] = list("wxyz")
    plain = float(Sft().loss(anatomy, batch))
    assert float(Solar().loss(anatomy, batch)) == pytest.approx(plain, rel=1e-6)


def test_losses_are_means_over_what_is_counted() -> None:
    batch = instructions()
    assert count("instructions", batch) == sum(len(row.ids) - 4 for row in encoded())
    assert count("parallel", parallel(3)) == 3
