"""Evaluations and sweeps: the same questions for every method, and honest bookkeeping."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from helpers import aligner_of
from tiny import corpus, tiny_model, tiny_tokenizer

from carot import CarotError, fit_aligner
from carot.evaluation import GenerationItem, RankingItem, Skipped
from carot.evaluation import runner as runner_module
from carot.evaluation.questions import draw_questions
from carot.evaluation.runner import Setup, ask, evaluate
from carot.evaluation.sweep import choose, grid, sweep
from carot.evaluation.tasks import TASKS, get_task, register_task

LANGUAGES = ["es", "ru"]


class Small:
    """Forty questions with four candidates; Spanish lacks one, and Russian one more."""

    name = "small"
    max_new_tokens = 0

    def __init__(self, data: Path | None = None) -> None:
        self.missing = {"es": {"3"}, "ru": {"7"}}

    def languages(self) -> list[str]:
        return ["en", "es", "ru"]

    def load(self, language: str) -> tuple[dict[str, Any], list[Skipped]]:
        rows = [str(i) for i in range(40) if str(i) not in self.missing.get(language, set())]
        random.Random(language).shuffle(rows)  # order says nothing, ids do
        return {
            row: RankingItem(
                row,
                f"{language} question {row} is",
                tuple(f"{word}{row}" for word in ("uno", "dos", "tres", "cuatro")),
                int(row) % 4,
            )
            for row in rows
        }, [Skipped("99", "empty candidate")]

    def is_right(self, item: GenerationItem, text: str) -> bool:
        raise AssertionError


def breaking_at(number: int) -> Any:
    """``ask``, until its nth call is interrupted."""
    calls = []

    def broken(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) == number:
            raise KeyboardInterrupt
        return ask(*args, **kwargs)

    return broken


def tiny() -> tuple[Any, Any, Any]:
    return tiny_model("llama"), tiny_tokenizer(), aligner_of("llama")


def run(**kwargs: Any) -> dict[str, Any]:
    kwargs.setdefault("methods", ["none", "carot", "lang_vec"])
    kwargs.setdefault("limit", 12)
    return evaluate(*tiny(), Small(), LANGUAGES, layers=[1], **kwargs)


def test_questions_are_those_of_every_language_joined_on_ids() -> None:
    questions = draw_questions(Small(), LANGUAGES)
    assert len(questions) == 38
    assert not {"3", "7"} & set(questions.ids)
    for language, items in questions.items.items():
        assert [item.id for item in items] == questions.ids
        assert all(item.prompt.startswith(language) for item in items)
    assert questions.skipped["en"] == {"empty candidate": 1, "not in every language": 2}
    assert questions.skipped["es"] == {"empty candidate": 1, "not in every language": 1}


def test_the_draw_is_seeded_and_a_smaller_one_begins_a_larger_one() -> None:
    ids = [draw_questions(Small(), LANGUAGES, limit, seed=5).ids for limit in (5, 20)]
    assert ids[0] == ids[1][:5]
    assert draw_questions(Small(), LANGUAGES, 20, seed=6).ids != ids[1]


def test_parts_share_no_question() -> None:
    questions = draw_questions(Small(), LANGUAGES)
    first, second = questions.part(0, 10), questions.part(10, 30)
    assert (len(first), len(second)) == (10, 20)
    assert not set(first.ids) & set(second.ids)


@pytest.mark.parametrize("languages", [[], ["en", "es"], ["es", "es"]])
def test_bad_languages_are_refused(languages: list[str]) -> None:
    with pytest.raises(CarotError, match="without English, which always takes part"):
        draw_questions(Small(), languages)


def test_languages_with_other_candidates_are_refused() -> None:
    class Uneven(Small):
        def load(self, language: str) -> tuple[dict[str, Any], list[Skipped]]:
            items, skipped = super().load(language)
            if language == "ru":
                items["5"] = RankingItem("5", "?", ("a", "b"), 0)
            return items, skipped

    with pytest.raises(CarotError, match=r"item 5: languages differ in the number .*\[2, 4\]"):
        draw_questions(Uneven(), LANGUAGES)


def test_results_hold_what_is_needed_to_repeat_them() -> None:
    results = run()
    assert results["methods"] == ["none", "carot", "lang_vec"]
    assert results["settings"]["carot"]["layers"] == [1]
    assert results["seed"] == 0
    assert results["limit"] == 12
    assert {"carot", "torch", "transformers"} <= set(results["versions"])
    answers = results["predictions"]
    assert len(answers) == 12 * (3 + 2 + 2)
    assert json.loads(json.dumps(results)) == results


def test_metrics_agree_with_the_answers() -> None:
    results = run()
    for method, table in results["metrics"].items():
        for language in LANGUAGES:
            right = [
                row["right"]
                for row in results["predictions"]
                if (row["method"], row["language"]) == (method, language)
            ]
            assert table[language]["accuracy"] == pytest.approx(sum(right) / len(right))
            low, high = table[language]["accuracy_interval"]
            assert low <= table[language]["accuracy"] <= high
        mean = sum(table[language]["accuracy"] for language in LANGUAGES) / 2
        assert table["mean"]["accuracy"] == pytest.approx(mean)
    assert "en" in results["metrics"]["none"]
    assert "en" not in results["metrics"]["carot"]


def test_an_interrupted_evaluation_goes_on_and_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(output=tmp_path / "whole.json", batch_size=4)
    calls = 0

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 9:
            raise KeyboardInterrupt
        return ask(*args, **kwargs)

    monkeypatch.setattr(runner_module, "ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(output=tmp_path / "broken.json", batch_size=4)
    assert not (tmp_path / "broken.json").exists()
    counted = calls
    assert run(output=tmp_path / "broken.json", batch_size=4) == expected
    assert calls - counted == 12 // 4 * 7 - 8
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.json", "whole.json"]
    assert (tmp_path / "broken.json").read_bytes() == (tmp_path / "whole.json").read_bytes()


def test_going_on_with_other_settings_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "ask", breaking_at(2))
    with pytest.raises(KeyboardInterrupt):
        run(output=tmp_path / "out.json", batch_size=4)
    with pytest.raises(CarotError, match="was begun with seed 0, and now it is 1"):
        run(output=tmp_path / "out.json", seed=1)


def test_results_do_not_depend_on_the_batch_size() -> None:
    one, all_ = run(batch_size=1), run(batch_size=12)
    for a, b in zip(one["predictions"], all_["predictions"], strict=True):
        assert (a["method"], a["language"], a["id"]) == (b["method"], b["language"], b["id"])
        assert a["scores"] == pytest.approx(b["scores"], abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"methods": ["magic"]}, "no method 'magic'; expected some of none, carot"),
        ({"thetas": 0.5}, "no method among none, carot, lang_vec has a setting 'thetas'"),
        ({"theta": 3.0}, "theta is 3.0"),
        ({"limit": 0}, "limit is 0; expected at least 1"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_bad_arguments_get_one_clear_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(CarotError, match=message):
        run(**arguments)


def test_a_generation_task_is_judged_by_its_task() -> None:
    class Echo(Small):
        name = "echo"
        max_new_tokens = 3

        def load(self, language: str) -> tuple[dict[str, Any], list[Skipped]]:
            items, _ = super().load(language)
            return {
                key: GenerationItem(key, item.prompt, ("x",)) for key, item in items.items()
            }, []

        def is_right(self, item: GenerationItem, text: str) -> bool:
            return int(item.id) % 2 == 0

    pytest.importorskip("lingua")
    results = evaluate(*tiny(), Echo(), LANGUAGES, layers=[1], limit=6)
    even = sum(int(row) % 2 == 0 for row in draw_questions(Echo(), LANGUAGES, 6).ids)
    assert results["metrics"]["carot"]["es"]["accuracy"] == pytest.approx(even / 6)
    assert results["metrics"]["carot"]["es"]["rankc"] is None
    assert results["metrics"]["carot"]["es"]["fidelity"] is not None
    assert all("text" in row for row in results["predictions"])


def test_users_register_tasks_of_their_own() -> None:
    register_task("small", Small)
    try:
        assert get_task("small").name == "small"
    finally:
        del TASKS["small"]
    with pytest.raises(CarotError, match="no task 'small'; expected one of demo, bmlama"):
        get_task("small")


def test_the_grid_gives_each_method_its_own_settings() -> None:
    values = {"theta": [0.5, 1.0], "strength": [1.0]}
    assert grid("carot", [[1], [1, 2]], values) == [
        Setup("carot", (1,), {"theta": 0.5}),
        Setup("carot", (1, 2), {"theta": 0.5}),
        Setup("carot", (1,), {"theta": 1.0}),
        Setup("carot", (1, 2), {"theta": 1.0}),
    ]
    assert grid("last_token", [[1], [2]], values) == [
        Setup("last_token", (1,)),
        Setup("last_token", (2,)),
    ]


def test_the_best_setup_by_mean_accuracy_is_chosen_the_first_of_equals() -> None:
    setups = [Setup("carot", (layer,)) for layer in (1, 2, 3)]
    accuracies = {0: (0.5, 0.3), 1: (0.6, 0.4), 2: (0.4, 0.6)}
    rows = [
        {"setup": setup, "accuracy": value} for setup, pair in accuracies.items() for value in pair
    ]
    assert choose(setups, rows)["carot"] is setups[1]


def test_a_sweep_chooses_on_dev_and_reports_on_other_questions(tmp_path: Path) -> None:
    model, tokenizer, aligner = tiny()
    before = dict(aligner.defaults)
    try:
        results = sweep(
            model,
            tokenizer,
            aligner,
            Small(),
            LANGUAGES,
            layers=[[1], [2], [1, 2]],
            methods=["carot", "lang_vec"],
            settings={"theta": [0.5, 1.0]},
            dev=8,
            test=10,
            output=tmp_path / "sweep.json",
        )
        assert aligner.defaults == results["chosen"]["carot"]
    finally:
        aligner.defaults = before
    assert len(results["tried"]) == 3 * 2 + 3 * 4
    assert len(results["rows"]) == len(results["tried"]) * len(LANGUAGES)
    tested = {row["id"] for row in results["test"]["predictions"]}
    dev = set(draw_questions(Small(), LANGUAGES, 18).ids[:8])
    assert len(tested) == 10
    assert not tested & dev
    assert json.loads((tmp_path / "sweep.json").read_text()) == json.loads(json.dumps(results))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["sweep.json", "sweep.test.json"]


def test_a_sweep_needs_enough_questions() -> None:
    with pytest.raises(CarotError, match=r"38 questions .* dev 30 \+ test 30"):
        sweep(*tiny(), Small(), LANGUAGES, layers=[[1]], dev=30, test=30)


@pytest.mark.parametrize(
    ("methods", "languages", "message"),
    [
        (["none", "lang_vec"], ["es", "tr"], "lang_vec needs the mean of 'tr'"),
        (["none", "mlrs"], ["es"], "mlrs works in the middle and the last third"),
    ],
)
def test_what_the_aligner_lacks_is_said_before_the_first_answer(
    methods: list[str], languages: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Turkish(Small):
        def load(self, language: str) -> tuple[dict[str, Any], list[Skipped]]:
            return super().load("es" if language == "tr" else language)

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("an answer was asked for")

    monkeypatch.setattr(runner_module, "ask", never)
    with pytest.raises(CarotError, match=message):
        evaluate(*tiny(), Turkish(), languages, methods=methods, layers=[1])


def test_mlrs_is_evaluated_and_swept_at_the_layers_it_chooses(tmp_path: Path) -> None:
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    aligner = fit_aligner(model, tokenizer, corpus(), layers=[1, 2, 3])
    results = evaluate(
        model, tokenizer, aligner, Small(), ["es"], methods=["mlrs"], layers=[1], limit=4
    )
    assert results["settings"]["mlrs"]["layers"] == [2, 3]
    swept = sweep(
        model, tokenizer, aligner, Small(), ["es"], layers=[[1]], methods=["mlrs"], dev=4, test=4
    )
    assert list(swept["chosen"]) == ["mlrs"]


def test_going_on_with_another_aligner_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "ask", breaking_at(2))
    with pytest.raises(KeyboardInterrupt):
        run(output=tmp_path / "out.json", batch_size=4)
    other = fit_aligner(tiny_model("llama"), tiny_tokenizer(), corpus(), layers=[1])
    with pytest.raises(CarotError, match="was begun with aligner"):
        evaluate(
            tiny_model("llama"),
            tiny_tokenizer(),
            other,
            Small(),
            LANGUAGES,
            methods=["none", "carot", "lang_vec"],
            layers=[1],
            limit=12,
            output=tmp_path / "out.json",
        )


def test_skip_leaves_out_what_a_sweep_chose_on(tmp_path: Path) -> None:
    drawn = draw_questions(Small(), LANGUAGES, 16).ids
    results = run(limit=10, skip=6)
    ids = {row["id"] for row in results["predictions"]}
    assert ids == set(drawn[6:])
    assert results["skip"] == 6
    with pytest.raises(CarotError, match="skip is 38; expected 0 to 37"):
        run(limit=None, skip=38)


def test_the_unsteered_model_needs_no_aligner() -> None:
    model, tokenizer, aligner = tiny()
    alone = evaluate(model, tokenizer, None, Small(), LANGUAGES, methods=["none"], limit=6)
    beside = evaluate(model, tokenizer, aligner, Small(), LANGUAGES, methods=["none"], limit=6)
    assert alone["aligner"] is None
    assert alone["metrics"] == beside["metrics"]
    assert alone["model"] == beside["model"]
    with pytest.raises(CarotError, match="carot needs an aligner of this model"):
        evaluate(model, tokenizer, None, Small(), LANGUAGES, methods=["carot"])


def test_a_pivot_makes_the_english_of_an_evaluation() -> None:
    class Own:
        name = "own"

        def describe(self) -> dict[str, Any]:
            return {"name": self.name}

        def translate(self, prompts: list[str], languages: list[str | None]) -> list[str]:
            assert set(languages) == {"es"}
            return [prompt.replace("es question", "en question") for prompt in prompts]

    options: dict[str, Any] = {"methods": ["carot"], "limit": 4, "layers": [1]}
    parts = (tiny_model("llama"), tiny_tokenizer(), aligner_of("llama"), Small(), ["es"])
    given, made, guarded = (
        evaluate(*parts, **options | more)
        for more in ({}, {"pivot": Own()}, {"pivot": Own(), "min_match": 1.0})
    )
    assert made["pivot"] == {"name": "own"}

    def scores(results: dict[str, Any], method: str) -> list[list[float]]:
        return [
            row["scores"]
            for row in results["predictions"]
            if (row["method"], row["language"]) == (method, "es")
        ]

    assert scores(made, "carot") == scores(given, "carot") != scores(given, "none")
    assert scores(guarded, "carot") == scores(given, "none")
