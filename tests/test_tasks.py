"""Tasks: original layouts, ids, prompts, what is left out, and how answers are judged."""

from __future__ import annotations

import csv
import json
import random
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import aligner_of, refusal

from carot.evaluation import runner
from carot.evaluation.items import GenerationItem, RankingItem
from carot.evaluation.questions import draw_questions
from carot.evaluation.tasks import TASKS, get_task
from carot.evaluation.tasks.mgsm import INSTRUCTIONS, last_number
from carot.evaluation.text_metrics import exact_match, f1, first_line, tokens

Rows = list[dict[str, Any]]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8"))
    return path


def write_jsonl(path: Path, rows: Rows) -> Path:
    return write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_csv(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return path


def content(item: RankingItem | GenerationItem) -> str:
    """The characters that are steered."""
    assert item.content is not None
    start, end = item.content
    return item.prompt[start:end]


# Small files in the layouts of the originals: four questions in English and Spanish


def xcsqa_rows(language: str) -> Rows:
    return [
        {
            "id": f"q{n}",
            "lang": language,
            "question": {
                "stem": f"{language} stem {n}?",
                "choices": [{"label": x, "text": f"{language} {x.lower()}{n}"} for x in "ABCDE"],
            },
            "answerKey": "ABCD"[n],
        }
        for n in range(4)
    ]


def xcsqa(folder: Path, language: str, rows: Rows) -> Path:
    return write_jsonl(folder / "X-CSQA" / language / "dev.jsonl", rows)


def mmmlu_rows(language: str) -> Rows:
    subjects = ["anatomy", "anatomy", "virology", "virology"]
    return [
        {
            "": n,
            "Question": f"{language}, «question» {n}?",
            **{letter: f"{language} option, {letter}{n}" for letter in "ABCD"},
            "Answer": "ABCD"[n],
            "Subject": subject,
        }
        for n, subject in enumerate(subjects)
    ]


def mmmlu(folder: Path, language: str, rows: Rows) -> Path:
    locale = {"en": "mmlu.csv", "es": "mmlu_ES-LA.csv"}[language]
    return write_csv(folder / "test" / locale, rows)


def gmmlu_rows(language: str) -> Rows:
    return [
        {
            "sample_id": f"anatomy/test/{n}",
            "subject": "anatomy",
            "question": f"{language} question {n}?",
            **{f"option_{x}": f"{language} option {x}{n}" for x in "abcd"},
            "answer": "ABCD"[n],
        }
        for n in range(4)
    ]


def gmmlu(folder: Path, language: str, rows: Rows) -> Path:
    return write_jsonl(folder / language / "test.jsonl", rows)


def belebele_rows(language: str) -> Rows:
    return [
        {
            "link": f"https://en.wikinews.org/wiki/{n // 2}",
            "question_number": n % 2 + 1,
            "flores_passage": f"{language} passage {n // 2}.",
            "question": f"{language} question {n}?",
            **{f"mc_answer{k}": f"{language} answer {k} of {n}" for k in range(1, 5)},
            "correct_answer_num": str(n + 1),
            "dialect": language,
        }
        for n in range(4)
    ]


def belebele(folder: Path, language: str, rows: Rows) -> Path:
    code = {"en": "eng_Latn", "es": "spa_Latn"}[language]
    return write_jsonl(folder / "Belebele" / f"{code}.jsonl", rows)


def xcopa_rows(language: str) -> Rows:
    return [
        {
            "premise": f"The {language} premise {n}.",
            "choice1": f"The {language} first {n}.",
            "choice2": f"A {language} second {n}.",
            "question": "cause" if n % 2 else "effect",
            "label": n % 2,
            "idx": n,
            "changed": False,
        }
        for n in range(4)
    ]


def xcopa(folder: Path, language: str, rows: Rows) -> Path:
    return write_jsonl(folder / "data" / language / f"test.{language}.jsonl", rows)


def mgsm_rows(language: str) -> Rows:
    return [{"question": f"{language} problem {n}?", "answer_number": n} for n in range(4)]


def mgsm(folder: Path, language: str, rows: Rows) -> Path:
    lines = [f"{row['question']}\t{row['answer_number']}\n" for row in rows]
    return write(folder / f"mgsm_{language}.tsv", "".join(lines))


def xquad_rows(language: str) -> Rows:
    return [
        {
            "id": f"56beb{n}",
            "question": f"{language} question {n}?",
            "answers": [{"text": f"{language} answer {n}", "answer_start": 0}],
        }
        for n in range(4)
    ]


def xquad(folder: Path, language: str, rows: Rows) -> Path:
    paragraphs = [{"context": f"{language} context.", "qas": rows}]
    table = {"data": [{"title": "T", "paragraphs": paragraphs}], "version": "1.1"}
    return write(folder / f"xquad.{language}.json", json.dumps(table))


def klar_rows(language: str) -> Rows:
    return [
        {
            "subject": f"{language} Land{n}",
            "object": f"{language} City{n}",
            "object_candidates": ", ".join(f"{language} City{k}" for k in range(5)),
            "index": 100 + n,
        }
        for n in range(5)
    ]


def klar(folder: Path, language: str, rows: Rows, template: str | None = None) -> Path:
    table = {
        "name": "capital",
        "prompt_templates": [
            template or f"<subject>? The {language} answer is: <mask>.",
            "Not <subject> this <mask>",
        ],
        "samples": rows,
        "relation_id": "P36",
    }
    return write(folder / language / "capital.json", json.dumps(table, ensure_ascii=False))


LAYOUTS: dict[str, tuple[Callable[[str], Rows], Callable[..., Path]]] = {
    "klar": (klar_rows, klar),
    "klar-generate": (klar_rows, klar),
    "xcsqa": (xcsqa_rows, xcsqa),
    "mmmlu": (mmmlu_rows, mmmlu),
    "gmmlu": (gmmlu_rows, gmmlu),
    "belebele": (belebele_rows, belebele),
    "xcopa": (xcopa_rows, xcopa),
    "mgsm": (mgsm_rows, mgsm),
    "xquad": (xquad_rows, xquad),
}
NUMBERED = {"mmmlu", "mgsm"}  # joined on their row number: they have no ids
OTHER = {name: "it" if name == "xcopa" else "es" for name in LAYOUTS}
RANKED = {"klar", "xcsqa", "mmmlu", "gmmlu", "belebele", "xcopa"}


def made(folder: Path, name: str, change: Callable[[Rows], Any] | None = None) -> Any:
    """A task on small files; the rows in the other language may be changed."""
    rows, layout = LAYOUTS[name]
    layout(folder, "en", rows("en"))
    other = rows(OTHER[name])
    if change is not None:
        change(other)
    layout(folder, OTHER[name], other)
    return get_task(name, folder)


def loaded(folder: Path, name: str, change: Callable[[Rows], Any] | None = None) -> Any:
    """Questions and skipped rows in the other language, by id and as reasons."""
    items, skipped = made(folder, name, change).load(OTHER[name])
    return items, {row.id: row.reason for row in skipped}


class Fake:
    """Knows the answer of every question, or none."""

    def __init__(self, items: list[RankingItem], knows: bool) -> None:
        self.answers = {
            (item.prompt, tuple(text + item.suffix for text in item.candidates)): item.answer
            for item in items
        }
        self.knows, self.random = knows, random.Random(0)

    def score(self, prompts: Any, candidates: Any, *_: Any, **__: Any) -> list[list[float]]:
        scores = [[self.random.random() for _ in row] for row in candidates]
        for prompt, row, score in zip(prompts, candidates, scores, strict=True):
            if self.knows:
                score[self.answers[prompt, tuple(row)]] = 2.0
        return scores


# What every task does


def test_every_layout_is_of_a_registered_task():
    assert set(LAYOUTS) | {"demo", "bmlama"} == set(TASKS)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_task_keeps_to_the_protocol(tmp_path, name):
    task = made(tmp_path, name)
    assert task.name == name
    assert set(task.languages()) == {"en", OTHER[name]}
    assert (task.max_new_tokens == 0) == (name in RANKED)
    for language in task.languages():
        items, skipped = task.load(language)
        assert isinstance(items, dict)
        assert skipped == []
        for key, item in items.items():
            assert item.id == key
            assert isinstance(item, RankingItem if name in RANKED else GenerationItem)
            assert item.prompt == item.prompt.strip()
            assert f"{language} " in item.prompt


@pytest.mark.parametrize("name", ["demo", "bmlama"])
def test_other_registered_tasks_keep_to_the_protocol(tmp_path, name):
    write(tmp_path / "en.tsv", "Prompt\tAns\tCand\nIt is <mask>.\ta\ta, b\n")
    task = get_task(name, None if name == "demo" else tmp_path)
    assert task.name == name
    items, skipped = task.load("en")
    assert items
    assert skipped == []


@pytest.mark.parametrize("name", sorted(RANKED))
def test_a_ranked_question_is_not_judged_as_text(tmp_path, name):
    task = made(tmp_path, name)
    item = GenerationItem("q", "Q", ("a",))
    assert "item q is ranked" in refusal(task.is_right, item, "a")


@pytest.mark.parametrize("name", sorted(set(LAYOUTS) - NUMBERED))
@pytest.mark.parametrize("seed", [0, 1])
def test_languages_are_joined_on_ids_whatever_the_order_of_rows(tmp_path, name, seed):
    straight, _ = loaded(tmp_path / "a", name)
    shuffled, _ = loaded(tmp_path / "b", name, random.Random(seed).shuffle)
    assert list(shuffled) != list(straight)
    assert shuffled == straight
    assert set(shuffled) == set(get_task(name, tmp_path / "b").load("en")[0])


@pytest.mark.parametrize("name", sorted(RANKED))
def test_candidates_and_answer_have_the_same_position_as_in_english(tmp_path, name):
    task = made(tmp_path, name)
    english, here = task.load("en")[0], task.load(OTHER[name])[0]
    assert len({item.answer for item in here.values()}) > 1
    for key, item in here.items():
        assert item.answer == english[key].answer
        assert len(item.candidates) == len(english[key].candidates)


def ranking_task(folder: Path, name: str) -> tuple[Any, str]:
    """A ranking task and its language beside English."""
    if name in LAYOUTS:
        return made(folder, name), OTHER[name]
    if name == "bmlama":
        facts = "".join(f"{n} is in <mask>.\tb\ta, b, c, d\n" for n in range(4))
        for language in ("en", "es"):
            write(folder / f"{language}.tsv", f"Prompt\tAns\tCand\n{facts}")
    return get_task(name, folder if name == "bmlama" else None), "es"


@pytest.mark.parametrize("name", sorted(RANKED | {"demo", "bmlama"}))
def test_an_oracle_gets_all_right_and_a_random_model_chance(tmp_path, monkeypatch, name):
    task, language = ranking_task(tmp_path, name)
    items = draw_questions(task, [language]).items
    everything = items["en"] + items[language]
    oracle = Fake(everything, knows=True)
    monkeypatch.setattr(runner, "wrap", lambda *_, **__: oracle)
    monkeypatch.setattr(runner, "CarotModel", lambda *_, **__: oracle)
    results = runner.evaluate(
        None, None, aligner_of("gemma3"), task, [language], methods=["none", "carot"], layers=[1]
    )
    assert results["metrics"]["none"]["en"]["accuracy"] == 1
    for method in ("none", "carot"):
        assert results["metrics"][method][language]["accuracy"] == 1

    fake, here = Fake(everything, knows=False), items[language]
    rounds = 4000 // len(here)
    rows = [row for _ in range(rounds) for row in runner.ask(fake, task, here, None)]
    chance = fmean(1 / len(item.candidates) for item in here)
    assert fmean(row["right"] for row in rows) == pytest.approx(chance, abs=0.03)  # 4 errors


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_language_whose_file_is_missing_is_refused_with_those_there(tmp_path, name):
    task = made(tmp_path, name)
    missing = "tr" if name in ("klar", "klar-generate", "xcopa", "xquad", "gmmlu") else "fr"
    message = refusal(task.load, missing)
    assert str(tmp_path) in message
    assert "there: " in message
    assert "en" in message.partition("there: ")[2]


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_unknown_language_is_refused(tmp_path, name):
    assert "no language 'xx'" in refusal(made(tmp_path, name).load, "xx")


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_empty_folder_has_no_language(tmp_path, name):
    task = get_task(name, tmp_path)
    assert task.languages() == []
    assert "there: none" in refusal(task.load, "en")


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_file_that_is_not_utf8_is_refused(tmp_path, name):
    rows, layout = LAYOUTS[name]
    layout(tmp_path, "en", rows("en")).write_bytes(b"\xff\xfe\x00 a")
    assert "not UTF-8" in refusal(get_task(name, tmp_path).load, "en")


@pytest.mark.parametrize(
    "name", ["klar", "klar-generate", "xcsqa", "gmmlu", "belebele", "xcopa", "xquad"]
)
def test_bad_json_is_refused_with_its_line(tmp_path, name):
    rows, layout = LAYOUTS[name]
    path = layout(tmp_path, "en", rows("en"))
    text = path.read_text("utf-8")
    path.write_text(text[: text.rindex("}")], "utf-8")
    message = refusal(get_task(name, tmp_path).load, "en")
    assert f"{path}, line " in message
    assert "not valid JSON" in message


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("klar", "object"),
        ("klar-generate", "index"),
        ("xcsqa", "answerKey"),
        ("xcsqa", "question"),
        ("mmmlu", "Subject"),
        ("gmmlu", "option_c"),
        ("belebele", "flores_passage"),
        ("belebele", "link"),
        ("xcopa", "idx"),
        ("xquad", "answers"),
    ],
)
def test_a_row_without_a_column_is_refused_by_name(tmp_path, name, column):
    def drop(rows: Rows) -> None:
        for row in rows:
            del row[column]

    message = refusal(loaded, tmp_path, name, drop)
    assert f"no column {column!r}; there: " in message
    assert str(tmp_path) in message


