"""The command line: from fitting to answers, and one line for each mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from helpers import ANSWER_KEYS
from tiny import ARCHITECTURES, SIZES, corpus, tiny_model, tiny_tokenizer
from transformers.utils import logging

import carot.cli
from carot.alignment import Aligner
from carot.cli import main
from carot.models import fit_aligner, load_model, wrap

SOURCES = Path(carot.cli.__file__).parent.glob("*.py")
COMMANDS = sorted(path.stem for path in SOURCES if path.stem not in ("__init__", "options"))
ROWS = [
    {"id": "c", "prompt": "La casa es grande.", "english": "The house is big."},
    {"id": "a", "prompt": "Мы читаем книгу."},
    {"id": 7, "prompt": "El sol sale.", "english": None},
    {"id": "b", "prompt": "Hoy llueve.", "english": "It is raining today.", "note": "kept out"},
    {"id": "d", "prompt": "Hola", "english": "Hello"},
]


@dataclass(frozen=True)
class Outcome:
    """What a command ended with."""

    code: int
    out: str
    err: str


def run(*arguments: object) -> Outcome:
    """Run a command in this process; a new one takes seconds to import torch."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["carot", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
    return Outcome(ended.value.code or 0, out.getvalue(), err.getvalue())


def started(*arguments: object) -> Outcome:
    """Run a command in a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-m", "carot", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    return Outcome(ended.returncode, ended.stdout, ended.stderr)


def refusal(*arguments: object) -> str:
    """The one line that a command is refused with."""
    outcome = run(*arguments)
    assert outcome.code == 2
    assert outcome.err.splitlines() == [outcome.err.strip()]
    assert outcome.err.startswith("error: ")
    return outcome.err


@pytest.fixture(scope="module", autouse=True)
def _no_bars_of_transformers() -> Iterator[None]:
    """Its bar for loading weights is not carot's."""
    logging.disable_progress_bar()
    yield
    logging.enable_progress_bar()


@dataclass(frozen=True)
class Files:
    """A model and aligners, as folders; ``aligner`` is the model's own."""

    model: Path
    aligner: Path
    wide: Path
    reseeded: Path
    cut: Path
    fitted: Outcome


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> Files:
    folder = tmp_path_factory.mktemp("cli")
    files = Files(
        **{name: folder / name for name in ("model", "aligner", "wide", "reseeded", "cut")},
        fitted=_save_and_fit(folder),
    )
    torch.manual_seed(1)
    wide = hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES | {"hidden_size": 48}))
    for name, other in (("wide", wide), ("reseeded", ARCHITECTURES["llama"]())):
        fit_aligner(other, tiny_tokenizer(), corpus(), [1, 2]).save_pretrained(folder / name)
    Aligner.from_pretrained(files.aligner).save_pretrained(files.cut)
    weights = files.cut / "aligner.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    return files


def _save_and_fit(folder: Path) -> Outcome:
    tiny_model("llama").save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    options = ("--languages", "en,es,ru", "--limit", 40, "--layers", "2,1")
    return run("fit", folder / "model", "--output", folder / "aligner", *options)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.write_text("".join(lines), "utf-8")
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture
def prompts(tmp_path) -> Path:
    return write_rows(tmp_path / "prompts.jsonl", ROWS)


def steered(files: Files, **settings: Any) -> Any:
    """The same through the Python API."""
    fitted = Aligner.from_pretrained(files.aligner)
    return wrap(*load_model(files.model), fitted, min_match=0.0, **settings)


# From fitting to answers


def test_fitting_writes_what_fitting_in_python_gives(files):
    assert files.fitted.code == 0
    assert f"{files.aligner}: layers 1, 2 of {files.model}" in files.fitted.out
    written = Aligner.from_pretrained(files.aligner)
    expected = fit_aligner(
        *load_model(files.model), corpus().select(["en", "es", "ru"], limit=40), [1, 2]
    )
    assert written.languages == ["en", "es", "ru"]
    assert written.fit == expected.fit
    assert list(written) == [1, 2]
    torch.testing.assert_close(written[1].means, expected[1].means.float())


