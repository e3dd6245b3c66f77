"""Properties of steering, over architectures and both ways into a model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import (
    ENGLISH,
    LAYER,
    PROMPTS,
    aligner_of,
    both_backends,
    every_architecture,
    footprint,
    logits,
    steered,
)
from tiny import corpus, tiny_model, tiny_tokenizer
from torch import Tensor

import carot
from carot.alignment import Alignment
from carot.models.encoding import encode, position_ids


def nothing(
    _layer: Any, _source: Tensor, target: Tensor, source_mask: Tensor, target_mask: Tensor
) -> Alignment:
    plan = torch.zeros(*target_mask.shape, source_mask.shape[1])
    return Alignment(target, plan, plan.sum(-1))


@every_architecture
@both_backends
def test_replacing_nothing_leaves_logits_bit_identical(name: str, hooks: str) -> None:
    plain = logits(steered(name, hooks), PROMPTS, None)
    assert torch.equal(logits(steered(name, hooks, intervention=nothing), PROMPTS, ENGLISH), plain)
    assert torch.equal(logits(steered(name, hooks), PROMPTS, [""] * 4), plain)
    assert torch.equal(logits(steered(name, hooks), PROMPTS, [None] * 4), plain)


@every_architecture
def test_unsteered_logits_are_those_of_the_model_itself(name: str) -> None:
    batch = encode(tiny_tokenizer(), PROMPTS)
    with torch.no_grad():
        expected = tiny_model(name)(**batch.model_inputs()).logits[:, -1]
    actual = logits(steered(name), PROMPTS, None)[0]
    assert torch.allclose(actual, expected, atol=1e-4)


@every_architecture
def test_steering_changes_the_logits(name: str) -> None:
    plain, moved = (logits(steered(name), PROMPTS, english) for english in (None, ENGLISH))
    assert (moved[0] - plain[0]).abs().amax(-1).min() > 1e-3


@every_architecture
def test_both_backends_give_the_same_logits(name: str) -> None:
    by_nnsight, by_torch = (
        logits(steered(name, hooks, layers=[1, 2]), PROMPTS, ENGLISH)
        for hooks in ("nnsight", "torch")
    )
    assert torch.equal(by_nnsight, by_torch)


@every_architecture
def test_a_row_without_english_is_as_unsteered_beside_steered_rows(name: str) -> None:
    plain = logits(steered(name), PROMPTS, None)
    mixed = logits(steered(name), PROMPTS, [ENGLISH[0], None, ENGLISH[2], ""])
    whole = logits(steered(name), PROMPTS, ENGLISH)
    assert torch.equal(mixed[:, [1, 3]], plain[:, [1, 3]])
    assert torch.allclose(mixed[:, [0, 2]], whole[:, [0, 2]], atol=1e-4)


@every_architecture
def test_a_batch_of_mixed_lengths_equals_one_by_one(name: str) -> None:
    prompts, english = PROMPTS * 2, ENGLISH + ENGLISH[::-1]
    model = steered(name)
    together = logits(model, prompts, english)
    alone = [logits(model, [p], [e]) for p, e in zip(prompts, english, strict=True)]
    assert torch.allclose(together, torch.cat(alone, 1), atol=2e-3)


@every_architecture
def test_order_of_the_rows_does_not_matter(name: str) -> None:
    model, order = steered(name), [2, 0, 3, 1]
    forward = logits(model, PROMPTS, ENGLISH)
    shuffled = logits(model, [PROMPTS[i] for i in order], [ENGLISH[i] for i in order])
    assert torch.allclose(forward[:, order], shuffled, atol=1e-4)


@every_architecture
@torch.no_grad()
def test_left_padding_equals_right_padding(name: str) -> None:
    model, tokenizer = steered(name), tiny_tokenizer()
    rows = {}
    for side in ("left", "right"):
        batch = encode(tokenizer, PROMPTS, padding_side=side)
        with model.intervene(ENGLISH):
            output = model.model(**batch.model_inputs()).logits
        rows[side] = [
            row[mask.bool()] for row, mask in zip(output, batch.attention_mask, strict=True)
        ]
    for left, right in zip(rows["left"], rows["right"], strict=True):
        assert torch.allclose(left, right, atol=2e-3)


def greedy_without_cache(name: str, prompt: str, english: str, layers: list[int]) -> list[Tensor]:
    """Three greedy steps, each a full pass; the prompt's states stay those moved in the first."""
    model, tokenizer, aligner = tiny_model(name), tiny_tokenizer(), aligner_of(name)
    ids = torch.tensor([tokenizer(prompt)["input_ids"]])
    source_ids = torch.tensor([tokenizer(english)["input_ids"]])
    sources = model(input_ids=source_ids, output_hidden_states=True).hidden_states
    length, moved = ids.shape[1], {}
    blocks = model.get_decoder() if hasattr(model, "get_decoder") else model
    blocks = next(m for m in blocks.modules() if isinstance(m, torch.nn.ModuleList))

    def hook(layer: int, output: Any) -> Any:
        hidden = (output if isinstance(output, Tensor) else output[0]).clone()
        if layer not in moved:
            # The first token is BOS on both sides: no content.
            moved[layer] = (
                aligner[layer]
                .align(sources[layer + 1][:, 1:], hidden[:, 1:length], theta=1.0)
                .hidden
            )
        hidden[:, 1:length] = moved[layer]
        return hidden if isinstance(output, Tensor) else (hidden, *output[1:])

    handles = [
        blocks[layer].register_forward_hook(lambda _m, _i, out, layer=layer: hook(layer, out))
        for layer in layers
    ]
    steps = []
    try:
        for _ in range(3):
            steps.append(model(input_ids=ids, use_cache=False).logits[:, -1])
            ids = torch.cat([ids, steps[-1].argmax(-1, keepdim=True)], -1)
    finally:
        for handle in handles:
            handle.remove()
    return steps


