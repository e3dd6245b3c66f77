"""Arguments that several commands share, and how their texts are read."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from carot.errors import CarotError

Model = Annotated[str, typer.Argument(help="Hub id, local folder, or demo.", show_default=False)]
AlignerFolder = Annotated[str, typer.Option("--aligner", help="Folder or hub id of an aligner.")]
Layers = Annotated[
    str | None,
    typer.Option("--layer", "--layers", help="One layer, or several as 3,7,11."),
]
Theta = Annotated[
    float | None,
    typer.Option(help="Perplexity filter, in (0, 1]; 1 is off. The aligner's default, else 0.5."),
]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
DeviceMap = Annotated[str | None, typer.Option(help="As in from_pretrained, e.g. auto.")]
Marker = Annotated[
    str | None,
    typer.Option(help="Text that encloses the steered part of prompt and English; taken out."),
]

Input = Annotated[
    str,
    typer.Option(help="FILE.jsonl, .csv, .tsv or .parquet, or hub:OWNER/NAME[:SPLIT]."),
]
MaxBatchTokens = Annotated[
    int, typer.Option(help="Tokens of a batch, padding and new ones counted.")
]
BatchSize = Annotated[int | None, typer.Option(help="Rows in one batch at most.")]
PromptColumn = Annotated[str, typer.Option(help="Column of the prompts.")]
EnglishColumn = Annotated[str, typer.Option(help="Column of the English counterparts.")]
LanguageColumn = Annotated[str, typer.Option(help="Column of the prompts' languages.")]
IdColumn = Annotated[str, typer.Option(help="Column of ids; the row's number by default.")]
Chat = Annotated[bool, typer.Option("--chat", help="Put the chat template around both sides.")]
PivotName = Annotated[
    str,
    typer.Option("--pivot", help="given, self, seq2seq:MODEL or 'command:PROGRAM ...'."),
]
MinMatch = Annotated[
    float | None,
    typer.Option(help="Least match of prompt and English; the aligner's own by default, 0 is off."),
]


def load(name: str, dtype: str, device_map: str | None) -> tuple[Any, Any]:
    """Load a model as its options say."""
    import torch
    from transformers.utils.logging import disable_progress_bar

    from carot.models import load_model

    known = {"auto", "float32", "bfloat16", "float16"}
    if dtype not in known:
        raise CarotError(f"--dtype {dtype}: expected one of {', '.join(sorted(known))}")
    disable_progress_bar()  # type: ignore[no-untyped-call]
    resolved = dtype if dtype == "auto" else getattr(torch, dtype)
    return load_model(name, dtype=resolved, device_map=device_map)


def numbers(text: str | None, option: str) -> list[int] | None:
    """Read 3,7,11."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise CarotError(f"{option} {text}: expected whole numbers as 3 or 3,7,11") from error


def decimals(text: str, option: str) -> list[float]:
    """Read 0.25,0.5,1."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise CarotError(f"{option} {text}: expected numbers as 0.5 or 0.25,0.5,1") from error


def pairs_of(text: str | None, option: str) -> dict[str, float] | None:
    """Read en=0.5,es=2."""
    if text is None:
        return None
    try:
        split = [part.split("=") for part in text.split(",")]
        return {name.strip(): float(value) for name, value in split}
    except ValueError as error:
        raise CarotError(f"{option} {text}: expected values as en=0.5,es=2") from error


def names(text: str | None) -> list[str] | None:
    """Read en,es,fr."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def wrapped(
    name: str,
    aligner: str,
    layers: str | None,
    theta: float | None,
    dtype: str,
    device_map: str | None,
    min_match: float | None = None,
) -> Any:
    """Load a model and its aligner, and wrap them."""
    from carot.alignment import Aligner
    from carot.models import wrap

    fitted = Aligner.from_pretrained(aligner)
    model, tokenizer = load(name, dtype, device_map)
    settings: dict[str, Any] = {} if theta is None else {"theta": theta}
    chosen = numbers(layers, "--layer")
    return wrap(model, tokenizer, fitted, layers=chosen, min_match=min_match, **settings)


def run_settings(
    steered: Any,
    *,
    model: str,
    aligner: str,
    input: str,
    theta: float | None,
    max_new_tokens: int,
    dtype: str,
) -> dict[str, Any]:
    """Return what the answers of a run depend on beside rows and aligner."""
    return {
        "model": model,
        "aligner": aligner,
        "input": input,
        "layers": steered.layers,
        "theta": steered.aligner.defaults.get("theta", 0.5) if theta is None else theta,
        "max_new_tokens": max_new_tokens,
        "dtype": dtype,
    }
