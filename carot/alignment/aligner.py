"""Aligners: what was fitted at a layer, and how it moves English states onto a target's tokens."""

from __future__ import annotations

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

from carot.alignment.subspace import LanguageSubspace
from carot.alignment.transport import (
    Solver,
    minmax_normalise,
    pairwise_cost,
    perplexity_filter,
    unbalanced_sinkhorn,
)
from carot.errors import CarotError
from carot.files import write_atomically

CONFIG_NAME = "aligner_config.json"
WEIGHTS_NAME = "aligner.safetensors"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class TransportSettings:
    """Settings of one alignment; the defaults are the paper's.

    Parameters
    ----------
    theta : float
        Perplexity filter, in (0, 1]; 1 is off.
    epsilon : float
        Entropic regularisation of the transport, on costs in [0, 1].
    rho : float
        Weight of both marginal penalties.
    solver : {"auto", "scaling", "log", "pot"}
        See :func:`carot.alignment.transport.unbalanced_sinkhorn`.
    """

    theta: float = 0.5
    epsilon: float = 0.05
    rho: float = 0.5
    solver: Solver = "auto"

    def __post_init__(self) -> None:
        if not 0 < self.theta <= 1:
            raise CarotError(f"theta is {self.theta}; expected a number in (0, 1], where 1 is off")
        for name in ("epsilon", "rho"):
            if not getattr(self, name) > 0:
                raise CarotError(f"{name} is {getattr(self, name)}; expected a number above 0")
        if self.solver not in ("auto", "scaling", "log", "pot"):
            raise CarotError(f"solver is {self.solver!r}; expected auto, scaling, log or pot")


@dataclass(frozen=True)
class Alignment:
    """What an alignment of B pairs returns.

    Parameters
    ----------
    hidden : Tensor
        Shape (B, m, d), the new target states, in the dtype of the target; rows with
        interpolation 0 are the target's own, bit for bit.
    plan : Tensor
        Shape (B, m, n), float32: the filtered transport plan.
    interpolation : Tensor
        Shape (B, m), float32, in [0, 1]: how far each target token moved.
    """

    hidden: Tensor
    plan: Tensor
    interpolation: Tensor


@dataclass(frozen=True)
class LayerAligner:
    """The fitted language subspace and whitening of one layer.

    Parameters
    ----------
    subspace : LanguageSubspace
        The LEACE eraser, with factors (d, k) and (k, d).
    whitening : Tensor
        Shape (d, r): ``W = V / sqrt(lambda)`` from the covariance of E(x).
    means : Tensor
        Shape (k, d): the mean sentence vector of each language.
    """

    subspace: LanguageSubspace
    whitening: Tensor
    means: Tensor

    @property
    def hidden_size(self) -> int:
        """The model's hidden size d."""
        return self.whitening.shape[0]

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> LayerAligner:
        """Return this aligner on a device, optionally in another dtype."""
        return LayerAligner(
            self.subspace.to(device, dtype),
            self.whitening.to(device, dtype),
            self.means.to(device, dtype),
        )

    @torch.no_grad()
    def align(
        self,
        source: Tensor,
        target: Tensor,
        *,
        source_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
        theta: float = 0.5,
        epsilon: float = 0.05,
        rho: float = 0.5,
        backend: Solver = "auto",
    ) -> Alignment:
        """Move the source's language-agnostic states onto the target's tokens.

        The paper's steps (arXiv 2609.06381): split both sides, whitened cost, unbalanced
        transport, perplexity filter, and ``A^ = alpha (T / mass) A_src + (1 - alpha) A_tgt`` with
        ``alpha_i = min(1, m mass_i)``; the target's language-specific part is put back. A pair
        with one token on either side is not transported: every target token takes the mean of
        the source.

        Parameters
        ----------
        source : Tensor
            Shape (B, n, d) or (n, d), English states of the layer, any floating dtype.
        target : Tensor
            Shape (B, m, d) or (m, d), states of the prompt.
        source_mask, target_mask : Tensor, optional
            Boolean, shapes (B, n) and (B, m): the content tokens. Others neither move nor are
            moved. All tokens where left out.
        theta, epsilon, rho, backend
            See :class:`TransportSettings`; ``backend`` is its ``solver``.

        Returns
        -------
        Alignment
            With the leading B where the states had it.

        Raises
        ------
        CarotError
            When shapes do not fit, or states at content tokens are not finite.
        """
        settings = TransportSettings(theta, epsilon, rho, backend)
        if single := target.dim() == 2:
            source, target = source.unsqueeze(0), target.unsqueeze(0)
            source_mask = None if source_mask is None else source_mask.unsqueeze(0)
            target_mask = None if target_mask is None else target_mask.unsqueeze(0)
        self._check(source, target, source_mask, target_mask)
        device = target.device
        if source_mask is None:
            source_mask = torch.ones(source.shape[:2], dtype=torch.bool, device=device)
        if target_mask is None:
            target_mask = torch.ones(target.shape[:2], dtype=torch.bool, device=device)
        alignment = self._align(
            source.to(device), target, source_mask.to(device), target_mask.to(device), settings
        )
        if single:
            return Alignment(alignment.hidden[0], alignment.plan[0], alignment.interpolation[0])
        return alignment

    def _align(
        self,
        source: Tensor,
        target: Tensor,
        source_mask: Tensor,
        target_mask: Tensor,
        settings: TransportSettings,
    ) -> Alignment:
        dtype = torch.promote_types(target.dtype, torch.float32)
        fitted = self.to(target.device, dtype)
        # What stands outside the masks may be anything, NaN too: it takes no part.
        source = source.to(dtype).masked_fill(~source_mask.unsqueeze(-1), 0)  # (B, n, d)
        states = target.to(dtype).masked_fill(~target_mask.unsqueeze(-1), 0)  # (B, m, d)
        _require_finite(source, "source")
        _require_finite(states, "target")

        agnostic_source = fitted.subspace.agnostic(source)
        agnostic_target = fitted.subspace.agnostic(states)
        cells = target_mask.unsqueeze(-1) & source_mask.unsqueeze(-2)  # (B, m, n)
        cost = pairwise_cost(
            agnostic_target @ fitted.whitening, agnostic_source @ fitted.whitening
        )
        plan = unbalanced_sinkhorn(
            minmax_normalise(cost, cells),
            target_mask,
            source_mask,
            epsilon=settings.epsilon,
            rho=settings.rho,
            solver=settings.solver,
        )
        plan = perplexity_filter(plan, target_mask, source_mask, settings.theta)
        plan = _average_single_tokens(plan, cells)

        mass = plan.sum(-1)  # (B, m)
        tokens = target_mask.sum(-1, keepdim=True)  # (B, 1)
        interpolation = (tokens * mass).clamp(max=1)
        transported = (plan @ agnostic_source) / torch.where(mass > 0, mass, 1).unsqueeze(-1)
        # A^ + S_tgt, written so that a token with interpolation 0 keeps its own bits.
        moved = states + interpolation.unsqueeze(-1) * (transported - agnostic_target)
        hidden = torch.where(interpolation.unsqueeze(-1) > 0, moved.to(target.dtype), target)
        return Alignment(hidden, plan, interpolation)

    def _check(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None, target_mask: Tensor | None
    ) -> None:
        for name, states, mask in (
            ("source", source, source_mask),
            ("target", target, target_mask),
        ):
            if states.dim() != 3 or states.shape[-1] != self.hidden_size:
                raise CarotError(
                    f"{name} states have shape {tuple(states.shape)}; expected (B, tokens, "
                    f"{self.hidden_size}), the hidden size this aligner was fitted on"
                )
            if mask is not None and (mask.shape != states.shape[:2] or mask.dtype != torch.bool):
                raise CarotError(
                    f"{name}_mask is {mask.dtype} of shape {tuple(mask.shape)}; expected a "
                    f"boolean tensor of shape {tuple(states.shape[:2])}"
                )
        if source.shape[0] != target.shape[0]:
            raise CarotError(
                f"{source.shape[0]} sources for {target.shape[0]} targets; expected one for each"
            )


