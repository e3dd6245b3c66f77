"""The aligner of a model: its fitted layers, the model that they belong to, and their files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_safetensors
from torch import Tensor

from carot.alignment.layer import LayerAligner
from carot.alignment.match import Guard
from carot.alignment.subspace import LanguageSubspace
from carot.errors import CarotError
from carot.files import require_folder_or_nothing, write_atomically

CONFIG_NAME = "aligner_config.json"
WEIGHTS_NAME = "aligner.safetensors"
FORMAT_VERSION = 1

DEFAULT_DEPTH = 0.75
"""Share of the depth in which fitted layers are steered, where nothing else is said."""


@dataclass(frozen=True)
class ModelIdentity:
    """What an aligner remembers of the model that it was fitted on.

    Parameters
    ----------
    name : str
        The model's name or path; for messages, not compared.
    model_type, hidden_size, num_layers
        As in the model's (text) config.
    fingerprint : list of float
        Evenly spaced values of the input embedding, which neither a dtype nor 4- or 8-bit loading
        nor a LoRA adapter changes by more than rounding. Empty where weights are not at hand.
    """

    name: str
    model_type: str
    hidden_size: int
    num_layers: int
    fingerprint: list[float] = field(default_factory=list)

    def difference(self, other: ModelIdentity) -> str | None:
        """Say in what ``other`` differs from this model, or None where it is the same."""
        for name in ("model_type", "hidden_size", "num_layers"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name.replace('_', ' ')} {theirs} instead of {mine}"
        if self.fingerprint and other.fingerprint:
            mine, theirs = torch.tensor(self.fingerprint), torch.tensor(other.fingerprint)
            # Rounding to bfloat16 moves a value by 2**-9 of itself at most.
            close = len(mine) == len(theirs) and torch.allclose(
                mine, theirs, rtol=2**-7, atol=1e-3 * float(mine.abs().max())
            )
            if not close:
                return "other weights (the embeddings differ)"
        return None


class Aligner:
    """The fitted layers of one model; ``aligner[5]`` is the :class:`LayerAligner` of layer 5.

    Parameters
    ----------
    layers : mapping of int to LayerAligner
        By 0-based layer index; layer L is the residual stream after decoder block L.
    languages : sequence of str
        Language codes in the order of the rows of ``means``.
    model : ModelIdentity
        The model that it was fitted on.
    fit : dict, optional
        How it was fitted (sentences, token limit, versions), as shown by ``carot info``.
    defaults : dict, optional
        What :func:`carot.wrap` takes where nothing is said: ``layers`` and settings of the
        transport, as chosen by a sweep.
    guards : mapping of int to Guard, optional
        By layer, the match below which an English text is not taken for a translation.
    """

    def __init__(
        self,
        layers: Mapping[int, LayerAligner],
        languages: list[str],
        model: ModelIdentity,
        fit: dict[str, Any] | None = None,
        defaults: dict[str, Any] | None = None,
        guards: Mapping[int, Guard] | None = None,
    ) -> None:
        self.layers = dict(sorted(layers.items()))
        self.languages = list(languages)
        self.model = model
        self.fit = dict(fit or {})
        self.defaults = dict(defaults or {})
        self.guards = dict(guards or {})

    def __getitem__(self, layer: int) -> LayerAligner:
        if layer not in self.layers:
            raise CarotError(
                f"layer {layer} was not fitted; this aligner holds layers "
                f"{', '.join(map(str, self.layers))}: choose one of them or fit again"
            )
        return self.layers[layer]

    def __iter__(self) -> Iterator[int]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __contains__(self, layer: object) -> bool:
        return layer in self.layers

    def __repr__(self) -> str:
        return (
            f"Aligner(model={self.model.name!r}, layers={list(self.layers)}, "
            f"languages={self.languages})"
        )

    def default_layer(self) -> int:
        """Return the fitted layer nearest to 0.3 of the depth, where the paper's picks lie."""
        return min(self.layers, key=lambda layer: abs(layer - 0.3 * self.model.num_layers))

    def default_layers(self) -> list[int]:
        """Return the layers that a sweep chose, else all fitted ones but those of the last quarter.

        Each aligns what the ones before left apart: measured, several layers beat the best single
        one. In the last quarter states turn into predictions of the next token.
        """
        early = [layer for layer in self.layers if layer < DEFAULT_DEPTH * self.model.num_layers]
        return list(self.defaults.get("layers") or early or [self.default_layer()])

    def digest(self) -> str:
        """Return a hash of what was fitted, which tells two aligners apart."""
        tensors = (
            tensor for layer in self.layers.values() for tensor in _named_tensors(layer).values()
        )
        whole = hashlib.sha256(repr((list(self.layers), self.languages)).encode())
        for tensor in tensors:
            whole.update(tensor.to("cpu", torch.float32).contiguous().numpy().tobytes())
        return whole.hexdigest()[:16]

    def describe(self) -> dict[str, Any]:
        """Return what it holds as plain data, for ``carot info``."""
        return {
            "model": asdict(self.model),
            "languages": self.languages,
            "fit": self.fit,
            "defaults": self.defaults,
            "layers": [
                {
                    "layer": index,
                    "directions": int(torch.linalg.matrix_rank(layer.subspace.right)),
                    "whitened": layer.whitening.shape[1],
                    "guard": asdict(self.guards[index]) if index in self.guards else None,
                }
                for index, layer in self.layers.items()
            ],
        }

    def save_pretrained(
        self, directory: str | Path, *, push_to_hub: bool = False, **kwargs: Any
    ) -> None:
        """Write ``aligner_config.json`` and ``aligner.safetensors`` (float32) into a folder.

        Parameters
        ----------
        directory : path
            Made where it does not exist.
        push_to_hub : bool
            Upload the folder afterwards, to ``repo_id`` or the folder's name.
        **kwargs
            Passed to :meth:`push_to_hub`.
        """
        directory = Path(directory)
        require_folder_or_nothing(directory)
        directory.mkdir(parents=True, exist_ok=True)
        config = {
            "format_version": FORMAT_VERSION,
            "layers": list(self.layers),
            "languages": self.languages,
            "model": asdict(self.model),
            "fit": self.fit,
            "defaults": self.defaults,
            "guards": {str(layer): asdict(guard) for layer, guard in self.guards.items()},
        }
        tensors = {
            f"layers.{index}.{name}": tensor.to("cpu", torch.float32).contiguous()
            for index, layer in self.layers.items()
            for name, tensor in _named_tensors(layer).items()
        }
        write_atomically(directory / WEIGHTS_NAME, to_safetensors(tensors))
        write_atomically(directory / CONFIG_NAME, json.dumps(config, indent=2) + "\n")
        if push_to_hub:
            self.push_to_hub(kwargs.pop("repo_id", directory.name), **kwargs)

    def push_to_hub(self, repo_id: str, *, private: bool | None = None, **kwargs: Any) -> str:
        """Upload to a hub repository (made where missing); returns the address of the commit.

        ``kwargs`` go to ``HfApi.upload_folder`` (``commit_message``, ``revision``, ...).
        """
        from tempfile import TemporaryDirectory

        from huggingface_hub import HfApi

        api = HfApi()
        repo = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return str(api.upload_folder(repo_id=repo, folder_path=folder, **kwargs))

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, **kwargs: Any) -> Aligner:
        """Load an aligner from a local folder or a hub id.

        Parameters
        ----------
        name_or_path : str or path
            A folder written by :meth:`save_pretrained`, or a hub repository.
        **kwargs
            Passed to ``huggingface_hub.snapshot_download`` (``revision``, ``token``, ...).

        Raises
        ------
        CarotError
            When there is no aligner there, or its files are damaged.
        """
        folder = _local_folder(name_or_path, kwargs)
        try:
            config = json.loads((folder / CONFIG_NAME).read_text("utf-8"))
            if (version := config["format_version"]) > FORMAT_VERSION:
                raise CarotError(
                    f"{folder}: the aligner has format {version}, this carot reads up to "
                    f"{FORMAT_VERSION}: update carot"
                )
            tensors = load_file(folder / WEIGHTS_NAME)
            layers = {index: _layer_from(tensors, index) for index in config["layers"]}
            known = {entry.name for entry in fields(ModelIdentity)}
            model = {key: value for key, value in config["model"].items() if key in known}
            return cls(
                layers,
                config["languages"],
                ModelIdentity(**model),
                config.get("fit"),
                config.get("defaults"),
                {int(at): Guard(**guard) for at, guard in config.get("guards", {}).items()},
            )
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise CarotError(f"{folder / CONFIG_NAME}: not valid JSON ({error})") from error
        except (KeyError, TypeError, AttributeError) as error:
            raise CarotError(
                f"{folder}: the aligner lacks {error}; fit or copy it again"
            ) from error
        except (SafetensorError, OSError) as error:
            raise CarotError(
                f"{folder / WEIGHTS_NAME}: cannot be read ({error}); the file is damaged or cut "
                "short: fit or copy it again"
            ) from error


