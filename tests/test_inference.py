"""Answering a file of prompts, and going on after an interruption."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import threading
import time
import tracemalloc
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import ANSWER_KEYS, refusal
from tiny import corpus, tiny_model, tiny_tokenizer

from carot.alignment import Guard
from carot.errors import CarotError
from carot.inference import Columns, Processes, generate_file, open_rows
from carot.inference.rows import Rows
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
SETTINGS = {"model": "tiny", "layers": [1, 2], "theta": 0.5}
WIDEST_FIRST = sorted(
    ROWS, key=lambda row: -max(map(len, (row["prompt"], row.get("english") or "")))
)


class Echo:
    """Answers with what it was asked; breaks off at one of its calls."""

    def __init__(
        self, *, breaks_at: int | None = None, by: type[BaseException] = KeyboardInterrupt
    ):
        self.breaks_at, self.by = breaks_at, by
        self.calls: list[dict[str, Any]] = []

    guard = Guard(0.0)
    tokenizer = None

    def check(self, prompts: list[str], english: Any = None, **_: Any) -> list[tuple[int, int]]:
        """Every row is fine, and a letter is a token."""
        given = english or [None] * len(prompts)
        return [(len(a), len(b or "")) for a, b in zip(prompts, given, strict=True)]

    @property
    def aligner(self) -> Any:
        return types.SimpleNamespace(digest=lambda: "fitted")

    def generate(self, prompts: list[str], english: list[str | None], **options: Any) -> Any:
        self.calls.append({"prompts": prompts, "english": english} | options)
        if len(self.calls) == self.breaks_at:
            raise self.by
        answers = [f"{prompt} | {text} é" for prompt, text in zip(prompts, english, strict=True)]
        return answers, [Steering(bool(text), None, 0.5 if text else None) for text in english]

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
    assert [list(row) for row in rows] == [ANSWER_KEYS] * len(ROWS)
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
def test_batches_hold_rows_of_like_length_and_change_no_answer(output, whole, size):
    model = Echo()
    assert answer(model, output, batch_size=size).read_bytes() == whole
    assert model.asked == [row["prompt"] for row in WIDEST_FIRST]
    assert [len(call["prompts"]) for call in model.calls[:-1]] == [size] * (len(model.calls) - 1)


def test_options_and_marker_go_to_the_model(output):
    model = Echo()
    rows = [{"prompt": "a #b c# d", "english": "#B#"}]
    settings = {"settings": SETTINGS, "max_new_tokens": 3, "do_sample": False}
    generate_file(model, rows, output, content="#", **settings)
    [call] = model.calls
    assert (call["prompts"], call["content"]) == (["a b c d"], [(2, 5)])
    assert (call["english"], call["english_content"]) == (["B"], [(0, 1)])
    assert (call["max_new_tokens"], call["do_sample"]) == (3, False)


def test_rows_without_english_are_asked_without(output):
    model = Echo()
    answer(model, output, batch_size=3)
    asked = {
        p: e for call in model.calls for p, e in zip(call["prompts"], call["english"], strict=True)
    }
    assert asked == {row["prompt"]: row.get("english") for row in ROWS}


def test_a_finished_run_takes_the_place_of_an_earlier_output(output, whole):
    output.write_text("an earlier one\n")
    assert answer(Echo(), output).read_bytes() == whole


# An interrupted run


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_a_run_goes_on_where_it_was_interrupted(output, whole, batch, interruption):
    with pytest.raises(interruption):
        answer(Echo(breaks_at=batch, by=interruption), output)
    assert not output.exists()
    model = Echo()
    assert answer(model, output).read_bytes() == whole
    assert model.asked == [row["prompt"] for row in WIDEST_FIRST[2 * (batch - 1) :]]
    assert list(output.parent.iterdir()) == [output]


def test_a_run_may_be_interrupted_again_and_again(output, whole):
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            answer(Echo(breaks_at=2), output)
    model = Echo()
    assert answer(model, output).read_bytes() == whole
    assert model.asked == [WIDEST_FIRST[6]["prompt"]]


def test_a_run_may_go_on_in_other_batches(output, whole, partial):
    assert partial.exists()
    model = Echo()
    assert answer(model, output, batch_size=3).read_bytes() == whole
    assert set(model.asked) >= {row["prompt"] for row in WIDEST_FIRST[4:]}


HALVES = ['4\t{"id": "b", "pro', "4\t{", "4", '4\t{"id": "b", "prompt": "今'.encode()[:-1], ""]


@pytest.mark.parametrize("half", HALVES)
def test_half_a_row_at_the_end_is_cut_off(output, whole, partial, half):
    with partial.open("ab") as file:
        file.write(half if isinstance(half, bytes) else half.encode())
    model = Echo()
    assert answer(model, output).read_bytes() == whole
    assert model.asked == [row["prompt"] for row in WIDEST_FIRST[4:]]


@pytest.mark.parametrize("size", [0, 1, 10])
def test_half_of_the_first_row_is_cut_off(output, whole, partial, size):
    partial.write_bytes(partial.read_bytes()[:size])
    model = Echo()
    assert answer(model, output).read_bytes() == whole
    assert len(model.asked) == len(ROWS)


def test_a_run_that_was_stopped_after_its_last_row_asks_nothing(output, whole, partial):
    lines = whole.decode("utf-8").split("\n")[:-1]
    partial.write_text("".join(f"{at}\t{line}\n" for at, line in enumerate(lines)), "utf-8")
    model = Echo()
    assert answer(model, output).read_bytes() == whole
    assert model.calls == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("model", "other"), ("layers", [1]), ("theta", 1.0), ("new", 1)],
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
    assert model.asked == [row["prompt"] for row in WIDEST_FIRST]
    assert list(output.parent.iterdir()) == [output]


def test_a_real_model_gives_the_same_file_whether_interrupted_or_not(tmp_path):
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    steered = wrap(model, tokenizer, fit_aligner(model, tokenizer, corpus(), [1, 2]), layer=1)

    class Interrupted(Echo):
        aligner, guard, tokenizer = steered.aligner, steered.guard, steered.tokenizer
        check = steered.check

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


def test_options_that_no_row_can_be_asked_with_are_refused_at_once(output):
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    steered = wrap(model, tokenizer, fit_aligner(model, tokenizer, corpus(), [1]))
    assert "use_cache" in refusal(answer, steered, output, use_cache=False)
    assert list(output.parent.iterdir()) == []


# Rows that cannot be answered


class Weak(Echo):
    """Runs out of memory beyond some letters, and cannot answer some rows at all."""

    def __init__(self, most: int, bad: str = "") -> None:
        super().__init__()
        self.most, self.bad = most, bad

    def generate(self, prompts, english, **options):
        if self.bad and self.bad in prompts:
            raise CarotError("source states of batch row 0 hold NaN")
        if len(prompts) * max(map(len, prompts)) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().generate(prompts, english, **options)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]


def test_a_batch_halves_itself_when_memory_runs_out(output, whole):
    model = Weak(most=40)
    assert answer(model, output, batch_size=7).read_bytes() == whole
    assert sorted(model.asked) == sorted(row["prompt"] for row in ROWS)


def test_after_memory_ran_out_larger_batches_are_not_tried_again(output):
    rows = [{"prompt": "a" * 10} for _ in range(40)]
    model = Weak(most=20)
    generate_file(model, rows, output, settings=SETTINGS, batch_size=8, max_batch_tokens=10_000)
    assert [len(call["prompts"]) for call in model.calls] == [2] * 20


def test_a_row_for_which_memory_does_not_suffice_is_an_error_row(output):
    rows = read(answer(Weak(most=16), output, batch_size=7))
    assert [row["id"] for row in rows] == [row["id"] for row in ROWS]
    failed = {row["id"]: row["error"] for row in rows if "error" in row}
    assert failed == {
        "z": "memory ran out for 18 tokens; shorten it, or ask for less",
        "b": "memory ran out for 25 tokens; shorten it, or ask for less",
    }


def test_what_is_wrong_with_one_row_stops_no_other(output, whole):
    rows = read(answer(Weak(most=1000, bad="El sol sale."), output, batch_size=7))
    assert rows[2] == {
        "id": 7,
        "prompt": "El sol sale.",
        "error": "source states of batch row 0 hold NaN",
    }
    expected = [json.loads(line) for line in whole.decode().split("\n")[:-1]]
    assert rows[:2] + rows[3:] == expected[:2] + expected[3:]


def test_another_error_is_raised_and_what_was_done_is_kept(output):
    with pytest.raises(RuntimeError):
        answer(Echo(breaks_at=2, by=RuntimeError), output)
    assert len(output.with_name("answers.jsonl.partial").read_text().split("\n")) == 3


def test_rows_that_do_not_fit_the_model_are_error_rows(output):
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    steered = wrap(model, tokenizer, fit_aligner(model, tokenizer, corpus(), [1]))
    rows = [
        {"prompt": "#La casa# es", "english": "#The house# is"},
        {"prompt": "#La casa es", "english": "#The house# is"},
        {"prompt": "#La casa# es " * 300, "english": None},
        {"prompt": "#La casa# es " + "grande " * 900, "english": None},
    ]
    found = read(generate_file(steered, rows, output, settings={}, content="#", max_new_tokens=2))
    assert "answer" in found[0]
    assert "the content marker '#' stands 1 times" in found[1]["error"]
    assert "the content marker '#' stands 600 times" in found[2]["error"]
    assert "context" in found[3]["error"]
    assert "prompt 0" not in found[3]["error"]


# Batches


def test_batches_hold_rows_of_like_width_within_the_budget(output):
    rows = [{"prompt": "x" * (1 + 37 * number % 101)} for number in range(300)]
    model = Echo()
    options = {"settings": SETTINGS, "max_batch_tokens": 500, "max_new_tokens": 5}
    found = read(generate_file(model, rows, output, **options))
    assert [row["prompt"] for row in found] == [row["prompt"] for row in rows]
    sizes = [
        (len(call["prompts"]), max(map(len, call["prompts"])) + 5, min(map(len, call["prompts"])))
        for call in model.calls
    ]
    assert all(count * width <= 500 for count, width, _ in sizes)
    padded = sum(count * width for count, width, _ in sizes)
    assert padded < 1.1 * sum(len(row["prompt"]) + 5 for row in rows)


def test_a_row_beyond_the_budget_is_asked_alone(output):
    model = Echo()
    rows = [{"prompt": "x" * 50}, {"prompt": "y"}, {"prompt": "z"}]
    generate_file(model, rows, output, settings=SETTINGS, max_batch_tokens=10)
    assert [call["prompts"] for call in model.calls] == [["x" * 50], ["y", "z"]]


def test_memory_does_not_grow_with_the_rows(tmp_path):
    def peak(count: int) -> int:
        path = tmp_path / f"{count}.jsonl"
        with path.open("w") as file:
            for number in range(count):
                file.write(json.dumps({"id": number, "prompt": f"number {number} " * 20}) + "\n")
        rows = open_rows(path)
        tracemalloc.start()
        generate_file(Forgetful(), rows, tmp_path / "answers.jsonl", settings={})
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    class Forgetful(Echo):
        def generate(self, prompts, english, **options):
            self.calls.clear()
            return super().generate(prompts, english, **options)

    peak(100)
    few, many = peak(4096), peak(16384)
    assert many - few < 64 * (16384 - 4096)  # a row alone has 300 bytes


# Chat


def test_a_chat_template_goes_around_both_sides_and_is_not_steered(output):
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}<model>"
    )
    model = Echo()
    model.tokenizer = tokenizer
    rows = [{"prompt": "Hola", "english": "Hi"}, {"prompt": "Di §hola§ ya", "english": "§Hi§"}]
    generate_file(model, rows[:1], output, settings={}, chat=True)
    generate_file(model, rows[1:], output, settings={}, chat=True, content="§")
    plain, marked = model.calls
    assert plain["prompts"] == ["<user>Hola<model>"]
    assert plain["english"] == ["<user>Hi<model>"]
    assert (plain["content"], plain["english_content"]) == ([(6, 10)], [(6, 8)])
    assert marked["prompts"] == ["<user>Di hola ya<model>"]
    assert (marked["content"], marked["english_content"]) == ([(9, 13)], [(6, 8)])
    assert "no chat template" in refusal(
        generate_file, Echo(), rows[:1], output, settings={}, chat=True
    )


# English that is missing


class Shouting:
    """A pivot that writes in capitals, but knows no questions."""

    name = "shouting"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}

    def translate(self, prompts, languages):
        self.asked += prompts
        return [None if "?" in prompt else prompt.upper() for prompt in prompts]


def test_a_pivot_makes_the_english_that_is_missing(output):
    rows = [
        {"prompt": "la casa", "english": "the house", "language": "es"},
        {"prompt": "el sol", "language": "es"},
        {"prompt": "the sun", "language": "en"},
        {"prompt": "qué?", "language": "es"},
    ]
    pivot, model = Shouting(), Echo()
    found = read(generate_file(model, rows, output, settings={}, pivot=pivot, batch_size=2))
    assert sorted(pivot.asked) == ["el sol", "qué?"]
    assert [row["english"] for row in found] == ["the house", "EL SOL", None, None]
    assert [row["steered"] for row in found] == [True, True, False, False]
    assert found[2]["reason"] == "already English"
    assert [row["language"] for row in found] == ["es", "es", "en", "es"]


def test_a_pivot_is_given_the_content_alone(output):
    pivot, model = Shouting(), Echo()
    rows = [{"prompt": "Q: §el sol§ A:", "language": "es"}]
    generate_file(model, rows, output, settings={}, pivot=pivot, content="§")
    assert pivot.asked == ["el sol"]
    assert model.calls[0]["english"] == ["EL SOL"]
    assert model.calls[0]["english_content"] == [None]


def test_an_english_prompt_stays_unsteered_even_beside_an_english_text(output):
    model = Echo()
    rows = [{"prompt": "the sun", "english": "the sun", "language": "en"}]
    [row] = read(generate_file(model, rows, output, settings={}))
    assert model.calls[0]["english"] == [None]
    assert (row["steered"], row["reason"]) == (False, "already English")


# Several processes


def share(rank: int, count: int, output: Path, model: Any = None) -> Path:
    return answer(model or Echo(), output, processes=Processes(rank, count))


@pytest.mark.parametrize("count", [2, 3, 9])
def test_processes_share_the_rows_and_the_main_one_puts_them_together(output, whole, count):
    models = [Echo() for _ in range(count)]
    for rank in reversed(range(count)):
        share(rank, count, output, models[rank])
    assert output.read_bytes() == whole
    asked = [prompt for model in models for prompt in model.asked]
    assert sorted(asked) == sorted(row["prompt"] for row in ROWS)
    assert list(output.parent.iterdir()) == [output]


def test_the_main_process_waits_for_the_others(output, whole):
    main = threading.Thread(target=share, args=(0, 2, output))
    main.start()
    time.sleep(0.2)
    assert not output.exists()
    share(1, 2, output)
    main.join(timeout=10)
    assert output.read_bytes() == whole


def test_a_job_goes_on_with_another_number_of_processes(output, whole):
    for rank in (1, 2):
        share(rank, 3, output)
    model = Echo()
    assert answer(model, output).read_bytes() == whole
    assert 0 < len(model.asked) < len(ROWS)
    assert list(output.parent.iterdir()) == [output]


def test_launchers_say_which_process_this_is(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert Processes.launched() == Processes(0, 1)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert Processes.launched() == Processes(2, 4)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "process 2 of 2" in refusal(Processes.launched)
    monkeypatch.setenv("RANK", "x")
    assert "RANK is 'x'" in refusal(Processes.launched)


def test_killed_at_any_moment_a_job_ends_in_the_same_file(tmp_path):
    """20 times kill -9: no row is lost, none is there twice."""
    rows = [
        {"id": number, "prompt": f"La casa {'muy ' * (number % 9)}{number} es", "english": english}
        for number, english in enumerate(["The house is", None, "A house"] * 40)
    ]
    rows[7] = {"id": 7, "prompt": 3}
    script = tmp_path / "job.py"
    script.write_text(JOB, "utf-8")
    (tmp_path / "rows.json").write_text(json.dumps(rows), "utf-8")

    def start(output: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        return subprocess.Popen(
            [sys.executable, str(script), str(tmp_path), output], env=environment, stdin=-1
        )

    job = start("whole.jsonl")
    job.communicate(b"0\n")
    assert job.returncode == 0
    job = start("killed.jsonl")
    assert job.stdin is not None
    job.communicate(b"20\n")
    assert job.returncode == 0
    whole = (tmp_path / "whole.jsonl").read_bytes()
    assert (tmp_path / "killed.jsonl").read_bytes() == whole
    assert [json.loads(line)["id"] for line in whole.split(b"\n")[:-1]] == list(range(120))
    kills = json.loads((tmp_path / "kills.json").read_text())
    assert len(kills) == 20
    assert sum(0 < rows_there < 120 for rows_there in kills) > 10


JOB = """
import json, os, random, signal, sys, time
from pathlib import Path

