"""Unbalanced transport, min-max costs, perplexity and its filter."""

from __future__ import annotations

import math

import numpy as np
import ot
import pytest
import torch
from torch import Tensor

from carot.alignment import transport
from carot.alignment.transport import (
    minmax_normalise,
    pairwise_cost,
    perplexity,
    perplexity_filter,
    unbalanced_sinkhorn,
)

SIZES = [(1, 1), (1, 5), (5, 1), (2, 2), (3, 11), (11, 3), (24, 24), (40, 17)]
SOLVERS = ["scaling", "log"]


def random_cost(m: int, n: int, *, pairs: int = 1, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(pairs, m, n, generator=generator, dtype=torch.float64)


def solve(cost: Tensor, **settings) -> Tensor:
    """All tokens valid."""
    pairs, m, n = cost.shape
    return unbalanced_sinkhorn(
        cost, torch.ones(pairs, m).bool(), torch.ones(pairs, n).bool(), **settings
    )


def pot_plan(cost: Tensor, epsilon: float = 0.05, rho: float = 0.5) -> Tensor:
    """One pair, float64, run until nothing changes."""
    m, n = cost.shape
    p, q = torch.full((m,), 1 / m).double(), torch.full((n,), 1 / n).double()
    return ot.sinkhorn_unbalanced(p, q, cost.double(), epsilon, rho, numItermax=5000, stopThr=1e-14)


def slow_log_plan(cost: Tensor, epsilon: float, rho: float) -> np.ndarray:
    """Logarithm of one pair's plan, one potential at a time, far past convergence."""
    costs = cost.double().numpy()
    m, n = costs.shape
    phi = rho / (rho + epsilon)
    f, g = np.zeros(m), np.zeros(n)
    for _ in range(1500):
        for i in range(m):
            f[i] = -phi * np.logaddexp.reduce(g - costs[i] / epsilon - math.log(n))
        for j in range(n):
            g[j] = -phi * np.logaddexp.reduce(f - costs[:, j] / epsilon - math.log(m))
    return f[:, None] + g - costs / epsilon - math.log(m * n)


def pad(pairs: list[Tensor], side: str, fill: float) -> tuple[Tensor, Tensor, Tensor]:
    """Stack (m, n) costs of unlike sizes; returns costs, target mask and source mask."""
    m, n = max(len(pair) for pair in pairs), max(pair.shape[1] for pair in pairs)
    cost = torch.full((len(pairs), m, n), fill, dtype=pairs[0].dtype)
    rows, columns = torch.zeros(len(pairs), m).bool(), torch.zeros(len(pairs), n).bool()
    for index, pair in enumerate(pairs):
        own_m, own_n = pair.shape
        own_rows = slice(own_m) if side == "right" else slice(m - own_m, m)
        own_columns = slice(own_n) if side == "right" else slice(n - own_n, n)
        cost[index, own_rows, own_columns] = pair
        rows[index, own_rows] = True
        columns[index, own_columns] = True
    return cost, rows, columns


# The plan


@pytest.mark.parametrize("solver", ["scaling", "log", "pot"])
@pytest.mark.parametrize("size", SIZES)
def test_every_solver_gives_the_plan_of_pot_for_each_pair(size, solver):
    cost = random_cost(*size, pairs=3, seed=sum(size))
    plans = solve(cost, solver=solver)
    for pair, plan in zip(cost, plans, strict=True):
        torch.testing.assert_close(plan, pot_plan(pair), rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", SIZES)
def test_scaling_and_log_agree_in_float32(size):
    cost = random_cost(*size, pairs=3).float()
    scaling, log, pot = (solve(cost, solver=solver) for solver in ("scaling", "log", "pot"))
    assert scaling.dtype == log.dtype == pot.dtype == torch.float32
    torch.testing.assert_close(scaling, log, rtol=0, atol=1e-6)
    torch.testing.assert_close(scaling, pot, rtol=0, atol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("epsilon", "rho"), [(0.05, 0.5), (0.1, 0.2), (0.5, 2.0)])
def test_the_plan_is_the_stationary_point_of_the_stated_objective(solver, epsilon, rho):
    cost = random_cost(6, 9)
    plan = solve(cost, epsilon=epsilon, rho=rho, solver=solver)[0]
    # d/dT_ij of <T, C> + eps KL(T | p q^T) + rho KL(T 1 | p) + rho KL(T^T 1 | q)
    gradient = (
        cost[0]
        + epsilon * (plan * 6 * 9).log()
        + rho * (plan.sum(1) * 6).log()[:, None]
        + rho * (plan.sum(0) * 9).log()
    )
    assert gradient.abs().max() < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rho", [0.5, 5.0])
def test_auto_solves_costs_whose_kernel_underflows_like_a_slow_float64_loop(rho, dtype):
    cost = 50 * random_cost(4, 6, seed=3).to(dtype)
    cost[0, 1] = 40 + cost[0, 1] / 5  # a row of exp(-800) and less: 0 even in float64
    expected = slow_log_plan(cost[0], 0.05, rho)
    plan = solve(cost, rho=rho)
    assert torch.equal(plan, solve(cost, rho=rho, solver="log"))
    present = expected > -80  # what float32 can hold
    assert present.any(1).all(), "every row should hold some mass"
    found = plan[0].double().numpy()
    np.testing.assert_allclose(found[present], np.exp(expected[present]), rtol=2e-3)
    np.testing.assert_allclose(found[~present], 0, atol=1e-34)
    # Plain scaling would have lost that row.
    assert solve(cost, rho=rho, solver="scaling")[0, 1].sum() == 0


def test_auto_takes_plain_scaling_where_it_is_safe(monkeypatch):
    def refuse(*_):
        raise AssertionError("the log solver ran")

    monkeypatch.setattr(transport, "_log_potentials", refuse)
    cost = random_cost(5, 7)
    assert torch.equal(solve(cost, epsilon=0.05), solve(cost, epsilon=0.05, solver="scaling"))
    with pytest.raises(AssertionError, match="log solver"):
        solve(cost, epsilon=0.001)


def test_cheap_cells_carry_the_mass_and_expensive_ones_lose_it():
    cost = torch.ones(1, 3, 3, dtype=torch.float64) - torch.eye(3, dtype=torch.float64)
    cost[0, 2] = 1.0  # the last target has no near source
    plan = solve(cost)[0]
    assert plan[:2].argmax(1).tolist() == [0, 1]
    assert plan[2].sum() < plan[:2].sum(1).min() / 2


# Masks


@pytest.mark.parametrize("solver", ["auto", "scaling", "log", "pot"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_batch_equals_its_pairs_alone_and_is_zero_outside(side, solver):
    pairs = [random_cost(*size, seed=index)[0] for index, size in enumerate(SIZES)]
    cost, rows, columns = pad(pairs, side, fill=0.0)
    plans = unbalanced_sinkhorn(cost, rows, columns, solver=solver)
    for index, pair in enumerate(pairs):
        alone = solve(pair[None], solver=solver)[0]
        inside = plans[index][rows[index]][:, columns[index]]
        torch.testing.assert_close(inside, alone, rtol=0, atol=1e-6)
    assert (plans[~(rows.unsqueeze(2) & columns.unsqueeze(1))] == 0).all()


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("garbage", [1e30, -1e30, math.inf, -math.inf])
def test_garbage_outside_the_masks_changes_nothing(garbage, solver):
    pairs = [random_cost(4, 6)[0], random_cost(7, 3)[0]]

    def plans(fill: float) -> Tensor:
        cost, rows, columns = pad(pairs, "left", fill)
        cells = rows.unsqueeze(2) & columns.unsqueeze(1)
        return unbalanced_sinkhorn(minmax_normalise(cost, cells), rows, columns, solver=solver)

    assert torch.equal(plans(garbage), plans(0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("empty", ["target", "source", "both"])
@pytest.mark.parametrize("solver", ["scaling", "log", "pot"])
def test_a_pair_without_tokens_has_a_zero_plan_and_disturbs_no_neighbour(solver, empty, dtype):
    cost = random_cost(5, 6, pairs=3).to(dtype)
    rows, columns = torch.ones(3, 5).bool(), torch.ones(3, 6).bool()
    if empty in ("target", "both"):
        rows[1] = False
    if empty in ("source", "both"):
        columns[1] = False
    plans = unbalanced_sinkhorn(cost, rows, columns, solver=solver)
    assert (plans[1] == 0).all()
    torch.testing.assert_close(plans[[0, 2]], solve(cost[[0, 2]], solver=solver), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
@pytest.mark.parametrize("solver", ["auto", "scaling", "log", "pot"])
def test_nothing_to_transport_gives_an_empty_plan(shape, solver):
    assert solve(torch.zeros(shape), solver=solver).shape == shape


# Costs


def test_costs_are_squared_distances_and_do_not_cancel_far_from_the_origin():
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(2, 5, 8, generator=generator, dtype=torch.float64)
    source = torch.randn(2, 7, 8, generator=generator, dtype=torch.float64)
    expected = (target.unsqueeze(2) - source.unsqueeze(1)).square().sum(-1)
    torch.testing.assert_close(pairwise_cost(target, source), expected)
    far = pairwise_cost((target + 1000).float(), (source + 1000).float())
    torch.testing.assert_close(far, expected.float(), rtol=0, atol=2e-2)


def test_costs_of_a_state_to_itself_are_not_negative():
    states = 1e3 * random_cost(64, 33).float()  # rounding would make some of them negative
    assert (pairwise_cost(states, states) >= 0).all()


def test_minmax_spans_zero_to_one_over_the_valid_cells_alone():
    cost = torch.tensor([[[2.0, 4.0, -9.0], [3.0, 6.0, 99.0]]])
    mask = torch.tensor([[[True, True, False], [True, True, False]]])
    expected = torch.tensor([[[0.0, 0.5, 0.0], [0.25, 1.0, 0.0]]])
    assert torch.equal(minmax_normalise(cost, mask), expected)


@pytest.mark.parametrize("scale", [1e-20, 1e-6, 1.0, 1e20])
def test_minmax_does_not_depend_on_the_scale_of_the_costs(scale):
    cost, mask = random_cost(4, 6).float(), torch.ones(1, 4, 6).bool()
    scaled = minmax_normalise(scale * cost, mask)
    torch.testing.assert_close(scaled, minmax_normalise(cost, mask))
    assert (scaled.min(), scaled.max()) == (0, 1)


@pytest.mark.parametrize("value", [0.0, 3.7, 1e20])
def test_equal_costs_become_zeros(value):
    cost, mask = torch.full((1, 3, 4), value), torch.ones(1, 3, 4).bool()
    assert torch.equal(minmax_normalise(cost, mask), torch.zeros(1, 3, 4))


def test_equal_costs_spread_the_mass_evenly():
    plan = solve(torch.zeros(1, 3, 4, dtype=torch.float64))
    torch.testing.assert_close(plan, torch.full((1, 3, 4), 1 / 12).double())


# Perplexity


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_perplexity_of_mass_spread_evenly_over_k_tokens_is_k(k, scale):
    plan = torch.zeros(1, 1, 5, dtype=torch.float64)
    plan[..., :k] = scale / k
    assert perplexity(plan, -1).item() == pytest.approx(k)
    assert perplexity(plan.mT, -2).item() == pytest.approx(k)


def test_perplexity_by_hand():
    plan = torch.tensor([[[0.4, 0.1], [0.3, 0.0], [0.0, 0.0]]])
    # Rows: shares (.8, .2), one-hot, no mass. Columns: shares (4/7, 3/7), one-hot.
    spread = math.exp(-0.8 * math.log(0.8) - 0.2 * math.log(0.2))
    column = math.exp(-4 / 7 * math.log(4 / 7) - 3 / 7 * math.log(3 / 7))
    torch.testing.assert_close(perplexity(plan, -1), torch.tensor([[spread, 1.0, 0.0]]))
    torch.testing.assert_close(perplexity(plan, -2), torch.tensor([[column, 1.0]]))


def test_the_filter_measures_rows_and_columns_on_the_unfiltered_plan():
    # theta .7: rows above 2.1 of 3 and columns above 1.4 of 2 go.
    # Row perplexities: 2.35 (goes), 2 (stays). Columns: 1.96 (goes), 1 (stays), 1.26 (stays).
    plan = torch.tensor([[[0.2, 0.2, 0.02], [0.3, 0.0, 0.3]]])
    rows, columns = torch.ones(1, 2).bool(), torch.ones(1, 3).bool()
    filtered = perplexity_filter(plan, rows, columns, 0.7)
    # Rows first would have kept (1, 0); columns first would have kept (0, 1) and (0, 2).
    assert torch.equal(filtered, torch.tensor([[[0.0, 0.0, 0.0], [0.0, 0.0, 0.3]]]))


def test_theta_1_switches_the_filter_off():
    plan = random_cost(4, 5)  # as spread as can be, so that any filter would cut it
    rows, columns = torch.ones(1, 4).bool(), torch.ones(1, 5).bool()
    assert torch.equal(perplexity_filter(plan, rows, columns, 1.0), plan)
    assert (perplexity_filter(plan, rows, columns, 0.5) == 0).all()


@pytest.mark.parametrize("theta", [0.2, 0.25, 0.3])
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_filter_counts_valid_tokens_only(side, theta):
    sizes = [(12, 14), (20, 9)]
    pairs = [random_cost(*size, seed=index)[0] for index, size in enumerate(sizes)]
    cost, rows, columns = pad(pairs, side, fill=0.0)
    plans = unbalanced_sinkhorn(cost, rows, columns)
    filtered = perplexity_filter(plans, rows, columns, theta)
    for index, (m, n) in enumerate(sizes):
        alone = plans[index][rows[index]][:, columns[index]][None]
        masks = torch.ones(1, m).bool(), torch.ones(1, n).bool()
        kept = filtered[index][rows[index]][:, columns[index]]
        assert torch.equal(kept, perplexity_filter(alone, *masks, theta)[0])
        assert 0 < (kept.sum(1) > 0).sum() < m, "some rows should be kept, some cut"


# Against the reference cases


@pytest.mark.parametrize("theta", ["0.25", "0.5", "0.75"])
@pytest.mark.parametrize("case", [0, 1, 2, 3, 6, 7])
def test_perplexities_and_filtered_plans_are_those_of_the_reference(reference, case, theta):
    plan = reference[f"{case}.1.0.plan"][None]
    rows, columns = (torch.ones(1, size).bool() for size in plan.shape[1:])
    for dim, side in ((-1, "row"), (-2, "column")):
        expected = reference[f"{case}.{theta}.{side}_perplexity"]
        torch.testing.assert_close(perplexity(plan, dim)[0], expected, rtol=1e-9, atol=1e-9)
    filtered = perplexity_filter(plan, rows, columns, float(theta))[0]
    torch.testing.assert_close(filtered, reference[f"{case}.{theta}.plan"], rtol=1e-9, atol=1e-15)
