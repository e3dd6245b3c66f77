"""Ranking, the questions that it ranks, and the demonstration."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny_model, tiny_tokenizer

import carot.demo
from carot.corpora import ParallelCorpus
from carot.demo import run_demo
from carot.errors import CarotError
from carot.evaluation import RankingItem, accuracy, predict
from carot.evaluation.tasks import load_bmlama, load_demo
from carot.evaluation.tasks.demo import demo_languages
from carot.models import fit_aligner, load_model, wrap

ROOT = Path(__file__).resolve().parent.parent
LANGUAGES = ["en", "es", "fr", "de", "ru", "ja", "zh", "ar", "hi", "sw", "tr", "vi", "ko"]


def refusal(call, *args, **kwargs) -> str:
    """The one line that something is refused with."""
    with pytest.raises(CarotError) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


# Ranking


def items(language: str, order: Sequence[int] = range(5)) -> list[RankingItem]:
    return [
        RankingItem(f"fact-{row}", f"{language} prompt {row}", ("a", "b", "c"), row % 3)
        for row in order
    ]


class Scorer:
    """Gives the scores that it is told, and remembers what it was asked."""

    def __init__(self, scores: Sequence[Sequence[float]]) -> None:
        self.scores = [list(row) for row in scores]
        self.calls: list[tuple[Any, ...]] = []

    def score(self, prompts, candidates, english=None, *, batch_size) -> list[list[float]]:
        self.calls.append((list(prompts), list(candidates), english, batch_size))
        return self.scores


SCORES = [[-1, -2, -3], [-3, -1, -2], [-2, -3, -1], [-5, -4, -6], [-9, -9.5, -8]]


@pytest.mark.parametrize("answer", [-1, 3, 100])
def test_an_answer_that_is_no_candidate_is_refused_with_its_item(answer):
    message = refusal(RankingItem, "fact-1", "The capital is", ("a", "b", "c"), answer)
    assert "item fact-1" in message
    assert f"number {answer} of 3 candidates" in message


def test_an_item_without_candidates_is_refused():
    assert "of 0 candidates" in refusal(RankingItem, "fact-1", "The capital is", (), 0)


def test_the_candidate_of_the_highest_score_is_the_answer():
    model = Scorer(SCORES)
    assert predict(model, items("es"), batch_size=3) == [0, 1, 2, 1, 2]
    prompts = [f"es prompt {row}" for row in range(5)]
    assert model.calls == [(prompts, [("a", "b", "c")] * 5, None, 3)]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([-1, -1, -1], 0), ([-2, -1, -1], 1), ([-1, -2, -1], 0), ([float("-inf")] * 3, 0)],
)
def test_ties_go_to_the_first(scores, expected):
    assert predict(Scorer([scores]), items("es")[:1]) == [expected]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 2, 0, 1, 3], [3, 4, 0, 2, 1]])
def test_english_is_joined_on_ids_and_not_on_order(order):
    model = Scorer(SCORES)
    assert predict(model, items("es"), items("en", order)) == [0, 1, 2, 1, 2]
    assert model.calls[0][2] == [f"en prompt {row}" for row in range(5)]


def test_the_order_of_english_changes_no_answer_of_a_real_model():
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    aligner = fit_aligner(model, tokenizer, ParallelCorpus.bundled(["en", "es"], limit=30), [1, 2])
    steered = wrap(model, tokenizer, aligner, layers=[1, 2])
    spanish, english = load_demo("es", 24), load_demo("en", 24)
    expected = predict(steered, spanish, english)
    assert predict(steered, spanish, english[::-1], batch_size=3) == expected
    assert expected != predict(steered, spanish)


def test_english_of_more_items_is_no_matter():
    model = Scorer(SCORES[:2])
    predict(model, items("es", [3, 1]), items("en"))
    assert model.calls[0][2] == ["en prompt 3", "en prompt 1"]


def test_items_without_english_are_refused_before_the_model_is_asked():
    model = Scorer(SCORES)
    message = refusal(predict, model, items("es"), items("en", [0, 2, 4]))
    assert "2 items have no English counterpart, first fact-1" in message
    assert model.calls == []


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


# The bundled facts


def relation(item: RankingItem) -> str:
    return item.id.rpartition("-")[0]


def test_facts_are_bundled_in_english_and_twelve_more_languages():
    assert demo_languages() == LANGUAGES


@pytest.mark.parametrize("limit", [None, 10])
@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_facts_have_the_same_ids_and_answers_as_in_english(language, limit):
    english, here = load_demo("en", limit), load_demo(language, limit)
    assert [(item.id, item.answer) for item in here] == [(item.id, item.answer) for item in english]
    assert [len(item.candidates) for item in here] == [len(item.candidates) for item in english]
    assert all(a.prompt != b.prompt for a, b in zip(here, english, strict=True))


@pytest.mark.parametrize("language", LANGUAGES)
def test_prompts_and_candidates_of_facts_are_distinct_texts(language):
    facts = load_demo(language)
    assert len({item.prompt for item in facts}) == len({item.id for item in facts}) == len(facts)
    for item in facts:
        assert item.prompt == item.prompt.strip() != ""
        assert len({text.casefold() for text in item.candidates}) == len(item.candidates) >= 4
        assert item.candidates[item.answer].casefold() not in item.prompt.casefold()


@pytest.mark.parametrize("limit", [4, 8, 16, 32, 64, 100])
def test_a_limit_spreads_over_the_relations(limit):
    whole, part = load_demo("es"), load_demo("es", limit)
    assert len(part) == len({item.id for item in part}) == limit
    assert {item.id for item in part} <= {item.id for item in whole}
    before, after = Counter(map(relation, whole)), Counter(map(relation, part))
    assert len(before) == 4
    for name, count in before.items():
        assert abs(after[name] - limit * count / len(whole)) < 1


@pytest.mark.parametrize("limit", [None, 113, 1000])
def test_a_limit_beyond_the_facts_keeps_all_of_them_in_order(limit):
    ids = [item.id for item in load_demo("es", limit)]
    assert ids == sorted(ids)
    assert len(ids) == 113


@pytest.mark.parametrize("language", ["xx", "", "EN"])
def test_facts_in_an_unknown_language_are_refused_with_those_there_are(language):
    message = refusal(load_demo, language)
    assert f"no bundled facts in {language!r}" in message
    assert ", ".join(LANGUAGES) in message


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
LINES = [
    "Charles was born in <mask>.\tMadrid\tToronto, London, Madrid\tCharles",
    "In <mask> Charles was born.\tMadrid\tToronto, London, Madrid\tCharles",  # ends elsewhere
    "Anna was born in <mask> .\tOslo\tToronto, London, Madrid\tAnna",  # answer not listed
    'The author of "Emma is <mask>\tJane Austen\tJane Austen, Mark Twain\tEmma',
    "गीता का जन्म <mask>।\tदिल्ली\tमुंबई, दिल्ली\tगीता",
    "安娜出生于<mask>。\t奥斯陆\t伦敦, 奥斯陆\t安娜",
    "No mask.\tMadrid\tMadrid, London\tNone",
]


def bmlama(folder: Path, lines: list[str], ending: str = "\n", header: str = HEADER) -> Path:
    content = "".join(line + ending for line in [header, *lines])
    (folder / "en.tsv").write_bytes(content.encode("utf-8"))
    return folder


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_bmlama_keeps_rows_that_end_in_the_mask_under_their_numbers(tmp_path, ending):
    facts = load_bmlama(bmlama(tmp_path, LINES, ending), "en")
    assert list(facts) == ["0", "3", "4", "5"]
    assert facts["0"] == RankingItem("0", "Charles was born in", ("Toronto", "London", "Madrid"), 2)
    assert facts["3"].prompt == 'The author of "Emma is'
    assert facts["3"].candidates == ("Jane Austen", "Mark Twain")
    assert [facts[key].prompt for key in ("4", "5")] == ["गीता का जन्म", "安娜出生于"]
    assert [fact.candidates[fact.answer] for fact in facts.values()] == [
        "Madrid",
        "Jane Austen",
        "दिल्ली",
        "奥斯陆",
    ]


def test_bmlama_without_the_file_is_refused_with_the_languages_there(tmp_path):
    bmlama(tmp_path, LINES)
    (tmp_path / "es.tsv").touch()
    message = refusal(load_bmlama, tmp_path, "fr")
    assert f"{tmp_path / 'fr.tsv'}: no such file" in message
    assert "languages there: en, es" in message
    assert "languages there: none" in refusal(load_bmlama, tmp_path / "nowhere", "fr")


@pytest.mark.parametrize("missing", ["Prompt", "Ans", "Candidate Ans"])
def test_bmlama_without_one_of_its_columns_is_refused_by_name(tmp_path, missing):
    header = HEADER.split("\t")
    header[header.index(missing)] = "Other"
    bmlama(tmp_path, LINES, header="\t".join(header))
    message = refusal(load_bmlama, tmp_path, "en")
    assert f"{tmp_path / 'en.tsv'}: no column {missing!r}" in message


@pytest.mark.xfail(strict=True, reason="AttributeError: a cell that is not there is None")
def test_bmlama_cut_short_is_refused_with_its_file(tmp_path):
    bmlama(tmp_path, [*LINES, "Peter was born in <mask>."])
    assert str(tmp_path / "en.tsv") in refusal(load_bmlama, tmp_path, "en")


@pytest.mark.xfail(strict=True, reason="columns are looked up in rows only")
@pytest.mark.parametrize("header", ["", "a\tb"])
def test_bmlama_without_columns_is_refused_though_it_has_no_row(tmp_path, header):
    bmlama(tmp_path, [], header=header)
    assert str(tmp_path / "en.tsv") in refusal(load_bmlama, tmp_path, "en")


@pytest.mark.xfail(strict=True, reason="csv.DictReader passes over blank lines")
def test_a_blank_line_of_bmlama_keeps_the_numbers_of_those_after_it(tmp_path):
    facts = load_bmlama(bmlama(tmp_path, [LINES[0], "", LINES[0]]), "en")
    assert list(facts) == ["0", "2"]


def test_bmlama_17_asks_the_same_in_english_and_spanish(shared_data):
    english, spanish = (load_bmlama(shared_data / "bmlama17", code) for code in ("en", "es"))
    common = english.keys() & spanish.keys()
    assert len(common) > 2000
    for key in common:
        assert english[key].answer == spanish[key].answer
        assert len(english[key].candidates) == len(spanish[key].candidates)
    for facts in (english, spanish):
        for fact in facts.values():
            assert fact.prompt
            assert "<mask>" not in fact.prompt
            assert len(set(fact.candidates)) == len(fact.candidates)


def test_bmlama_17_numbers_its_rows_by_line(shared_data):
    path = shared_data / "bmlama17" / "es.tsv"
    lines = path.read_text("utf-8").split("\n")[1:]
    facts = load_bmlama(path.parent, "es")
    assert {lines[int(key)].partition("<mask>")[0].strip() for key in facts} == {
        fact.prompt for fact in facts.values()
    }
    assert lines[int(max(facts, key=int))].startswith(facts[max(facts, key=int)].prompt)


@pytest.mark.parametrize(
    "language",
    [
        *["ar", "fr", "ru", "vi"],
        pytest.param(
            "zh",
            marks=pytest.mark.xfail(
                strict=True, reason="the header of zh.tsv has a tab inside 'Candidate Ans'"
            ),
        ),
    ],
)
def test_bmlama_17_has_facts_in_its_other_languages(shared_data, language):
    english, here = (load_bmlama(shared_data / "bmlama17", code) for code in ("en", language))
    assert len(english.keys() & here.keys()) > 2000


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
        patch.setattr(ParallelCorpus, "bundled", classmethod(lambda _: corpus))
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
    steered = wrap(model, tokenizer, aligner, layers=[1, 2])
    english = load_demo("en", FACTS)

    def share(language: str, sources: list[str] | None = None) -> float:
        facts = load_demo(language, FACTS)
        prompts = [fact.prompt for fact in facts]
        scores = steered.score(prompts, [fact.candidates for fact in facts], sources)
        best = [max(range(len(row)), key=row.__getitem__) for row in scores]
        return sum(a == fact.answer for a, fact in zip(best, facts, strict=True)) / FACTS

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
        facts = {fact.prompt: fact for fact in load_demo(example["language"], FACTS)}
        fact = facts[example["prompt"]]
        assert example["gold"] == fact.candidates[fact.answer]


def test_the_alignment_of_the_demo_is_of_the_first_language(demo):
    alignment = demo[0]["alignment"]
    assert (alignment["language"], alignment["layer"]) == ("es", 1)
    assert len(alignment["plan"]) == len(alignment["prompt_tokens"])
    assert len(alignment["plan"][0]) == len(alignment["english_tokens"])
    ids = {fact.prompt: fact.id for code in ("en", "es") for fact in load_demo(code, FACTS)}
    assert ids[alignment["prompt"]] == ids[alignment["english"]]


@pytest.mark.parametrize("step", ["fit_aligner", "predict", "demo_html"])
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
    assert [path.name for path in left] == (["report.json"] if step == "demo_html" else [])
    for path in left:
        json.loads(path.read_text("utf-8"))


def test_an_earlier_report_stays_until_the_new_one_is_whole(
    monkeypatch, tmp_path, model_folder, small_corpus
):
    (tmp_path / "report.json").write_text("earlier")
    monkeypatch.setattr(carot.demo, "predict", lambda *_a, **_k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        demonstrate(tmp_path, model_folder, small_corpus, facts=4)
    assert (tmp_path / "report.json").read_text() == "earlier"


@pytest.mark.parametrize(
    ("languages", "named"),
    [([], "expected some"), (["en", "es"], "without English"), (["es", "xx"], "facts in 'xx'")],
)
def test_languages_that_the_demo_cannot_ask_are_refused_before_it_loads_a_model(
    monkeypatch, tmp_path, languages, named
):
    monkeypatch.setattr(carot.demo, "load_model", lambda _name: pytest.fail("a model was loaded"))
    assert named in refusal(run_demo, tmp_path / "new", languages=languages)
    assert not (tmp_path / "new").exists()


@pytest.mark.xfail(strict=True, reason="a limit of 0 is taken for none")
@pytest.mark.parametrize("facts", [0, -1])
def test_a_demo_of_no_facts_is_refused(tmp_path, model_folder, small_corpus, facts):
    options = {"facts": facts, "languages": ["es"], "layers": (1,)}
    assert "facts" in refusal(demonstrate, tmp_path, model_folder, small_corpus, **options)