@pytest.mark.parametrize(
    "name", ["xcsqa", "gmmlu", "belebele", "xcopa", "xquad", "klar", "klar-generate"]
)
def test_an_id_that_stands_twice_is_refused(tmp_path, name):
    assert "stands twice" in refusal(loaded, tmp_path, name, lambda rows: rows.append(rows[1]))


@pytest.mark.parametrize(
    ("name", "where", "fault", "reason"),
    [
        ("klar", "object", "Nowhere", "gold not among candidates"),
        ("klar", "object_candidates", "es City1, es City1, es City2", "duplicate candidates"),
        ("klar", "object_candidates", "es City1, , es City2", "empty candidate"),
        ("klar", "subject", " ", "empty subject or object"),
        ("klar-generate", "object", "", "empty subject or object"),
        ("xcsqa", "answerKey", "", "gold not among candidates"),
        ("xcsqa", "answerKey", "F", "gold not among candidates"),
        ("mmmlu", "B", "", "empty candidate"),
        ("mmmlu", "Answer", "C", "gold differs from English"),
        ("gmmlu", "option_a", "  ", "empty candidate"),
        ("gmmlu", "answer", "E", "gold not among candidates"),
        ("belebele", "mc_answer4", None, "empty candidate"),
        ("belebele", "correct_answer_num", "0", "gold not among candidates"),
        ("xcopa", "choice2", "The it first 1.", "duplicate candidates"),
        ("xcopa", "choice1", "", "empty candidate"),
        ("xcopa", "label", 2, "gold not among candidates"),
        ("xcopa", "premise", ".", "empty premise"),
        ("mgsm", "answer_number", "many", "answer is no number"),
        ("mgsm", "answer_number", "7", "gold differs from English"),
        ("mgsm", "question", "", "no problem"),
        ("xquad", "answers", [], "no answer"),
        ("xquad", "answers", [{"text": " "}], "no answer"),
        ("xquad", "question", "", "no question"),
    ],
)
def test_a_row_that_is_no_question_is_left_out_and_counted(tmp_path, name, where, fault, reason):
    whole, _ = loaded(tmp_path / "whole", name)
    key = list(whole)[1]
    items, skipped = loaded(tmp_path / "part", name, lambda rows: rows[1].update({where: fault}))
    if name == "klar-generate":  # and those that it would be an example of
        assert skipped.pop(key) == reason
        assert set(skipped.values()) <= {"fewer than 3 examples"}
        return
    assert skipped == {key: reason}
    assert items == {other: item for other, item in whole.items() if other != key}


