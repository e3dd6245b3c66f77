"""What Hugging Face's generate offers goes on working when its prefill is steered."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import transformers as hf
from helpers import ENGLISH, PROMPTS, aligner_of, both_backends, footprint, logits, steered
from tiny import tiny_model, tiny_tokenizer

import carot
from carot import CarotError
from carot.models.encoding import encode

GREEDY = {"do_sample": False, "max_new_tokens": 6, "min_new_tokens": 6}


def by_intervene(model: carot.CarotModel, **options: Any) -> torch.Tensor:
    """What plain ``model.generate`` gives inside ``intervene``."""
    batch = encode(tiny_tokenizer(), PROMPTS)
    with model.intervene(ENGLISH):
        ids: torch.Tensor = model.model.generate(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask, **options
        )
    return ids


@both_backends
@pytest.mark.parametrize(
    "options",
    [
        GREEDY,
        GREEDY | {"num_beams": 3},
        GREEDY | {"num_beams": 4, "num_return_sequences": 2},
        {"do_sample": True, "num_return_sequences": 3, "max_new_tokens": 6},
        {"generation_config": hf.GenerationConfig(max_new_tokens=4, num_beams=2, pad_token_id=0)},
        GREEDY | {"repetition_penalty": 1.3},
    ],
    ids=["greedy", "beams", "beams returned", "samples", "config", "processor"],
)
def test_options_of_generate_give_what_they_give_under_plain_hooks(
    hooks: str, options: dict[str, Any]
) -> None:
    model = steered("llama", hooks, layers=[1, 2])
    torch.manual_seed(3)
    actual = model.generate(PROMPTS, ENGLISH, return_ids=True, **options)
    torch.manual_seed(3)
    expected = by_intervene(model, **options)
    assert torch.equal(actual, expected)
    torch.manual_seed(3)
    assert not torch.equal(actual, model.generate(PROMPTS, return_ids=True, **options))


def test_one_beam_of_one_equals_greedy_search() -> None:
    model = steered("llama")
    greedy = model.generate(PROMPTS, ENGLISH, **GREEDY)
    assert model.generate(PROMPTS, ENGLISH, num_beams=1, **GREEDY) == greedy


def test_assisted_decoding_gives_the_greedy_answer() -> None:
    model = steered("llama")
    for prompt, english in zip(PROMPTS, ENGLISH, strict=True):
        plain = model.generate(prompt, english, **GREEDY)
        drafted = model.generate(prompt, english, prompt_lookup_num_tokens=2, **GREEDY)
        assert drafted == plain


def test_texts_are_the_decoded_new_tokens() -> None:
    model, tokenizer = steered("llama"), tiny_tokenizer()
    ids = model.generate(PROMPTS, ENGLISH, return_ids=True, **GREEDY)
    texts = model.generate(PROMPTS, ENGLISH, **GREEDY)
    assert texts == tokenizer.batch_decode(ids[:, -6:], skip_special_tokens=True)


def test_a_single_prompt_gives_a_single_text() -> None:
    model = steered("llama")
    assert (
        model.generate(PROMPTS[0], ENGLISH[0], **GREEDY)
        == (model.generate(PROMPTS[:1], ENGLISH[:1], **GREEDY)[0])
    )
    assert model.generate([], **GREEDY) == []


def test_several_sequences_of_one_prompt_come_as_a_list() -> None:
    texts = steered("llama").generate(
        PROMPTS[0], ENGLISH[0], num_beams=3, num_return_sequences=3, max_new_tokens=4
    )
    assert len(texts) == 3


def test_return_ids_gives_what_hugging_face_gives() -> None:
    output = steered("llama").generate(
        PROMPTS, ENGLISH, return_ids=True, return_dict_in_generate=True, **GREEDY
    )
    assert isinstance(output, hf.generation.GenerateDecoderOnlyOutput)


def test_streamers_receive_prompt_and_new_tokens() -> None:
    class Collect(hf.generation.streamers.BaseStreamer):
        def __init__(self) -> None:
            self.pieces: list[int] = []

        def put(self, value: torch.Tensor) -> None:
            self.pieces += value.flatten().tolist()

        def end(self) -> None:
            self.pieces.append(-1)

    streamer = Collect()
    ids = steered("llama").generate(
        PROMPTS[:1], ENGLISH[:1], return_ids=True, streamer=streamer, **GREEDY
    )
    assert streamer.pieces == [*ids[0].tolist(), -1]


def test_stopping_criteria_and_stop_strings_end_a_generation() -> None:
    class After(hf.StoppingCriteria):
        def __call__(self, ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
            return torch.full((ids.shape[0],), ids.shape[1] >= length + 2)

    model = steered("llama")
    whole = model.generate(PROMPTS[:1], ENGLISH[:1], return_ids=True, **GREEDY)
    length = whole.shape[1] - 6
    options = {"do_sample": False, "max_new_tokens": 6, "return_ids": True}
    stopped = model.generate(
        PROMPTS[:1], ENGLISH[:1], stopping_criteria=hf.StoppingCriteriaList([After()]), **options
    )
    assert stopped.tolist() == whole[:, : length + 2].tolist()
    piece = tiny_tokenizer().decode(whole[0, length + 1 : length + 2])
    by_string = model.generate(PROMPTS[:1], ENGLISH[:1], stop_strings=[piece], **options)
    assert by_string.shape[1] < whole.shape[1]


@both_backends
@pytest.mark.parametrize("option", [{"prefill_chunk_size": 4}, {"use_cache": False}])
def test_a_prefill_that_is_not_one_pass_is_refused(hooks: str, option: dict[str, Any]) -> None:
    model = steered("llama", hooks)
    with pytest.raises(CarotError, match=next(iter(option))):
        model.generate(PROMPTS, ENGLISH, **option, **GREEDY)
    with pytest.raises(CarotError, match=next(iter(option))):
        model.generate(PROMPTS, ENGLISH, generation_config=hf.GenerationConfig(**option))


@pytest.mark.parametrize("bos", [True, False])
def test_prompts_of_one_token_are_taken(bos: bool) -> None:
    tokenizer = tiny_tokenizer(bos=bos)
    model = carot.wrap(
        tiny_model("llama"), tokenizer, aligner_of("llama"), layer=1, theta=1.0, min_match=0.0
    )
    moved, plain = (logits(model, ["a", "La luna"], e) for e in (["the", "The moon"], None))
    # Without BOS the one token is the first, which is never content.
    assert torch.equal(moved[:, 0], plain[:, 0]) is not bos
    assert not torch.equal(moved[:, 1], plain[:, 1])


def test_a_tokenizer_without_pad_token_warns_and_gives_the_same_results() -> None:
    padless = carot.wrap(
        tiny_model("llama"),
        tiny_tokenizer(pad=False),
        aligner_of("llama"),
        layer=1,
        theta=1.0,
        min_match=0.0,
    )
    with pytest.warns(UserWarning, match="no pad token"):
        actual = logits(padless, PROMPTS, ENGLISH)
    assert torch.equal(actual, logits(steered("llama"), PROMPTS, ENGLISH))


def test_a_tokenizer_with_a_pad_token_says_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        logits(steered("llama"), PROMPTS, ENGLISH)


def test_content_limits_what_is_steered_and_markers_are_taken_out() -> None:
    model, question, english = steered("llama"), "La luna sale", "The moon rises"
    shots, shots_english = "P: Pan R: uno\nP: ", "Q: Bread A: one\nQ: "
    marked = logits(
        model, [f"{shots}§{question}§\nR:"], [f"{shots_english}§{english}§\nA:"], content="§"
    )
    spans = logits(
        model,
        [f"{shots}{question}\nR:"],
        [f"{shots_english}{english}\nA:"],
        content=[(len(shots), len(shots + question))],
        english_content=[(len(shots_english), len(shots_english + english))],
    )
    whole = logits(model, [f"{shots}{question}\nR:"], [f"{shots_english}{english}\nA:"])
    assert torch.equal(marked, spans)
    assert not torch.allclose(marked, whole, atol=1e-3)


def test_content_outside_the_span_does_not_move() -> None:
    model = steered("llama")
    prompt, english = "P: Pan\nP: §La luna sale§\nR:", "Q: Bread\nQ: §The moon rises§\nA:"
    view = model.align(prompt, english, content="§")
    assert "".join(view.prompt_tokens).replace(" ", "") == "Lalunasale"
    assert "".join(view.english_tokens).replace(" ", "") == "Themoonrises"


def test_a_chat_template_is_steered_in_its_user_turn_only() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = (
        "<bos>{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]"
    )
    model = carot.wrap(
        tiny_model("llama"), tokenizer, aligner_of("llama"), layer=1, theta=1.0, min_match=0.0
    )

    def chat(text: str) -> str:
        messages = [{"role": "user", "content": f"§{text}§"}]
        return str(tokenizer.apply_chat_template(messages, tokenize=False))

    view = model.align(chat("La luna"), chat("The moon"), content="§")
    assert "".join(view.prompt_tokens).replace(" ", "") == "Laluna"
    assert model.generate(chat("La luna"), chat("The moon"), content="§", **GREEDY) != (
        model.generate(chat("La luna"), None, content="§", **GREEDY)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"english": ENGLISH[:2]}, "2 English texts for 4 prompts"),
        ({"english": ENGLISH, "content": "§"}, "prompt 0: the content marker '§' stands 0 times"),
        ({"english": ENGLISH, "content": [(0, 3)]}, "1 content spans for 4 prompts"),
        ({"english": ENGLISH, "content": [(0, 99), None, None, None]}, r"span \(0, 99\)"),
        ({"english": ["word " * 300, None, None, None]}, "English text 0 has .* tokens"),
    ],
)
def test_bad_input_gets_one_clear_line(arguments: dict[str, Any], message: str) -> None:
    model = steered("llama")
    marks = footprint(model.model)
    with pytest.raises(CarotError, match=message) as caught:
        model.generate(PROMPTS, **arguments, **GREEDY)
    assert "\n" not in str(caught.value)
    assert footprint(model.model) == marks
