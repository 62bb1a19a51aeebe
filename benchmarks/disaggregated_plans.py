"""What serving prompts and answers apart saves in plans: drawn services of language models, with that lever and without.

Each service runs a declared model on replicas of one type of node, enough for its busiest minutes. Its history is made by the
replay of the engine's scheduler at each load, where every step takes a drawn factor times what physics predicts (0.8 to 1.25),
so that a plan has to learn that factor from the history. Its server counts tokens. Lengths, rates, daily swing and targets are
drawn: 95 of 100 first tokens are to come within 3 to 12 times what a mean prompt takes alone, tokens within 1.2 to 3 times what
a step of 16 answers takes. Today's service holds the replicas that keep that in its busiest minutes. Plans are made on one week
and billed on another.

    python -m benchmarks.disaggregated_plans [--fleets 20] [--seed 1]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import count

import numpy as np
from tests.fleets import MONDAY, FleetRows, few_machines

from benchmarks.enact import ProvedFleet, proved_fleet
from benchmarks.lever_worth import Row, compared, run
from trimtab.catalog import Gpu, load_catalog
from trimtab.fleet.declared_models import ENGINE, ENGINE_YEAR
from trimtab.fleet.settings import Planning, Settings
from trimtab.ledger.arrays import FloatArray
from trimtab.levers import disaggregation
from trimtab.physics.formats import WeightFormat
from trimtab.physics.models import resolve_model
from trimtab.physics.predict import coefficients_of
from trimtab.physics.serving import (
    capacity,
    decode_s,
    default_step_tokens,
    first_token_fit,
    prefill_s,
    step_times,
    token_seconds,
)
from trimtab.physics.serving_query import Load, ServingQuery, kv_value_bytes, serving_columns, serving_keys
from trimtab.replay.engine import EngineReplay, Requests
from trimtab.replay.first_token import beyond_saturation, replay_deployment

DAYS = 14
STEP_S = 300
NAME = "prod/chat"
HOMES = {
    "llama-3.1-8b": (("g6e.12xlarge", 1), ("p4d.24xlarge", 1), ("p5.48xlarge", 1)),
    "qwen2.5-32b": (("g6e.12xlarge", 4), ("p5.48xlarge", 2)),
    "llama-3.1-70b": (("p5.48xlarge", 4), ("p5.48xlarge", 8)),
}
"""Models, with the nodes and the GPUs of a replica."""
MACHINES = few_machines("g6e.12xlarge", "g6e.48xlarge", "g6.12xlarge", "p4de.24xlarge", "g6e.2xlarge", "p5en.48xlarge")
PLANNING = Planning(max_term_years=0, max_payback_mo=120, min_saving_usd_mo=1)
LOADS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
LE_S = (*(float(bound) for bound in np.geomspace(0.005, 300, 60)), math.inf)
REQUESTS = 3_000
MOST_GPUS = 256
USUAL = 16
"""Requests in work at once, by which the work of tokens is weighed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a replica's requests see at each of `LOADS`: shares by bucket of `LE_S`, and requests in work on average."""

    loads: FloatArray
    rates_req_s: FloatArray
    first: FloatArray
    token: FloatArray
    whole: FloatArray
    running: FloatArray
    quantiles: dict[str, FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A drawn service in numbers."""

    model: str
    instance_type: str
    tensor: int
    input_tokens: float
    output_tokens: float
    spread: float
    factor: float
    rate_req_s: float
    swing: float
    ttft_times: float
    tpot_times: float


def draw(seed: int, number: int = 0) -> Drawn:
    """Draw a service: one of a seed, by number."""
    rng = np.random.default_rng((seed, 20261128, number))
    model = str(rng.choice(list(HOMES)))
    instance_type, tensor = HOMES[model][int(rng.integers(len(HOMES[model])))]
    return Drawn(
        model=model,
        instance_type=instance_type,
        tensor=tensor,
        input_tokens=float(np.exp(rng.uniform(math.log(500), math.log(10_000)))),
        output_tokens=float(np.exp(rng.uniform(math.log(100), math.log(800)))),
        spread=float(rng.uniform(0.3, 0.9)),
        factor=float(np.exp(rng.uniform(math.log(0.8), math.log(1.25)))),
        rate_req_s=float(np.exp(rng.uniform(math.log(5), math.log(100)))),
        swing=float(rng.uniform(0.2, 0.8)),
        ttft_times=float(rng.uniform(3, 12)),
        tpot_times=float(rng.uniform(1.2, 3)),
    )


def requests_of(drawn: Drawn) -> Requests:
    """Return requests at one a second with drawn lengths."""
    rng = np.random.default_rng(7)
    arrival_s = np.cumsum(rng.standard_exponential(REQUESTS))
    spread = np.exp(drawn.spread * rng.standard_normal((2, REQUESTS)) - drawn.spread**2 / 2)
    prompts, answers = (
        np.clip(np.rint(mean * times), 1, 8 * mean).astype(np.int64)
        for mean, times in zip((drawn.input_tokens, drawn.output_tokens), spread, strict=True)
    )
    return Requests(arrival_s, prompts, answers, np.zeros(REQUESTS, dtype=np.int64))


def query_of(drawn: Drawn) -> ServingQuery:
    """Return the question of a replica of today."""
    catalog = load_catalog()
    gpu = catalog.gpu(catalog.instance_table[("aws", drawn.instance_type)].gpu)
    return ServingQuery(
        model=resolve_model(drawn.model), gpu=gpu, stored=WeightFormat.BF16, engine=ENGINE, year=ENGINE_YEAR,
        load=Load.ONLINE, requests=1, input_tokens=drawn.input_tokens, output_tokens=drawn.output_tokens,
        kv_value_bytes=kv_value_bytes(WeightFormat.BF16, ENGINE, ENGINE_YEAR, gpu), gpus=drawn.tensor, tensor=drawn.tensor,
    )  # fmt: skip


def seen_by_load(drawn: Drawn) -> Seen:
    """Replay today's replicas at each load of the highest rate that does not pile up."""
    query, requests = query_of(drawn), requests_of(drawn)
    columns = serving_columns([query])
    c = coefficients_of([query], columns)
    costs = first_token_fit().of(serving_keys(query))
    most = int(min(256, max(1, capacity(columns)[0])))

    def at(rate_req_s: float) -> EngineReplay:
        closer = requests._replace(arrival_s=requests.arrival_s / rate_req_s)
        return replay_deployment(
            columns, c, closer, max_num_seqs=most, step_tokens=default_step_tokens(query.gpu), scale=drawn.factor
        )

    low, high = 1e-3, 1e3
    for _ in range(24):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if beyond_saturation(at(middle)) else (middle, high)
    rows: dict[str, list[FloatArray]] = {"first": [], "token": [], "whole": []}
    quantiles: dict[str, list[float]] = {"first": [], "token": [], "whole": []}
    running = []
    for load in LOADS:
        replayed = at(low * load)
        kept = slice(REQUESTS // 10, None)
        step_s = np.nan_to_num(replayed.tpot_s)[kept]
        first_s = costs.wait_scale * replayed.ttft_s[kept] + costs.fixed_s + costs.delay_steps * step_s
        whole_s = first_s + (replayed.requests.output_tokens[kept] - 1) * step_s
        for name, times in (("first", first_s), ("token", step_s), ("whole", whole_s)):
            rows[name].append(np.histogram(times, bins=[0.0, *LE_S])[0] / len(times))
            quantiles[name].append(float(np.quantile(times, 0.95)))
        running.append(float(whole_s.mean()) * low * load)
    return Seen(
        loads=np.array(LOADS), rates_req_s=np.array(LOADS) * low,
        first=np.array(rows["first"]), token=np.array(rows["token"]), whole=np.array(rows["whole"]),
        running=np.array(running), quantiles={name: np.array(values) for name, values in quantiles.items()},
    )  # fmt: skip


def limits_of(drawn: Drawn) -> dict[str, float]:
    """Return the limits on first tokens and on tokens, from what they take where nothing is in their way."""
    query = query_of(drawn)
    columns = serving_columns([query])
    c = coefficients_of([query], columns)
    scale = drawn.factor * c["glob"]
    alone_s, step_s = prefill_s(columns, c, np.ones(1)) * scale, decode_s(columns, c, np.full(1, float(USUAL))) * scale
    return {"first": float(alone_s[0]) * drawn.ttft_times, "token": float(step_s[0]) * drawn.tpot_times}


def rows_of(drawn: Drawn, seed: int) -> FleetRows | None:
    """Return two weeks of a service with the replicas that its limits need; None where no number of them would do."""
    seen, rng = seen_by_load(drawn), np.random.default_rng((seed, 2))
    steps = DAYS * 86_400 // STEP_S
    hour = np.arange(steps) * STEP_S / 3600
    level = 1 - drawn.swing * (0.5 + 0.5 * np.cos(2 * math.pi * (hour % 24 - 15) / 24 + math.pi))
    lengths, prompts_frac = np.exp(0.08 * rng.standard_normal((2, steps))), _prompts_frac(drawn)
    arrivals = rng.poisson(drawn.rate_req_s * level * np.exp(0.05 * rng.standard_normal(steps)) * STEP_S).astype(float)
    # replicas are as busy as the tokens make them
    rate = arrivals / STEP_S * (prompts_frac * lengths[0] + (1 - prompts_frac) * lengths[1])
    full_req_s = float(seen.rates_req_s[-1]) / LOADS[-1]
    limit = limits_of(drawn)
    kept = [load for at, load in enumerate(LOADS) if all(seen.quantiles[name][at] <= limit[name] for name in limit)]
    if not kept:
        return None
    replicas = max(2, math.ceil(float(rate.max()) / (min(0.8, kept[-1]) * full_req_s)))
    if replicas * drawn.tensor > MOST_GPUS:
        return None
    per_node = _gpus(drawn.instance_type) // drawn.tensor
    rows, held = FleetRows(DAYS), 0
    load = rate / (replicas * full_req_s)
    by_hour = load.reshape(-1, 3600 // STEP_S).mean(axis=1)
    for node in range(math.ceil(replicas / per_node)):
        add_node(rows, f"n{node}", drawn.instance_type)
        for place in range(min(per_node, replicas - held)):
            devices = list(range(place * drawn.tensor, (place + 1) * drawn.tensor))
            rows.hold(NAME, f"n{node}", devices, pod=f"chat-{node}-{place}", owner_kind="Deployment")
            for device in devices:
                rows.use(
                    NAME, f"n{node}", device, range(DAYS * 24), sm=lambda hour: float(min(0.98, by_hour[hour])),
                    memory_gib=0.9 * query_of(drawn).gpu.memory_gib,
                )  # fmt: skip
            held += 1
    for step in range(steps):
        times = {name: _mixed(getattr(seen, name), seen.loads, load[step]) for name in ("first", "token", "whole")}
        came = arrivals[step]
        prompts, answers = came * drawn.input_tokens * lengths[0, step], came * drawn.output_tokens * lengths[1, step]
        rows.rows["demand"].append(
            {
                "workload": NAME, "start": _at(step), "interval_s": float(STEP_S), "arrivals": came, "completed": came,
                "replicas_ready": float(replicas), "waiting_mean": 0.0,
                "running_mean": float(np.interp(load[step], seen.loads, seen.running)) * replicas,
                "input_tokens": prompts, "output_tokens": answers, "cached_tokens": 0.0,
                "input_tokens_mean": drawn.input_tokens * lengths[0, step],
                "output_tokens_mean": drawn.output_tokens * lengths[1, step],
                "latency_le_s": list(LE_S), "latency_count": list(times["whole"] * came),
                "ttft_le_s": list(LE_S), "ttft_count": list(times["first"] * came),
                "tpot_le_s": list(LE_S), "tpot_count": list(times["token"] * came),
            }
        )  # fmt: skip
    rows.workloads[NAME] = {
        "model": drawn.model,
        "precision": "bf16",
        "cold_start_s": 180,
        "min_replicas": 1,
        "targets": [
            {"metric": "ttft", "quantile": 0.95, "limit_s": round(limit["first"], 4)},
            {"metric": "tpot", "quantile": 0.95, "limit_s": round(limit["token"], 4)},
            {
                "metric": "latency",
                "quantile": 0.95,
                "limit_s": round(limit["first"] + 3 * drawn.output_tokens * limit["token"], 2),
            },
        ],
    }
    return rows


def _prompts_frac(drawn: Drawn) -> float:
    """Return the share of a replica's time that prompts take at a usual concurrency."""
    query = query_of(drawn)
    columns = serving_columns([query])
    step_tokens = default_step_tokens(query.gpu)
    times = step_times(columns, coefficients_of([query], columns), max_num_seqs=USUAL, step_tokens=step_tokens)
    spent = token_seconds(
        times,
        input_tokens=drawn.input_tokens,
        cached_tokens=0.0,
        output_tokens=drawn.output_tokens,
        requests=float(USUAL),
    )
    return spent.input_s / (spent.input_s + spent.output_s)


def _mixed(shares: FloatArray, loads: FloatArray, load: float) -> FloatArray:
    """Return the shares by bucket at a load between two of those that were replayed."""
    above = int(np.clip(np.searchsorted(loads, load), 1, len(loads) - 1))
    part = float(np.clip((load - loads[above - 1]) / (loads[above] - loads[above - 1]), 0, 1))
    return np.asarray((1 - part) * shares[above - 1] + part * shares[above])


def _at(step: int) -> datetime:
    begin: datetime = MONDAY
    return begin + timedelta(seconds=step * STEP_S)


def add_node(rows: FleetRows, name: str, instance_type: str) -> None:
    """Add a node of a type of the catalog."""
    gpu, count = _board(instance_type), _gpus(instance_type)
    rows.rows["nodes"].append(
        {
            "node": name, "provider": "aws", "instance_type": instance_type, "region": "us-east-1",
            "capacity_type": "on-demand", "start": MONDAY, "end": None, "gpu": gpu.name, "gpu_count": count,
        }
    )  # fmt: skip
    rows.rows["devices"] += [
        {"device": f"{name}/{device}", "node": name, "gpu": gpu.name, "memory_gib": gpu.memory_gib}
        for device in range(count)
    ]


def _board(instance_type: str) -> Gpu:
    catalog = load_catalog()
    return catalog.gpu(catalog.instance_table[("aws", instance_type)].gpu)


def _gpus(instance_type: str) -> int:
    return load_catalog().instance_table[("aws", instance_type)].gpu_count


def _service(seed: int, number: int) -> tuple[Drawn, FleetRows] | None:
    """Return the service of a seed and number; None where its limits cannot be kept."""
    drawn = draw(seed, number)
    rows = rows_of(drawn, seed)
    return None if rows is None else (drawn, rows)


def service_of_seed(seed: int) -> tuple[Drawn, FleetRows]:
    """Return the first service of a seed whose limits can be kept."""
    return next(found for found in map(partial(_service, seed), count()) if found is not None)


def proved(seed: int, rows: FleetRows) -> ProvedFleet:
    """Plan and prove a service."""
    return proved_fleet(str(seed), rows.bundle(), Settings(planning=PLANNING), MACHINES)


def in_words(drawn: Drawn) -> str:
    """Return what was drawn."""
    return (
        f"{drawn.model} on {drawn.tensor} x {drawn.instance_type}, {drawn.input_tokens:,.0f} in, "
        f"{drawn.output_tokens:,.0f} out, "
        f"{drawn.rate_req_s:.1f}/s, ttft x{drawn.ttft_times:.1f}, tpot x{drawn.tpot_times:.1f}"
    )


def row_of_seed(seed: int) -> Row:
    """Plan, prove, write and read one fleet, with the lever and without it."""
    drawn, rows = service_of_seed(seed)
    return compared(proved(seed, rows), disaggregation.NAME, seed=seed, said=in_words(drawn))


if __name__ == "__main__":
    run("disaggregated_plans", __doc__, row_of_seed)