# Prompts


def test_xcsqa_shows_lettered_options_and_ranks_their_texts(tmp_path):
    items, _ = loaded(tmp_path, "xcsqa")
    item = items["q2"]
    question = "es stem 2?\nA. es a2\nB. es b2\nC. es c2\nD. es d2\nE. es e2"
    assert item.prompt == f"{question}\nRespuesta:"
    assert item.candidates == ("es a2", "es b2", "es c2", "es d2", "es e2")
    assert item.answer == 2
    assert content(item) == question


def test_xcsqa_orders_options_by_letter_and_refuses_others(tmp_path):
    items, _ = loaded(
        tmp_path / "a", "xcsqa", lambda rows: rows[0]["question"]["choices"].reverse()
    )
    assert items["q0"].candidates[0] == "es a0"

    def drop(rows: Rows) -> None:
        del rows[3]["question"]["choices"][1]

    message = refusal(loaded, tmp_path / "b", "xcsqa", drop)
    assert "row 4: options A, C, D, E; expected A, B, C, D, E" in message


def test_xcsqa_with_options_that_became_the_same_is_left_out(tmp_path):
    def repeat(rows: Rows) -> None:
        rows[0]["question"]["choices"][1]["text"] = "es a0"

    assert loaded(tmp_path, "xcsqa", repeat)[1] == {"q0": "duplicate candidates"}


