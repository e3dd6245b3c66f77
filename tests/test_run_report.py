"""The page that sums a run of ``carot generate`` up."""

from __future__ import annotations

import json
import re
import tracemalloc
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import steered

from carot import AlignmentView
from carot.alignment import Guard
from carot.reporting import heatmap_html
from carot.reporting.answers import count_answers, report_run
from carot.reporting.run_report import write_run_report
from carot.reporting.run_summary import (
    BINS,
    FAILED,
    MOST_KINDS,
    MOST_LANGUAGES,
    WORST,
    summarise_run,
)


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
    given = {"title": "run", "settings": {"model": "<m>"}, "guard": Guard(0.19), "seconds": 2.0}
    write_run_report(summarise_run(rows), folder / "page.html", **given | options)
    return (folder / "page.html").read_text("utf-8")


def test_rows_are_counted_by_reason_error_and_language() -> None:
    found = summarise_run(iter(ROWS))
    total = found.total
    assert (total.rows, total.answered, total.steered, total.failed) == (7, 5, 2, 2)
    assert total.reasons == {"match too low": 2, "no English": 1}
    assert total.errors == {"line N: not valid JSON": 2}
    assert list(found.languages) == ["es", "ar", "unknown"]
    spanish = found.languages["es"]
    assert (spanish.rows, spanish.answered, spanish.steered, spanish.failed) == (3, 3, 1, 0)
    assert spanish.reasons == {"match too low": 2}
    assert spanish.mean("match") == pytest.approx((0.5 + 0.1 + 0.12) / 3)
    assert spanish.mean("interpolation") == 0.25
    assert spanish.histogram[BINS // 2] == 1
    assert sum(spanish.histogram) == 3
    assert found.languages["ar"].histogram[-1] == 1
    assert found.languages["unknown"].mean("match") is None
    assert [failure["id"] for failure in found.failures] == [5, 6]


def test_a_failed_row_counts_for_its_language_where_it_names_one() -> None:
    found = summarise_run([{"id": 0, "language": "sw", "prompt": 5, "error": "no text"}, ROWS[5]])
    assert {code: group.failed for code, group in found.languages.items()} == {"sw": 1}
    assert found.total.failed == 2


@pytest.mark.parametrize("match", [float("nan"), float("inf")])
def test_a_match_that_is_no_number_is_left_out(match: float) -> None:
    found = summarise_run([row(0, match=match), row(1, match=0.5)])
    assert found.total.mean("match") == 0.5
    assert [made["id"] for made in found.worst] == [1]


def test_the_worst_matches_come_first_and_the_earlier_of_equals() -> None:
    rows = [row(number, match=(number * 7 % 50) / 100) for number in range(200)]
    worst = summarise_run(rows).worst
    expected = sorted(rows, key=lambda made: (made["match"], made["id"]))[:WORST]
    assert worst == expected


def test_a_summary_of_ever_new_values_does_not_grow_with_the_run() -> None:
    def made(number: int) -> dict[str, Any]:
        word = "".join(chr(97 + int(digit)) for digit in str(number))
        if number % 3 == 0:
            return {"id": number, "prompt": word, "error": f"{word} is wrong"}
        steered = number % 3 == 1
        reason = None if steered else f"not {word}"
        return row(number, language=word, match=number % 97 / 97, steered=steered, reason=reason)

    def peak(count: int) -> int:
        tracemalloc.start()
        found = summarise_run(map(made, range(count)))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found.total.rows == count
        assert len(found.languages) <= MOST_LANGUAGES + 1
        assert max(len(found.total.reasons), len(found.total.errors)) <= MOST_KINDS + 1
        assert found.total.reasons.total() + found.total.steered == found.total.answered
        assert (len(found.worst), len(found.failures)) == (WORST, FAILED)
        return most

    peak(10_000)
    assert peak(50_000) < 1.1 * peak(10_000)


class Checked(HTMLParser):
    """Notes tags that were not closed in order, and what each open tag said."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.wrong: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if self.stack.pop() != tag:
            self.wrong.append(tag)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def checked(text: str) -> Checked:
    found = Checked(text)
    assert (found.stack, found.wrong) == ([], [])
    assert not re.search(r"<script|src=|href=|url\(|@import|http", text)
    return found


def test_the_page_shows_what_the_run_came_to(tmp_path: Path) -> None:
    text = page_of(ROWS, tmp_path)
    checked(text)
    figures = {"rows": "7", "steered": "40.0 %", "failed": "2", "rows a second": "3.5"}
    for name, value in figures.items():
        assert f"<dt>{name}</dt><dd>{value}</dd>" in text
    assert "rows a second" not in page_of(ROWS, tmp_path, seconds=None)
    cells = [re.findall(r">([^<]+)</t[hd]>", line) for line in text.splitlines()]
    assert ["Spanish", "3", "33.3 %", "0.24", "0.25"] in cells
    assert ["unknown", "1", "0.0 %", "–", "–", "–"] in cells
    assert ["all", "7", "40.0 %", "0.43", "0.50"] in cells
    assert ["match too low", "Spanish 2", "2"] in cells
    assert ["line N: not valid JSON", "2"] in cells
    assert ["6", "casa &amp; casa", "line 7: not valid JSON"] in cells
    assert ["model", "&lt;m&gt;"] in cells
    assert "not steered, match 0.10 below 0.19" in text


def test_everything_of_the_data_is_escaped(tmp_path: Path) -> None:
    bad = "<i>\"'&"
    keys = ("id", "language", "prompt", "english", "answer")
    low = row(0, steered=False, reason=bad) | dict.fromkeys(keys, bad)
    rows = [low, {"id": bad, "prompt": {bad: 1}, "error": bad}]
    text = page_of(rows, tmp_path, title=bad, settings={bad: [bad]})
    found = checked(text)
    assert not found.all("i")
    assert {name for _, attrs in found.tags for name in attrs} <= {
        "lang", "charset", "name", "content", "class", "aria-label", "scope", "dir", "role",
        "width", "height", "x", "y", "x1", "x2", "y1", "y2",
    }  # fmt: skip
    assert text.count(escape(bad)) >= 12


def test_long_texts_are_cut_on_the_page_alone(tmp_path: Path) -> None:
    long = [row(0, prompt="casa " * 100_000)]
    assert summarise_run(long).worst == long
    assert len(page_of(long, tmp_path)) < 20_000


def test_each_table_has_headers_and_texts_go_in_their_own_direction(tmp_path: Path) -> None:
    text = page_of(ROWS, tmp_path)
    found = checked(text)
    assert all(attrs["scope"] in ("col", "row") for attrs in found.all("th"))
    assert all(attrs["aria-label"] for attrs in found.all("table"))
    assert '<dd dir="auto" lang="ar">&lt;b&gt;بيت&lt;/b&gt;</dd>' in text
    assert '<dd dir="auto">The house 3</dd>' in text
    assert '<td class="text" dir="auto">casa &amp; casa</td>' in text


def test_the_threshold_is_drawn_and_told_in_each_histogram(tmp_path: Path) -> None:
    found = checked(page_of(ROWS, tmp_path, guard=Guard(0.25)))
    histograms = found.all("svg")
    assert len(histograms) == 3  # Spanish, Arabic, all
    assert [attrs["role"] for attrs in histograms] == ["img"] * 3
    label = histograms[0]["aria-label"]
    assert label == (
        "Rows of Spanish by match. 0.10 to 0.15: 2; 0.50 to 0.55: 1; "
        "the least that was steered: 0.25"
    )
    at = str(float(histograms[0]["width"] or 0) * 0.25)
    assert [(attrs["x1"], attrs["x2"]) for attrs in found.all("line")] == [(at, at)] * 3
    assert len(found.all("rect")) == 2 + 1 + 3
    assert not checked(page_of(ROWS, tmp_path, guard=Guard(0.0))).all("line")


def test_each_language_has_its_own_threshold(tmp_path: Path) -> None:
    found = checked(page_of(ROWS, tmp_path, guard=Guard(0.2, {"es": 0.3})))
    labels = [attrs["aria-label"] or "" for attrs in found.all("svg")]
    said = [label.partition("the least that was steered: ")[2] for label in labels]
    assert said == ["0.30", "0.20", ""]  # Spanish, Arabic, all
    assert len(found.all("line")) == 2


@pytest.mark.parametrize(
    ("rows", "headings"),
    [
        ([], ["Settings"]),
        (ROWS[5:], ["Failed", "Failed rows", "Settings"]),
        (ROWS[4:5], ["Languages", "Not steered", "Settings"]),
    ],
    ids=["no rows", "all failed", "no match, no language"],
)
def test_runs_without_answers_or_matches_have_a_page_too(
    rows: list[dict[str, Any]], headings: list[str], tmp_path: Path
) -> None:
    text = page_of(rows, tmp_path, seconds=0.0)
    assert not checked(text).all("svg")
    assert re.findall(r"<h2>(.*)</h2>", text) == headings


def view(rows: int = 2, columns: int = 3) -> AlignmentView:
    prompt, english = [f"casa{at}" for at in range(rows)], [f"house{at}" for at in range(columns)]
    return AlignmentView(prompt, english, torch.ones(rows, columns), torch.ones(rows), layer=5)


def test_heatmaps_stand_with_their_rows(tmp_path: Path) -> None:
    text = page_of(ROWS, tmp_path, heatmaps={0: view(), 1: view(3, 4), "0": view(9, 9)})
    checked(text)
    cards = text.split("<section")[1:]
    pictures = {re.search(r"note\">(\d+):", card)[1]: card for card in cards}  # type: ignore[index]
    assert list(pictures) == ["1", "2", "0", "3"]  # the worst first
    assert heatmap_html(view()) in pictures["0"]
    assert heatmap_html(view(3, 4)) in pictures["1"]
    assert "Had it been steered" in pictures["1"]
    assert "Had it been steered" not in pictures["0"]
    assert text.count('class="carot-heatmap"') == 2


def test_no_heatmap_is_shown_that_is_too_large_or_of_another_row(tmp_path: Path) -> None:
    text = page_of([row(0), row(1), row(1)], tmp_path, heatmaps={0: view(200, 200), 1: view()})
    assert 'class="carot-heatmap"' not in text
    assert text.count("too large to be shown") == 1


def test_the_page_is_written_whole_and_folders_are_made(tmp_path: Path) -> None:
    page_of(ROWS, tmp_path / "made")
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["page.html"]


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
