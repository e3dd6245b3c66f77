"""Aligning at one layer: how English states move onto a target's tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
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
        for name in ("theta", "epsilon", "rho"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise CarotError(f"{name} is {value!r}; expected a number")
        if not 0 < self.theta <= 1:
            raise CarotError(f"theta is {self.theta}; expected a number in (0, 1], where 1 is off")
        for name in ("epsilon", "rho"):
            if not getattr(self, name) > 0:
                raise CarotError(f"{name} is {getattr(self, name)}; expected a number above 0")
        if self.solver not in ("auto", "scaling", "log", "pot"):
            raise CarotError(
                f"solver (backend) is {self.solver!r}; expected auto, scaling, log or pot"
            )


@dataclass(frozen=True)
class Alignment:
    """What an alignment of B pairs returns.

    Parameters
    ----------
    hidden : Tensor
        Shape (B, m, d), the new target states, in the dtype of the target; rows with
        interpolation 0 are the target's own, bit for bit.
    plan : Tensor
        Shape (B, m, n), float32 (float64 for float64 states): the filtered transport plan.
    interpolation : Tensor
        Shape (B, m), as the plan, in [0, 1]: how far each target token moved.
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

    def nearest_language(self, vectors: Tensor) -> Tensor:
        """Return the language whose mean is nearest in the language-specific directions.

        Parameters
        ----------
        vectors : Tensor
            Shape (B, d), sentence vectors (:func:`carot.alignment.sentence_vectors`).

        Returns
        -------
        Tensor
            Shape (B,): rows of ``means``.
        """
        seen, means = (
            (points - self.subspace.bias) @ self.subspace.right.mT
            for points in (vectors, self.means)
        )
        nearest: Tensor = torch.cdist(seen, means).argmin(-1)
        return nearest

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
        cost = pairwise_cost(agnostic_target @ fitted.whitening, agnostic_source @ fitted.whitening)
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
            if not states.is_floating_point():
                raise CarotError(f"{name} states are {states.dtype}; expected a floating dtype")
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
            f"{side} states of batch row {row} hold NaN or infinity; expected finite numbers: run "
            "the model in float32 or bfloat16, or leave that row out"
        )


def _average_single_tokens(plan: Tensor, cells: Tensor) -> Tensor:
    """Replace the plan of pairs with one token on either side by uniform mass: the plain mean."""
    rows, columns = cells.any(-1).sum(-1), cells.any(-2).sum(-1)  # (B,)
    single = ((rows == 1) | (columns == 1)) & (rows > 0)
    if not bool(single.any()):
        return plan
    uniform = cells.to(plan.dtype) / (rows * columns).clamp_min(1)[:, None, None]
    return torch.where(single[:, None, None], uniform, plan)