def test_japanese_of_xcsqa_is_in_the_folder_jap(tmp_path):
    xcsqa(tmp_path, "jap", xcsqa_rows("jap"))
    task = get_task("xcsqa", tmp_path)
    assert task.languages() == ["ja"]
    assert task.load("ja")[0]["q0"].prompt.endswith("\n答え:")


def test_mmmlu_ranks_the_letters_of_its_options(tmp_path):
    items, _ = loaded(tmp_path, "mmmlu")
    item = items["virology/0"]
    question = (
        "es, «question» 2?\nA. es option, A2\nB. es option, B2\nC. es option, C2\nD. es option, D2"
    )
    assert item.prompt == f"{question}\nRespuesta:"
    assert (item.candidates, item.answer) == (("A", "B", "C", "D"), 2)
    assert content(item) == question


def test_mmmlu_numbers_rows_within_their_subject(tmp_path):
    def interleave(rows: Rows) -> None:
        rows[:] = [rows[2], rows[0], rows[3], rows[1]]

    items, skipped = loaded(tmp_path, "mmmlu", interleave)
    assert list(items) == ["virology/0", "anatomy/0", "virology/1", "anatomy/1"]
    assert skipped == {}
    assert items["anatomy/1"].prompt.startswith("es, «question» 1?")


@pytest.mark.parametrize("suffix", ["_test.csv_es-LA.csv", "_test-es-LA.csv"])
def test_mmmlu_takes_subjects_that_are_file_names(tmp_path, suffix):
    def rename(rows: Rows) -> None:
        rows[0]["Subject"] += suffix

    assert "anatomy/1" in loaded(tmp_path, "mmmlu", rename)[0]


def test_mmmlu_whose_subjects_differ_from_english_is_refused(tmp_path):
    message = refusal(loaded, tmp_path, "mmmlu", lambda rows: rows.pop())
    assert "3 rows, 4 in English, first difference virology/1" in message


def test_mmmlu_in_another_order_keeps_no_row_with_another_answer(tmp_path):
    def swap(rows: Rows) -> None:
        rows[0], rows[1] = rows[1], rows[0]

    items, skipped = loaded(tmp_path, "mmmlu", swap)
    assert set(items) == {"virology/0", "virology/1"}
    assert set(skipped.values()) == {"gold differs from English"}


def test_mmmlu_with_a_row_of_other_length_is_refused(tmp_path):
    task = made(tmp_path, "mmmlu")
    path = tmp_path / "test" / "mmlu_ES-LA.csv"
    path.write_text(path.read_text("utf-8") + "5,short\n", "utf-8")
    assert "row 5: 2 columns; expected 8" in refusal(task.load, "es")


def test_options_over_several_lines_and_the_same_option_twice_are_no_fault_of_letters(tmp_path):
    def change(rows: Rows) -> None:
        rows[0].update(A="one\ntwo", B="same", C="same")

    items, skipped = loaded(tmp_path, "mmmlu", change)
    assert skipped == {}
    assert "A. one\ntwo\nB. same\nC. same\n" in items["anatomy/0"].prompt


def test_gmmlu_ranks_letters_under_its_sample_ids(tmp_path):
    items, _ = loaded(tmp_path, "gmmlu")
    item = items["anatomy/test/3"]
    assert content(item) + "\nRespuesta:" == item.prompt
    assert content(item).splitlines()[:2] == ["es question 3?", "A. es option a3"]
    assert (item.candidates, item.answer) == (("A", "B", "C", "D"), 3)


def test_gmmlu_is_the_same_as_jsonl_csv_and_parquet(tmp_path):
    whole, _ = loaded(tmp_path / "jsonl", "gmmlu")
    write_csv(tmp_path / "csv" / "es" / "test.csv", gmmlu_rows("es"))
    assert get_task("gmmlu", tmp_path / "csv").load("es")[0] == whole
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "parquet" / "es" / "test-00000-of-00001.parquet"
    path.parent.mkdir(parents=True)
    parquet.write_table(pyarrow.Table.from_pylist(gmmlu_rows("es")), path)
    assert get_task("gmmlu", tmp_path / "parquet").load("es")[0] == whole
    path.write_bytes(b"PAR1 cut short")
    assert "cannot be read as parquet" in refusal(
        get_task("gmmlu", tmp_path / "parquet").load, "es"
    )


