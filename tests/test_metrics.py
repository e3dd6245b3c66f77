"""Consistency, uncertainty, significance, and the language of an output."""

from __future__ import annotations

import math
import random
import sys
from itertools import combinations

import numpy as np
import pytest
from helpers import refusal

from carot.evaluation.fidelity import (
    SCRIPT_LANGUAGES,
    LanguageIdentifier,
    fidelity,
    script_fidelity,
    script_of,
)
from carot.evaluation.metrics import (
    agreement,
    bootstrap_interval,
    clc_all,
    consistency,
    holm,
    mcnemar_exact,
    rankc,
    rankc_pairs,
)


def flags(text: str) -> list[bool]:
    return [letter == "1" for letter in text]


# RankC


def naive_rankc(scores_a: list[list[float]], scores_b: list[list[float]]) -> float:
    """The formula, letter by letter."""
    whole = 0.0
    for a, b in zip(scores_a, scores_b, strict=True):
        n = len(a)
        order_a = [i for _, i in sorted((-score, i) for i, score in enumerate(a))]
        order_b = [i for _, i in sorted((-score, i) for i, score in enumerate(b))]
        exponentials = [math.exp(value) for value in range(n, 0, -1)]
        for j in range(1, n + 1):
            weight = exponentials[j - 1] / sum(exponentials)
            whole += weight * len(set(order_a[:j]) & set(order_b[:j])) / j
    return whole / len(scores_a)


def test_rankc_of_two_swapped_candidates_is_the_weight_of_the_last():
    # top_1 has nothing in common, top_2 everything: w_2 = e^1 / (e^2 + e^1).
    assert rankc([[1.0, 0.0]], [[0.0, 1.0]]) == pytest.approx(1 / (1 + math.e))


def test_rankc_of_three_candidates_by_hand():
    # a ranks 0 1 2, b ranks 0 2 1: overlaps 1/1, 1/2, 3/3 with weights .6652, .2447, .0900.
    assert rankc([[3, 2, 1]], [[3, 1, 2]]) == pytest.approx(
        0.66524 + 0.24473 / 2 + 0.09003, abs=1e-5
    )
    # b reversed, 2 1 0: overlaps 0, 1/2, 1.
    assert rankc([[3, 2, 1]], [[1, 2, 3]]) == pytest.approx(0.24473 / 2 + 0.09003, abs=1e-5)


def test_rankc_of_ten_reversed_candidates_by_hand():
    # The top 5 of both have nothing in common; top_6 has 2, top_7 4, top_8 6, top_9 8, top_10 10.
    scores = [[float(10 - position) for position in range(10)]]
    norm = sum(math.exp(-depth) for depth in range(10))
    tail = {6: 2 / 6, 7: 4 / 7, 8: 6 / 8, 9: 8 / 9, 10: 1}
    expected = sum(math.exp(1 - depth) * share for depth, share in tail.items()) / norm
    assert rankc(scores, [row[::-1] for row in scores]) == pytest.approx(expected)
    assert expected < 0.01


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_rankc_of_the_same_ranking_is_one_whatever_the_scores(count):
    scores = [[float(-position) for position in range(count)]]
    assert rankc(scores, [[math.exp(score) for score in scores[0]]]) == pytest.approx(1)


def test_rankc_breaks_ties_by_position():
    assert rankc([[0, 0, 0]], [[3, 2, 1]]) == pytest.approx(1)
    assert rankc([[1, 1]], [[0, 1]]) == pytest.approx(1 / (1 + math.e))


def test_rankc_is_the_mean_over_questions_of_different_sizes():
    both = rankc([[1, 0], [3, 2, 1]], [[0, 1], [3, 2, 1]])
    assert both == pytest.approx((1 / (1 + math.e) + 1) / 2)


def test_rankc_takes_a_candidate_of_probability_zero():
    assert rankc([[-1.0, -math.inf]], [[-0.1, -0.2]]) == pytest.approx(1)


def test_rankc_equals_the_naive_formula_on_random_rankings():
    generator = random.Random(0)
    for _ in range(50):
        sizes = [generator.randint(1, 12) for _ in range(5)]
        # Few distinct scores: there are ties.
        a, b = ([[generator.randint(0, 6) for _ in range(n)] for n in sizes] for _ in range(2))
        assert rankc(a, b) == pytest.approx(naive_rankc(a, b), abs=1e-12)
        assert rankc(a, b) == pytest.approx(rankc(b, a), abs=1e-12)


def test_clc_all_is_the_mean_over_pairs():
    generator = random.Random(1)
    scores = {
        language: [[generator.random() for _ in range(5)] for _ in range(8)]
        for language in ("en", "es", "fr", "ja")
    }
    pairs = [naive_rankc(scores[one], scores[other]) for one, other in combinations(scores, 2)]
    assert clc_all(scores) == pytest.approx(sum(pairs) / 6)
    assert list(rankc_pairs(scores)) == list(combinations(scores, 2))
    assert list(rankc_pairs(scores).values()) == pytest.approx(pairs)