def _require_finite(states: Tensor, side: str) -> None:
    if not bool(states.isfinite().all()):
        row = int((~states.isfinite()).flatten(1).any(-1).nonzero()[0])
        raise CarotError(
            f"{side} states of row {row} hold NaN or infinity; expected finite numbers: run the "
            "model in float32 or bfloat16, or leave that row out"
        )


def _average_single_tokens(plan: Tensor, cells: Tensor) -> Tensor:
    """Replace the plan of pairs with one token on either side by uniform mass: the plain mean."""
    rows, columns = cells.any(-1).sum(-1), cells.any(-2).sum(-1)  # (B,)
    single = ((rows == 1) | (columns == 1)) & (rows > 0)
    if not bool(single.any()):
        return plan
    uniform = cells.to(plan.dtype) / (rows * columns).clamp_min(1)[:, None, None]
    return torch.where(single[:, None, None], uniform, plan)


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


class Aligner(Mapping[int, LayerAligner]):
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
    """

    def __init__(
        self,
        layers: Mapping[int, LayerAligner],
        languages: list[str],
        model: ModelIdentity,
        fit: dict[str, Any] | None = None,
    ) -> None:
        self.layers = dict(sorted(layers.items()))
        self.languages = list(languages)
        self.model = model
        self.fit = dict(fit or {})

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

    def save_pretrained(self, directory: str | Path, *, push_to_hub: bool = False, **kwargs: Any) -> None:
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
        directory.mkdir(parents=True, exist_ok=True)
        config = {
            "format_version": FORMAT_VERSION,
            "layers": list(self.layers),
            "languages": self.languages,
            "model": asdict(self.model),
            "fit": self.fit,
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
            tensors = load_file(folder / WEIGHTS_NAME)
            if (version := config["format_version"]) > FORMAT_VERSION:
                raise CarotError(
                    f"{folder}: the aligner has format {version}, this carot reads up to "
                    f"{FORMAT_VERSION}: update carot"
                )
            layers = {index: _layer_from(tensors, index) for index in config["layers"]}
            known = {entry.name for entry in fields(ModelIdentity)}
            model = {key: value for key, value in config["model"].items() if key in known}
            return cls(layers, config["languages"], ModelIdentity(**model), config.get("fit"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise CarotError(f"{folder / CONFIG_NAME}: not valid JSON ({error})") from error
        except (KeyError, TypeError, AttributeError) as error:
            raise CarotError(f"{folder}: the aligner lacks {error}; fit or copy it again") from error
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
        tensors[f"layers.{index}.{name}"] for name in ("left", "right", "bias", "whitening", "means")
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
