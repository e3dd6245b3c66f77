"""The heatmap in HTML, as an image and in the terminal, and the demo's page."""

from __future__ import annotations

import copy
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console, RenderableType

from carot import AlignmentView, CarotError
from carot.reporting import demo_html, demo_table, heatmap_html, heatmap_image, heatmap_terminal

REPORT: dict[str, Any] = {
    "model": "tiny <1B>",
    "layers": [5, 6],
    "theta": 0.5,
    "fit": {"sentences": 1200, "languages": ["en", "es", "ar"]},
    "facts": 226,
    "seconds": {"prepare": 1.2, "fit": 33.6, "score": 80.1},
    "versions": {"carot": "0.1.0", "torch": "2.6.0"},
    "languages": {
        "es": {"facts": 113, "unsteered": 0.314, "steered": 0.443, "english": 0.762},
        "ar": {"facts": 113, "unsteered": 0.25, "steered": 0.231, "english": 0.757},
    },
    "mean": {"unsteered": 0.282, "steered": 0.337, "english": 0.76},
    "examples": [
        {
            "language": "ar",
            "prompt": "عاصمة النمسا هي مدينة",
            "english": "The capital of Austria is",
            "unsteered": "برلين",
            "steered": "فيينا",
            "gold": "فيينا",
        }
    ],
    "alignment": {
        "language": "es",
        "prompt": "La capital de Austria es",
        "english": "The capital of Austria is",
        "layer": 5,
        "prompt_tokens": ["La", "capital"],
        "english_tokens": ["The", "capital", "of"],
        "plan": [[0.1, 0.1, 0.0], [0.0, 0.0, 0.0]],
        "interpolation": [0.4, 0.0],
    },
}


def a_view(rows: int = 2, columns: int = 3) -> AlignmentView:
    plan = torch.rand(rows, columns, generator=torch.manual_seed(0))
    plan[-1] = 0
    interpolation = plan.sum(-1).clamp(max=1)
    prompt = [f"palabra{index}" for index in range(rows)]
    english = [f"word{index}" for index in range(columns)]
    return AlignmentView(prompt, english, plan, interpolation, layer=5)


def with_tokens(prompt: list[str], english: list[str]) -> AlignmentView:
    drawn = a_view(len(prompt), len(english))
    return AlignmentView(prompt, english, drawn.plan, drawn.interpolation, drawn.layer)


def rendered(renderable: RenderableType, width: int) -> str:
    console = Console(width=width, record=True, file=StringIO())
    console.print(renderable)
    return console.export_text()


def test_html_escapes_tokens_with_markup() -> None:
    page = heatmap_html(with_tokens(["<b>", "R&D"], ['"x"', "</td>"]))
    assert "&lt;b&gt;" in page
    assert "R&amp;D ← &quot;x&quot;: " in page
    assert "<b>" not in page
    assert page.count("</td>") == 2 * (2 + 1) + 1  # two rows of two pairs and "moved", one corner


def test_html_has_one_cell_for_each_pair() -> None:
    assert heatmap_html(a_view(4, 7)).count("<td style=") == 4 * 7


def test_html_cells_say_which_token_took_which_share() -> None:
    view = AlignmentView(["La"], ["The", "is"], torch.tensor([[0.3, 0.1]]), torch.tensor([0.4]), 5)
    page = heatmap_html(view)
    assert 'title="La ← The: 0.75">75</td>' in page
    assert 'title="La ← is: 0.25">25</td>' in page
    assert ">0.40</td>" in page
    assert "Layer 5" in page


def test_html_row_without_mass_shows_no_share() -> None:
    last = heatmap_html(a_view(2, 3)).split("<tr>")[-1]
    assert re.findall(r": ([\d.]+)\">([^<]*)</td>", last) == [("0.00", "")] * 3


def test_html_uses_no_script_and_nothing_from_outside() -> None:
    page = heatmap_html(a_view())
    assert not re.search(r"<script|src=|href=|url\(|@import", page)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf", "PNG"])
def test_image_is_written_in_the_format_of_the_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "made" / f"heatmap.{suffix}"
    heatmap_image(a_view(), path)
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix.lower()]
    assert path.read_bytes().startswith(start)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.filterwarnings("error")
def test_image_takes_any_token_without_a_warning(tmp_path: Path) -> None:
    view = with_tokens(["$x$", "首都", "عاصمة", "\u1c50"], ["\\frac{", "राजधानी"])
    heatmap_image(view, tmp_path / "heatmap.png")
    assert (tmp_path / "heatmap.png").stat().st_size > 0


