"""Wrapping, looking inside, and steering calls that other code makes."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from helpers import ENGLISH, PROMPTS, aligner_of, every_architecture, footprint, logits, steered
from tiny import corpus, tiny_model, tiny_tokenizer

import carot
from carot import CarotError
from carot.models.encoding import encode


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layer": 9}, "layer 9 is out of range; LlamaForCausalLM has layers 0 to 3"),
        ({"layer": 0}, "layer 0 was not fitted; this aligner holds layers 1, 2"),
        ({"layers": [1, 1]}, "named once"),
        ({"layers": []}, "at least one"),
        ({"layer": 1, "layers": [1]}, "one of the two"),
        ({"layer": 1, "theta": 0}, r"theta is 0; expected a number in \(0, 1\]"),
        ({"layer": 1, "thetas": 1}, "carot has no setting 'thetas'; expected theta"),
        ({"layer": 1, "hooks": "none"}, "hooks='none'; expected one of nnsight, torch"),
        ({"layer": 1, "intervention": "magic"}, "no intervention 'magic'"),
        ({"layer": 1, "layers_path": "model.nowhere"}, "layers_path='model.nowhere'"),
    ],
)
def test_bad_settings_get_one_clear_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(CarotError, match=message):
        carot.wrap(tiny_model("llama"), tiny_tokenizer(), aligner_of("llama"), **arguments)


def test_an_aligner_of_another_model_is_refused() -> None:
    torch.manual_seed(7)
    other = hf.LlamaForCausalLM(tiny_model("llama").config)
    with pytest.raises(CarotError, match="the embeddings differ"):
        carot.wrap(other, tiny_tokenizer(), aligner_of("llama"), layer=1)
    with pytest.raises(CarotError, match="model type gpt2 instead of llama"):
        carot.wrap(tiny_model("gpt2"), tiny_tokenizer(), aligner_of("llama"), layer=1)


def test_the_default_layers_are_the_fitted_ones_but_the_last_quarter() -> None:
    model = carot.wrap(tiny_model("llama"), tiny_tokenizer(), aligner_of("llama"))
    assert model.layers == [1, 2]


def test_fitting_is_the_same_whatever_the_batch_size() -> None:
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    small, large = (
        carot.fit_aligner(model, tokenizer, corpus(), layers=[1], batch_size=size)[1]
        for size in (3, 64)
    )
    x = torch.randn(20, 32, dtype=torch.float64)
    assert torch.allclose(small.subspace.agnostic(x), large.subspace.agnostic(x), atol=1e-4)


def test_fitting_through_a_mapped_and_a_saved_aligner_steers_the_same(tmp_path: Path) -> None:
    aligner_of("llama").save_pretrained(tmp_path / "aligner")
    loaded = carot.Aligner.from_pretrained(tmp_path / "aligner")
    model = carot.wrap(
        tiny_model("llama"), tiny_tokenizer(), loaded, layer=1, theta=1.0, min_match=0.0
    )
    expected = logits(steered("llama"), PROMPTS, ENGLISH)
    assert torch.allclose(logits(model, PROMPTS, ENGLISH), expected, atol=1e-5)


def test_states_that_are_not_finite_are_named() -> None:
    broken = copy.deepcopy(tiny_model("llama"))
    broken.model.layers[0].mlp.down_proj.weight.data.fill_(float("nan"))
    with pytest.raises(CarotError, match="layer 1: a sentence vector holds NaN"):
        carot.fit_aligner(broken, tiny_tokenizer(), corpus(), layers=[1])
    model = carot.wrap(broken, tiny_tokenizer(), aligner_of("llama"), layer=1)
    marks = footprint(broken)
    with pytest.raises(CarotError, match="source states of batch row 0 hold NaN"):
        model.generate(PROMPTS, ENGLISH, max_new_tokens=1)
    assert footprint(broken) == marks


@every_architecture
def test_a_view_shows_content_tokens_and_their_plan(name: str) -> None:
    view = steered(name, layers=[1, 2]).align(PROMPTS[0], ENGLISH[0])
    m, n = len(view.prompt_tokens), len(view.english_tokens)
    assert view.layer == 1
    assert view.plan.shape == (m, n)
    assert view.interpolation.shape == (m,)
    assert bool((view.interpolation > 0).any())
    assert "<bos>" not in view.prompt_tokens + view.english_tokens


def test_a_view_of_a_later_layer_shows_the_states_as_they_then_are() -> None:
    both, alone = steered("llama", layers=[1, 2]), steered("llama", layers=[2])
    later, first = (model.align(PROMPTS[0], ENGLISH[0], layer=2) for model in (both, alone))
    assert not torch.allclose(later.plan, first.plan, atol=1e-4)
    with pytest.raises(CarotError, match=r"layer 3 is not steered here; expected one of \[1, 2\]"):
        both.align(PROMPTS[0], ENGLISH[0], layer=3)


def test_a_view_needs_content_on_both_sides() -> None:
    for prompt, english in (("", "The moon"), ("La luna", "")):
        with pytest.raises(CarotError, match="at least one content token"):
            steered("llama").align(prompt, english)


@every_architecture
@torch.no_grad()
def test_a_forward_pass_inside_intervene_is_steered(name: str) -> None:
    model = steered(name)
    batch = encode(tiny_tokenizer(), PROMPTS)
    with model.intervene(ENGLISH):
        inside = model.model(**batch.model_inputs()).logits[:, -1]
    outside = model.model(**batch.model_inputs()).logits[:, -1]
    assert torch.allclose(inside, logits(model, PROMPTS, ENGLISH)[0], atol=1e-4)
    assert torch.allclose(outside, logits(model, PROMPTS, None)[0], atol=1e-4)


@every_architecture
def test_generation_inside_intervene_is_steered_once(name: str) -> None:
    model = steered(name, layers=[1, 2])
    batch = encode(tiny_tokenizer(), PROMPTS)
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    options = {"max_new_tokens": 5, "do_sample": False}
    with model.intervene(ENGLISH):
        for _ in range(2):  # each call has a prefill of its own
            inside = model.model.generate(**inputs, **options)
    expected = model.generate(PROMPTS, ENGLISH, return_ids=True, **options)
    assert torch.equal(inside, expected)


@pytest.mark.parametrize("beams", [1, 3])
def test_generation_without_cache_inside_intervene_moves_the_prompt_alone(beams: int) -> None:
    model = steered("llama", layers=[1, 2])
    batch = encode(tiny_tokenizer(), PROMPTS)
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    options = {"max_new_tokens": 5, "do_sample": False, "num_beams": beams}
    with model.intervene(ENGLISH):
        for _ in range(2):
            slow = model.model.generate(**inputs, use_cache=False, **options)
    assert torch.equal(slow, model.generate(PROMPTS, ENGLISH, return_ids=True, **options))


def test_a_prefill_in_pieces_is_refused_inside_intervene() -> None:
    model = steered("llama")
    batch = encode(tiny_tokenizer(), PROMPTS)
    with model.intervene(ENGLISH), pytest.raises(CarotError, match="a prefill in one pass"):
        model.model.generate(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask, prefill_chunk_size=4
        )


def test_an_unsteered_call_beside_a_steered_one_of_another_thread_is_unharmed() -> None:
    model = steered("llama")
    plain, moved = (logits(model, PROMPTS, english) for english in (None, ENGLISH))
    results: dict[bool, list[torch.Tensor]] = {True: [], False: []}

    def work(with_english: bool) -> None:
        for _ in range(8):
            results[with_english].append(logits(model, PROMPTS, ENGLISH if with_english else None))

    threads = [threading.Thread(target=work, args=(kind,)) for kind in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results[True]) == len(results[False]) == 8
    assert all(torch.equal(one, moved) for one in results[True])
    assert all(torch.equal(one, plain) for one in results[False])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda model: model.generate(["a"] * 3, max_new_tokens=300),
            "prompt 0 of .* tokens and 300 new ones exceed the model's context of 256",
        ),
        (
            lambda model: model.score(["a"] * 20 + ["xyz " * 300], ["b"]),
            "prompt 20 has .* tokens; the model's context holds 256",
        ),
        (
            lambda model: model.score(["a"] * 20 + ["c"], [["b"]] * 20 + [["xyz " * 300]]),
            "prompt 20 has .* tokens and a candidate .* context holds 256",
        ),
        (
            lambda model: model.generate(["a", "b"], [None, "xyz " * 300]),
            "English text 1 has .* tokens",
        ),
        (
            lambda model: model.check(["a", "§b§"], [None, "§c§ §"], content="§"),
            "prompt 0: the content marker '§' stands 0 times",
        ),
        (lambda model: model.score(["a"], ["b"], batch_size=0), "batch_size is 0"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_own_row(call: Any, message: str) -> None:
    with pytest.raises(CarotError, match=message):
        call(steered("gpt2"))


def test_a_pipeline_inside_intervene_is_steered() -> None:
    model, tokenizer = steered("llama"), tiny_tokenizer()
    pipe = hf.pipeline("text-generation", model=model.model, tokenizer=tokenizer)
    options = {"max_new_tokens": 5, "do_sample": False}
    with model.intervene(ENGLISH[0]):
        text = pipe(PROMPTS[0], return_full_text=False, **options)[0]["generated_text"]
    assert text == model.generate(PROMPTS[0], ENGLISH[0], **options)


def test_gradients_flow_through_the_layers_behind_a_steered_one() -> None:
    model = steered("llama")
    batch = encode(tiny_tokenizer(), PROMPTS)
    with model.intervene(ENGLISH):
        loss = model.model(**batch.model_inputs()).logits.square().mean()
    loss.backward()
    gradient = model.model.model.layers[3].mlp.up_proj.weight.grad
    assert gradient is not None
    assert bool(gradient.isfinite().all())
    model.model.zero_grad(set_to_none=True)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_intervene_takes_its_hooks_along_whatever_is_raised(error: type[BaseException]) -> None:
    model = steered("llama")
    marks = footprint(model.model)
    with pytest.raises(error), model.intervene(ENGLISH):
        raise error
    assert footprint(model.model) == marks


@torch.no_grad()
def test_calls_that_do_not_fit_are_refused_inside_intervene() -> None:
    model = steered("llama")
    three = encode(tiny_tokenizer(), PROMPTS[:3])
    with model.intervene(ENGLISH[:2]):
        with pytest.raises(CarotError, match="3 rows inside intervene"):
            model.model(**three.model_inputs())
        embedded = model.model.get_input_embeddings()(three.input_ids[:2])
        with pytest.raises(CarotError, match="without input_ids"):
            model.model(inputs_embeds=embedded)
    with model.intervene([None, ""]):
        model.model(**three.model_inputs())


@torch.no_grad()
def test_threads_steer_one_model_with_their_own_english() -> None:
    model = steered("llama", "torch")
    expected = [logits(model, [p], [e]) for p, e in zip(PROMPTS, ENGLISH, strict=True)]
    results: dict[int, torch.Tensor] = {}

    def work(i: int) -> None:
        for _ in range(3):
            results[i] = logits(model, [PROMPTS[i]], [ENGLISH[i]])

    threads = [threading.Thread(target=partial(work, i)) for i in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, one in enumerate(expected):
        assert torch.equal(results[i], one)


class Upper:
    """A pivot that writes in capitals."""

    name = "upper"

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}

    def translate(
        self, prompts: Sequence[str], languages: Sequence[str | None]
    ) -> list[str | None]:
        self.asked += zip(prompts, languages, strict=True)
        return [prompt.upper() for prompt in prompts]


def test_a_pivot_stands_in_for_english_that_is_not_given() -> None:
    pivot = Upper()
    model = steered("llama", pivot=pivot, language="es")
    prompts = ["El sol sale.", "Q: La luna A:"]
    options: dict[str, Any] = {"content": [None, (3, 10)]}
    found = logits(model, prompts, ["The sun rises.", None], **options)
    assert pivot.asked == [("La luna", "es")]
    by_hand = logits(steered("llama"), prompts, ["The sun rises.", "LA LUNA"], **options)
    assert torch.equal(found, by_hand)
    scores = model.score(prompts, ["a", "b"], **options)
    by_hand_scores = steered("llama").score(
        prompts, ["a", "b"], ["EL SOL SALE.", "LA LUNA"], **options
    )
    assert scores == by_hand_scores


def test_a_method_without_english_asks_no_pivot() -> None:
    pivot = Upper()
    model = steered("llama", intervention="lang_vec", language="es", pivot=pivot)
    model.generate(PROMPTS[:1], max_new_tokens=1)
    assert pivot.asked == []
