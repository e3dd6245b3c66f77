"""Evaluation results as tables, as a page and as plots."""

from __future__ import annotations

import copy
import re
from html.parser import HTMLParser
from io import StringIO
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from carot.errors import CarotError
from carot.reporting.consistency import consistency_figure, consistency_plot
from carot.reporting.evaluation_report import html_report
from carot.reporting.plots import (
    accuracy_figure,
    accuracy_plot,
    fidelity_figure,
    fidelity_plot,
    layer_figure,
    layer_plot,
)
from carot.reporting.tables import latex_table, markdown_table, results_table

HOSTILE = "tiny_<1B> & 50%|$a$"
IMAGE_STARTS = {"png": b"\x89PNG", "svg": b"<?xml"}


def metrics(accuracy: float, p_holm: float | None = None, **more: Any) -> dict[str, Any]:
    return {
        "items": 200,
        "accuracy": accuracy,
        "accuracy_interval": [accuracy - 0.06, accuracy + 0.06],
        "rankc": accuracy + 0.1,
        "agreement": accuracy + 0.05,
        "consistency": accuracy - 0.1,
        "fidelity": None,
        "p": p_holm,
        "p_holm": p_holm,
    } | more


def results(task: str = "bmlama", model: str = "tiny", **changes: Any) -> dict[str, Any]:
    """Spanish is significantly better with carot, French a little with lang_vec."""
    return {
        "format": 1,
        "task": task,
        "model": {"name": model, "model_type": "gemma3_text"},
        "languages": ["es", "fr"],
        "methods": ["none", "carot", "lang_vec"],
        "settings": {"carot": {"layers": [3, 7], "theta": 0.5}},
        "seed": 0,
        "versions": {"carot": "0.1.0"},
        "items": 200,
        "skipped": {"es": {}, "fr": {"no translation": 4, "a candidate twice": 2}},
        "metrics": {
            "none": {
                "en": {"items": 200, "accuracy": 0.762},
                "es": metrics(0.311),
                "fr": metrics(0.222),
                "mean": metrics(0.267, clc_all=0.401),
            },
            "carot": {
                "es": metrics(0.444, 0.0123),
                "fr": metrics(0.233, 0.3),
                "mean": metrics(0.339, p=0.004, p_holm=None, clc_all=0.457),
            },
            "lang_vec": {
                "es": metrics(0.322, 0.21),
                "fr": metrics(0.255, 0.09),
                "mean": metrics(0.288, p=0.08, p_holm=None, clc_all=0.412),
            },
        },
        "pairs": {
            method: {
                f"{one}-{other}": 0.3 + 0.1 * index
                for one, other in combinations(("en", "es", "fr"), 2)
            }
            for index, method in enumerate(("none", "carot", "lang_vec"))
        },
        "predictions": {},
    } | changes


def with_fidelity(report: dict[str, Any]) -> dict[str, Any]:
    report = copy.deepcopy(report)
    for by_language in report["metrics"].values():
        for language in report["languages"]:
            by_language[language]["fidelity"] = 0.875
    return report


def sweep(methods: tuple[str, ...] = ("carot", "lang_vec")) -> list[dict[str, Any]]:
    return [
        {
            "method": method,
            "layers": layers,
            "theta": theta,
            "language": language,
            "accuracy": 0.2 + 0.01 * layers[0] + 0.1 * theta * (language == "es"),
        }
        for method in methods
        for layers in ([9], [3], [3, 9])
        for theta in (0.5, 1.0)
        for language in ("es", "fr")
    ]


def terminal(table: Any) -> str:
    output = StringIO()
    Console(file=output, width=120).print(table)
    return output.getvalue()


def line(text: str, *words: str) -> str:
    """The one line that holds all of the words."""
    [found] = [row for row in text.splitlines() if all(word in row for word in words)]
    return found


def numbers(text: str) -> list[str]:
    return re.findall(r"\d+\.\d\*?|–", text)


