"""Batched transport against a loop over POT's solver, on the same costs.

python scripts/bench_transport.py --batch 64 --size 32
"""

from __future__ import annotations

import argparse
import statistics
import time

import ot
import torch

from carot.alignment import unbalanced_sinkhorn


def main() -> None:
    """Time the solvers in turn and print medians, ratios and the largest difference of plans."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    size = arguments.size
    points = torch.randn(2, arguments.batch, size, 16)
    cost = torch.cdist(points[0], points[1]).square()
    low, high = cost.amin((1, 2), keepdim=True), cost.amax((1, 2), keepdim=True)
    cost = (cost - low) / (high - low)
    mask = torch.ones(arguments.batch, size, dtype=torch.bool)
    marginal = torch.full((size,), 1 / size)

    def loop() -> torch.Tensor:
        plans = [ot.sinkhorn_unbalanced(marginal, marginal, pair, 0.05, 0.5) for pair in cost]
        return torch.stack(plans)

    variants = {
        "loop over ot.sinkhorn_unbalanced": loop,
        "batched, log domain": lambda: unbalanced_sinkhorn(cost, mask, mask, solver="log"),
        "batched, matrix scaling": lambda: unbalanced_sinkhorn(cost, mask, mask, solver="scaling"),
        "batched, default": lambda: unbalanced_sinkhorn(cost, mask, mask),
    }
    times: dict[str, list[float]] = {name: [] for name in variants}
    plans: dict[str, torch.Tensor] = {}
    for run in range(arguments.runs + 1):
        for name, call in variants.items():
            start = time.perf_counter()
            plans[name] = call()
            if run:  # the first warms up
                times[name].append(time.perf_counter() - start)
    peer = next(iter(variants))
    print(
        f"{arguments.batch} pairs of {size} x {size} tokens, float32, "
        f"{arguments.runs} runs in turn, {torch.get_num_threads()} threads"
    )
    for name, values in times.items():
        ratio = statistics.median(a / b for a, b in zip(times[peer], values, strict=True))
        difference = float((plans[name] - plans[peer]).abs().max())
        print(
            f"{name:34} {1000 * statistics.median(values):9.2f} ms   {ratio:6.1f} times as fast, "
            f"plans differ by {difference:.1e} at most"
        )


if __name__ == "__main__":
    main()