def test_fitting_reads_the_corpus_languages_and_limits_that_it_is_given(files, tmp_path):
    rows = [{key: corpus()[key][row] for key in ("en", "es", "ru")} for row in range(30)]
    source = write_rows(tmp_path / "corpus.jsonl", rows)
    options = ("--languages", "es, en", "--limit", 20, "--max-length", 8, "--batch-size", 7)
    outcome = run("fit", files.model, "--output", tmp_path / "new", "--corpus", source, *options)
    assert outcome.code == 0
    fitted = Aligner.from_pretrained(tmp_path / "new")
    assert (fitted.languages, list(fitted)) == (["es", "en"], [2])
    recorded = {key: fitted.fit[key] for key in ("sentences", "corpus", "max_length")}
    assert recorded == {"sentences": 20, "corpus": str(source), "max_length": 8}
    model, tokenizer = load_model(files.model)
    texts = corpus().select(["es", "en"], limit=20)
    short, long = (fit_aligner(model, tokenizer, texts, [2], max_length=size) for size in (8, 64))
    torch.testing.assert_close(fitted[2].means, short[2].means.float())
    assert not torch.allclose(fitted[2].means, long[2].means.float(), rtol=1e-2)


def test_info_shows_layers_and_languages(files):
    outcome = run("info", files.aligner)
    assert outcome.code == 0
    for shown in ("hidden size 32", "en, es, ru", "sentences 40", "whitened dimensions"):
        assert shown in " ".join(outcome.out.split())
    rows = [line.split() for line in outcome.out.splitlines() if line.startswith("│")]
    assert [row[1] for row in rows] == ["1", "2"]