class Page(HTMLParser):
    """Text of table cells by row, and every tag and attribute."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src"):
                self.links.append(value or "")
        if tag in ("meta", "path", "use"):
            return
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("path", "use"):
            return
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


# Tables


def test_the_terminal_shows_accuracy_and_what_is_significant():
    shown = terminal(results_table(results()))
    assert "tiny, bmlama" in shown
    assert numbers(line(shown, "none ", "76.2")) == ["76.2", "31.1", "22.2", "26.7", "36.7"]
    assert numbers(line(shown, "carot")) == ["–", "44.4*", "23.3", "33.9*", "43.9"]
    assert numbers(line(shown, "lang_vec")) == ["–", "32.2", "25.5", "28.8", "38.8"]


def test_ten_columns_fit_into_a_terminal_of_eighty():
    several = results()
    for metrics in several["metrics"].values():
        for language in ("ru", "ja", "tr", "vi"):
            metrics[language] = metrics["es"]
    several["languages"] = [*several["languages"], "ru", "ja", "tr", "vi"]
    output = StringIO()
    Console(file=output, width=80).print(results_table(several))
    assert "…" not in output.getvalue()
    assert len(numbers(line(output.getvalue(), "none ", "76.2"))) == 9


def test_the_terminal_takes_names_that_look_like_markup():
    shown = terminal(results_table(results(model="[bold]tiny[/]", task="[/x]")))
    assert "[bold]tiny[/], [/x]" in shown


def test_markdown_shows_accuracy_consistency_and_the_best():
    accuracy, consistency = markdown_table([results()]).split("**Consistency and fidelity**")
    assert line(accuracy, "| method") == "| model | task | method | en | es | fr | mean |"
    assert (
        line(accuracy, "| carot")
        == r"| tiny | bmlama | carot | – | **44.4**\* | 23.3 | **33.9**\* |"
    )
    assert line(accuracy, "| lang_vec").endswith("| – | 32.2 | **25.5** | 28.8 |")
    assert line(accuracy, "| none").endswith("| 76.2 | 31.1 | 22.2 | 26.7 |")
    assert line(consistency, "| carot").endswith(
        "| **43.9** | **45.7** | **38.9** | **23.9** | – |"
    )


def test_latex_shows_the_same():
    table = latex_table([results()])
    assert r"tiny & bmlama & none & 76.2 & 31.1 & 22.2 & 26.7 \\" in table
    assert r" &  & carot & -- & \textbf{44.4}$^{*}$ & 23.3 & \textbf{33.9}$^{*}$ \\" in table
    assert r" &  & lang\_vec & -- & 32.2 & \textbf{25.5} & 28.8 \\" in table
    assert r"\textbf{43.9} & \textbf{45.7}" in table
    assert table.count(r"\begin{tabular}") == table.count(r"\end{tabular}") == 2
    assert table.count(r"\toprule") == table.count(r"\bottomrule") == 2
    for row in table.splitlines():
        if row.endswith(r"\\"):
            assert row.count("&") in (6, 7)


def test_the_page_shows_the_same():
    rows = Page(html_report([results()])).rows
    assert ["tiny", "bmlama", "none", "76.2", "31.1", "22.2", "26.7"] in rows
    assert ["carot", "–", "44.4*", "23.3", "33.9*"] in rows
    assert ["lang_vec", "–", "32.2", "25.5", "28.8"] in rows
    assert ["carot", "43.9", "45.7", "38.9", "23.9", "–"] in rows
    assert "<b>44.4</b>" in html_report([results()])
    assert 'title="38.4 to 50.4; p = 0.012"' in html_report([results()])


def test_methods_that_round_to_the_same_are_all_the_best():
    same = results()
    same["metrics"]["lang_vec"]["es"]["accuracy"] = 0.4441
    assert markdown_table([same]).count("**44.4**") == 2


def test_a_single_method_is_not_the_best():
    alone = results(methods=["none"], metrics={"none": results()["metrics"]["none"]})
    assert r"\textbf" not in latex_table([alone])
    assert "<b>" not in html_report([alone])


def test_two_tasks_are_merged_over_all_their_languages():
    klar = results(task="klar", languages=["es", "ja"])
    for by_language in klar["metrics"].values():
        by_language["ja"] = by_language.pop("fr")
    klar = with_fidelity(klar)
    merged = markdown_table([results(), klar])
    assert "| method | en | es | fr | ja | mean |" in merged
    accuracy, consistency = merged.split("**Consistency and fidelity**")
    assert line(accuracy, "bmlama | carot").endswith(r"| – | **44.4**\* | 23.3 | – | **33.9**\* |")
    assert line(accuracy, "klar | carot").endswith(r"| – | **44.4**\* | – | 23.3 | **33.9**\* |")
    assert line(consistency, "klar | none").endswith("| 87.5 |")
    assert latex_table([results(), klar]).count(r"\midrule") == 4
    assert ["tiny", "klar", "none", "76.2", "31.1", "–", "22.2", "26.7"] in Page(
        html_report([results(), klar])
    ).rows


def test_two_runs_of_the_same_are_told_apart():
    merged = markdown_table([results(), results(), results(model="other")])
    assert "| tiny | bmlama #2 | carot |" in merged
    assert "| other | bmlama | carot |" in merged
    page = Page(html_report([results(), results()]))
    assert "tiny, bmlama #2" in page.text


def test_what_is_missing_is_a_dash():
    partial = results(methods=["none", "carot", "lang_vec", "mlrs"])
    del partial["metrics"]["carot"]["fr"], partial["metrics"]["lang_vec"]["mean"]
    accuracy, consistency = markdown_table([partial]).split("**Consistency and fidelity**")
    assert line(accuracy, "| carot").endswith(r"| – | **44.4**\* | – | **33.9**\* |")
    assert line(accuracy, "| lang_vec").endswith("| – | 32.2 | **25.5** | – |")
    assert line(accuracy, "| mlrs").endswith("| mlrs | – | – | – | – |")
    assert line(consistency, "| mlrs").endswith("| mlrs | – | – | – | – | – |")
    assert ["mlrs", "–", "–", "–", "–"] in Page(html_report([partial])).rows
    assert numbers(line(terminal(results_table(partial)), "mlrs")) == ["–"] * 5
    assert r" &  & mlrs & -- & -- & -- & -- \\" in latex_table([partial])


def test_a_mean_over_some_languages_only_is_not_shown():
    partial = with_fidelity(results())
    partial["metrics"]["carot"]["fr"]["fidelity"] = None
    consistency = markdown_table([partial]).split("**Consistency and fidelity**")[1]
    assert line(consistency, "| carot").endswith("| – |")
    assert line(consistency, "| none").endswith("| 87.5 |")


def test_names_are_escaped_in_every_format():
    hostile = results(model=HOSTILE, task="_a_b*")
    assert r"| tiny\_\<1B\> & 50%\|$a$ | \_a_b\* | none |" in markdown_table([hostile])
    assert r"tiny\_\textless{}1B\textgreater{} \& 50\%\textbar{}\$a\$ & \_a\_b*" in latex_table(
        [hostile]
    )
    page = html_report([hostile])
    assert "<1B>" not in page
    assert Page(page).rows[1][:3] == [HOSTILE, "_a_b*", "none"]
    assert HOSTILE in terminal(results_table(hostile))


@pytest.mark.parametrize("report", [markdown_table, latex_table, html_report])
def test_what_is_no_result_is_refused(report):
    with pytest.raises(CarotError, match="no results"):
        report([])
    with pytest.raises(CarotError, match="format 2"):
        report([results(format=2)])


# The page


def test_the_page_is_whole_and_needs_nothing_from_outside():
    page = html_report([with_fidelity(results()), results(task="klar")])
    assert page.startswith("<!doctype html>")
    assert "://" not in page
    assert "@import" not in page
    parsed = Page(page)
    assert parsed.open == []
    assert all(link.startswith("#") for link in parsed.links)
    used = re.findall(r'(?:href="|url\()#([^")]+)', page)
    assert set(used) == set(parsed.ids)
    assert len(parsed.ids) == len(set(parsed.ids))


def test_the_page_says_what_changed_and_what_was_left_out():
    text = Page(html_report([results()])).text
    assert "with carot 33.9 % right on average over 2 languages, up from 26.7 % without" in text
    assert "200 questions in each language; left out: fr 6 (no translation, a candidate twice)" in (
        text
    )
    assert '"theta": 0.5' in text


def test_the_page_has_the_plots_that_there_are_numbers_for():
    headings = ("Accuracy with", "Consistency between", "Fidelity against")
    without_pairs = results(pairs={})
    for report, expected in (
        (results(), (1, 1, 0)),
        (with_fidelity(results()), (1, 1, 1)),
        (without_pairs, (1, 0, 0)),
    ):
        page = html_report([report])
        assert tuple(page.count(f"<h3>{heading}") for heading in headings) == expected
        assert page.count("<svg ") == sum(expected)


def test_the_page_follows_dark_mode_with_its_plots():
    page = html_report([results()])
    assert "prefers-color-scheme: dark" in page
    plot = page[page.index("<svg ") :]
    assert "var(--ink)" in plot
    assert "#1c1917" not in plot


def test_the_page_tells_how_settings_were_chosen():
    chosen = {"carot": {"layers": [3, 9], "theta": 1.0}, "mlrs": {"layers": []}}
    page = html_report([results()], sweep={"rows": sweep(), "chosen": chosen})
    assert page.count("<svg ") == 3
    assert "carot: layers 3, 9; theta 1.0" in Page(page).text
    assert "chosen" not in html_report([results()])


def test_the_page_does_without_methods_and_without_numbers():
    bare = results(methods=["none"], metrics={"none": results()["metrics"]["none"]}, pairs={})
    assert "without." not in html_report([bare])
    assert "31.1" in html_report([bare])


# Plots


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_plots_are_written_in_both_formats(tmp_path: Path, kind: str):
    full = with_fidelity(results())
    written = {name: tmp_path / "plots" / f"{name}.{kind}" for name in "abcd"}
    accuracy_plot(full, written["a"])
    layer_plot(sweep(), written["b"])
    consistency_plot(full, "none", "carot", written["c"])
    fidelity_plot(full, written["d"])
    for path in written.values():
        assert path.read_bytes().startswith(IMAGE_STARTS[kind])
    assert sorted(tmp_path.joinpath("plots").iterdir()) == sorted(written.values())


def test_an_image_is_the_same_each_time(tmp_path: Path):
    for name in ("one.svg", "two.svg"):
        accuracy_plot(results(), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_a_name_with_dollars_is_no_formula(tmp_path: Path):
    odd = results(methods=["none", "a$b$"])
    odd["metrics"]["a$b$"] = odd["metrics"].pop("carot")
    accuracy_plot(odd, tmp_path / "plot.svg")
    assert "a$b$" in (tmp_path / "plot.svg").read_text(encoding="utf-8")


def test_another_suffix_is_refused(tmp_path: Path):
    with pytest.raises(CarotError, match=r"plot\.pdf.*expected one of \.png, \.svg"):
        accuracy_plot(results(), tmp_path / "plot.pdf")


def places(axes: Any) -> dict[str, list[tuple[float, float]]]:
    """Points of each labelled line."""
    return {
        line.get_label(): list(zip(line.get_xdata(), line.get_ydata(), strict=True))
        for line in axes.get_lines()
        if not str(line.get_label()).startswith("_")
    }


def test_accuracy_has_a_dot_and_an_interval_for_each_language_and_the_mean():
    axes = accuracy_figure(results()).axes[0]
    drawn = places(axes)
    assert [x for x, _ in drawn["carot"]] == pytest.approx([44.4, 23.3, 33.9])
    assert [round(y) for _, y in drawn["carot"]] == [0, 1, 2]
    assert [x for x, _ in drawn["English"]] == pytest.approx([76.2, 76.2])
    intervals = [line.get_xdata() for line in axes.get_lines()]
    assert [38.4, 50.4] in [pytest.approx(list(ends)) for ends in intervals]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["es", "fr", "mean"]


def test_accuracy_leaves_out_what_is_missing():
    partial = results(methods=["none", "carot", "mlrs"])
    del partial["metrics"]["carot"]["fr"], partial["metrics"]["none"]["en"]
    drawn = places(accuracy_figure(partial).axes[0])
    assert [round(y) for _, y in drawn["carot"]] == [0, 2]
    assert "mlrs" not in drawn
    assert "English" not in drawn


def test_settings_of_a_sweep_are_not_mixed_up():
    """One value of strength is best in Spanish, the other in French."""
    values = {("es", 1): 0.4, ("es", 2): 0.1, ("fr", 1): 0.2, ("fr", 2): 0.3}
    rows = [
        {
            "setup": strength,
            "method": "lang_vec",
            "layers": [5],
            "strength": strength,
            "language": language,
            "accuracy": accuracy,
        }
        for (language, strength), accuracy in values.items()
    ]
    assert places(layer_figure(rows).axes[0])["lang_vec"] == [(5, pytest.approx(30))]


def test_layers_show_the_mean_over_languages_at_the_best_theta():
    axes = layer_figure(sweep()).axes[0]
    # theta 1: .2 + .01 layer + .1 in Spanish only.
    assert places(axes)["carot"] == [(3, pytest.approx(28)), (9, pytest.approx(34))]
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    assert ticks == ["3", "9", "3, 9"]
    assert axes.get_xticks()[2] > 9


def test_a_method_without_layers_is_a_line_across():
    rows = [
        {"method": "none", "layers": [], "theta": None, "language": language, "accuracy": 0.25}
        for language in ("es", "fr")
    ]
    assert [y for _, y in places(layer_figure(sweep() + rows).axes[0])["none"]] == [25, 25]
    assert [y for _, y in places(layer_figure(rows).axes[0])["none"]] == [25, 25]


def test_a_setting_that_lacks_a_language_is_left_out():
    lacking = [row for row in sweep(("carot",)) if row["layers"] != [9] or row["language"] == "es"]
    assert [x for x, _ in places(layer_figure(lacking).axes[0])["carot"]] == [3]
    with pytest.raises(CarotError, match="0 rows"):
        layer_figure([])


def test_consistency_shows_before_after_and_change():
    figure = consistency_figure(results(), "none", "carot")
    shown = [[text.get_text() for text in axes.texts] for axes in figure.axes]
    assert shown == [["30"] * 6, ["40"] * 6, ["+10"] * 6]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["en", "es", "fr"]


def test_consistency_does_without_english_and_takes_codes_with_a_dash():
    bare = results(languages=["es", "zh-Hant"], pairs={"none": {"es-zh-Hant": 0.2}})
    axes = consistency_figure(bare, "none", "none").axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["es", "zh-Hant"]
    assert [text.get_text() for text in axes.texts] == ["20", "20"]


def test_consistency_of_a_method_without_pairs_is_refused():
    with pytest.raises(CarotError, match=r"'mlrs'; there is: none, carot, lang_vec"):
        consistency_figure(results(), "none", "mlrs")


def test_fidelity_has_a_point_for_each_method_and_language():
    axes = fidelity_figure(with_fidelity(results())).axes[0]
    expected = [(pytest.approx(44.4), 87.5), (pytest.approx(23.3), 87.5)]
    assert places(axes)["carot"] == expected
    with pytest.raises(CarotError, match="no fidelity"):
        fidelity_figure(results())
