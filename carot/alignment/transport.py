"""Token-level unbalanced optimal transport, batched and masked (CAROT, arXiv 2609.06381).

Shapes: B pairs, m target tokens (rows of the plan), n source tokens (columns). Masks are boolean,
True where a token takes part. Everything is computed in the dtype of the cost, which
:meth:`carot.alignment.layer.LayerAligner.align` makes at least float32.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

Solver = Literal["auto", "scaling", "log", "pot"]

SCALING_LIMIT = 60.0
"""Largest cost / epsilon for plain matrix scaling: exp(-60) is 1e-26, no underflow in float32."""

MAX_ITERATIONS = 1000
"""As in POT: iterations after which the solver stops without having converged."""

TOLERANCE = 1e-6
"""As in POT: largest relative change of the scalings between two iterations at convergence."""

CHECK_EVERY = 5
"""Iterations between two tests of convergence; each test costs about one iteration."""


def pairwise_cost(target: Tensor, source: Tensor) -> Tensor:
    """Squared Euclidean distances between whitened states.

    Parameters
    ----------
    target : Tensor
        Shape (B, m, r), language-agnostic target states times the whitening W.
    source : Tensor
        Shape (B, n, r).

    Returns
    -------
    Tensor
        Shape (B, m, n): ``C_ij = ||(a_tgt,i - a_src,j) W||^2``.
    """
    # Distances do not move with the origin; a near one keeps float32 from cancelling.
    origin = target.mean(-2, keepdim=True)
    target, source = target - origin, source - origin
    squared_target = target.square().sum(-1, keepdim=True)  # (B, m, 1)
    squared_source = source.square().sum(-1, keepdim=True).mT  # (B, 1, n)
    return (squared_target + squared_source - 2 * target @ source.mT).clamp_min(0)


def minmax_normalise(cost: Tensor, mask: Tensor) -> Tensor:
    """Scale each pair's costs to [0, 1] over its valid cells; cells outside the mask become 0.

    Parameters
    ----------
    cost : Tensor
        Shape (B, m, n).
    mask : Tensor
        Boolean, shape (B, m, n).

    Returns
    -------
    Tensor
        Shape (B, m, n). A pair whose costs are all equal gets zeros.
    """
    if cost.numel() == 0:
        return cost
    low = cost.masked_fill(~mask, math.inf).amin((-2, -1), keepdim=True)
    high = cost.masked_fill(~mask, -math.inf).amax((-2, -1), keepdim=True)
    span = (high - low).clamp_min(torch.finfo(cost.dtype).tiny)
    return ((cost - low) / span).masked_fill(~mask, 0.0)


def unbalanced_sinkhorn(
    cost: Tensor,
    target_mask: Tensor,
    source_mask: Tensor,
    *,
    epsilon: float = 0.05,
    rho: float = 0.5,
    solver: Solver = "auto",
) -> Tensor:
    r"""Unbalanced entropic transport plans of a batch of pairs, with uniform marginals.

    Minimises, for each pair, ``<T, C> + eps KL(T | p q^T) + rho KL(T 1 | p) + rho KL(T^T 1 | q)``
    with ``p = 1/m`` and ``q = 1/n`` (Chizat et al. 2018, Scaling algorithms for unbalanced optimal
    transport problems). It is what ``ot.sinkhorn_unbalanced(p, q, C, eps, rho)`` of POT >= 0.9.5
    solves for one pair.

    Parameters
    ----------
    cost : Tensor
        Shape (B, m, n).
    target_mask : Tensor
        Boolean, shape (B, m).
    source_mask : Tensor
        Boolean, shape (B, n).
    epsilon : float
        Entropic regularisation, in units of the cost.
    rho : float
        Weight of both marginal penalties.
    solver : {"auto", "scaling", "log", "pot"}
        ``scaling`` is matrix scaling, ``log`` the same fixed point on log potentials (safe for any
        cost / epsilon), ``auto`` takes the first where it is safe; ``pot`` loops over POT's solver.

    Returns
    -------
    Tensor
        Shape (B, m, n), zero outside the masks. A pair without tokens on one side has a zero plan.

    Examples
    --------
    >>> cost = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    >>> mask = torch.ones(1, 2, dtype=torch.bool)
    >>> unbalanced_sinkhorn(cost, mask, mask).argmax(-1)
    tensor([[0, 1]])
    """
    if solver == "pot":
        return _solve_with_pot(cost, target_mask, source_mask, epsilon, rho)
    if cost.numel() == 0:
        return cost
    p = _uniform(target_mask, cost.dtype)
    q = _uniform(source_mask, cost.dtype)
    if solver == "auto":
        solver = "scaling" if float(cost.max()) <= SCALING_LIMIT * epsilon else "log"
    solve = _matrix_scaling if solver == "scaling" else _log_potentials
    return solve(cost, p, q, epsilon, rho / (rho + epsilon))


def _uniform(mask: Tensor, dtype: torch.dtype) -> Tensor:
    weights = mask.to(dtype)
    return weights / weights.sum(-1, keepdim=True).clamp_min(1)


def _matrix_scaling(cost: Tensor, p: Tensor, q: Tensor, epsilon: float, phi: float) -> Tensor:
    """Iterate on scalings.

    u = (K (q v))^-phi, v = (K^T (p u))^-phi, K = exp(-C / eps); T = diag(p u) K diag(q v).
    """
    kernel = torch.exp(cost / -epsilon)  # (B, m, n)
    product = torch.empty_like(kernel)
    row, column = p.unsqueeze(-1), q.unsqueeze(-2)  # (B, m, 1), (B, 1, n)
    u, v = torch.ones_like(row), torch.ones_like(column)
    # Below: for many small matrices a product and a sum are several times faster than matmul; and
    # the sums of a pair without tokens are 0, which must not become infinite.
    tiny = torch.finfo(cost.dtype).tiny
    for iteration in range(1, MAX_ITERATIONS + 1):
        previous = u
        u = torch.mul(kernel, column * v, out=product).sum(-1, keepdim=True)
        u = u.clamp_min_(tiny).pow_(-phi)
        v = torch.mul(kernel, row * u, out=product).sum(-2, keepdim=True)
        v = v.clamp_min_(tiny).pow_(-phi)
        if iteration % CHECK_EVERY == 0 and _relative_change(u, previous) < TOLERANCE:
            break
    return (row * u) * kernel * (column * v)


def _relative_change(new: Tensor, old: Tensor) -> float:
    return float(((new - old).abs() / torch.maximum(new.abs(), old.abs()).clamp_min(1)).max())


def _log_potentials(cost: Tensor, p: Tensor, q: Tensor, epsilon: float, phi: float) -> Tensor:
    """Iterate on log scalings.

    f = -phi LSE_j(-C/eps + g + log q), g = -phi LSE_i(-C/eps + f + log p);
    T = p q^T exp(-C/eps + f + g).
    """
    log_kernel = cost / -epsilon
    log_p, log_q = p.log().unsqueeze(-1), q.log().unsqueeze(-2)  # (B, m, 1), (B, 1, n)
    f, g = torch.zeros_like(log_p), torch.zeros_like(log_q)
    for iteration in range(1, MAX_ITERATIONS + 1):
        previous = f
        f = -phi * _finite(torch.logsumexp(log_kernel + g + log_q, -1, keepdim=True))
        g = -phi * _finite(torch.logsumexp(log_kernel + f + log_p, -2, keepdim=True))
        if iteration % CHECK_EVERY == 0 and float((f - previous).abs().max()) < TOLERANCE:
            break
    return torch.exp(log_kernel + f + g + log_p + log_q)


def _finite(potential: Tensor) -> Tensor:
    """Replace the -inf of a pair without tokens by 0."""
    return torch.where(potential.isneginf(), 0.0, potential)


def _solve_with_pot(
    cost: Tensor, target_mask: Tensor, source_mask: Tensor, epsilon: float, rho: float
) -> Tensor:
    import ot

    plan = torch.zeros_like(cost)
    for index in range(cost.shape[0]):
        rows, columns = target_mask[index].nonzero()[:, 0], source_mask[index].nonzero()[:, 0]
        if len(rows) == 0 or len(columns) == 0:
            continue
        p = cost.new_full((len(rows),), 1 / len(rows))
        q = cost.new_full((len(columns),), 1 / len(columns))
        cells = cost[index][rows[:, None], columns]
        plan[index, rows[:, None], columns] = ot.sinkhorn_unbalanced(p, q, cells, epsilon, rho)
    return plan


def perplexity(plan: Tensor, dim: int) -> Tensor:
    """Exponentiate the entropy of a plan's rows (dim -1) or columns (dim -2), scaled to sum 1.

    Returns shape (B, m) or (B, n); 0 for a row or column without mass.
    """
    mass = plan.sum(dim, keepdim=True)
    share = plan / torch.where(mass > 0, mass, 1)
    entropy = -torch.special.xlogy(share, share).sum(dim)
    return torch.where(mass.squeeze(dim) > 0, entropy.exp(), 0.0)


def perplexity_filter(
    plan: Tensor, target_mask: Tensor, source_mask: Tensor, theta: float
) -> Tensor:
    """Zero the rows and columns of a plan that spread their mass over too many tokens.

    A row whose perplexity exceeds ``theta * n`` and a column whose perplexity exceeds ``theta * m``
    are zeroed, both measured on the unfiltered plan; ``theta >= 1`` is off.

    Parameters
    ----------
    plan : Tensor
        Shape (B, m, n).
    target_mask, source_mask : Tensor
        Boolean, shapes (B, m) and (B, n).
    theta : float
        Share of the other side's tokens.

    Returns
    -------
    Tensor
        Shape (B, m, n).
    """
    if theta >= 1:
        return plan
    target_count = target_mask.sum(-1, keepdim=True)  # (B, 1)
    source_count = source_mask.sum(-1, keepdim=True)
    # A perplexity that equals its limit stays, whichever way float32 rounds it.
    limit = theta * (1 + 1e-5)
    rows = perplexity(plan, -1) <= limit * source_count  # (B, m)
    columns = perplexity(plan, -2) <= limit * target_count  # (B, n)
    return plan * (rows.unsqueeze(-1) & columns.unsqueeze(-2))