def test_belebele_steers_passage_question_and_options(tmp_path):
    items, _ = loaded(tmp_path, "belebele")
    item = items["https://en.wikinews.org/wiki/1#2"]
    question = (
        "P: es passage 1.\nQ: es question 3?\nA: es answer 1 of 3\nB: es answer 2 of 3\n"
        "C: es answer 3 of 3\nD: es answer 4 of 3"
    )
    assert item.prompt == f"{question}\nRespuesta:"
    assert content(item) == question
    assert (item.candidates, item.answer) == (("A", "B", "C", "D"), 3)


def test_belebele_knows_two_letter_codes_and_its_own_for_the_rest():
    languages = get_task("belebele").languages()
    assert len(languages) == len(set(languages)) == 122
    assert {"en", "zh", "zho_Hant", "arb_Latn"} <= set(languages)
    assert "eng_Latn" not in languages


def test_xcopa_goes_on_from_the_premise_in_lower_case(tmp_path):
    items, _ = loaded(tmp_path, "xcopa")
    assert items["0"].prompt == "The it premise 0 quindi"
    assert items["1"].prompt == "The it premise 1 perché"
    assert items["1"].candidates == ("the it first 1.", "a it second 1.")
    assert items["1"].answer == 1
    english = get_task("xcopa", tmp_path).load("en")[0]
    assert [english[key].prompt.split()[-1] for key in "01"] == ["so", "because"]


@pytest.mark.parametrize(
    ("language", "premise", "choice", "prompt", "candidate"),
    [
        ("zh", "这件物品被包裹着。", "它易碎。", "这件物品被包裹着因为", "它易碎。"),
        ("th", "ฝนตก", "เมฆมาก", "ฝนตกเพราะ", "เมฆมาก"),
        ("tr", "Sustum.", "Irmak taştı.", "Sustum çünkü", "ırmak taştı."),
        ("tr", "Sustum.", "İğne battı.", "Sustum çünkü", "iğne battı."),
        ("en", "I left.", "I was tired.", "I left because", "I was tired."),
        ("en", "I left.", "I'd had enough.", "I left because", "I'd had enough."),
        ("en", "I left.", "It rained.", "I left because", "it rained."),
    ],
)
def test_xcopa_joins_sentences_as_the_language_does(
    tmp_path, language, premise, choice, prompt, candidate
):
    row = xcopa_rows(language)[1] | {"premise": premise, "choice1": choice}
    xcopa(tmp_path, language, [row])
    item = get_task("xcopa", tmp_path).load(language)[0]["1"]
    assert (item.prompt, item.candidates[0]) == (prompt, candidate)