def test_rankc_refuses_what_does_not_match():
    assert "2 and 1 questions" in refusal(rankc, [[1, 2], [1, 2]], [[1, 2]])
    assert "question 1 has 2 and 3" in refusal(rankc, [[1, 2], [1, 2]], [[1, 2], [1, 2, 3]])
    assert "0 and 0 questions" in refusal(rankc, [], [])
    assert "at least one" in refusal(rankc, [[]], [[]])
    assert "NaN" in refusal(rankc, [[math.nan, 1]], [[1, 2]])
    assert "1 languages" in refusal(clc_all, {"en": [[1, 2]]})
    assert "questions" in refusal(clc_all, {"en": [[1, 2]], "es": []})


# Answers


def test_consistency_is_the_overlap_of_right_answers():
    assert consistency(flags("1100"), flags("1010")) == pytest.approx(1 / 3)
    assert consistency(flags("110"), flags("110")) == 1
    assert consistency(flags("10"), flags("01")) == 0
    assert consistency(flags("00"), flags("00")) == 0


def test_agreement_counts_wrong_answers_too():
    assert agreement([0, 2, 1, 1], [0, 2, 0, 1]) == 0.75
    assert agreement(["Wien"], ["Viena"]) == 0


@pytest.mark.parametrize("metric", [consistency, agreement, mcnemar_exact])
def test_answers_of_different_questions_are_refused(metric):
    assert "1 and 2 questions" in refusal(metric, [True], [True, False])
    assert "at least one" in refusal(metric, [], [])


def test_metrics_take_arrays():
    before, after = np.array(flags("1100")), np.array(flags("1010"))
    assert type(consistency(before, after)) is float
    assert agreement(before, after) == 0.5
    assert mcnemar_exact(before, after) == 0.75


# Uncertainty


def test_bootstrap_is_seeded():
    values = flags("1101001110")
    assert bootstrap_interval(values, seed=3) == bootstrap_interval(values, seed=3)
    assert bootstrap_interval(values, seed=3, samples=50) != bootstrap_interval(
        values, seed=4, samples=50
    )


def test_bootstrap_interval_covers_the_truth_as_often_as_it_says():
    generator = np.random.default_rng(0)
    covered = 0
    for seed in range(200):
        low, high = bootstrap_interval(
            generator.random(80) < 0.4, seed=seed, samples=300, level=0.9
        )
        covered += low <= 0.4 <= high
    assert 0.84 <= covered / 200 <= 0.96


def test_bootstrap_interval_is_the_normal_one_for_many_values():
    low, high = bootstrap_interval([0, 1] * 500, seed=0)
    half = 1.96 * 0.5 / math.sqrt(1000)
    assert (low, high) == pytest.approx((0.5 - half, 0.5 + half), abs=0.005)


def test_bootstrap_takes_any_statistic_and_draws_rows_as_a_whole():
    low, high = bootstrap_interval(range(101), statistic=np.median, seed=0)
    assert 30 < low < 50 < high < 70
    rows = [[1, -1], [5, -5], [9, -9]]  # Each row has a mean of 0, and so has every sample.
    assert bootstrap_interval(rows, seed=0) == (0, 0)


def test_bootstrap_of_one_value_is_that_value():
    assert bootstrap_interval([0.25], seed=0) == (0.25, 0.25)


def test_bootstrap_refuses_what_it_cannot_draw():
    assert "no values" in refusal(bootstrap_interval, [], seed=0)
    assert "samples=0" in refusal(bootstrap_interval, [1], seed=0, samples=0)
    assert "level=95" in refusal(bootstrap_interval, [1], seed=0, level=95)


# Significance


def changes(gained: int, lost: int, kept: int = 0) -> tuple[list[bool], list[bool]]:
    before = [False] * gained + [True] * lost + [True] * kept
    after = [True] * gained + [False] * lost + [True] * kept
    return before, after


@pytest.mark.parametrize(
    ("gained", "lost", "expected"),
    [
        (8, 1, 10 / 512),  # (C(9,8) + C(9,9)) / 2^9
        (1, 8, 511 / 512),  # all but C(9,0)
        (5, 0, 1 / 32),
        (0, 5, 1),
        (1, 1, 3 / 4),
        (0, 0, 1),
    ],
)
def test_mcnemar_by_hand(gained, lost, expected):
    for kept in (1, 20):
        assert mcnemar_exact(*changes(gained, lost, kept)) == expected


def test_mcnemar_equals_the_binomial_test():
    stats = pytest.importorskip("scipy.stats")
    for gained, lost in [(30, 12), (12, 30), (700, 600), (3, 0)]:
        expected = stats.binomtest(gained, gained + lost, alternative="greater").pvalue
        assert mcnemar_exact(*changes(gained, lost)) == pytest.approx(expected, rel=1e-9)


