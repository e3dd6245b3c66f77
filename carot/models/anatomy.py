"""Where an architecture keeps its decoder layers, found from its config and checked against it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper

from carot.alignment import ModelIdentity
from carot.errors import CarotError

FINGERPRINT_VALUES = 64


@dataclass(frozen=True)
class Anatomy:
    """The parts of a causal language model that steering touches.

    Parameters
    ----------
    model : nn.Module
        The model as the user holds it (perhaps PEFT-wrapped, perhaps multimodal).
    decoder : nn.Module
        The text decoder: the module that is called with the embedded tokens.
    layers : nn.ModuleList
        Its decoder blocks; the output of block L is the state of layer L.
    layers_path : str
        Where the blocks stand in the model without its adapters.
    """

    model: nn.Module
    decoder: nn.Module
    layers: nn.ModuleList
    layers_path: str

    @property
    def config(self) -> Any:
        """The config of the text decoder."""
        return text_config(self.model)

    @property
    def hidden_size(self) -> int:
        """The width d of the residual stream."""
        return int(self.config.hidden_size)

    @property
    def context_length(self) -> int | None:
        """The most positions that the model was made for, where its config says."""
        length = getattr(self.config, "max_position_embeddings", None)
        return int(length) if length else None

    @property
    def input_device(self) -> torch.device:
        """Where token ids go: the device of the input embedding."""
        return _device(without_adapter(self.model).get_input_embeddings())

    def device_of(self, layer: int) -> torch.device:
        """The device that a layer's output lies on."""
        return _device(self.layers[layer])

    def check_layers(self, layers: list[int]) -> None:
        """Raise a CarotError where a layer index is out of range or named twice."""
        for layer in layers:
            if not 0 <= layer < len(self.layers):
                raise CarotError(
                    f"layer {layer} is out of range; {type(self.model).__name__} has layers 0 to "
                    f"{len(self.layers) - 1}"
                )
        if len(set(layers)) < len(layers) or not layers:
            raise CarotError(f"layers are {layers}; expected at least one, each named once")

    def identity(self) -> ModelIdentity:
        """Describe the model, so that an aligner can tell it from another."""
        return ModelIdentity(
            name=str(without_adapter(self.model).config._name_or_path or type(self.model).__name__),
            model_type=str(self.config.model_type),
            hidden_size=self.hidden_size,
            num_layers=len(self.layers),
            fingerprint=_fingerprint(without_adapter(self.model)),
        )


def _device(module: nn.Module) -> torch.device:
    """Where a module computes: offloaded weights lie on ``meta``, and its hook knows better."""
    parameter = next(module.parameters(), None)
    if parameter is not None and parameter.device.type != "meta":
        return parameter.device
    execution = getattr(getattr(module, "_hf_hook", None), "execution_device", None)
    return torch.device("cpu" if execution is None else execution)


def text_config(model: nn.Module) -> Any:
    """Return the config of the text decoder; a multimodal model nests it."""
    return without_adapter(model).config.get_text_config(decoder=True)


def without_adapter(model: nn.Module) -> Any:
    """Return the Hugging Face model inside a PEFT wrapper, or the model itself."""
    unwrap = getattr(model, "get_base_model", None)
    return unwrap() if callable(unwrap) else model


def has_new_adapter(model: nn.Module) -> bool:
    """Whether a model has a LoRA adapter that is untrained: its B is zero, and it does nothing."""
    second = [p for name, p in model.named_parameters() if "lora_B" in name]
    return bool(second) and not any(bool(parameter.any()) for parameter in second)


def dissect(model: nn.Module, layers_path: str | None = None) -> Anatomy:
    """Find the decoder layers of a causal language model.

    The layers are the outermost ``nn.ModuleList`` of the text decoder whose length is the config's
    ``num_hidden_layers``.

    Parameters
    ----------
    model : nn.Module
        A Hugging Face model, PEFT-wrapped or not.
    layers_path : str, optional
        Dotted path of the layers (such as ``"transformer.blocks"``), for an architecture in which
        they are not found.

    Raises
    ------
    CarotError
        When the layers are not found, or ``layers_path`` does not lead to a ModuleList.
    """
    base = without_adapter(model)
    if getattr(base, "config", None) is None or not hasattr(base.config, "get_text_config"):
        raise CarotError(
            f"{type(model).__name__} has no Hugging Face config; expected a causal language model "
            "of transformers"
        )
    if base.config.is_encoder_decoder:
        raise CarotError(f"{type(model).__name__} is an encoder-decoder; expected a decoder only")
    names = {id(module): name for name, module in base.named_modules()}
    if layers_path is not None:
        return _at_path(model, base, layers_path)
    decoder = base.get_decoder() if hasattr(base, "get_decoder") else base
    count = getattr(text_config(base), "num_hidden_layers", None)
    lists = [
        (name.count("."), module)
        for name, module in decoder.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == count
    ]
    outermost = min((depth for depth, _ in lists), default=0)
    found = [module for depth, module in lists if depth == outermost]
    if len(found) != 1:
        raise CarotError(
            f"{type(base).__name__}: found {len(found)} lists of {count} layers where one was "
            'expected; name them with layers_path="..." (one of '
            f"{', '.join(_module_lists(base)) or 'no ModuleList'})"
        )
    return Anatomy(model, decoder, found[0], names[id(found[0])])


def _at_path(model: nn.Module, base: Any, path: str) -> Anatomy:
    try:
        layers = base.get_submodule(path)
    except AttributeError:
        layers = None
    if not isinstance(layers, nn.ModuleList):
        raise CarotError(
            f"layers_path={path!r} is not a ModuleList of {type(base).__name__}; "
            f"expected one of {', '.join(_module_lists(base)) or 'none, it has no ModuleList'}"
        )
    parent = path.rpartition(".")[0]
    return Anatomy(model, base.get_submodule(parent), layers, path)


def _module_lists(base: nn.Module) -> list[str]:
    return [
        f"{name!r} ({len(module)})"
        for name, module in base.named_modules()
        if isinstance(module, nn.ModuleList) and name.count(".") <= 2
    ]


def _fingerprint(base: Any) -> list[float]:
    embedding = base.get_input_embeddings()
    weight = getattr(embedding, "weight", None)
    if weight is None or weight.is_meta or not weight.is_floating_point():
        return []
    index = torch.linspace(0, weight.numel() - 1, FINGERPRINT_VALUES, dtype=torch.float64).long()
    rows, columns = index // weight.shape[1], index % weight.shape[1]
    return [float(value) for value in weight.detach()[rows, columns].float().cpu()]


def accepts(function: Any, name: str) -> bool:
    """Whether a callable names a parameter."""
    return name in inspect.signature(function).parameters


def last_logits(model: nn.Module, keep: int = 1) -> dict[str, int]:
    """Return the forward argument that limits logits to the last positions, where there is one."""
    limits = accepts(without_adapter(model).forward, "logits_to_keep")
    return {"logits_to_keep": keep} if limits else {}


def checkpoints_activations(model: nn.Module) -> bool:
    """Whether blocks run again in the backward pass, where a cache would be filled twice."""
    return any(
        getattr(module, "gradient_checkpointing", False) or isinstance(module, CheckpointWrapper)
        for module in model.modules()
    )


def cache_argument(model: nn.Module) -> str:
    """Return the name of the KV cache's argument: ``cache``, or ``past_key_values`` before 5.24."""
    return "cache" if accepts(without_adapter(model).forward, "cache") else "past_key_values"