@every_architecture
@pytest.mark.parametrize("layers", [[1], [1, 2]], ids=["one layer", "two layers"])
@torch.no_grad()
def test_steered_generation_equals_a_loop_without_cache_that_replaces_once(
    name: str, layers: list[int]
) -> None:
    actual = logits(steered(name, layers=layers), PROMPTS, ENGLISH)
    for row, (prompt, english) in enumerate(zip(PROMPTS, ENGLISH, strict=True)):
        expected = torch.cat(greedy_without_cache(name, prompt, english, layers))
        assert torch.allclose(actual[:, row], expected, atol=2e-3)


@every_architecture
@both_backends
def test_the_wrapped_model_and_its_tokenizer_stay_as_they_were(name: str, hooks: str) -> None:
    model, tokenizer = tiny_model(name), tiny_tokenizer()
    tokenizer.padding_side = "right"
    settings = (tokenizer.padding_side, tokenizer.pad_token, tokenizer.chat_template)
    batch = encode(tokenizer, PROMPTS)
    with torch.no_grad():
        before, marks = model(**batch.model_inputs()).logits, footprint(model)
    wrapped = carot.wrap(
        model, tokenizer, aligner_of(name), layer=LAYER, hooks=hooks, min_match=0.0
    )
    wrapped.generate(PROMPTS, ENGLISH, max_new_tokens=2)
    wrapped.score(PROMPTS, ["uno", "dos"], ENGLISH)
    wrapped.align(PROMPTS[0], ENGLISH[0])
    with torch.no_grad():
        assert torch.equal(model(**batch.model_inputs()).logits, before)
    assert footprint(model) == marks
    assert (tokenizer.padding_side, tokenizer.pad_token, tokenizer.chat_template) == settings


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_are_steered_in_their_own_dtype(dtype: torch.dtype) -> None:
    import copy

    model = copy.deepcopy(tiny_model("llama")).to(dtype)
    wrapped = carot.wrap(
        model, tiny_tokenizer(), aligner_of("llama"), layer=LAYER, theta=1.0, min_match=0.0
    )
    actual = logits(wrapped, PROMPTS, ENGLISH)[0]
    assert actual.dtype == dtype or actual.dtype == torch.float32
    expected = logits(steered("llama"), PROMPTS, ENGLISH)[0]
    assert (actual.float() - expected).abs().mean() < 0.1
    assert torch.equal(logits(wrapped, PROMPTS, [""] * 4), logits(wrapped, PROMPTS, None))