def test_mcnemar_stays_exact_for_many_questions():
    assert mcnemar_exact(*changes(1000, 0)) == 0.5**1000 > 0
    assert mcnemar_exact(*changes(2000, 2000)) == pytest.approx(0.5063, abs=1e-4)


def test_holm_by_hand():
    # Sorted: .005 x 4, .01 x 3, .03 x 2, .04 x 1, and never less than the one before.
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert list(adjusted) == ["a", "b", "c", "d"]
    assert adjusted == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})


def test_holm_stays_below_one_and_leaves_a_single_test_alone():
    assert holm({"a": 0.6, "b": 0.9}) == {"a": 1.0, "b": 1.0}
    assert holm({"a": 0.2}) == {"a": 0.2}
    assert holm({}) == {}


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_holm_refuses_what_is_no_probability(value):
    assert "'es'" in refusal(holm, {"fr": 0.1, "es": value})


# The language of an output

SENTENCES = {
    "en": "The capital of Austria is called Vienna.",
    "es": "La capital de Austria se llama Viena.",
    "fr": "La capitale de l'Autriche s'appelle Vienne.",
    "ru": "Столица Австрии называется Вена.",
    "ar": "عاصمة النمسا هي مدينة فيينا.",
    "zh": "奥地利的首都是维也纳。",
    "ja": "オーストリアの首都はウィーンです。",
    "ko": "오스트리아의 수도는 빈입니다.",
    "hi": "ऑस्ट्रिया की राजधानी वियना है।",
    "th": "เมืองหลวงของออสเตรียคือเวียนนา",
    "bn": "অস্ট্রিয়ার রাজধানী ভিয়েনা।",
    "te": "ఆస్ట్రియా రాజధాని వియన్నా.",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_a_sentence_is_in_a_script_of_its_language(language):
    script = script_of(SENTENCES[language])
    assert language in SCRIPT_LANGUAGES[script].split()
    assert script_fidelity([SENTENCES[language]], language) == 1


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Столица: Wien", "Cyrillic"),  # the majority
        ("東京", "Han"),
        ("東京です", "Kana"),
        ("東京都千代田区の Tokyo", "Kana"),  # Han and kana count together
        ("コーヒー", "Kana"),  # with the prolonged sound mark
        ("ﾃｽﾄ", "Kana"),
        ("人々", "Han"),
        ("Ｗｉｅｎ", "Latin"),
        ("1912", None),
        ("… !?", None),
        ("", None),
    ],
)
def test_script_of_special_texts(text, script):
    assert script_of(text) == script


def test_script_fidelity_counts_empty_outputs_as_unfaithful():
    assert script_fidelity(["Вена", "Vienna", "", " \n"], "ru") == 0.25


def test_script_fidelity_accepts_every_script_of_a_language():
    assert script_fidelity(["東京", "とうきょう"], "ja") == 1
    assert script_fidelity(["東京", "とうきょう"], "zh-Hant") == 0.5
    assert script_fidelity(["Београд", "Beograd"], "sr") == 1


def test_script_fidelity_refuses_what_it_cannot_judge():
    assert "'tlh'" in refusal(script_fidelity, ["nuqneH"], "tlh")
    assert "no texts" in refusal(script_fidelity, [], "es")
    assert "no texts" in refusal(fidelity, [], "es", ["en"])


def test_without_lingua_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "lingua", None)
    assert "pip install 'carot[eval]'" in refusal(LanguageIdentifier, ["en", "es"])


@pytest.mark.parametrize("language", list(SENTENCES))
def test_a_sentence_is_identified_among_all(language):
    pytest.importorskip("lingua")
    assert LanguageIdentifier(SENTENCES)(SENTENCES[language]) == language


def test_fidelity_is_the_share_in_the_language_of_the_prompt():
    pytest.importorskip("lingua")
    texts = [SENTENCES["es"], SENTENCES["en"], "", "1912"]
    assert fidelity(texts, "es", ["en", "fr"]) == 0.25
    assert fidelity(texts, "en", ["en", "es"]) == 0.25


def test_codes_may_name_a_region():
    pytest.importorskip("lingua")
    portuguese = "Não sei onde fica a capital da Áustria."
    assert LanguageIdentifier(["en", "pt-BR"])(portuguese) == "pt-BR"
    assert fidelity([portuguese], "pt-BR", ["en", "pt"]) == 1
    assert LanguageIdentifier(["en", "no"])("Hovedstaden i Østerrike heter Wien.") == "no"


def test_identifier_refuses_what_it_cannot_tell_apart():
    pytest.importorskip("lingua")
    assert "'gl'" in refusal(LanguageIdentifier, ["en", "gl"])
    assert "two or more" in refusal(fidelity, ["Wien"], "de", ["de"])
