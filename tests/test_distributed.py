"""Training or answering in two processes is what it is in one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny import corpus, tiny_model, tiny_tokenizer

import carot

SCRIPT = Path(__file__).parent / "launch_training.py"


def content(size: int, **changes: Any) -> dict[str, Any]:
    return {
        "objective": "carot",
        "lora": {"r": 4, "dropout": 0},
        "align": {"layers": [1], "refit_every": 3},
        "data": {"held_out": 12},
        "schedule": {"steps": 6},
        "training": {
            "per_device_train_batch_size": size,
            "logging_steps": 1,
            "warmup_steps": 0,
            "learning_rate": 1e-2,
            "use_cpu": True,
            "disable_tqdm": True,
        },
    } | changes


def launch(output: Path, recipe: dict[str, Any], processes: int, *options: str) -> list[Any]:
    command = [sys.executable]
    if processes > 1:
        # Under --cpu accelerate starts several processes through MPI only.
        command += ["-m", "accelerate.commands.launch", *(options or ["--multi_gpu"])]
        command += ["--num_processes", str(processes), "--num_machines", "1"]
        command += ["--mixed_precision", "no", "--dynamo_backend", "no"]
        command += ["--main_process_port", "0"]
    command += [str(SCRIPT), json.dumps(recipe), str(output)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    state = json.loads((output / "trainer_state.json").read_text())
    return [row for row in state["log_history"] if "loss" in row]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "objective", "logged"),
    [("alternate", "carot", 9), ("sum", "carot", 6), ("sum", "dco", 6)],
)
def test_two_processes_have_the_losses_of_one(
    tmp_path: Path, kind: str, objective: str, logged: int
) -> None:
    changes = {
        "objective": objective,
        "schedule": {"steps": 6, "kind": kind},
        "data": {"held_out": 12, "languages": ["en", "es"]},
        "preferences": {"candidates": 3},
    }
    one = launch(tmp_path / "one", content(8, **changes), 1)
    two = launch(tmp_path / "two", content(4, **changes), 2)
    assert len(one) == len(two) == logged
    for alone, shared in zip(one, two, strict=True):
        assert shared.keys() == alone.keys()
        for key in ("loss", "loss_sft", "loss_carot", "loss_dco", "grad_norm"):
            if key in alone:
                assert shared[key] == pytest.approx(alone[key], rel=1e-4, abs=1e-4), key
    weights = [load_file(tmp_path / name / "adapter_model.safetensors") for name in ("one", "two")]
    for name, tensor in weights[0].items():
        assert torch.allclose(tensor, weights[1][name], atol=1e-3), name


@pytest.mark.slow
def test_sharded_parameters_have_the_same_gradients() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    command += ["--master_port", "29517", str(SCRIPT.with_name("launch_sharded.py"))]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "carot: 19 gradients agree" in ran.stdout
    assert "sft: 39 gradients agree" in ran.stdout
    assert "dco: 39 gradients agree" in ran.stdout


@pytest.mark.slow
def test_two_processes_under_a_launcher_answer_a_file_as_one_does(tmp_path: Path) -> None:
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    loaded = carot.load_model(tmp_path / "model")
    carot.fit_aligner(*loaded, corpus(), layers=[1, 2]).save_pretrained(tmp_path / "aligner")
    rows = [
        {"id": number, "prompt": f"La casa {'muy ' * (number % 7)}{number} es", "english": english}
        for number, english in enumerate(["The house is", None, "A house"] * 20)
    ]
    rows[5] = {"id": 5, "prompt": None}
    source = tmp_path / "prompts.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    arguments = ["generate", str(tmp_path / "model"), "--aligner", str(tmp_path / "aligner")]
    arguments += ["--input", str(source), "--max-new-tokens", "4", "--batch-size", "4"]
    launcher = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    launcher += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    launcher += ["--main_process_port", "0", "-m", "carot"]
    for name, start in (("one", ["-m", "carot"]), ("two", launcher)):
        output = tmp_path / f"{name}.jsonl"
        command = [sys.executable, *start, *arguments, "--output", str(output)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert ran.returncode == 0, ran.stderr[-3000:]
        assert ran.stdout.count("60 rows") == 1
        assert "1 failed" in ran.stdout
    assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
