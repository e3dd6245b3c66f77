"""Fixtures: tiny random models of many architectures, the demo model, the shared data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytest.register_assert_rewrite("helpers")  # Its assertions fail with details as well.

# Tiny tensors gain nothing from more threads, and threads of several test runs slow each other.
torch.set_num_threads(1)

ROOT = Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real data: $CAROT_DATA, else ../shared/data."""
    given = os.environ.get("CAROT_DATA")
    folder = Path(given) if given else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no data in {folder}; set CAROT_DATA to the folder that holds it")
    return folder


@pytest.fixture(scope="session")
def reference(shared_data: Path) -> dict[str, torch.Tensor]:
    """Numeric cases from POT and concept-erasure in float64."""
    path = shared_data.parent / "reference" / "alignment_cases.safetensors"
    if not path.is_file():
        pytest.skip(f"no reference cases in {path}")
    return load_file(path)