def _named_tensors(layer: LayerAligner) -> dict[str, Tensor]:
    return {
        "left": layer.subspace.left,
        "right": layer.subspace.right,
        "bias": layer.subspace.bias,
        "whitening": layer.whitening,
        "means": layer.means,
    }


def _layer_from(tensors: Mapping[str, Tensor], index: int) -> LayerAligner:
    left, right, bias, whitening, means = (
        tensors[f"layers.{index}.{name}"]
        for name in ("left", "right", "bias", "whitening", "means")
    )
    return LayerAligner(LanguageSubspace(left, right, bias), whitening, means)


def _local_folder(name_or_path: str | Path, kwargs: dict[str, Any]) -> Path:
    folder = Path(name_or_path)
    if (folder / CONFIG_NAME).is_file():
        return folder
    if folder.exists() or str(name_or_path).count("/") > 1 or str(name_or_path).startswith("."):
        raise CarotError(
            f"{folder}: no {CONFIG_NAME} there; expected a folder written by `carot fit` or "
            "Aligner.save_pretrained"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(
                str(name_or_path), allow_patterns=[CONFIG_NAME, WEIGHTS_NAME], **kwargs
            )
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise CarotError(
            f"{name_or_path}: neither a local aligner folder nor a hub repository that can be "
            f"reached ({type(error).__name__}); check the path"
        ) from error