@pytest.mark.parametrize("name", ["heatmap.docx", "heatmap"])
def test_image_with_an_unknown_suffix_names_the_known_ones(tmp_path: Path, name: str) -> None:
    with pytest.raises(CarotError, match=r"\.png, \.svg, \.pdf"):
        heatmap_image(a_view(), tmp_path / name)


def test_plot_and_to_html_of_the_view_draw_the_heatmap(tmp_path: Path) -> None:
    a_view().plot(str(tmp_path / "heatmap.svg"))
    assert (tmp_path / "heatmap.svg").stat().st_size > 0
    page = a_view().to_html()
    assert page.startswith("<!doctype html>")
    assert heatmap_html(a_view()) in page


@pytest.mark.parametrize("columns", [3, 12, 40, 120])
def test_terminal_heatmap_stays_within_its_width(columns: int) -> None:
    lines = rendered(heatmap_terminal(a_view(4, columns), max_width=60), width=200).splitlines()
    assert max(map(len, lines)) <= 60


def test_terminal_heatmap_that_fits_has_tokens_as_headers() -> None:
    text = rendered(heatmap_terminal(a_view(2, 3), max_width=60), width=60)
    header = next(line for line in text.splitlines() if "moved" in line)
    assert header.split() == ["word0", "word1", "word2", "moved"]


def test_terminal_heatmap_that_does_not_fit_numbers_the_tokens_and_lists_them() -> None:
    text = rendered(heatmap_terminal(a_view(2, 12), max_width=60), width=60)
    header = next(line for line in text.splitlines() if "moved" in line)
    assert header.split() == [*map(str, range(1, 13)), "moved"]
    for index in range(12):
        assert f"{index + 1} word{index}" in text


def test_terminal_heatmap_shows_every_share_however_narrow() -> None:
    view = a_view(2, 40)
    view.plan[0] = 1
    text = rendered(heatmap_terminal(view, max_width=30), width=30)
    assert len(re.findall(r"(?<![\d.])[23](?![\d.])", text.split("1 word0")[0])) >= 40


def test_terminal_heatmap_shows_tokens_that_look_like_markup() -> None:
    view = with_tokens(["[/b]", "[red]"], ["[bold]", "x"])
    text = rendered(heatmap_terminal(view, max_width=60), width=60)
    assert all(token in text for token in ("[/b]", "[red]", "[bold]"))


def test_demo_table_shows_percents_and_the_change_in_points() -> None:
    text = rendered(demo_table(REPORT), width=100)
    assert re.search(r"Spanish \(es\).* 31\.4 .* 44\.3 .* \+12\.9 .* 76\.2 ", text)
    assert re.search(r"Arabic \(ar\).* 25\.0 .* 23\.1 .* −1\.9 .* 75\.7 ", text)
    assert re.search(r"mean.* 28\.2 .* 33\.7 .* \+5\.5 .* 76\.0 ", text)


def test_demo_page_holds_every_language_and_the_numbers_it_was_given() -> None:
    page = demo_html(REPORT)
    for cell in ("Spanish (es)", "Arabic (ar)", "31.4", "44.3", "+12.9", "76.2", "−1.9", "+5.5"):
        assert f">{cell}</" in page
    assert "<strong>33.7 %</strong>" in page
    assert "up from <strong>28.2 %</strong>" in page


def test_demo_page_needs_nothing_from_outside() -> None:
    page = demo_html(REPORT)
    assert "http" not in page
    assert not re.search(r"<script|src=|href=|url\(|@import", page)


def test_demo_page_escapes_names_answers_and_prompts() -> None:
    report = copy.deepcopy(REPORT)
    for key in ("language", "prompt", "english", "unsteered", "steered", "gold"):
        report["examples"][0][key] = '<i>"&'
    page = demo_html(report)
    assert '<i>"' not in page
    assert "<1B>" not in page
    assert page.count("&lt;i&gt;&quot;&amp;") >= 6


def test_demo_page_shows_the_alignment_and_both_answers() -> None:
    page = demo_html(REPORT)
    assert page.count("<td style=") == 2 * 3
    assert "La ← The: 0.50" in page
    assert 'lang="ar">برلين</dd>' in page
    assert 'lang="ar" class="right">فيينا</dd>' in page
    assert "sentences 1200; languages en, es, ar" in page


@pytest.mark.parametrize(
    ("steered", "said"), [(0.1, "down from"), (0.282, "the same as"), (0.9, "up from")]
)
def test_demo_headline_says_which_way_it_went(steered: float, said: str) -> None:
    report = copy.deepcopy(REPORT)
    report["mean"]["steered"] = steered
    assert f"{said} <strong>28.2 %</strong>" in demo_html(report)
