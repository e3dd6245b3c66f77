"""Answering a file of prompts, and going on after an interruption."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import pytest
from helpers import refusal
from tiny import corpus, tiny_model, tiny_tokenizer

from carot.errors import CarotError
from carot.inference import generate_file, read_prompts
from carot.models import Steering, fit_aligner, wrap

ROWS = [
    {"id": "z", "prompt": "La casa es grande.", "english": "The house is big."},
    {"id": "a", "prompt": "Мы читаем книгу."},
    {"id": 7, "prompt": "El sol sale.", "english": None},
    {"id": "猫", "prompt": "今日は雨です。", "english": "It is raining today."},
    {"id": "b", "prompt": 'Dice "hola"\ny se va.', "english": "He says hello\nand leaves."},
    {"id": 3, "prompt": "Hola"},
    {"id": "c", "prompt": "Llueve\u2028mucho.", "english": "It rains."},
]
KEYS = ["id", "prompt", "answer", "steered", "match", "interpolation"]
SETTINGS = {"model": "tiny", "layers": [1, 2], "theta": 0.5, "content_marker": None}


class Echo:
    """Answers with what it was asked; breaks off at one of its calls."""

    def __init__(
        self, *, breaks_at: int | None = None, by: type[BaseException] = KeyboardInterrupt
    ):
        self.breaks_at, self.by = breaks_at, by
        self.calls: list[dict[str, Any]] = []

    def check(self, prompts: list[str], english: list[str | None], **_: Any) -> None:
        """Every row is fine."""

    @property
    def aligner(self) -> Any:
        return types.SimpleNamespace(digest=lambda: "fitted")

    def generate(self, prompts: list[str], english: list[str | None], **options: Any) -> Any:
        self.calls.append({"prompts": prompts, "english": english} | options)
        if len(self.calls) == self.breaks_at:
            raise self.by
        answers = [f"{prompt} | {text} é" for prompt, text in zip(prompts, english, strict=True)]
        return answers, [Steering(bool(text), 0.5 if text else None) for text in english]

    @property
    def asked(self) -> list[str]:
        return [prompt for call in self.calls for prompt in call["prompts"]]


def answer(model: Any, output: Path, settings: dict[str, Any] = SETTINGS, **options: Any) -> Path:
    return generate_file(model, ROWS, output, settings=settings, **{"batch_size": 2} | options)


@pytest.fixture
def output(tmp_path) -> Path:
    return tmp_path / "answers.jsonl"


@pytest.fixture
def partial(output) -> Path:
    """What an interrupted run left behind: four of the seven rows."""
    with pytest.raises(KeyboardInterrupt):
        answer(Echo(breaks_at=3), output)
    return output.with_name("answers.jsonl.partial")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    """What a run that nothing interrupts writes."""
    return answer(Echo(), tmp_path_factory.mktemp("whole") / "answers.jsonl").read_bytes()


# A run


def test_answers_stand_in_the_order_of_the_rows(output):
    assert answer(Echo(), output) == output
    rows = [json.loads(line) for line in output.read_text("utf-8").split("\n")[:-1]]
    assert [list(row) for row in rows] == [KEYS] * len(ROWS)
    assert [row["id"] for row in rows] == ["z", "a", 7, "猫", "b", 3, "c"]
    assert [row["prompt"] for row in rows] == [row["prompt"] for row in ROWS]
    assert rows[0]["answer"] == "La casa es grande. | The house is big. é"
    assert [row["steered"] for row in rows] == [True, False, False, True, True, False, True]


def test_the_file_is_readable_text_with_one_line_a_row(whole):
    assert whole.count(b"\n") == len(ROWS)
    assert "今日は雨です。" in whole.decode("utf-8")
    assert b"\r" not in whole


def test_a_finished_run_leaves_only_its_output(output):
    answer(Echo(), output)
    assert list(output.parent.iterdir()) == [output]


def test_the_output_is_not_there_before_it_is_whole(output):
    class Watching(Echo):
        def generate(self, prompts, english, **options):
            assert not output.exists()
            return super().generate(prompts, english, **options)

    answer(Watching(), output)
    assert output.exists()


def test_folders_of_the_output_are_made(tmp_path):
    assert answer(Echo(), tmp_path / "new" / "folder" / "answers.jsonl").is_file()


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_batches_hold_rows_in_order_and_change_no_answer(output, whole, size):
    model = Echo()
    assert answer(model, output, batch_size=size).read_bytes() == whole
    assert model.asked == [row["prompt"] for row in ROWS]
    assert [len(call["prompts"]) for call in model.calls[:-1]] == [size] * (len(model.calls) - 1)


def test_options_and_marker_go_to_the_model(output):
    model = Echo()
    answer(model, output, content="#", max_new_tokens=3, do_sample=False)
    for call in model.calls:
        options = {key: call[key] for key in ("content", "max_new_tokens", "do_sample")}
        assert options == {"content": "#", "max_new_tokens": 3, "do_sample": False}


def test_rows_without_english_are_asked_without(output):
    model = Echo()
    answer(model, output, batch_size=3)
    assert model.calls[0]["english"] == ["The house is big.", None, None]


def test_a_finished_run_takes_the_place_of_an_earlier_output(output, whole):
    output.write_text("an earlier one\n")
    assert answer(Echo(), output).read_bytes() == whole


# An interrupted run


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError, CarotError])
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_a_run_goes_on_where_it_was_interrupted(output, whole, batch, interruption):
    with pytest.raises(interruption):
        answer(Echo(breaks_at=batch, by=interruption), output)
    assert not output.exists()
    model = Echo()
    assert answer(model, output).read_bytes() == whole
    assert model.asked == [row["prompt"] for row in ROWS[2 * (batch - 1) :]]
    assert list(output.parent.iterdir()) == [output]


def test_a_run_may_be_interrupted_again_and_again(output, whole):
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            answer(Echo(breaks_at=2), output)
    model = Echo()
    assert answer(model, output).read_bytes() == whole
    assert model.asked == [ROWS[6]["prompt"]]


def test_a_run_may_go_on_in_other_batches(output, whole, partial):
    assert partial.exists()
    model = Echo()
    assert answer(model, output, batch_size=3).read_bytes() == whole
    assert model.asked == [row["prompt"] for row in ROWS[4:]]


HALVES = ['{"id": "b", "pro', "{", '{"id": "b", "prompt": "今'.encode()[:-1], ""]


@pytest.mark.parametrize("half", HALVES)
def test_half_a_row_at_the_end_is_cut_off(output, whole, partial, half):
    with partial.open("ab") as file:
        file.write(half if isinstance(half, bytes) else half.encode())
    model = Echo()
    assert answer(model, output).read_bytes() == whole
    assert model.asked == [row["prompt"] for row in ROWS[4:]]


@pytest.mark.parametrize("size", [0, 1, 10])
def test_half_of_the_first_row_is_cut_off(output, whole, partial, size):
    partial.write_bytes(partial.read_bytes()[:size])
    model = Echo()
    assert answer(model, output).read_bytes() == whole
    assert len(model.asked) == len(ROWS)


def test_a_run_that_was_stopped_after_its_last_row_asks_nothing(output, whole, partial):
    partial.write_bytes(whole)
    model = Echo()
    assert answer(model, output).read_bytes() == whole
    assert model.calls == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("model", "other"), ("layers", [1]), ("theta", 1.0), ("content_marker", "#"), ("new", 1)],
)
def test_other_settings_are_refused_by_name_and_change_nothing(output, partial, key, value):
    before, model = partial.read_bytes(), Echo()
    message = refusal(answer, model, output, SETTINGS | {key: value})
    assert f"begun with {key} {SETTINGS.get(key)!r}, and now it is {value!r}" in message
    assert str(partial) in message
    assert model.calls == []
    assert partial.read_bytes() == before
    assert not output.exists()


def test_after_a_refusal_the_same_settings_go_on(output, whole, partial):
    assert partial.exists()
    refusal(answer, Echo(), output, SETTINGS | {"theta": 1.0})
    model = Echo()
    assert answer(model, output).read_bytes() == whole
    assert len(model.asked) == 3


@pytest.mark.parametrize("removed", ["partial", "journal"])
def test_without_rows_or_journal_a_run_begins_anew(output, partial, removed):
    partial.with_suffix(f".{removed}").unlink()
    model = Echo()
    answer(model, output, SETTINGS | {"theta": 1.0})
    assert model.asked == [row["prompt"] for row in ROWS]
    assert list(output.parent.iterdir()) == [output]


def test_a_real_model_gives_the_same_file_whether_interrupted_or_not(tmp_path):
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    steered = wrap(model, tokenizer, fit_aligner(model, tokenizer, corpus(), [1, 2]), layer=1)

    class Interrupted(Echo):
        aligner = steered.aligner

        def generate(self, *arguments, **options):
            super().generate(*arguments, **options)
            return steered.generate(*arguments, **options)

    options = {"max_new_tokens": 6, "do_sample": False}
    expected = answer(steered, tmp_path / "whole.jsonl", **options).read_bytes()
    with pytest.raises(KeyboardInterrupt):
        answer(Interrupted(breaks_at=2), tmp_path / "answers.jsonl", **options)
    assert answer(steered, tmp_path / "answers.jsonl", **options).read_bytes() == expected
    assert len(set(expected.split(b"\n"))) == len(ROWS) + 1


def test_going_on_with_other_prompts_or_another_aligner_is_refused(partial, output):
    edited = [row | {"prompt": row["prompt"] + "!"} for row in ROWS]
    with pytest.raises(CarotError, match="was begun with rows"):
        generate_file(Echo(), edited, output, settings=SETTINGS, batch_size=2)
    refitted = Echo()
    refitted.__class__ = type("Refitted", (Echo,), {"aligner": types.SimpleNamespace(digest=str)})
    with pytest.raises(CarotError, match="was begun with aligner digest"):
        answer(refitted, output)
    assert partial.is_file()


def test_a_run_that_was_refused_before_its_first_answer_leaves_nothing_in_the_way(output):
    class Strict(Echo):
        def check(self, *_: Any, **__: Any) -> None:
            raise CarotError("prompt 6 is too long")

    with pytest.raises(CarotError, match="prompt 6"):
        answer(Strict(), output)
    assert list(output.parent.iterdir()) == []
    assert answer(Echo(), output, SETTINGS | {"theta": 1}).is_file()


# Reading prompts


def written(folder: Path, text: str) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text(text, "utf-8")
    return path


def test_prompts_keep_their_order_ids_and_other_keys(tmp_path):
    rows = [row | {"note": "x"} for row in ROWS]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n\n" for row in rows)
    assert read_prompts(written(tmp_path, text)) == rows


def test_rows_without_id_get_their_number(tmp_path):
    rows = read_prompts(
        written(tmp_path, '{"prompt": "a"}\n{"id": "x", "prompt": "b"}\n{"prompt": "c"}')
    )
    assert [row["id"] for row in rows] == [0, "x", 2]


@pytest.mark.parametrize(
    ("rows", "number", "named"),
    [
        ('{"id": 4, "prompt": "a"}\n{"id": 5, "prompt": "b"}\n{"id": 4, "prompt": "c"}', 3, "id 4"),
        ('{"id": "x", "prompt": "a"}\n{"id": "x", "prompt": "a"}', 2, "id 'x'"),
        ('{"id": 1, "prompt": "a"}\n{"prompt": "b"}', 2, "id 1"),  # its number is taken
    ],
)
def test_an_id_that_stands_twice_is_refused(tmp_path, rows, number, named):
    path = written(tmp_path, rows)
    assert f"{path}, row {number}: the {named} stands twice" in refusal(read_prompts, path)


@pytest.mark.parametrize("value", ["[1]", '{"a": 1}', "null", "1.5"])
def test_an_id_that_is_no_text_or_number_is_refused(tmp_path, value):
    path = written(tmp_path, f'{{"id": {value}, "prompt": "a"}}\n')
    assert "row 1" in refusal(read_prompts, path)


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ("{}", "'prompt' is None"),
        ('{"prompt": null}', "'prompt' is None"),
        ('{"prompt": ""}', "'prompt' is ''"),
        ('{"prompt": 3}', "'prompt' is 3"),
        ('{"prompt": ["a"]}', "'prompt' is ['a']"),
        ('{"prompt": "a", "english": ""}', "'english' is ''"),
        ('{"prompt": "a", "english": false}', "'english' is False"),
        ('{"prompt": "a", "english": ["b"]}', "'english' is ['b']"),
    ],
)
def test_a_row_that_holds_no_texts_is_refused_with_its_number(tmp_path, row, named):
    path = written(tmp_path, f'{{"prompt": "ok"}}\n{row}\n')
    assert f"{path}, row 2: {named}; expected a text" in refusal(read_prompts, path)


@pytest.mark.parametrize("text", ["", "\n", "\n \n"])
def test_a_file_without_rows_is_refused(tmp_path, text):
    path = written(tmp_path, text)
    assert f"{path}: no rows" in refusal(read_prompts, path)
