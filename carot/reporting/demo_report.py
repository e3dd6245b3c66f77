"""The demo's result: a table for the terminal and a page that works offline."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import torch
from rich.table import Table
from rich.text import Text

from carot.models.view import AlignmentView
from carot.reporting.heatmap import heatmap_html
from carot.reporting.page import LANGUAGE_NAMES, html_page

_CSS = """\
:root { --before: #a8a29e; }
@media (prefers-color-scheme: dark) { :root { --before: #78716c; } }
main { max-width: 54rem; }
h1 { margin: 0 0 2rem; font-weight: 400; }
h1 strong { color: var(--accent); font-weight: 600; white-space: nowrap; }
h2 { margin: 2.5rem 0 .75rem; font-size: 1.05rem; }
.card { padding: 1rem 1.25rem; }
.card + .card { margin-top: .75rem; }
.results { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
.results th, .results td { padding: .4rem .6rem; text-align: right; font-weight: 400;
  white-space: nowrap; }
.results thead th { color: var(--faint); font-size: .875rem; }
.results th:first-child { text-align: left; padding-left: 0; }
.results td:last-child, .results thead th:last-child { padding-right: 0; }
.results tbody tr { border-top: 1px solid var(--line); }
.results tfoot tr { border-top: 2px solid var(--line); }
.results tfoot * { font-weight: 600; }
.results .bars { width: 34%; min-width: 7rem; }
.track { position: relative; display: block; padding: 2px 0; }
.track i { display: block; height: 6px; border-radius: 3px; margin: 2px 0; }
.before { background: var(--before); }
.after { background: var(--accent); }
.track b { position: absolute; top: 0; bottom: 0; width: 2px; background: var(--ink); }
.key { display: inline-block; width: 1.2em; height: 6px; margin: 0 .35em .1em 0;
  border-radius: 3px; }
.key.english { width: 2px; height: .9em; margin-bottom: -.1em; background: var(--ink); }
.prompt { margin: 0; font-size: 1.05rem; }
dl { display: grid; grid-template-columns: repeat(3, 1fr); gap: 0 1.25rem; margin: .75rem 0 0; }
dd { margin: 0; overflow-wrap: anywhere; }
.prompt, dd { text-align: left; }
dd.right { color: var(--accent); font-weight: 600; }
.heatmap { padding: 0; }
@media (max-width: 44rem) { .bars { display: none; } }
footer { margin-top: 2.5rem; padding-top: 1rem; border-top: 1px solid var(--line); }
"""


def demo_table(report: dict[str, Any]) -> Table:
    """Return the demo's accuracies as a table for the terminal.

    Parameters
    ----------
    report : dict
        The demo's report; accuracies in it are shares.

    Returns
    -------
    rich.table.Table
        One row for each language, in percent, and their mean.
    """
    table = Table(title=Text(f"{report['model']}: answers right, in %"), title_justify="left")
    table.add_column("language")
    for heading in ("facts", "without", "with carot", "change", "in English"):
        table.add_column(heading, justify="right")
    for code, scores in report["languages"].items():
        table.add_row(_language(code), str(scores["facts"]), *_numbers(scores))
    table.add_section()
    table.add_row("mean", str(report["facts"]), *_numbers(report["mean"]), style="bold")
    return table


def demo_examples(report: dict[str, Any]) -> Table:
    """Return the demo's before-and-after answers as a table for the terminal.

    Parameters
    ----------
    report : dict
        The demo's report.

    Returns
    -------
    rich.table.Table
        One row for each question whose answer changed; right answers are bold.
    """
    table = Table(title="Answers that changed", title_justify="left")
    for heading in ("question", "without", "with carot", "right"):
        table.add_column(heading)
    for example in report["examples"]:
        answers = [
            Text(example[kind], style="bold" if example[kind] == example["gold"] else "")
            for kind in ("unsteered", "steered")
        ]
        table.add_row(Text(example["prompt"]), *answers, Text(example["gold"]))
    return table


def _language(code: str) -> str:
    name = LANGUAGE_NAMES.get(code)
    return f"{name} ({code})" if name else code


def _numbers(scores: Mapping[str, float]) -> list[str]:
    before, after = scores["unsteered"], scores["steered"]
    return [_percent(before), _percent(after), _points(before, after), _percent(scores["english"])]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _points(before: float, after: float) -> str:
    change = round(100 * (after - before), 1) + 0.0  # + 0.0 turns -0.0 into 0.0
    return f"{change:+.1f}".replace("-", "−") if change else "0.0"


def demo_html(report: dict[str, Any]) -> str:
    """Return the demo's report as an HTML page that needs nothing from outside.

    Parameters
    ----------
    report : dict
        The demo's report; accuracies in it are shares.

    Returns
    -------
    str
        The page, to be written as UTF-8; it follows the reader's light or dark mode.
    """
    body = f"""<h1>{_headline(report)}</h1>
{_results(report)}
<h2>Before and after</h2>
{"".join(_example(example) for example in report["examples"])}
<h2>What moved where</h2>
{_alignment(report["alignment"])}
<footer>{_foot(report)}</footer>
"""
    return html_page(f"carot on {report['model']}", _CSS, body)


def _headline(report: Mapping[str, Any]) -> str:
    mean, count = report["mean"], len(report["languages"])
    change = round(100 * (mean["steered"] - mean["unsteered"]), 1)
    direction = "up from" if change > 0 else "down from" if change < 0 else "the same as"
    languages = f"on average over {count} languages" if count != 1 else "in one language"
    return (
        f"With carot, {escape(report['model'])} answers "
        f"<strong>{_percent(mean['steered'])} %</strong> right {languages}, "
        f"{direction} <strong>{_percent(mean['unsteered'])} %</strong> without."
    )


def _results(report: Mapping[str, Any]) -> str:
    rows = "".join(
        _row(_language(code), scores["facts"], scores)
        for code, scores in report["languages"].items()
    )
    return f"""<div class="card"><table class="results">
<thead><tr><th scope="col">Language</th><th scope="col">Facts</th><td class="bars"></td>
<th scope="col">Without</th><th scope="col">With carot</th><th scope="col">Change</th>
<th scope="col">In English</th></tr></thead>
<tbody>{rows}</tbody>
<tfoot>{_row("Mean", report["facts"], report["mean"])}</tfoot>
</table></div>
<p class="note"><span class="bars"><span class="key before"></span>without &ensp;
<span class="key after"></span>with carot &ensp;
<span class="key english"></span>the same facts asked in English.</span> Answers right in
percent; the change is in points.</p>
"""


def _row(name: str, facts: int, scores: Mapping[str, float]) -> str:
    numbers = "".join(f"<td>{number}</td>" for number in _numbers(scores))
    return (
        f'<tr><th scope="row">{escape(name)}</th><td>{facts}</td>'
        f'<td class="bars">{_bars(scores)}</td>{numbers}</tr>\n'
    )


def _bars(scores: Mapping[str, float]) -> str:
    return (
        '<span class="track">'
        f'<i class="before" style="width:{_percent(scores["unsteered"])}%"></i>'
        f'<i class="after" style="width:{_percent(scores["steered"])}%"></i>'
        f'<b style="left:{_percent(scores["english"])}%"></b></span>'
    )


def _example(example: Mapping[str, str]) -> str:
    language, gold = escape(example["language"]), example["gold"]
    answers = "".join(
        f'<div><dt>{label}</dt><dd dir="auto" lang="{language}"{_right(answer, gold)}>'
        f"{escape(answer)}</dd></div>"
        for label, answer in (
            ("Without", example["unsteered"]),
            ("With carot", example["steered"]),
            ("Expected", gold),
        )
    )
    return f"""<section class="card">
<p class="prompt" dir="auto" lang="{language}">{escape(example["prompt"])}</p>
<p class="note">{escape(_language(example["language"]))}: {escape(example["english"])}</p>
<dl>{answers}</dl>
</section>
"""


def _right(answer: str, gold: str) -> str:
    return ' class="right"' if answer.strip() == gold.strip() else ""


def _alignment(alignment: Mapping[str, Any]) -> str:
    view = AlignmentView(
        prompt_tokens=alignment["prompt_tokens"],
        english_tokens=alignment["english_tokens"],
        plan=torch.tensor(alignment["plan"]),
        interpolation=torch.tensor(alignment["interpolation"]),
        layer=alignment["layer"],
    )
    language = escape(alignment["language"])
    return f"""<p class="prompt" dir="auto" lang="{language}">{escape(alignment["prompt"])}</p>
<p class="note">{escape(_language(alignment["language"]))}: {escape(alignment["english"])}</p>
<div class="card heatmap" lang="{language}">{heatmap_html(view)}</div>
"""


def _foot(report: Mapping[str, Any]) -> str:
    seconds = ", ".join(f"{name} {value:.0f} s" for name, value in report["seconds"].items())
    lines = [
        f"Layers {', '.join(map(str, report['layers']))}; theta {report['theta']}; {seconds}",
        f"Fit: {_plain(report['fit'])}",
        f"Versions: {_plain(report['versions'])}",
    ]
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _plain(value: Any) -> str:
    """Settings as running text."""
    if isinstance(value, Mapping):
        return "; ".join(f"{key.replace('_', ' ')} {_plain(item)}" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
