"""Demand and market series of a folder laid out like the public traces: requests/, jobs/, spot/, util/."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trimtab.units import S_PER_DAY, S_PER_MIN

Floats = NDArray[np.float64]

DEFAULT_DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "traces"
STEP_S = 15
RATE_WINDOW_S = 600
SHORTEST_S = 5 * S_PER_DAY
NOISE_SEED, COUNT_SEED = 0, 1
PEAK_SHARE = 0.9999


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """Requests per 15 s step; `request_level` where every request was recorded, else drawn from recorded rates."""

    name: str
    arrivals: Floats
    request_level: bool

    def capacity_req_s(self, peak_replicas: int) -> float:
        """Return what a replica serves if all but 1 in 10,000 steps fit `peak_replicas`."""
        return float(np.quantile(self.arrivals, PEAK_SHARE)) / STEP_S / peak_replicas


def data_argument(description: str | None, *, default: Path = DEFAULT_DATA) -> argparse.ArgumentParser:
    """Return a parser with `--data DIR`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default, metavar="DIR", help="folder with requests/, jobs/, spot/")
    return parser


def demands(traces: Path) -> list[Demand]:
    """Read every rate series of at least five days and every request-level trace, by what their columns say."""
    found: list[Demand] = []
    for path in sorted((traces / "requests").glob("*.parquet")):
        columns = set(pq.read_schema(path).names)
        if "requests_per_s" in columns and "client" not in columns:
            found += _rate_series(path, by_model="model" in columns)
        elif "t_s" in columns and columns & {"input_tokens", "exec_time_seconds"}:
            found.append(_request_level(path))
    return found


def _rate_series(path: Path, *, by_model: bool) -> list[Demand]:
    table = pq.read_table(path)
    if not by_model:
        name = "_".join(path.stem.split("_")[:2])
        t_s, rate = table["t_s"].to_numpy().astype(float), table["requests_per_s"].to_numpy().astype(float)
        return [drawn(name, t_s, rate)] if t_s.max() > SHORTEST_S else []
    found = []
    for model in sorted({str(value) for value in table["model"].to_pylist()}):
        part = table.filter(pc.equal(table["model"].cast("string"), model))
        t_s, rate = part["t_s"].to_numpy().astype(float), part["requests_per_s"].to_numpy().astype(float)
        if t_s.max() > SHORTEST_S:
            grid_s = np.arange(0, t_s.max() + RATE_WINDOW_S - t_s.max() % RATE_WINDOW_S, RATE_WINDOW_S, dtype=float)
            found.append(drawn(f"{path.stem.split('_')[0]}_{model}", grid_s, np.interp(grid_s, t_s, rate)))
    return found


def drawn(name: str, start_s: Floats, req_s: Floats) -> Demand:
    """Draw counts as the referee does: interpolated rates x per-minute gamma noise (CV 5 %), Poisson per step."""
    step_s = np.arange(0, start_s[-1] + RATE_WINDOW_S, STEP_S)
    mean_req_s = np.interp(step_s, start_s + RATE_WINDOW_S / 2, req_s)
    per_minute = S_PER_MIN // STEP_S
    noise = np.random.default_rng(NOISE_SEED).gamma(400, 1 / 400, size=len(step_s) // per_minute + 1)
    mean_req_s = mean_req_s * np.repeat(noise, per_minute)[: len(step_s)]
    counts = np.random.default_rng(COUNT_SEED).poisson(mean_req_s * STEP_S)
    return Demand(name=name, arrivals=counts.astype(float), request_level=False)


def _request_level(path: Path) -> Demand:
    t_s = pq.read_table(path, columns=["t_s"])["t_s"].to_numpy().astype(float)
    arrivals = np.bincount((t_s // STEP_S).astype(int))
    return Demand(name="_".join(path.stem.split("_")[:2]), arrivals=arrivals[:-1].astype(float), request_level=True)