def test_info_as_json_is_what_the_aligner_describes(files):
    outcome = run("info", files.aligner, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    described = json.loads(outcome.out)
    assert described == Aligner.from_pretrained(files.aligner).describe()
    assert [row["layer"] for row in described["layers"]] == [1, 2]


def test_info_shows_the_name_of_a_model_whatever_is_in_it(files, tmp_path):
    fitted = Aligner.from_pretrained(files.aligner)
    object.__setattr__(fitted.model, "name", "my[red]model")
    fitted.save_pretrained(tmp_path)
    assert "my[red]model" in run("info", tmp_path).out


def test_align_shows_the_heatmap_and_writes_page_and_image(files, tmp_path):
    html, png = tmp_path / "new" / "page.html", tmp_path / "new" / "image.png"
    pair = ("--prompt", "La casa es grande", "--english", "The house is big")
    outcome = run(
        "align", files.model, "--aligner", files.aligner, *pair, "--html", html, "--png", png
    )
    assert outcome.code == 0
    view = steered(files, layer=1).align("La casa es grande", "The house is big")
    assert html.read_text("utf-8") == view.to_html()
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "Layer 1" in outcome.out
    moved = [line.split()[-1] for line in outcome.out.splitlines()[2:]]
    assert moved[: len(view.interpolation)] == [f"{value:.2f}" for value in view.interpolation]


def test_align_takes_layer_theta_and_marker(files, tmp_path):
    html = tmp_path / "page.html"
    pair = ("--prompt", "Q: #La casa#", "--english", "Q: #The house#")
    options = ("--layer", 2, "--theta", 1, "--content-marker", "#", "--html", html)
    assert run("align", files.model, "--aligner", files.aligner, *pair, *options).code == 0
    view = steered(files, layer=2, theta=1).align("Q: #La casa#", "Q: #The house#", content="#")
    assert html.read_text("utf-8") == view.to_html()
    assert "Layer 2" in html.read_text("utf-8")


def generated(files: Files, source: Path, *options: object) -> list[dict[str, Any]]:
    output = source.with_name("answers.jsonl")
    arguments = ("--aligner", files.aligner, "--input", source, "--output", output)
    outcome = run("generate", files.model, *arguments, "--min-match", 0, *options)
    assert outcome.code == 0
    rows = read_rows(output)
    count = sum(row["steered"] for row in rows)
    said = f"{output}: {len(rows)} rows, {count} steered, {len(rows) - count} not, 0 failed"
    assert said in " ".join(outcome.out.split())
    assert sorted(source.parent.iterdir()) == [output, source]
    output.unlink()
    return rows


def test_generate_answers_each_row_in_order_and_steers_those_with_english(files, prompts):
    rows = generated(files, prompts, "--max-new-tokens", 12, "--batch-size", 2, "--layer", 1)
    assert [list(row) for row in rows] == [ANSWER_KEYS] * len(ROWS)
    assert [row["id"] for row in rows] == ["c", "a", 7, "b", "d"]
    assert [row["prompt"] for row in rows] == [row["prompt"] for row in ROWS]
    assert [row["steered"] for row in rows] == [True, False, False, True, True]

    model, options = steered(files, layer=1), {"max_new_tokens": 12, "do_sample": False}
    for row, answer in zip(ROWS, rows, strict=True):
        assert answer["answer"] == model.generate(row["prompt"], row.get("english"), **options)
    plain = [model.generate(row["prompt"], **options) for row in ROWS]
    changed = {
        row["id"] for row, before in zip(rows, plain, strict=True) if row["answer"] != before
    }
    assert changed
    assert changed <= {"c", "b", "d"}


def test_generate_takes_layers_theta_and_dtype(files, prompts):
    rows = generated(
        files, prompts, "--max-new-tokens", 3, "--layers", "2,1", "--theta", 1, "--dtype", "float32"
    )
    model = steered(files, layers=[1, 2], theta=1)
    expected = model.generate(
        [row["prompt"] for row in ROWS],
        [row.get("english") for row in ROWS],
        max_new_tokens=3,
        do_sample=False,
    )
    assert [row["answer"] for row in rows] == expected


def test_generate_steers_what_a_marker_encloses(files, tmp_path, prompts):
    marked = [
        {key: f"#{row[key]}#" for key in ("prompt", "english") if row.get(key)} for row in ROWS
    ]
    source = write_rows(tmp_path / "prompts.jsonl", marked)
    rows = generated(files, source, "--max-new-tokens", 3, "--content-marker", "#")
    assert [row["id"] for row in rows] == [0, 1, 2, 3, 4]
    expected = generated(files, write_rows(source, ROWS), "--max-new-tokens", 3)
    assert [row["answer"] for row in rows] == [row["answer"] for row in expected]


def test_generate_runs_in_half_precision(files, prompts):
    rows = generated(files, prompts, "--max-new-tokens", 2, "--dtype", "bfloat16")
    assert [row["id"] for row in rows] == [row["id"] for row in ROWS]


def test_generate_goes_on_after_an_interruption(files, prompts, monkeypatch):
    arguments = (
        *("generate", files.model, "--aligner", files.aligner, "--input", prompts),
        *("--output", prompts.with_name("answers.jsonl"), "--max-new-tokens", 3),
        *("--batch-size", 2, "--min-match", 0),
    )
    expected = generated(files, prompts, *arguments[-6:])
    calls = []

    def interrupt(self: Any, *positional: Any, **named: Any) -> Any:
        calls.append(named)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(self, *positional, **named)

    whole = hf.LlamaForCausalLM.generate
    monkeypatch.setattr(hf.LlamaForCausalLM, "generate", interrupt)
    assert run(*arguments).code != 0
    assert not prompts.with_name("answers.jsonl").exists()
    assert "max_new_tokens 3" in refusal(*arguments[:-6], "--max-new-tokens", 4, "--min-match", 0)
    assert run(*arguments).code == 0
    assert len(calls) == 4  # one batch, the one that was interrupted, and the two that were left
    assert read_rows(prompts.with_name("answers.jsonl")) == expected


# Help, version, processes of their own


def test_a_process_prints_the_version():
    outcome = started("--version")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == f"carot {version('carot')}\n"


def test_a_process_that_is_refused_ends_with_code_2_and_one_line(tmp_path):
    output = tmp_path / "new"
    outcome = started("fit", "demo", "--output", output, "--languages", "en,ess")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.splitlines() == [outcome.err.strip()]
    assert outcome.err.startswith("error: bundled: no language 'ess'")
    assert "did you mean 'es'?" in outcome.err
    assert not output.exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command):
    outcome = run(command, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert f"carot {command}" in outcome.out


def test_help_lists_every_command():
    assert {"align", "demo", "fit", "generate", "info"} <= set(COMMANDS)
    outcome = run("--help")
    assert outcome.code == 0
    for command in COMMANDS:
        assert f" {command} " in outcome.out


# Mistakes


FIT_MISTAKES = {
    "a corpus file that is missing": (["--corpus", "no/corpus.jsonl"], "no/corpus.jsonl: no such"),
    "a corpus folder that is missing": (["--corpus", "no/corpus"], "no/corpus"),
    "a corpus folder without texts": (["--corpus", "{tmp}"], "{tmp}: no .txt file"),
    "a language with a typing error": (
        ["--languages", "en,ess"],
        "did you mean 'es'?",
    ),
    "a language that is unknown": (["--languages", "en,qqq"], "no language 'qqq'"),
    "one language": (["--languages", "en"], "at least two"),
    "no sentence": (["--limit", "0"], "limit is 0"),
    "layers that are words": (["--layers", "one,two"], "--layers one,two: expected"),
    "layers between semicolons": (["--layers", "1;2"], "--layers 1;2: expected"),
    "empty layers": (["--layers", ""], "--layers : expected"),
    "a layer twice": (["--layers", "1,1"], "layers are [1, 1]"),
    "a layer out of range": (["--layers", "1,4"], "layer 4 is out of range"),
    "a negative layer": (["--layers", "-1"], "layer -1 is out of range"),
    "an unknown dtype": (["--dtype", "float8"], "--dtype float8: expected one of auto"),
}


@pytest.mark.parametrize(("options", "named"), FIT_MISTAKES.values(), ids=FIT_MISTAKES)
def test_fit_refuses_in_one_line_and_writes_nothing(files, tmp_path, options, named):
    options = [option.replace("{tmp}", str(tmp_path)) for option in options]
    output = tmp_path / "new"
    message = refusal("fit", files.model, "--output", output, *options)
    assert named.replace("{tmp}", str(tmp_path)) in message
    assert list(tmp_path.iterdir()) == []


CORPORA = {
    "languages of unequal length": ({"en": ["a b", "c d"], "es": ["e f"]}, ["en 2", "es 1"]),
    "an empty sentence": (
        {"en": ["a b", "c d"], "es": ["e f", " "]},
        ["sentence 2 in es", "empty"],
    ),
}


@pytest.mark.parametrize(("texts", "named"), CORPORA.values(), ids=CORPORA)
def test_fit_refuses_a_corpus_that_is_not_parallel(files, tmp_path, texts, named):
    folder = tmp_path / "texts"
    folder.mkdir()
    for language, lines in texts.items():
        (folder / f"{language}.txt").write_text("\n".join(lines) + "\n", "utf-8")
    message = refusal("fit", files.model, "--output", tmp_path / "new", "--corpus", folder)
    for part in (str(folder), *named):
        assert part in message
    assert not (tmp_path / "new").exists()


def test_fit_refuses_a_row_of_a_corpus_that_lacks_a_language(files, tmp_path):
    source = write_rows(tmp_path / "corpus.jsonl", [{"en": "a b", "es": "c d"}, {"en": "e f"}])
    message = refusal("fit", files.model, "--output", tmp_path / "new", "--corpus", source)
    assert f"{source}, row 2" in message
    assert "'es'" in message
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", ["fit", "align", "generate"])
def test_a_model_that_is_nowhere_is_refused_by_name(files, prompts, command):
    before = list(prompts.parent.iterdir())
    arguments = options_of(command, files, prompts)
    arguments[1] = "/no/such/model"
    assert "/no/such/model: no model could be loaded" in refusal(*arguments)
    assert list(prompts.parent.iterdir()) == before


def options_of(command: str, files: Files, prompts: Path, **changed: object) -> list[object]:
    """A command that works, but for what is changed."""
    given = {
        "align": {"prompt": "Hola", "english": "Hello", "html": prompts.with_name("new.html")},
        "generate": {"input": prompts, "output": prompts.with_name("new.jsonl")},
        "fit": {"output": prompts.with_name("new")},
    }[command]
    given |= {} if command == "fit" else {"aligner": files.aligner}
    options = [(f"--{name}", value) for name, value in (given | changed).items()]
    return [command, files.model, *(part for option in options for part in option)]


STEERING_MISTAKES = {
    "a layer out of range": ({"layer": 9}, "layer 9 is out of range"),
    "a layer that was not fitted": (
        {"layers": "1,3"},
        "layer 3 was not fitted; this aligner holds",
    ),
    "a layer that is a word": ({"layer": "one"}, "--layer one: expected"),
    "theta of zero": ({"theta": 0}, "theta is 0"),
    "theta above one": ({"theta": 1.5}, "theta is 1.5"),
    "theta below zero": ({"theta": -1}, "theta is -1"),
    "an unknown dtype": ({"dtype": "int8"}, "--dtype int8: expected one of"),
    "no aligner there": ({"aligner": "/no/such/aligner"}, "/no/such/aligner: no aligner_config"),
}


@pytest.mark.parametrize("command", ["align", "generate"])
@pytest.mark.parametrize(
    ("changed", "named"), STEERING_MISTAKES.values(), ids=list(STEERING_MISTAKES)
)
def test_steering_is_refused_in_one_line_without_output(files, prompts, command, changed, named):
    assert named in refusal(*options_of(command, files, prompts, **changed))
    assert not prompts.with_name("new.html").exists()
    assert not prompts.with_name("new.jsonl").exists()


@pytest.mark.parametrize("command", ["align", "generate"])
@pytest.mark.parametrize(
    ("aligner", "named"),
    [
        ("wide", "this model has hidden size 32 instead of 48; fit an aligner on this model"),
        ("reseeded", "this model has other weights"),
        ("cut", "aligner.safetensors: cannot be read"),
    ],
)
def test_an_aligner_that_does_not_fit_is_refused(files, prompts, command, aligner, named):
    changed = {"aligner": getattr(files, aligner)}
    assert named in refusal(*options_of(command, files, prompts, **changed))
    assert list(prompts.parent.iterdir()) == [prompts]


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("aligner.safetensors", None, "aligner.safetensors: cannot be read"),
        ("aligner_config.json", None, "no aligner_config.json there"),
        ("aligner_config.json", "{", "aligner_config.json: not valid JSON"),
        ("aligner_config.json", '{"format_version": 1}', "lacks 'layers'"),
        ("aligner_config.json", '{"format_version": 99}', "format 99"),
    ],
)
def test_info_refuses_damaged_files_by_name(files, tmp_path, name, content, named):
    Aligner.from_pretrained(files.aligner).save_pretrained(tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_text(content)
    message = refusal("info", tmp_path)
    assert str(tmp_path) in message
    assert named in message


@pytest.mark.parametrize(
    ("content", "named"),
    [('{"text": "Hola"}\n', "no column 'prompt'; there: text"), ("\n", "no rows")],
)
def test_an_input_that_is_wrong_is_refused(files, prompts, content, named):
    prompts.write_text(content, "utf-8")
    message = refusal(*options_of("generate", files, prompts))
    assert f"{prompts}: {named}" in message
    assert list(prompts.parent.iterdir()) == [prompts]


def test_rows_that_cannot_be_answered_are_written_counted_and_passed_over(files, prompts):
    lines = [
        '{"prompt": "Hola", "english": "Hello"}',
        '{"prompt": ',
        '{"prompt": ""}',
        json.dumps({"id": "long", "prompt": "casa " * 300}),
        '{"prompt": "Sol"}',
    ]
    prompts.write_text("\n".join(lines), "utf-8")
    output = prompts.with_name("new.jsonl")
    outcome = run(*options_of("generate", files, prompts, **{"max-new-tokens": 2, "min-match": 0}))
    assert outcome.code == 0, outcome.err
    rows = read_rows(output)
    count = len(tiny_tokenizer()("casa " * 300)["input_ids"])
    assert ["error" in row for row in rows] == [False, True, True, True, False]
    assert [row["id"] for row in rows] == [0, 1, 2, "long", 4]
    assert f"prompt has {count} tokens; the model's context holds 256" in rows[3]["error"]
    said = " ".join(outcome.out.split())
    assert f"{output}: 5 rows, 1 steered, 1 not, 3 failed (the first: line 2: not valid" in said


def test_generate_reads_other_formats_and_columns_and_writes_a_report(files, tmp_path):
    source, page = tmp_path / "prompts.csv", tmp_path / "run.html"
    source.write_text("key,q,en\nx,La casa es,The house is\ny,El sol,\n", "utf-8")
    rows = generated_from(
        *("generate", files.model, "--aligner", files.aligner, "--input", source),
        *("--output", tmp_path / "answers.jsonl", "--max-new-tokens", 2, "--min-match", 0),
        *("--prompt-column", "q", "--english-column", "en", "--id-column", "key"),
        *("--report", page, "--max-batch-tokens", 64),
    )
    assert [(row["id"], row["steered"]) for row in rows] == [("x", True), ("y", False)]
    text = page.read_text("utf-8")
    assert "La casa es" in text
    assert "no English" in text


def test_generate_lets_a_program_translate(files, tmp_path, monkeypatch):
    monkeypatch.setenv("CAROT_CACHE", str(tmp_path / "cache"))
    program = tmp_path / "upper.py"
    program.write_text("import sys\nfor line in sys.stdin: print(line.strip().upper())\n")
    source = write_rows(tmp_path / "p.jsonl", [{"prompt": "La casa es", "language": "es"}])
    [row] = generated_from(
        *("generate", files.model, "--aligner", files.aligner, "--input", source),
        *("--output", tmp_path / "answers.jsonl", "--max-new-tokens", 2, "--min-match", 0),
        *("--pivot", f"command:{sys.executable} {program}"),
    )
    assert (row["english"], row["steered"]) == ("LA CASA ES", True)


def generated_from(*arguments: object) -> list[dict[str, Any]]:
    outcome = run(*arguments)
    assert outcome.code == 0, outcome.err
    return read_rows(arguments[arguments.index("--output") + 1])


def test_the_guard_is_calibrated_on_pairs_of_ones_own_and_used(files, tmp_path):
    aligner = tmp_path / "aligner"
    Aligner.from_pretrained(files.aligner).save_pretrained(aligner)
    source = write_rows(tmp_path / "pairs.jsonl", [row | {"id": at} for at, row in enumerate(ROWS)])
    outcome = run("calibrate", files.model, "--aligner", aligner, "--input", source)
    assert outcome.code == 0, outcome.err
    guard = Aligner.from_pretrained(aligner).guards[1]
    assert guard.pairs == sum(bool(row.get("english")) for row in ROWS)
    assert f"layer 1: match {guard.threshold:.3f} keeps {guard.kept:.0%}" in outcome.out
    rows = generated_from(
        *("generate", files.model, "--aligner", aligner, "--input", source, "--layer", 1),
        *("--output", tmp_path / "answers.jsonl", "--max-new-tokens", 2),
        *("--min-match", 1),
    )
    assert not any(row["steered"] for row in rows)
    assert "below 1.00" in rows[0]["reason"]


def test_an_input_that_is_missing_is_refused_by_name(files, tmp_path):
    source = tmp_path / "none.jsonl"
    assert f"{source}: no such file" in refusal(*options_of("generate", files, source))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("languages", "named"),
    [("es,xx", "no language 'xx'"), ("en,es", "without English"), ("", "expected some")],
)
def test_demo_refuses_languages_before_it_loads_a_model(tmp_path, languages, named):
    output = tmp_path / "new"
    message = refusal("demo", "--output", output, "--languages", languages, "--model", "/no/such")
    assert named in message
    assert not output.exists()


