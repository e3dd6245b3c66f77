"""Steered answers as instruction data."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import refusal

from carot.alignment import Guard
from carot.training.distill import distil

SPANISH = "La capital de Francia es una ciudad muy grande."
ENGLISH = "The capital of France is a very large city."


def row(number: int, answer: str, **changes: Any) -> dict[str, Any]:
    made = {
        "id": number,
        "language": "es",
        "prompt": f"p{number}",
        "answer": answer,
        "steered": True,
        "match": 0.8,
    }
    return made | changes


ANSWERS = [
    row(0, SPANISH),
    row(1, ENGLISH),
    row(2, SPANISH, match=0.2),
    row(3, SPANISH, steered=False, match=None),
    row(4, "  \n"),
    row(5, SPANISH, prompt="p0"),
    row(6, f" {SPANISH}\nOtra línea."),
    row(7, SPANISH, match=None),
    {"id": 8, "prompt": None, "error": "no text"},
]


def test_answers_are_kept_or_left_out_for_a_reason() -> None:
    made = distil(ANSWERS, min_match=0.5, one_line=True)
    assert [kept["id"] for kept in made.rows] == [0, 6, 7]
    assert {kept["response"] for kept in made.rows} == {SPANISH}
    assert made.rows[0] == {
        "id": 0,
        "prompt": "p0",
        "response": SPANISH,
        "language": "es",
        "match": 0.8,
    }
    assert made.dropped == {
        "not answered": 1,
        "in another language": 1,
        "match too low": 1,
        "not steered": 1,
        "empty": 1,
        "there already": 1,
    }
    assert len(made.rows) + sum(made.dropped.values()) == len(ANSWERS)


def test_what_is_not_asked_for_leaves_nothing_out() -> None:
    made = distil(ANSWERS, faithful=False)
    assert [kept["id"] for kept in made.rows] == [0, 1, 2, 6, 7]
    assert "\n" in made.rows[3]["response"]


def test_a_guard_asks_of_each_language_its_own_match() -> None:
    guard = Guard(0.9, {"es": 0.5})
    kept = [row["id"] for row in distil(ANSWERS, min_match=guard, one_line=True).rows]
    assert kept == [row["id"] for row in distil(ANSWERS, min_match=0.5, one_line=True).rows]
    assert "match too low" in refusal(distil, ANSWERS[:1], min_match=Guard(0.5, {"es": 0.9}))


def test_nothing_left_is_refused() -> None:
    with pytest.raises(ValueError, match="no answer is left of 1"):
        distil(ANSWERS[3:4], faithful=False)
    message = refusal(distil, ANSWERS[:1], min_match=0.9, faithful=False)
    assert "1 match too low" in message
