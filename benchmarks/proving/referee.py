"""The world held against somebody else's simulation of one service: the same requests, rules and nodes in both.

The other program stands in the referees' folder beside the checkout and is imported from there, never copied. Where it has less
(work that crowds, mixed speeds, quotas), the cases keep to what both have.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numba
import numpy as np

from benchmarks.proving.world.arrivals import arrivals, day_shape, lognormal, wandering
from benchmarks.proving.world.clock import DAY_S, HOUR_S, MINUTE_S
from benchmarks.proving.world.service import Nodes, Scaling, Server, Start, play

REFEREE = Path(__file__).resolve().parents[3] / "shared" / "referees" / "service_des.py"
COST_FRAC, IN_TIME_POINTS = 0.02, 0.005
DAYS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One service in both programs."""

    seed: int
    scales: bool
    node_hours: tuple[float, float]
    """Here, there."""
    in_time_frac: tuple[float, float]

    @property
    def agrees(self) -> bool:
        """Tell whether cost and share in time are within their limits."""
        cost = self.node_hours[0] / self.node_hours[1] - 1
        return abs(cost) <= COST_FRAC and abs(self.in_time_frac[0] - self.in_time_frac[1]) <= IN_TIME_POINTS


def referee() -> ModuleType | None:
    """Return the other program; None where it is absent."""
    if not REFEREE.is_file():
        return None
    spec = importlib.util.spec_from_file_location("service_des", REFEREE)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # what it compiled is found again by its name
    # nothing is written beside a program that is not ours: neither bytecode nor what numba compiles
    config = vars(numba.config)
    before = config["CACHE_DIR"], sys.dont_write_bytecode
    config["CACHE_DIR"], sys.dont_write_bytecode = str(Path(tempfile.gettempdir()) / "trimtab-proving"), True
    try:
        spec.loader.exec_module(module)
    finally:
        config["CACHE_DIR"], sys.dont_write_bytecode = before
    return module


def compared(other: ModuleType, seed: int) -> Compared:
    """Draw a service and play it in both."""
    rng = np.random.default_rng([seed, 2026])
    minutes = DAYS * DAY_S // MINUTE_S
    slots, replicas = int(rng.integers(1, 9)), int(rng.integers(2, 25))
    per_node = int(rng.choice([1, 1, 2, 4, 8]))
    work_s = float(rng.uniform(1.0, 8.0))
    capacity = slots / work_s
    shape = day_shape(minutes, floor_frac=rng.uniform(0.1, 0.8), peak_hour=rng.uniform(8, 20))
    rate = shape * wandering(minutes, rng) * capacity * replicas * rng.uniform(0.3, 0.75)
    arrival_s = arrivals(rate, rng)
    work = lognormal(len(arrival_s), work_s, float(rng.uniform(0.2, 0.8)), rng)
    scales = bool(rng.random() < 0.8)
    target, least = float(rng.uniform(0.5, 0.85)), int(rng.integers(1, 3))
    warm, boot = float(rng.integers(2, 13) * 15), float(rng.integers(4, 25) * 15)
    kept, lag = float(rng.choice([60, 300, 600])), int(rng.integers(0, 4))
    limit_s = work_s * float(rng.uniform(2, 4))
    here = play(
        arrival_s,
        work,
        server=Server(slots=slots),
        nodes=Nodes(replicas_per_node=per_node, boot_s=boot, load_s=warm, empty_kept_s=kept),
        start=Start.packed(replicas, per_node),
        horizon_s=float(DAYS * DAY_S),
        scaling=Scaling(
            minimum=least, maximum=64, target_frac=target, capacity_req_s=capacity, follows=3, lag_ticks=lag
        )
        if scales
        else None,
    )
    there = other.simulate(
        arrival_s, work, K=slots, R0=replicas, hpa=int(scales), target=target, rmin=least, rmax=64, cap=capacity,
        cold=boot + warm, warm=warm, per_node=per_node, kept=kept, lag=lag * 15.0, horizon=DAYS * DAY_S, victim=1,
        limits=(limit_s,),
    )  # fmt: skip
    done = ~np.isnan(here.latency_s)
    return Compared(
        seed=seed,
        scales=scales,
        node_hours=(float((here.nodes[:, 1] - here.nodes[:, 0]).sum() / HOUR_S), float(there["node_h"])),
        in_time_frac=(float((here.latency_s[done] <= limit_s).mean()), float(there["attained"][0])),
    )


def comparisons(number: int, first: int = 1) -> Iterator[Compared]:
    """Yield so many services; raises FileNotFoundError where the referee is absent."""
    other = referee()
    if other is None:
        raise FileNotFoundError(REFEREE)
    for seed in range(first, first + number):
        yield compared(other, seed)


def main(number: int) -> None:
    """Print each disagreement and, last, one line of figures."""
    found = []
    for one in comparisons(number):
        found.append(one)
        if not one.agrees:
            hours, shares = one.node_hours, one.in_time_frac
            print(
                f"{one.seed}: node-hours {hours[0]:.1f}, {hours[1]:.1f}; in time {shares[0]:.4f}, {shares[1]:.4f}",
                flush=True,
            )
    cost = [one.node_hours[0] / one.node_hours[1] - 1 for one in found]
    in_time = [one.in_time_frac[0] - one.in_time_frac[1] for one in found]
    figures = {
        "benchmark": "proving-referee",
        "services": len(found),
        "agree": sum(one.agrees for one in found),
        "cost_error_median_frac": float(np.median(np.abs(cost))),
        "cost_error_worst_frac": float(np.max(np.abs(cost))),
        "in_time_error_median": float(np.median(np.abs(in_time))),
        "in_time_error_worst": float(np.max(np.abs(in_time))),
    }
    print(json.dumps(figures))