def test_a_model_dispatched_by_accelerate_is_steered_the_same() -> None:
    import copy

    from accelerate import dispatch_model

    device_map = {"model.embed_tokens": "cpu", "model.norm": "cpu", "lm_head": "cpu"}
    device_map |= {"model.rotary_emb": "cpu"} | {f"model.layers.{i}": "cpu" for i in range(4)}
    model = dispatch_model(
        copy.deepcopy(tiny_model("llama")), device_map, main_device="cpu", force_hooks=True
    )
    for hooks in ("nnsight", "torch"):
        wrapped = carot.wrap(
            model,
            tiny_tokenizer(),
            aligner_of("llama"),
            layer=LAYER,
            hooks=hooks,
            theta=1.0,
            min_match=0.0,
        )
        expected = logits(steered("llama"), PROMPTS, ENGLISH)
        assert torch.allclose(logits(wrapped, PROMPTS, ENGLISH), expected, atol=1e-5)


@both_backends
def test_a_model_whose_weights_are_offloaded_is_steered_the_same(hooks: str) -> None:
    import copy

    from accelerate import cpu_offload

    model = cpu_offload(copy.deepcopy(tiny_model("llama")), execution_device=torch.device("cpu"))
    assert next(model.parameters()).is_meta
    fitted = carot.fit_aligner(model, tiny_tokenizer(), corpus(), layers=[LAYER])
    wrapped = carot.wrap(
        model, tiny_tokenizer(), fitted, layer=LAYER, hooks=hooks, theta=1.0, min_match=0.0
    )
    expected = logits(steered("llama"), PROMPTS, ENGLISH)
    assert torch.allclose(logits(wrapped, PROMPTS, ENGLISH), expected, atol=1e-4)


@pytest.mark.gpu
def test_a_model_on_the_gpu_is_steered_as_on_the_cpu() -> None:
    import copy

    model = copy.deepcopy(tiny_model("llama")).to("cuda")
    wrapped = carot.wrap(
        model, tiny_tokenizer(), aligner_of("llama"), layers=[1, 2], theta=1.0, min_match=0.0
    )
    expected = logits(steered("llama", layers=[1, 2]), PROMPTS, ENGLISH)
    assert torch.allclose(logits(wrapped, PROMPTS, ENGLISH).cpu(), expected, atol=1e-2)


@both_backends
def test_adapters_are_steered_and_their_base_model_stays(hooks: str) -> None:
    import copy

    peft = pytest.importorskip("peft")
    base = copy.deepcopy(tiny_model("llama"))
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "up_proj"])
    adapted = peft.get_peft_model(base, config).eval()
    fresh = carot.wrap(
        adapted,
        tiny_tokenizer(),
        aligner_of("llama"),
        layer=LAYER,
        hooks=hooks,
        theta=1.0,
        min_match=0.0,
    )
    expected = logits(steered("llama"), PROMPTS, ENGLISH)
    assert torch.allclose(logits(fresh, PROMPTS, ENGLISH), expected, atol=1e-5)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.5)
    changed = logits(fresh, PROMPTS, ENGLISH)
    assert not torch.allclose(changed, expected, atol=1e-2)
    batch = encode(tiny_tokenizer(), PROMPTS)
    with torch.no_grad(), fresh.intervene(ENGLISH):
        called = adapted(**batch.model_inputs()).logits[:, -1]
    assert torch.allclose(called, changed[0], atol=1e-4)


def test_position_ids_count_real_tokens_only() -> None:
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0]])
    assert position_ids(mask).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 2, 2]]
