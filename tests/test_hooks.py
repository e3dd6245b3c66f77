"""Both ways into a model, nnsight and torch hooks: every claim on both."""

from __future__ import annotations

import threading
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch
from helpers import footprint
from tiny import ARCHITECTURES, tiny_model, tiny_tokenizer
from torch import Tensor

from carot.models import hooks, tracing
from carot.models.anatomy import dissect
from carot.models.encoding import Batch, encode

BACKENDS = pytest.mark.parametrize("backend", [tracing, hooks], ids=["nnsight", "torch"])
TEXTS = ["The moon rises.", "Good", "A very much longer sentence about trains"]


@pytest.fixture(params=ARCHITECTURES)
def model(request: pytest.FixtureRequest) -> Any:
    return tiny_model(request.param)


@pytest.fixture(scope="module")
def batch() -> Batch:
    return encode(tiny_tokenizer(), TEXTS)


def modules_of(model: Any, *layers: int) -> dict[int, torch.nn.Module]:
    return {layer: dissect(model).layers[layer] for layer in layers}


@BACKENDS
@torch.no_grad()
def test_what_is_read_is_the_hidden_state_after_the_layer(
    backend: ModuleType, model: Any, batch: Batch
) -> None:
    expected = model(**batch.model_inputs(), output_hidden_states=True).hidden_states
    states = backend.read(modules_of(model, 0, 2), partial(model, **batch.model_inputs()))
    assert set(states) == {0, 2}
    for layer, hidden in states.items():
        assert torch.equal(hidden, expected[layer + 1])


@BACKENDS
@torch.no_grad()
def test_reading_stops_after_the_deepest_layer(backend: ModuleType, batch: Batch) -> None:
    model, reached = tiny_model("llama"), []
    handle = model.model.layers[2].register_forward_pre_hook(lambda *_: reached.append(True))
    try:
        backend.read(modules_of(model, 0, 1), partial(model, **batch.model_inputs()))
    finally:
        handle.remove()
    assert not reached


@BACKENDS
@torch.no_grad()
def test_replacing_with_the_same_states_leaves_logits_bit_identical(
    backend: ModuleType, model: Any, batch: Batch
) -> None:
    call = partial(model, **batch.model_inputs())
    output = backend.replace(modules_of(model, 1, 2), lambda _, hidden: hidden.clone(), call)
    assert torch.equal(output.logits, call().logits)


@torch.no_grad()
def test_both_backends_replace_the_same_states(model: Any, batch: Batch) -> None:
    def edit(layer: int, hidden: Tensor) -> Tensor:
        return hidden * (1 + 0.1 * layer)

    outputs = [
        backend.replace(modules_of(model, 0, 2), edit, partial(model, **batch.model_inputs()))
        for backend in (tracing, hooks)
    ]
    assert torch.equal(outputs[0].logits, outputs[1].logits)
    plain = model(**batch.model_inputs()).logits
    assert not torch.allclose(outputs[0].logits, plain)


@BACKENDS
@torch.no_grad()
def test_only_the_prefill_of_a_generation_is_replaced(backend: ModuleType, batch: Batch) -> None:
    model, seen = tiny_model("llama"), []

    def edit(_layer: int, hidden: Tensor) -> Tensor:
        seen.append(tuple(hidden.shape))
        return hidden

    call = partial(
        model.generate,
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        max_new_tokens=5,
        do_sample=False,
    )
    output = backend.replace(modules_of(model, 1), edit, call)
    assert seen == [(3, batch.input_ids.shape[1], 32)]
    assert torch.equal(output, call())


class Tupled(torch.nn.Module):
    """A block as in transformers 4: its output is a tuple."""

    def __init__(self, block: torch.nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> tuple[Tensor, str]:
        return self.block(x), "cache"


@BACKENDS
@torch.no_grad()
def test_blocks_that_return_tuples_are_read_and_replaced(backend: ModuleType) -> None:
    block = Tupled(torch.nn.Linear(3, 3))
    x = torch.randn(2, 4, 3)
    states = backend.read({0: block}, lambda: block(x))
    assert torch.equal(states[0], block(x)[0])
    hidden, rest = backend.replace({0: block}, lambda _, h: h + 1, lambda: block(x))
    assert torch.equal(hidden, block(x)[0] + 1)
    assert rest == "cache"


@BACKENDS
@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, SystemExit])
@torch.no_grad()
def test_no_hook_outlives_its_call(
    backend: ModuleType, error: type[BaseException] | None, batch: Batch
) -> None:
    model = tiny_model("llama")
    before = footprint(model)

    def edit(_layer: int, hidden: Tensor) -> Tensor:
        if error is not None:
            raise error("stop")
        return hidden

    for _ in range(5):
        call = partial(model, **batch.model_inputs())
        if error is None:
            backend.replace(modules_of(model, 1, 2), edit, call)
        else:
            with pytest.raises(error):
                backend.replace(modules_of(model, 1, 2), edit, call)
        backend.read(modules_of(model, 1), call)
    assert footprint(model) == before


@BACKENDS
def test_an_error_of_the_model_itself_reaches_the_caller(backend: ModuleType) -> None:
    model = tiny_model("llama")
    before = footprint(model)
    with pytest.raises(IndexError):
        backend.read(modules_of(model, 1), lambda: model(input_ids=torch.tensor([[10**6]])))
    assert footprint(model) == before


@pytest.mark.slow
@BACKENDS
@torch.no_grad()
def test_a_thousand_calls_leave_no_hook_and_no_memory(backend: ModuleType) -> None:
    import gc

    model = tiny_model("llama")
    batch = encode(tiny_tokenizer(), ["Good"])
    modules, before = modules_of(model, 1), footprint(model)

    def once() -> None:
        call = partial(model, **batch.model_inputs())
        backend.replace(modules, lambda _, hidden: hidden, call)
        backend.read(modules, call)

    def living() -> int:
        gc.collect()
        return len(gc.get_objects())

    for _ in range(20):
        once()
    start = living()
    for _ in range(480):
        once()
    assert living() - start < 200
    assert footprint(model) == before


@BACKENDS
@torch.no_grad()
def test_threads_on_one_model_get_the_results_of_one(backend: ModuleType, batch: Batch) -> None:
    model = tiny_model("llama")
    call = partial(model, **batch.model_inputs())
    expected = [
        backend.replace(modules_of(model, 1), lambda _, h, i=i: h * (1 + i), call).logits
        for i in range(4)
    ]
    results: dict[int, Tensor] = {}

    def work(i: int) -> None:
        with torch.no_grad():
            for _ in range(5):
                output = backend.replace(modules_of(model, 1), lambda _, h: h * (1 + i), call)
                results[i] = output.logits

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, logits in enumerate(expected):
        assert torch.equal(results[i], logits)