UNREFUSED = {
    "fit in batches of none": ("fit", {"batch-size": 0}),
    "generate in batches of none": ("generate", {"batch-size": 0}),
    "fit into a file": ("fit", {"output": "{prompts}"}),
    "generate into a folder": ("generate", {"output": "{folder}"}),
    "generate no token": ("generate", {"max-new-tokens": 0}),
}


@pytest.mark.parametrize(("command", "changed"), UNREFUSED.values(), ids=list(UNREFUSED))
def test_numbers_and_places_that_cannot_be_are_refused(files, prompts, command, changed):
    folder = prompts.with_name("folder")
    folder.mkdir()
    places = {"{prompts}": prompts, "{folder}": folder}
    changed = {name: places.get(value, value) for name, value in changed.items()}
    outcome = run(*options_of(command, files, prompts, **changed))
    assert outcome.code == 2


def test_align_refuses_an_image_of_unknown_format_and_writes_nothing(files, prompts):
    arguments = options_of("align", files, prompts, png=prompts.with_name("image.gif"))
    assert "image.gif" in refusal(*arguments)
    assert list(prompts.parent.iterdir()) == [prompts]


@pytest.mark.parametrize(
    "name",
    [
        *["[red]no[/red].jsonl", "no, [bold].jsonl", "no " * 60 + ".jsonl"],
        ":smile:.jsonl",
    ],
)
def test_a_name_in_an_error_is_printed_as_it_was_given(files, tmp_path, name):
    arguments = ("--output", tmp_path / "new", "--corpus", name)
    assert f"error: {name}: no such file" in refusal("fit", files.model, *arguments)
