"""``carot train`` and ``carot distill``: thin over the Python API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_cli import Files, files, read_rows, refusal, run, write_rows  # noqa: F401

from carot.training import Recipe

INSTRUCTIONS = [
    {"prompt": f"{word} {number} is", "response": f"city {number}", "language": language}
    for number in range(8)
    for language, word in (("en", "Town"), ("es", "Pueblo"))
]
CONTENT: dict[str, Any] = {
    "objective": "carot",
    "data": {"parallel": "bundled", "languages": ["en", "es"], "limit": 30},
    "align": {"layers": [1]},
    "schedule": {"steps": 2},
    "lora": {"r": 2},
    "training": {"per_device_train_batch_size": 4, "use_cpu": True, "disable_tqdm": True},
}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    rows = write_rows(tmp_path / "rows.jsonl", INSTRUCTIONS)
    content = {**CONTENT, "data": {**CONTENT["data"], "instructions": str(rows)}}
    path = tmp_path / "recipe.yaml"
    path.write_text(Recipe.from_dict(content).to_yaml())
    return path


def test_a_trained_model_is_evaluated_like_any(files: Files, recipe: Path, tmp_path: Path) -> None:  # noqa: F811
    out = tmp_path / "out"
    outcome = run("train", files.model, "--recipe", recipe, "--output", out)
    assert (outcome.code, f"{out}: trained with carot" in outcome.out) == (0, True)
    options = ["--task", "demo", "--languages", "es", "--limit", 4]
    results = tmp_path / "trained.json"
    outcome = run("eval", out, *options, "--methods", "none", "--output", results)
    assert outcome.code == 0, outcome.err
    assert json.loads(results.read_text())["aligner"] is None
    steered = tmp_path / "steered.json"
    aligner = out / "aligner"
    outcome = run("eval", out, *options, "--aligner", aligner, "--layer", 1, "--output", steered)
    assert outcome.code == 0, outcome.err
    assert "holds checkpoints of a run" in refusal(
        "train", files.model, "--recipe", recipe, "--output", out
    )


def test_the_objective_of_a_recipe_is_replaced(files: Files, recipe: Path, tmp_path: Path) -> None:  # noqa: F811
    out = tmp_path / "out"
    run("train", files.model, "--recipe", recipe, "--output", out, "--objective", "sft")
    assert Recipe.from_yaml(out / "recipe.yaml").objective == "sft"
    assert not (out / "aligner").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("objective: karot", "objective 'karot'; did you mean 'carot'?"),
        ("objektive: sft", "recipe.yaml: no key 'objektive'; did you mean 'objective'?"),
        ("objective: sft", "the recipe names no data.instructions"),
        ("data: {instructions: task:mgsm}", "mgsm"),
        ("data: {instructions: task:nothing}", "nothing"),
    ],
)
def test_a_wrong_recipe_ends_with_one_line(
    files: Files,  # noqa: F811
    tmp_path: Path,
    line: str,
    message: str,
) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(f"{line}\n")
    out = tmp_path / "out"
    assert message in refusal("train", files.model, "--recipe", path, "--output", out)
    assert not out.exists()


def test_steered_answers_become_instruction_data(files: Files, tmp_path: Path) -> None:  # noqa: F811
    rows = [
        {"id": n, "prompt": f"La casa {n} es", "english": f"House {n} is", "language": "es"}
        for n in range(4)
    ]
    rows.append({"id": 9, "prompt": "Hola", "language": "es"})
    source = write_rows(tmp_path / "prompts.jsonl", rows)
    out = tmp_path / "made.jsonl"
    options = ["--aligner", files.aligner, "--input", source, "--output", out, "--no-faithful"]
    outcome = run("distill", files.model, *options, "--max-new-tokens", 8)
    assert outcome.code == 0, outcome.err
    made = read_rows(out)
    assert "1 not steered" in outcome.out
    assert all(set(row) == {"id", "prompt", "response", "language", "match"} for row in made)
    answers = {row["id"]: row for row in read_rows(tmp_path / "made.answers.jsonl")}
    assert len(answers) == 5
    for row in made:
        assert row["response"] == answers[row["id"]]["answer"].strip()
        assert row["match"] == answers[row["id"]]["match"]
    content = {**CONTENT, "objective": "sft", "data": {"instructions": str(out)}}
    path = tmp_path / "sft.yaml"
    path.write_text(Recipe.from_dict(content).to_yaml())
    trained = run("train", files.model, "--recipe", path, "--output", tmp_path / "student")
    assert trained.code == 0, trained.err


def test_distilling_needs_the_language_of_each_row(files: Files, tmp_path: Path) -> None:  # noqa: F811
    source = write_rows(tmp_path / "p.jsonl", [{"prompt": "Hola", "english": "Hello"}])
    options = ["--aligner", files.aligner, "--input", source, "--output", tmp_path / "o.jsonl"]
    assert "row 1: no 'language'" in refusal("distill", files.model, *options)


def test_preferences_are_trained_and_compared(files: Files, tmp_path: Path) -> None:  # noqa: F811
    before, after, plot = tmp_path / "before.json", tmp_path / "after.json", tmp_path / "m.png"
    asked = ["--task", "demo", "--languages", "es,ru", "--limit", 6, "--skip", 8]
    outcome = run("consistency", files.model, *asked, "--output", before, "--plot", plot)
    assert outcome.code == 0, outcome.err
    assert "clc_all" in outcome.out
    assert plot.read_bytes().startswith(b"\x89PNG")
    recipe_file = tmp_path / "recipe.yaml"
    content = {
        "lora": None,
        "schedule": {"steps": 4, "kind": "sum"},
        "training": {**CONTENT["training"], "learning_rate": 1e-2, "warmup_steps": 0},
    }
    recipe_file.write_text(Recipe.from_dict(content).to_yaml())
    out = tmp_path / "out"
    options = ["--data", "task:demo", "--languages", "en,es,ru", "--recipe", recipe_file]
    options += ["--objective", "dco", "--gamma", "es=1", "--candidates", 3, "--limit", 8]
    outcome = run("dco", files.model, *options, "--output", out)
    assert outcome.code == 0, outcome.err
    made = Recipe.from_yaml(out / "recipe.yaml")
    assert (made.preferences.gamma, made.data.languages) == ({"es": 1.0}, ["en", "es", "ru"])
    assert (made.preferences.candidates, made.preferences.limit) == (3, 8)
    reference = json.loads((out / "reference.json").read_text())["values"]
    assert len(reference) == 8 * 2 * 3  # questions, languages, candidates
    outcome = run("consistency", out, *asked, "--output", after, "--before", before, "--plot", plot)
    assert outcome.code == 0, outcome.err
    pairs = [json.loads(path.read_text())["pairs"]["none"] for path in (before, after)]
    change = 100 * (pairs[1]["en-es"] - pairs[0]["en-es"])
    assert f"({change:+.1f})" in outcome.out
    other = ["--task", "demo", "--languages", "es,ru", "--limit", 5]
    results = tmp_path / "other.json"
    message = run("consistency", files.model, *other, "--output", results, "--before", before)
    assert message.code == 2
    assert "the two results have other questions" in message.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gamma", "en=x"], "--gamma en=x: expected values as en=0.5,es=2"),
        (["--gamma", "en=0.5"], "expected beta^2 = 1"),
        (["--objective", "sco"], "objective 'sco'; did you mean"),
        (["--objective", "calm"], "expected three or more"),
        (["--beta", -1], "preferences.beta is -1.0"),
        (["--candidates", 1], "preferences.candidates is 1"),
        (["--limit", 0], "preferences.limit is 0"),
        (["--data", "task:mgsm"], "mgsm"),
    ],
)
def test_wrong_preferences_end_with_one_line(
    files: Files,  # noqa: F811
    tmp_path: Path,
    options: list[Any],
    message: str,
) -> None:
    given = {"--data": "task:demo", "--languages": "en,es", "--output": tmp_path / "out"}
    given |= dict(zip(options[::2], options[1::2], strict=True))
    flat = [part for pair in given.items() for part in pair]
    outcome = run("dco", files.model, *flat)
    assert outcome.code == 2
    assert message in outcome.err.splitlines()[-1]