import torch

torch.set_num_threads(1)
from helpers import steered
from carot.inference import generate_file

folder, output = Path(sys.argv[1]), Path(sys.argv[1]) / sys.argv[2]
rows = json.loads((folder / "rows.json").read_text())
model = steered("llama", "torch")
model.generate(["a"], ["b"], max_new_tokens=1)


def run():
    generate_file(
        model, rows, output, settings={}, batch_size=4, max_new_tokens=4, do_sample=False
    )


random.seed(0)
partial, kills = output.with_name(output.name + ".partial"), []
for turn in range(int(input())):
    child = os.fork()
    if not child:
        run()
        os._exit(0)
    aim = random.randint(1, 6) * 4 * (turn + 1) // 8 + 1  # rows at which it is killed
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        there = partial.read_bytes().count(b"\\n") if partial.exists() else 0
        if there >= aim:
            time.sleep(random.random() / 50)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.001)
    kills.append(partial.read_bytes().count(b"\\n") if partial.exists() else 120)
    assert partial.exists(), "it was finished before it was killed"
if kills:
    (folder / "kills.json").write_text(json.dumps(kills))
run()
"""


# Reading rows


def written(folder: Path, text: str, name: str = "prompts.jsonl") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def texts(rows: Any) -> list[tuple[Any, str, str | None, str | None]]:
    return [(row.id, row.prompt, row.english, row.language) for row in rows]


EXPECTED = [
    ("a", "Hola, sol", "Hi", "es"),
    (1, "Bonjour", None, "fr"),
    ("c", "Hej\nda", None, None),
]


def test_every_format_gives_the_same_rows(tmp_path):
    records = [
        {"id": "a", "prompt": "Hola, sol", "english": "Hi", "language": "es"},
        {"id": None, "prompt": "Bonjour", "english": None, "language": "fr"},
        {"id": "c", "prompt": "Hej\nda", "english": "", "language": None},
    ]
    lines = "".join(json.dumps(record) + "\n\n" for record in records)
    assert texts(open_rows(written(tmp_path, lines))) == EXPECTED
    for name, mark in (("a.csv", ","), ("a.tsv", "\t")):
        path = tmp_path / name
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            writer = csv.DictWriter(file, list(records[0]), delimiter=mark)
            writer.writeheader()
            writer.writerows(records)
        assert texts(open_rows(path)) == EXPECTED
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "a.parquet")
    rows = open_rows(tmp_path / "a.parquet")
    assert texts(rows) == texts(rows) == EXPECTED
    assert rows.total == 3
    assert texts(Rows.of(records)) == EXPECTED


def test_columns_have_other_names_where_it_is_said(tmp_path):
    path = written(tmp_path, '{"q": "Hola", "en": "Hi", "n": 5, "l": "es"}\n')
    assert texts(open_rows(path, Columns("q", "en", "l", "n"))) == [(5, "Hola", "Hi", "es")]
    message = refusal(open_rows, path)
    assert f"{path}: no column 'prompt'; there: q, en, n, l; name it with --prompt-col" in message
    message = refusal(open_rows, path, Columns("q", english="eng"))
    assert "no column 'eng' (did you mean 'en'?)" in message


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{", "line 2: not valid JSON"),
        ("[1]", "line 2: expected a JSON object"),
        ("{}", "'prompt' is None; expected a text"),
        ('{"prompt": " "}', "'prompt' is ' '"),
        ('{"prompt": 3}', "'prompt' is 3"),
        ('{"prompt": "a", "english": false}', "'english' is False"),
        ('{"prompt": "a", "language": 1}', "'language' is 1"),
        ('{"prompt": "a", "id": [1]}', "'id' is [1]; expected text or number"),
    ],
)
def test_a_row_that_cannot_be_read_says_why_and_the_rest_goes_on(tmp_path, line, named):
    rows = list(open_rows(written(tmp_path, f'{{"prompt": "ok"}}\n{line}\n{{"prompt": "so"}}\n')))
    assert [row.error is None for row in rows] == [True, False, True]
    assert named in (rows[1].error or "")
    assert rows[1].id == 1


def test_a_line_that_is_not_utf8_and_a_csv_row_of_another_width_are_error_rows(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"prompt": "ok"}\n{"prompt": "\xff"}\n')
    assert "line 2: not UTF-8" in (list(open_rows(path))[1].error or "")
    rows = list(open_rows(written(tmp_path, "prompt,id\na,1\nb\nc,3\n", "a.csv")))
    assert [row.error for row in rows] == [None, "line 3: 1 fields; expected 2", None]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_source_without_rows_is_refused(tmp_path, name):
    path = written(tmp_path, "\n", name)
    assert f"{path}: no rows" in refusal(open_rows, path)


def test_what_cannot_be_opened_is_refused(tmp_path):
    assert "no such file; expected JSONL, CSV" in refusal(open_rows, tmp_path / "none.jsonl")
    pytest.importorskip("pyarrow")
    assert "not readable as Parquet" in refusal(open_rows, written(tmp_path, "x", "a.parquet"))
    path = tmp_path / "a.csv"
    path.write_bytes(b"prompt\n\xff\n")
    assert "cannot be read" in refusal(open_rows, path)


def test_a_hub_data_set_is_streamed(monkeypatch):
    class Streamed(list):
        info = types.SimpleNamespace(splits=None, version="1.0.0", download_checksums=None)

    asked = []

    def load(name, **options):
        asked.append((name, options))
        return Streamed([{"prompt": "Hola"}, {"prompt": "Sol"}])

    monkeypatch.setattr("carot.inference.rows.load_hub", load)
    rows = open_rows("hub:some/data:test")
    assert [row.prompt for row in rows] == ["Hola", "Sol"]
    assert asked == [("some/data", {"split": "test", "streaming": True})]
    assert rows.total is None
