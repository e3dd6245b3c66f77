"""Ranking, the questions that it ranks, and the demonstration."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from helpers import refusal
from tiny import tiny_model, tiny_tokenizer

import carot.demo
from carot.corpora import ParallelCorpus
from carot.demo import _questions, run_demo
from carot.evaluation import GenerationItem, RankingItem, Skipped, accuracy, best, rank
from carot.evaluation.questions import draw_questions
from carot.evaluation.tasks import TASKS, get_task, register_task
from carot.models import fit_aligner, load_model, wrap

ROOT = Path(__file__).resolve().parent.parent
LANGUAGES = ["en", "es", "fr", "de", "ru", "ja", "zh", "ar", "hi", "sw", "tr", "vi", "ko"]


# Ranking


def items(language: str, rows: Sequence[int] = range(5), **extra: Any) -> list[RankingItem]:
    return [
        RankingItem(f"fact-{row}", f"{language} prompt {row}", ("a", "b", "c"), row % 3, **extra)
        for row in rows
    ]


class Scorer:
    """Gives the scores that it is told, and remembers what it was asked."""

    def __init__(self, scores: list[list[float]]) -> None:
        self.scores = scores
        self.asked: dict[str, Any] = {}

    def score(self, prompts, candidates, english=None, **options) -> list[list[float]]:
        self.asked = {"prompts": prompts, "candidates": candidates, "english": english} | options
        return self.scores


@pytest.mark.parametrize("answer", [-1, 3, 100])
def test_an_answer_that_is_no_candidate_is_refused_with_its_item(answer):
    message = refusal(RankingItem, "fact-1", "The capital is", ("a", "b", "c"), answer)
    assert "item fact-1" in message
    assert f"number {answer} of 3 candidates" in message


def test_an_item_without_candidates_is_refused():
    assert "of 0 candidates" in refusal(RankingItem, "fact-1", "The capital is", (), 0)


def test_ranking_asks_for_each_candidate_with_what_stands_behind_it():
    model = Scorer([[-1, -2, -3]] * 2)
    scores = rank(model, [*items("es")[:1], *items("ja", [1], suffix=" に")], batch_size=3)
    assert scores == [[-1, -2, -3]] * 2
    assert model.asked["prompts"] == ["es prompt 0", "ja prompt 1"]
    assert [list(row) for row in model.asked["candidates"]] == [
        ["a", "b", "c"],
        ["a に", "b に", "c に"],
    ]
    assert model.asked["batch_size"] == 3
    assert not any(model.asked["english"] or [])


def test_a_question_is_steered_by_its_english_source_or_else_the_english_prompt():
    model = Scorer([[-1, -2, -3]] * 3)
    english = [*items("en")[:1], None, *items("en", [2], source="as a question", content=(0, 2))]
    rank(model, items("es", range(3), content=(3, 9)), english)
    assert model.asked["english"] == ["en prompt 0", None, "as a question"]
    assert model.asked["content"] == [(3, 9)] * 3
    assert model.asked["english_content"] == [None, None, (0, 2)]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_real_model_ranks_as_it_scores_in_batches_of_any_size(size):
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    aligner = fit_aligner(model, tokenizer, ParallelCorpus.bundled(["en", "es"], limit=30), [1, 2])
    steered = wrap(model, tokenizer, aligner, layers=[1, 2], min_match=0.0)
    spanish, english = (list(facts(code).values())[::9] for code in ("es", "en"))
    assert len(spanish) > 9
    scores = rank(steered, spanish, english, batch_size=size)
    prompts = [item.prompt for item in spanish]
    candidates = [item.candidates for item in spanish]
    expected = steered.score(prompts, candidates, [item.prompt for item in english])
    for row, expected_row, plain in zip(scores, expected, rank(steered, spanish), strict=True):
        assert row == pytest.approx(expected_row, abs=1e-4)
        assert row != pytest.approx(plain, abs=1e-2)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([-1, -2, -3], 0),
        ((-3, -2, -1), 2),
        ([-1, -1, -1], 0),
        ([-2, -1, -1], 1),
        ([-1, -2, -1], 0),
        ([float("-inf")] * 3, 0),
    ],
)
def test_the_best_score_is_the_answer_and_ties_go_to_the_first(scores, expected):
    assert best([scores, [0, 1, 0]]) == [expected, 1]


@pytest.mark.parametrize(
    ("predictions", "share"),
    [
        ([0, 1, 2, 0, 1], 1.0),
        ([0, 1, 2, 1, 2], 0.6),
        ([1, 2, 0, 1, 1], 0.2),
        ([1, 0, 1, 2, 0], 0.0),
    ],
)
def test_accuracy_is_the_share_of_right_answers(predictions, share):
    assert accuracy(predictions, items("es")) == share  # the answers are 0, 1, 2, 0, 1


def test_accuracy_needs_a_prediction_for_each_item():
    with pytest.raises(ValueError, match="longer"):
        accuracy([0, 1], items("es"))


# Tasks


@pytest.mark.parametrize("name", ["unknown", ""])
def test_an_unknown_task_is_refused_with_those_there_are(name):
    message = refusal(get_task, name)
    assert f"no task {name!r}" in message
    for known in ("demo", "bmlama"):
        assert known in message


def test_a_task_whose_folder_is_missing_is_refused_by_name(tmp_path):
    assert f"{tmp_path / 'no'}: no such folder" in refusal(get_task, "bmlama", tmp_path / "no")


def test_a_task_that_needs_its_files_asks_for_their_folder():
    assert "bmlama" in refusal(get_task, "bmlama")


def test_a_task_of_ones_own_is_found_by_its_name(monkeypatch, tmp_path):
    monkeypatch.setattr("carot.evaluation.tasks.TASKS", dict(TASKS))
    register_task("mine", lambda folder: ("mine", folder))
    assert get_task("mine", tmp_path) == ("mine", tmp_path)


@pytest.mark.parametrize("name", ["demo", "bmlama"])
def test_a_ranking_task_judges_no_text(name, tmp_path):
    item = GenerationItem("fact-1", "The capital is", ("Oslo",))
    assert "fact-1 is ranked" in refusal(get_task(name, tmp_path).is_right, item, "Oslo")


# Questions


class Quiz:
    """A task of given questions; each language has them in an order of its own."""

    name = "quiz"

    def __init__(self, orders: dict[str, Sequence[int]]) -> None:
        self.orders = orders

    def load(self, language: str) -> tuple[dict[str, RankingItem], list[Skipped]]:
        rows = {item.id: item for item in items(language, self.orders[language])}
        return rows, [Skipped("fact-99", "no mask")] * (language == "es")


@pytest.mark.parametrize("order", [[4, 3, 2, 1, 0], [1, 3, 0, 4, 2]])
@pytest.mark.parametrize("limit", [None, 3])
def test_questions_are_joined_on_ids_and_not_on_order(order, limit):
    expected = draw_questions(Quiz({"en": range(5), "es": range(5)}), ["es"], limit)
    shuffled = draw_questions(Quiz({"en": order, "es": range(5)}), ["es"], limit)
    assert shuffled == expected
    for code in ("en", "es"):
        assert [item.id for item in shuffled.items[code]] == shuffled.ids
    assert len(shuffled) == (limit or 5)


def test_questions_are_those_that_every_language_has():
    drawn = draw_questions(Quiz({"en": range(5), "es": range(1, 9), "ru": [4, 1, 0]}), ["es", "ru"])
    assert sorted(drawn.ids) == ["fact-1", "fact-4"]
    assert drawn.languages == ["es", "ru"]
    lonely = {code: row.get("not in every language") for code, row in drawn.skipped.items()}
    assert lonely == {"en": 3, "es": 6, "ru": 1}
    assert drawn.skipped["es"]["no mask"] == 1


def test_a_smaller_draw_is_the_beginning_of_a_larger_one():
    quiz = Quiz({"en": range(50), "es": range(50)})
    ids = {limit: draw_questions(quiz, ["es"], limit, seed=3).ids for limit in (5, 20, None)}
    assert ids[5] == ids[20][:5] == ids[None][:5]
    assert ids[20] == ids[None][:20]
    assert ids[None] != draw_questions(quiz, ["es"], seed=4).ids
    assert sorted(ids[None]) == sorted(draw_questions(quiz, ["es"], seed=4).ids)


def test_a_draw_depends_on_its_seed_alone():
    drawn = draw_questions(Quiz({"en": range(5), "es": range(5)}), ["es"], seed=0)
    assert drawn.ids == ["fact-2", "fact-1", "fact-0", "fact-4", "fact-3"]


def test_parts_of_the_questions_share_no_id_and_keep_languages_together():
    drawn = draw_questions(Quiz({"en": range(9), "es": range(9)}), ["es"])
    parts = [drawn.part(0, 4), drawn.part(4, 9)]
    assert parts[0].ids + parts[1].ids == drawn.ids
    for part in parts:
        assert [item.id for item in part.items["es"]] == part.ids


@pytest.mark.parametrize(
    ("languages", "named"),
    [([], "languages are none"), (["en", "es"], "without English"), (["es", "es"], "each once")],
)
def test_languages_that_cannot_be_asked_are_refused(languages, named):
    quiz = Quiz({"en": range(5), "es": range(5)})
    assert named in refusal(draw_questions, quiz, languages)


def test_languages_without_a_common_question_are_refused():
    quiz = Quiz({"en": range(5), "es": range(5, 9)})
    assert "task quiz: no question is in all of en, es" in refusal(draw_questions, quiz, ["es"])


# The bundled facts


@cache
def facts(language: str) -> dict[str, RankingItem]:
    return get_task("demo").load(language)[0]


def relation(item_id: str) -> str:
    return item_id.rpartition("-")[0]


def test_facts_are_bundled_in_english_and_twelve_more_languages():
    assert get_task("demo").languages() == LANGUAGES


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_facts_have_the_same_ids_and_answers_as_in_english(language):
    english, here = facts("en"), facts(language)
    assert list(here) == list(english)
    for key, item in here.items():
        assert item.id == key
        assert item.answer == english[key].answer
        assert len(item.candidates) == len(english[key].candidates)
        assert item.prompt != english[key].prompt


@pytest.mark.parametrize("language", LANGUAGES)
def test_prompts_and_candidates_of_facts_are_distinct_texts(language):
    items, skipped = get_task("demo").load(language)
    assert len({item.prompt for item in items.values()}) == len(items) == 113
    assert skipped == []
    for item in items.values():
        assert item.prompt == item.prompt.strip() != ""
        assert len({text.casefold() for text in item.candidates}) == len(item.candidates) >= 4
        assert item.candidates[item.answer].casefold() not in item.prompt.casefold()


@pytest.mark.parametrize("language", ["xx", "", "EN"])
def test_facts_in_an_unknown_language_are_refused_with_those_there_are(language):
    message = refusal(get_task("demo").load, language)
    assert f"no language {language!r}" in message
    assert ", ".join(sorted(LANGUAGES)) in message


@pytest.mark.parametrize("limit", [4, 8, 16, 32, 64, 100])
def test_the_facts_of_the_demo_are_spread_over_the_relations(limit):
    part = [item.id for item in _questions("es", limit)]
    assert len(part) == len(set(part)) == limit
    assert part == [item.id for item in _questions("ja", limit)]
    before, after = Counter(map(relation, facts("es"))), Counter(map(relation, part))
    assert len(before) == 4
    for name, count in before.items():
        assert abs(after[name] - limit * count / 113) < 1


@pytest.mark.parametrize("limit", [113, 1000])
def test_the_demo_asks_all_facts_where_there_are_no_more(limit):
    assert _questions("es", limit) == list(facts("es").values())


def test_the_bundled_facts_are_what_their_script_builds():
    babel = pytest.importorskip("babel")
    if babel.__version__ != "2.19.0":
        pytest.skip(f"the facts are built with Babel 2.19.0, here is {babel.__version__}")
    script = [sys.executable, str(ROOT / "scripts" / "build_facts.py"), "--check"]
    ended = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_the_script_of_the_facts_sees_a_file_that_differs(tmp_path):
    pytest.importorskip("babel")
    facts = (ROOT / "carot" / "data" / "facts.jsonl").read_bytes()
    (tmp_path / "facts.jsonl").write_bytes(facts.replace(b"Kabul", b"Cabul"))
    script = [sys.executable, str(ROOT / "scripts" / "build_facts.py"), "--check"]
    ended = subprocess.run(
        [*script, "--output", str(tmp_path / "facts.jsonl")], capture_output=True, check=False
    )
    assert ended.returncode == 1
    assert b"differs from a fresh build" in ended.stderr


# BMLAMA

HEADER = "Prompt\tAns\tCandidate Ans\tSubject"
CITIES = "Toronto, London, Madrid"
LINES = [
    f"Charles was born in <mask>.\tMadrid\t{CITIES}\tCharles",
    f"Anna was born in <mask> .\tOslo\t{CITIES}\tAnna",
    '"Emma was written by <mask>\tJane Austen\tJane Austen, Mark Twain\tEmma',
    "गीता का जन्म <mask>।\tदिल्ली\tमुंबई, दिल्ली\tगीता",
    "安娜出生于<mask>。\t奥斯陆\t伦敦, 奥斯陆\t安娜",
    f"No mask.\tMadrid\t{CITIES}\tNone",
    f"<mask> is where Charles was born.\tMadrid\t{CITIES}\tCharles",
    "Peter was born in <mask>.\tMadrid\tMadrid, London, Madrid\tPeter",
    "Peter was born in <mask>.\tMadrid\tMadrid, , London\tPeter",
    "カルロスは<mask>に生まれました。\tマドリード\tロンドン, マドリード\tカルロス",
]


def bmlama(folder: Path, lines: list[str], ending: str = "\n", header: str = HEADER) -> Any:
    content = "".join(line + ending for line in [header, *lines])
    (folder / "en.tsv").write_bytes(content.encode("utf-8"))
    return get_task("bmlama", folder)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_bmlama_gives_questions_under_the_numbers_of_their_rows(tmp_path, ending):
    items, _ = bmlama(tmp_path, LINES, ending).load("en")
    assert list(items) == ["0", "2", "3", "4", "9"]
    assert items["0"] == RankingItem("0", "Charles was born in", ("Toronto", "London", "Madrid"), 2)
    assert items["2"].prompt == '"Emma was written by'
    assert items["2"].candidates == ("Jane Austen", "Mark Twain")
    assert [items[key].prompt for key in "34"] == ["गीता का जन्म", "安娜出生于"]
    answers = [item.candidates[item.answer] for item in items.values()]
    assert answers == ["Madrid", "Jane Austen", "दिल्ली", "奥斯陆", "マドリード"]


def test_bmlama_scores_what_stands_behind_the_mask_with_the_candidate(tmp_path):
    items, _ = bmlama(tmp_path, LINES).load("en")
    assert (items["9"].prompt, items["9"].suffix) == ("カルロスは", "に生まれました")
    assert [items[key].suffix for key in ("0", "2", "3", "4")] == ["", "", "", ""]


def test_bmlama_says_which_rows_are_no_questions_and_why(tmp_path):
    _, skipped = bmlama(tmp_path, LINES).load("en")
    assert skipped == [
        Skipped("1", "gold not among candidates"),
        Skipped("5", "no mask"),
        Skipped("6", "mask comes first"),
        Skipped("7", "duplicate candidates"),
        Skipped("8", "empty candidate"),
    ]


def test_bmlama_without_the_file_is_refused_with_the_languages_there(tmp_path):
    task = bmlama(tmp_path, LINES)
    (tmp_path / "es.tsv").touch()
    assert task.languages() == ["en", "es"]
    message = refusal(task.load, "fr")
    assert str(tmp_path) in message
    assert "no language 'fr'; there: en, es" in message


LAYOUTS = {
    "another first column": ("Sentence\tAns\tCandidate Ans", LINES[:1]),
    "another second column": ("Prompt\tGold\tCandidate Ans", LINES[:1]),
    "commas": (HEADER.replace("\t", ","), LINES[:1]),
    "a last row that is cut short": (HEADER, [*LINES, "Peter was born in <mask>."]),
    "a blank line": (HEADER, [LINES[0], "", LINES[2]]),
}


@pytest.mark.parametrize(("header", "lines"), LAYOUTS.values(), ids=LAYOUTS)
def test_a_file_of_another_layout_than_bmlama_is_refused_by_name(tmp_path, header, lines):
    task = bmlama(tmp_path, lines, header=header)
    assert f"{tmp_path / 'en.tsv'}: not the layout of BMLAMA-17" in refusal(task.load, "en")


def test_an_empty_file_of_bmlama_is_refused_by_name(tmp_path):
    (tmp_path / "en.tsv").touch()
    assert str(tmp_path / "en.tsv") in refusal(get_task("bmlama", tmp_path).load, "en")


def test_a_file_of_bmlama_that_is_not_utf8_is_refused_by_name(tmp_path):
    task = bmlama(tmp_path, LINES[:1])
    (tmp_path / "en.tsv").write_bytes(f"{HEADER}\nJosé <mask>\tA\tA, B\tJosé\n".encode("latin-1"))
    assert str(tmp_path / "en.tsv") in refusal(task.load, "en")


@cache
def bmlama_17(folder: Path, language: str) -> dict[str, RankingItem]:
    return get_task("bmlama", folder / "bmlama17").load(language)[0]


@pytest.mark.parametrize("language", ["ar", "es", "fr", "ja", "ko", "ru", "tr", "vi", "zh"])
def test_bmlama_17_asks_the_same_in_every_language(shared_data, language):
    english, here = (bmlama_17(shared_data, code) for code in ("en", language))
    common = english.keys() & here.keys()
    assert len(common) > 2000
    for key in common:
        assert english[key].answer == here[key].answer
        assert len(english[key].candidates) == len(here[key].candidates)
    for item in here.values():
        assert item.prompt == item.prompt.strip() != ""
        assert "<mask>" not in item.prompt + item.suffix
        assert len(set(item.candidates)) == len(item.candidates)


def test_bmlama_17_numbers_its_rows_by_line(shared_data):
    lines = (shared_data / "bmlama17" / "es.tsv").read_text("utf-8").split("\n")[1:]
    for key, item in bmlama_17(shared_data, "es").items():
        sentence, gold, *_ = lines[int(key)].split("\t")
        assert sentence.startswith(item.prompt)
        assert item.candidates[item.answer] == gold.strip()


# The demonstration

FACTS = 20
SHOWN = ("es", "ru")


@pytest.fixture(scope="module")
def small_corpus() -> ParallelCorpus:
    return ParallelCorpus.bundled(["en", *SHOWN], limit=40)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny_model("llama").save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def demonstrate(folder: Path, model: Path, corpus: ParallelCorpus, **options: Any) -> Any:
    """The demonstration on a tiny model and a small corpus."""
    options = {"languages": SHOWN, "layers": (1, 2), "facts": FACTS} | options
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParallelCorpus, "bundled", lambda *_languages, **_limit: corpus)
        return run_demo(folder, model_name=str(model), **options)


@pytest.fixture(scope="module")
def demo(tmp_path_factory, model_folder, small_corpus) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("demo") / "new"
    return demonstrate(folder, model_folder, small_corpus), folder


def test_the_demo_writes_two_files_and_nothing_else(demo):
    assert sorted(path.name for path in demo[1].iterdir()) == ["report.html", "report.json"]


def test_the_demo_writes_the_report_that_it_returns(demo, model_folder):
    report, folder = demo
    assert json.loads((folder / "report.json").read_text("utf-8")) == report
    recorded = {key: report[key] for key in ("model", "layers", "theta", "facts")}
    assert recorded == {"model": str(model_folder), "layers": [1, 2], "theta": 0.5, "facts": FACTS}
    assert report["versions"]["torch"] == version("torch")
    assert report["fit"]["sentences"] == 40
    assert list(report["languages"]) == list(SHOWN)


def test_the_page_of_the_demo_shows_the_numbers_of_the_report(demo):
    report, folder = demo
    page = (folder / "report.html").read_text("utf-8")
    body, foot = re.search(r"<tbody>(.*)</tbody>\s*<tfoot>(.*)</tfoot>", page, re.DOTALL).groups()
    shown = [
        [float(cell) for cell in (cells[1], cells[2], cells[4])]
        for row in (body + foot).split("</tr>")
        if (cells := re.findall(r"<td>([^<]*)</td>", row))
    ]
    rows = [*report["languages"].values(), report["mean"]]
    assert shown == [
        [round(100 * row[kind], 1) for kind in ("unsteered", "steered", "english")] for row in rows
    ]
    for example in report["examples"]:
        assert example["gold"] in page


def test_the_accuracies_of_the_demo_are_those_of_the_model(demo, model_folder, small_corpus):
    model, tokenizer = load_model(model_folder)
    aligner = fit_aligner(model, tokenizer, small_corpus, [1, 2])
    steered = wrap(model, tokenizer, aligner, layers=[1, 2], min_match=0.0)
    english = _questions("en", FACTS)

    def share(language: str, sources: list[str] | None = None) -> float:
        asked = _questions(language, FACTS)
        prompts = [fact.prompt for fact in asked]
        scores = steered.score(prompts, [fact.candidates for fact in asked], sources)
        right = [
            row.index(max(row)) == fact.answer for row, fact in zip(scores, asked, strict=True)
        ]
        return sum(right) / FACTS

    for language in SHOWN:
        assert demo[0]["languages"][language] == {
            "facts": FACTS,
            "unsteered": share(language),
            "steered": share(language, [fact.prompt for fact in english]),
            "english": share("en"),
        }


def test_the_mean_of_the_demo_is_over_languages(demo):
    report = demo[0]
    for kind in ("unsteered", "steered", "english"):
        values = [row[kind] for row in report["languages"].values()]
        assert report["mean"][kind] == pytest.approx(sum(values) / 2)


def test_the_examples_of_the_demo_are_answers_that_changed(demo):
    examples = demo[0]["examples"]
    assert examples
    for example in examples:
        assert example["unsteered"] != example["steered"]
        assert example["gold"] in (example["unsteered"], example["steered"])
        asked = {fact.prompt: fact for fact in _questions(example["language"], FACTS)}
        fact = asked[example["prompt"]]
        assert example["gold"] == fact.candidates[fact.answer]


def test_the_alignment_of_the_demo_is_of_the_first_language(demo):
    alignment = demo[0]["alignment"]
    assert (alignment["language"], alignment["layer"]) == ("es", 1)
    assert len(alignment["plan"]) == len(alignment["prompt_tokens"])
    assert len(alignment["plan"][0]) == len(alignment["english_tokens"])
    ids = {fact.prompt: fact.id for code in ("en", "es") for fact in _questions(code, FACTS)}
    assert ids[alignment["prompt"]] == ids[alignment["english"]]


@pytest.mark.parametrize("step", ["fit_aligner", "rank", "demo_html"])
@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
def test_a_demo_that_is_interrupted_leaves_nothing_half_written(
    monkeypatch, tmp_path, model_folder, small_corpus, step, interruption
):
    def interrupt(*_arguments: Any, **_options: Any) -> Any:
        raise interruption

    monkeypatch.setattr(carot.demo, step, interrupt)
    with pytest.raises(interruption):
        demonstrate(tmp_path / "new", model_folder, small_corpus, facts=4, languages=["es"])
    left = list((tmp_path / "new").iterdir()) if (tmp_path / "new").exists() else []
    assert left == []


def test_an_earlier_report_stays_until_the_new_one_is_whole(
    monkeypatch, tmp_path, model_folder, small_corpus
):
    (tmp_path / "report.json").write_text("earlier")
    monkeypatch.setattr(carot.demo, "rank", lambda *_a, **_k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        demonstrate(tmp_path, model_folder, small_corpus, facts=4)
    assert (tmp_path / "report.json").read_text() == "earlier"


@pytest.mark.parametrize(
    ("languages", "named"),
    [([], "expected some"), (["en", "es"], "without English"), (["es", "xx"], "no language 'xx'")],
)
def test_languages_that_the_demo_cannot_ask_are_refused_before_it_loads_a_model(
    monkeypatch, tmp_path, languages, named
):
    monkeypatch.setattr(carot.demo, "load_model", lambda _name: pytest.fail("a model was loaded"))
    assert named in refusal(run_demo, tmp_path / "new", languages=languages)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("facts", [0, -1])
def test_a_demo_of_no_facts_is_refused(tmp_path, model_folder, small_corpus, facts):
    options = {"facts": facts, "languages": ["es"], "layers": (1,)}
    assert "facts" in refusal(demonstrate, tmp_path, model_folder, small_corpus, **options)
