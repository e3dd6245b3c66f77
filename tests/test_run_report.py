"""The page that sums a run of ``carot generate`` up."""

from __future__ import annotations

import json
import tracemalloc
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from helpers import steered

from carot.reporting.answers import count_answers, report_run
from carot.reporting.run_report import BINS, WORST, summarise_run, write_run_report


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": number,
        "language": "es",
        "prompt": f"La casa {number}",
        "english": f"The house {number}",
        "answer": "es",
        "steered": True,
        "reason": None,
        "match": 0.5,
        "interpolation": 0.25,
    } | changes


ROWS = [
    row(0),
    row(1, match=0.1, steered=False, reason="match 0.10 below 0.19", interpolation=None),
    row(2, match=0.12, steered=False, reason="match 0.12 below 0.19", interpolation=None),
    row(3, language="ar", prompt="<b>بيت</b>", match=1.0, interpolation=0.75),
    row(4, language=None, steered=False, reason="no English", match=None, interpolation=None),
    {"id": 5, "prompt": None, "error": "line 6: not valid JSON"},
    {"id": 6, "prompt": "casa & casa", "error": "line 7: not valid JSON"},
]


def page_of(rows: list[dict[str, Any]], folder: Path, **options: Any) -> str:
    given = {"title": "run", "settings": {"model": "<m>"}, "threshold": 0.19, "seconds": 2.0}
    write_run_report(summarise_run(rows), folder / "page.html", **given | options)
    return (folder / "page.html").read_text("utf-8")


def test_rows_are_counted_by_reason_error_and_language() -> None:
    found = summarise_run(iter(ROWS))
    assert (found.rows, found.answered, found.steered, found.failed) == (7, 5, 2, 2)
    assert found.reasons == {"match too low": 2, "no English": 1}
    assert found.errors == {"line N: not valid JSON": 2}
    assert list(found.languages) == ["es", "ar", "unknown"]
    spanish = found.languages["es"]
    assert (spanish.rows, spanish.steered) == (3, 1)
    assert spanish.mean("match") == pytest.approx((0.5 + 0.1 + 0.12) / 3)
    assert spanish.mean("interpolation") == 0.25
    assert spanish.histogram[BINS // 2] == 1
    assert sum(spanish.histogram) == 3
    assert found.languages["ar"].histogram[-1] == 1
    assert found.languages["unknown"].mean("match") is None


def test_the_worst_matches_come_first_and_the_earlier_of_equals() -> None:
    rows = [row(number, match=(number * 7 % 50) / 100) for number in range(200)]
    worst = summarise_run(rows).worst
    expected = sorted(rows, key=lambda made: (made["match"], made["id"]))[:WORST]
    assert [made["id"] for made in worst] == [made["id"] for made in expected]


def test_a_summary_does_not_grow_with_the_run() -> None:
    def peak(count: int) -> int:
        tracemalloc.start()
        summarise_run(row(number, match=number % 97 / 97) for number in range(count))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(10)
    assert peak(20_000) < 1.2 * peak(2_000)


class Checked(HTMLParser):
    """Notes the tags that were not closed in order, and where text goes from right to left."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "meta":
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        """Closed by itself."""

    def handle_endtag(self, tag: str) -> None:
        if self.stack.pop() != tag:
            self.wrong.append(tag)


def test_the_page_is_whole_and_escapes_what_it_shows(tmp_path: Path) -> None:
    text = page_of(ROWS, tmp_path)
    checked = Checked(text)
    assert (checked.stack, checked.wrong) == ([], [])
    assert "<b>بيت" not in text
    assert "&lt;b&gt;بيت&lt;/b&gt;" in text
    assert "&lt;m&gt;" in text
    assert "casa &amp; casa" in text
    assert 'dir="auto"' in text
    assert "3.5</dd>" in text  # rows a second
    assert "40%</dd>" in text  # steered, of those that were answered
    assert text.count("<line") == 2  # the threshold, in each histogram that there is
    assert "<line" not in page_of(ROWS, tmp_path, threshold=None)


@pytest.mark.parametrize("rows", [[], ROWS[5:], ROWS[4:5]])
def test_runs_without_answers_or_matches_have_a_page_too(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    checked = Checked(page_of(rows, tmp_path, seconds=None))
    assert (checked.stack, checked.wrong) == ([], [])


def test_the_worst_matches_are_shown_with_their_alignments(tmp_path: Path) -> None:
    model = steered("llama", min_match=0.3)
    rows = [
        row(0, prompt="#La casa# es", english="#The house# is", match=0.1),
        row(1, prompt="#El sol# es", english="THE SUN", match=0.2),  # of a pivot: no marker
    ]
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps(made) + "\n" for made in rows), "utf-8")
    report_run(model, answers, tmp_path / "page.html", settings={}, content="#")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert text.count('<figure class="carot-heatmap">') == 2
    expected = model.align("La casa es", "The house is", content=[(0, 7)], english_content=[(0, 9)])
    assert all(f">{token}</" in text for token in expected.english_tokens if token.isalpha())


def test_a_line_says_what_a_run_came_to(tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps(made) + "\n" for made in ROWS), "utf-8")
    assert count_answers(answers) == (
        "7 rows, 2 steered, 3 not, 2 failed (the first: line 6: not valid JSON)"
    )