COPA = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE copa-corpus SYSTEM "copa.dtd">
<copa-corpus version="1.0">
<item id="502" asks-for="effect" most-plausible-alternative="2">
<p>It rained.</p><a1>I was dry.</a1><a2>The street was wet.</a2>
</item>
<item id="501" asks-for="cause" most-plausible-alternative="1">
<p>The item was packed.</p><a1>It was fragile.</a1><a2>It was small.</a2>
</item>
</copa-corpus>
"""


def test_english_of_xcopa_is_copa_with_its_test_numbers_from_501(tmp_path):
    xcopa(tmp_path, "it", xcopa_rows("it"))
    path = write(tmp_path / "data" / "copa-test.xml", COPA)
    task = get_task("xcopa", tmp_path)
    assert task.languages() == ["en", "it"]
    items, skipped = task.load("en")
    assert skipped == []
    assert items["0"] == RankingItem(
        "0", "The item was packed because", ("it was fragile.", "it was small."), 0
    )
    assert items["1"].prompt == "It rained so"
    assert items["1"].answer == 1
    write(path, COPA.replace('id="502"', 'id="2"'))
    assert "id is '2'; expected one of COPA's test set" in refusal(task.load, "en")
    write(path, COPA.replace("</item>", ""))
    assert "not valid XML" in refusal(task.load, "en")


def test_xcopa_asks_for_cause_or_effect_only(tmp_path):
    message = refusal(loaded, tmp_path, "xcopa", lambda rows: rows[2].update(question="why"))
    assert "row 3: question is 'why'; expected cause or effect" in message


# KLAR


def test_klar_asks_the_first_template_up_to_its_mask(tmp_path):
    items, _ = loaded(tmp_path, "klar")
    assert list(items) == [f"capital-{index}" for index in range(100, 105)]
    item = items["capital-103"]
    assert item.prompt == "es Land3? The es answer is:"
    assert item.candidates == tuple(f"es City{n}" for n in range(5))
    assert (item.answer, item.suffix, item.content) == (3, "", None)


@pytest.mark.parametrize(
    ("template", "prompt", "suffix"),
    [
        ("<subject> 수도는: <mask>입니다.", "es Land0 수도는:", "입니다"),
        ("<subject>の首都は<mask>です。", "es Land0の首都は", "です"),
        ("<subject> 的首都是：<mask>。", "es Land0 的首都是：", ""),
    ],
)
def test_klar_scores_what_follows_the_mask_but_for_the_full_stop(
    tmp_path, template, prompt, suffix
):
    klar(tmp_path, "es", klar_rows("es"), template)
    item = get_task("klar", tmp_path).load("es")[0]["capital-100"]
    assert (item.prompt, item.suffix) == (prompt, suffix)


@pytest.mark.parametrize("name", ["klar", "klar-generate"])
@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("<mask> is of <subject>", "mask comes first"),
        ("The capital is <mask>", "template without one subject and one mask"),
        ("<subject> has one", "template without one subject and one mask"),
    ],
)
def test_klar_leaves_out_relations_whose_template_asks_nothing(tmp_path, name, template, reason):
    klar(tmp_path, "en", klar_rows("en"))
    klar(tmp_path, "es", klar_rows("es"), template)
    items, skipped = get_task(name, tmp_path).load("es")
    assert items == {}
    assert {row.reason for row in skipped} == {reason}


@pytest.mark.parametrize("name", ["klar", "klar-generate"])
def test_klar_needs_its_files(name):
    assert "--data" in refusal(get_task, name)


def test_klar_shows_three_solved_examples_and_steers_the_question(tmp_path):
    items, _ = loaded(tmp_path, "klar-generate")
    for n in range(5):
        item = items[f"capital-{100 + n}"]
        *examples, question = item.prompt.split("\n")
        assert content(item) == question == f"es Land{n}? The es answer is:"
        assert item.answers == (f"es City{n}",)
        solved = {f"es Land{k}? The es answer is: es City{k}." for k in range(5) if k != n}
        assert len(set(examples)) == 3
        assert set(examples) <= solved


def test_klar_shows_the_same_examples_in_all_languages_and_in_every_run(tmp_path):
    items, _ = loaded(tmp_path, "klar-generate", random.Random(0).shuffle)
    english = get_task("klar-generate", tmp_path).load("en")[0]
    again = get_task("klar-generate", tmp_path).load("es")[0]
    assert items == again
    for key, item in items.items():
        assert item.prompt == english[key].prompt.replace("en ", "es ")
    assert len({item.prompt.split("\n")[0] for item in items.values()}) > 1


def test_klar_shows_no_fact_about_the_same_subject(tmp_path):
    rows = klar_rows("en") + klar_rows("en")
    for n, row in enumerate(rows):
        row["index"] = n
    klar(tmp_path, "en", rows)
    for item in get_task("klar-generate", tmp_path).load("en")[0].values():
        assert item.prompt.count(content(item)) == 1


def test_klar_without_enough_examples_is_left_out(tmp_path):
    for language in ("en", "es"):
        klar(tmp_path, language, klar_rows(language)[:3])
    items, skipped = get_task("klar-generate", tmp_path).load("es")
    assert items == {}
    assert {row.reason for row in skipped} == {"fewer than 3 examples"}


def test_klar_draws_examples_from_english_which_must_be_there(tmp_path):
    klar(tmp_path, "es", klar_rows("es"))
    assert "no language 'en'" in refusal(get_task("klar-generate", tmp_path).load, "es")


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (" es City1.", True),
        ("It is ES CITY1, I think", True),
        ("\n es City1\n", True),
        (" es City2\nes Land9? The es answer is: es City1", False),
        ("", False),
    ],
)
def test_klar_looks_for_the_object_in_the_first_line(tmp_path, text, right):
    task = made(tmp_path, "klar-generate")
    assert task.is_right(task.load("es")[0]["capital-101"], text) is right


# MGSM


def test_mgsm_steers_the_problem_between_instruction_and_cue(tmp_path):
    items, _ = loaded(tmp_path, "mgsm")
    item = items["2"]
    assert item.prompt == f"{INSTRUCTIONS['es']}\n\nes problem 2?\n\nRespuesta paso a paso:"
    assert content(item) == "es problem 2?"
    assert item.answers == ("2",)


def test_mgsm_with_other_rows_than_english_is_refused(tmp_path):
    message = refusal(loaded, tmp_path, "mgsm", lambda rows: rows.pop())
    assert "mgsm_es.tsv: 3 rows, 4 in English" in message


def test_mgsm_with_another_number_of_columns_is_refused_with_its_line(tmp_path):
    path = write(tmp_path / "mgsm_en.tsv", "one\t1\ntwo\n")
    assert f"{path}, line 2: 1 columns; expected two" in refusal(
        get_task("mgsm", tmp_path).load, "en"
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The answer is 18.", "18"),
        ("16 - 3 - 4 = 9, 9 * 2 = $18", "18"),
        ("1,000", "1000"),
        ("1.000", "1000"),
        ("1 000", "1000"),
        ("1\u00a0000", "1000"),
        ("1\u202f000 €", "1000"),
        ("1'000", "1000"),
        ("70,000 dollars.", "70000"),
        ("1,234,567.5", "1234567.5"),
        ("1.234.567,50", "1234567.5"),
        ("1 234 567,5", "1234567.5"),
        ("2,76,000 টাকা", "276000"),
        ("18.00", "18"),
        ("3.5", "3.5"),
        ("3,5", "3.5"),
        ("0.125", "0.125"),
        ("0,125", "0.125"),
        ("x = -5", "-5"),
        ("x = −5", "-5"),
        ("10-5", "5"),
        ("(3)-2", "2"),
        ("٧٠٬٠٠٠ دولار", "70000"),
        ("٣٫٥", "3.5"),
        ("उत्तर ७०,००० है", "70000"),
        ("উত্তর ১৮।", "18"),
        ("คำตอบคือ ๗๐,๐๐๐ ดอลลาร์", "70000"),
        ("答えは１８です。", "18"),
        ("3, 4, 5", "5"),
        ("In 2019 100 people", "100"),
        ("150%", "150"),
        ("**18**", "18"),
        ("1,0000", "1"),
        ("no number", None),
        ("", None),
    ],
)
def test_the_last_number_of_a_text(text, number):
    assert last_number(text) == (None if number is None else Decimal(number))


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("First 3 * 4 = 12.\nThen the answer is 2.125.", True),
        ("2,125.00", True),
        ("2125", True),
        ("It is 2125, not 2126", False),
        ("I do not know", False),
    ],
)
def test_mgsm_compares_the_last_number_over_all_lines(tmp_path, text, right):
    write(tmp_path / "mgsm_en.tsv", "How much?\t2,125\n")
    task = get_task("mgsm", tmp_path)
    item = task.load("en")[0]["0"]
    assert item.answers == ("2125",)
    assert task.is_right(item, text) is right


# XQuAD


def test_xquad_steers_paragraph_and_question(tmp_path):
    items, _ = loaded(tmp_path, "xquad")
    item = items["56beb3"]
    assert item.prompt == "es context.\nes question 3?\nRespuesta:"
    assert content(item) == "es context.\nes question 3?"
    assert item.answers == ("es answer 3",)


def test_xquad_takes_the_whole_file_before_a_part_of_it(tmp_path):
    xquad(tmp_path, "first12.es", xquad_rows("part"))
    task = get_task("xquad", tmp_path)
    assert task.languages() == ["es"]
    assert task.load("es")[0]["56beb0"].answers == ("part answer 0",)
    xquad(tmp_path, "es", xquad_rows("es"))
    assert task.load("es")[0]["56beb0"].answers == ("es answer 0",)


def test_xquad_of_another_layout_is_refused(tmp_path):
    path = write(tmp_path / "xquad.es.json", "[]")
    task = get_task("xquad", tmp_path)
    assert f"{path}: no column 'data'" in refusal(task.load, "es")
    write(path, '{"data": {}}')
    assert "data is dict; expected a list" in refusal(task.load, "es")


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (" Es Answer 3!", True),
        ("the es-answer 3", False),
        ("es answer 3\nQuestion: and so on", True),
        ("\n\nes answer 3", True),
        ("es answer", False),
        ("", False),
    ],
)
def test_xquad_compares_the_first_line(tmp_path, text, right):
    task = made(tmp_path, "xquad")
    assert task.is_right(task.load("es")[0]["56beb3"], text) is right


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Eiffel-Tower,\tin Paris!", ["eiffeltower", "in", "paris"]),
        ("«¿Qué?» — “100 $”", ["qué", "100"]),
        ("a theatre an hour", ["theatre", "hour"]),
        ("北京，2008年", ["北", "京", "2008", "年"]),
        ("เมือง", ["เ", "ม", "ื", "อ", "ง"]),
        ("서울 시", ["서울", "시"]),
        ("दिल्ली।", ["दिल्ली"]),
        ("...", []),
    ],
)
def test_what_is_compared_of_an_answer(text, expected):
    assert tokens(text) == expected


def test_an_exact_match_is_with_any_of_the_answers():
    assert exact_match("The 308 points.", ["310", "308 points"])
    assert exact_match("北京 大学", ["北京大学"])
    assert not exact_match("308", ["308 points"])
    assert not exact_match("308", [])


@pytest.mark.parametrize(
    ("text", "answers", "value"),
    [
        ("308 points", ["308"], 2 / 3),
        ("308 points", ["308", "Points 308"], 1.0),
        ("b b c", ["b c c"], 2 / 3),
        ("北京大学", ["北京"], 2 / 3),
        ("Madrid", ["Paris"], 0.0),
        ("", ["Paris"], 0.0),
        ("the", ["an"], 1.0),
        ("Madrid", [], 0.0),
    ],
)
def test_f1_is_that_of_the_closest_answer(text, answers, value):
    assert f1(text, answers) == pytest.approx(value)


def test_the_first_line_is_the_first_that_is_not_empty():
    assert first_line(" \n Madrid. \nWhat else?") == "Madrid."
    assert first_line("") == ""


# The hub


def hub(monkeypatch, rows: Rows) -> list[tuple[Any, ...]]:
    """Stand in for the package datasets; return what is asked of it."""
    calls: list[tuple[Any, ...]] = []

    def load_dataset(*args: Any, **kwargs: Any) -> Rows:
        calls.append((*args, kwargs["split"]))
        return rows

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return calls


def mmlu_rows() -> Rows:
    return [
        {
            "question": row["Question"],
            "subject": row["Subject"],
            "choices": [row[letter] for letter in "ABCD"],
            "answer": n,
        }
        for n, row in enumerate(mmmlu_rows("en"))
    ]


def hub_xcsqa_rows() -> Rows:
    rows = xcsqa_rows("es")
    for row in rows:
        pairs = row["question"]["choices"]
        row["question"]["choices"] = {k: [pair[k] for pair in pairs] for k in ("label", "text")}
    return rows


def hub_xquad_rows() -> Rows:
    rows = xquad_rows("es")
    for row in rows:
        answers = {"text": [row["answers"][0]["text"]], "answer_start": [0]}
        row.update(context="es context.", answers=answers)
    return rows


def balanced_copa_rows() -> Rows:
    rows = xcopa_rows("en")
    for row in rows:
        row["id"] = 501 + row.pop("idx")
        row["mirrored"] = False
    return rows


@pytest.mark.parametrize(
    ("name", "language", "rows", "calls"),
    [
        ("xcsqa", "es", hub_xcsqa_rows(), [("INK-USC/xcsr", "X-CSQA-es", "validation")]),
        ("gmmlu", "es", gmmlu_rows("es"), [("CohereForAI/Global-MMLU", "es", "test")]),
        ("belebele", "es", belebele_rows("es"), [("facebook/belebele", "spa_Latn", "test")]),
        ("xcopa", "it", xcopa_rows("it"), [("cambridgeltl/xcopa", "it", "test")]),
        ("xquad", "es", hub_xquad_rows(), [("google/xquad", "xquad.es", "validation")]),
        (
            "mgsm",
            "es",
            mgsm_rows("es"),
            [("juletxara/mgsm", "es", "test"), ("juletxara/mgsm", "en", "test")],
        ),
        (
            "mmmlu",
            "es",
            mmmlu_rows("es"),
            [("openai/MMMLU", "ES_LA", "test"), ("cais/mmlu", "all", "test")],
        ),
    ],
)
def test_the_hub_gives_the_same_questions_as_the_files(
    monkeypatch, tmp_path, name, language, rows, calls
):
    expected, _ = loaded(tmp_path, name)
    asked = hub(monkeypatch, rows)
    task = get_task(name)
    assert {"en", language} <= set(task.languages())
    assert task.load(language) == (expected, [])
    assert asked == calls


@pytest.mark.parametrize(
    ("name", "rows", "call"),
    [
        ("mmmlu", mmlu_rows(), ("cais/mmlu", "all", "test")),
        ("xcopa", balanced_copa_rows(), ("pkavumba/balanced-copa", None, "test")),
    ],
)
def test_english_that_is_not_in_the_set_is_its_source(monkeypatch, tmp_path, name, rows, call):
    expected, _ = made(tmp_path, name).load("en")
    asked = hub(monkeypatch, rows)
    assert get_task(name).load("en") == (expected, [])
    assert asked == [call]


@pytest.mark.parametrize("name", sorted(set(LAYOUTS) - {"klar", "klar-generate"}))
def test_the_hub_needs_the_package_datasets(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install 'carot[eval]'" in refusal(get_task(name).load, "en")


@pytest.mark.parametrize("error", [OSError("no\nnet"), ValueError("no"), RuntimeError("no")])
def test_a_hub_data_set_that_cannot_be_loaded_is_named(monkeypatch, error):
    def load_dataset(*_args: Any, **_kwargs: Any) -> None:
        raise error

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    message = refusal(get_task("gmmlu").load, "en")
    assert "CohereForAI/Global-MMLU: could not be loaded (no)" in message


def test_a_language_that_the_hub_data_set_lacks_is_refused_before_loading(monkeypatch):
    asked = hub(monkeypatch, [])
    assert "xcopa: no language 'de'; there: " in refusal(get_task("xcopa").load, "de")
    assert asked == []


# Real data


def real(shared_data: Path, name: str) -> Any:
    folder = shared_data / name.partition("-")[0]
    if not folder.is_dir():
        pytest.skip(f"no data in {folder}")
    return get_task(name, folder)


REAL = {
    "klar": ("ar en es fr ja ko ru tr vi zh", 2619),
    "klar-generate": ("ar en es fr ja ko ru tr vi zh", 2619),
    "mgsm": ("bn de en es fr ja ru sw te th zh", 250),
    "xquad": ("ar de en es hi ru th tr vi zh", 322),
}


@pytest.mark.parametrize("name", REAL)
def test_real_files_have_all_questions_in_all_languages(shared_data, name):
    task = real(shared_data, name)
    languages, count = REAL[name]
    assert sorted(task.languages()) == languages.split()
    english = task.load("en")[0]
    for language in task.languages():
        items, skipped = task.load(language)
        assert skipped == []
        assert len(items) == count
        assert items.keys() == english.keys()
        for key, item in items.items():
            assert item.prompt == item.prompt.strip()
            assert item.content is None or content(item) == content(item).strip() != ""
            if isinstance(item, RankingItem):
                assert len(item.candidates) == len(english[key].candidates)


def test_the_relations_of_klar(shared_data):
    items, _ = real(shared_data, "klar").load("es")
    assert len({key.rpartition("-")[0] for key in items}) == 20
    item = items["capital-6152"]
    assert item.prompt == "¿Dónde se encuentra la capital de Azerbaiyán? La respuesta es:"
    assert item.candidates[item.answer] == "Bakú"


def test_korean_and_japanese_of_klar_have_text_behind_some_masks(shared_data):
    task = real(shared_data, "klar")
    suffixes = {
        code: {item.suffix for item in task.load(code)[0].values()} for code in ("ja", "ko")
    }
    assert suffixes == {"ja": {"", "です"}, "ko": {"", "입니다"}}
    assert {item.suffix for item in task.load("es")[0].values()} == {""}


def test_examples_of_klar_do_not_tell_the_answer_by_the_same_subject(shared_data):
    task = real(shared_data, "klar-generate")
    for item in task.load("en")[0].values():
        assert len(item.prompt.split("\n")) == 4
        assert item.prompt.count(content(item)) == 1


def test_answers_of_mgsm_are_the_same_in_all_languages(shared_data):
    task = real(shared_data, "mgsm")
    english = {key: item.answers for key, item in task.load("en")[0].items()}
    assert english["2"] == ("70000",)
    for language in task.languages():
        items, _ = task.load(language)
        assert {key: item.answers for key, item in items.items()} == english
        assert len({content(item) for item in items.values()}) == 250


def test_right_answers_of_xquad_are_judged_right(shared_data):
    task = real(shared_data, "xquad")
    for language in ("en", "zh", "th", "ar", "hi"):
        for item in task.load(language)[0].values():
            assert task.is_right(item, f" {item.answers[0]}.\nAnd so on")
            assert f1(item.answers[0], item.answers) == 1.0
            assert "\ufeff" not in item.prompt[:1]
