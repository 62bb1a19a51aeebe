"""How fast the replay of an LLM engine's scheduler is, with chunked prefill and preemption: requests a second on one core.

Recorded requests (Azure 2023 conversation, Mooncake), repeated back to back, go through one engine whose step times are those
that the serving model gives Llama-3.1-8B on one H100. `mean_batch` is the mean number of requests that a step decodes. Loads
of the Azure trace: as recorded; four times as fast, and a backlog kept at 256 clients, both with a cache that is too small, so
that requests are preempted; the same with a third of the memory; and a full batch in a cache that holds it. `requests_per_s`
is by processor time, `requests_per_wall_s` by the clock (they differ where the machine is shared). The first call, which
compiles, is left out.

`steps_one_by_one_s` is what the same scheduler takes in plain Python (`benchmarks.reference.engine_steps`) for a part of them,
whose answers must be equal to 1e-9 of their time.

Run: python -m benchmarks.engine_replay
"""

from __future__ import annotations

import json
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.reference.engine_steps import serve_step_by_step
from benchmarks.traces import data_argument
from trimtab.physics.formats import WeightFormat
from trimtab.physics.models import model_named
from trimtab.physics.offers import board
from trimtab.physics.predict import coefficients_of
from trimtab.physics.serving import StepTimes, step_times
from trimtab.physics.serving_query import Load, ServingQuery, serving_columns
from trimtab.replay.engine import EngineLimits, Requests, chosen, replay_engine
from trimtab.units import BYTES_PER_GIB

MAX_NUM_SEQS = 256
TIMES_OVER = 20
CHECKED = 1500
TIGHT, LITTLE, AMPLE = 6_000, 18_000, 40_000
"""Blocks of the cache: a third of what 256 of these requests need, somewhat less than that, and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One load of one trace on one engine."""

    trace: str
    load: str
    faster: float
    clients: int
    limits: EngineLimits


CASES = (
    Case(trace="azure2023_conv", load="as recorded", faster=1, clients=0, limits=EngineLimits(MAX_NUM_SEQS, 2048, AMPLE)),
    Case(trace="azure2023_conv", load="4 x, little memory", faster=4, clients=0,
         limits=EngineLimits(MAX_NUM_SEQS, 2048, LITTLE)),
    Case(trace="azure2023_conv", load="256 clients, little memory", faster=1, clients=256,
         limits=EngineLimits(MAX_NUM_SEQS, 2048, LITTLE)),
    Case(trace="azure2023_conv", load="256 clients, a third of the memory", faster=1, clients=256,
         limits=EngineLimits(MAX_NUM_SEQS, 2048, TIGHT)),
    Case(trace="azure2023_conv", load="256 clients", faster=1, clients=256,
         limits=EngineLimits(MAX_NUM_SEQS, 2048, AMPLE)),
    Case(trace="mooncake_conversation", load="256 clients", faster=1, clients=256,
         limits=EngineLimits(MAX_NUM_SEQS, 8192, 10 * AMPLE)),
)  # fmt: skip


def recorded(folder: Path, case: Case, times_over: int) -> Requests:
    """Read a trace, repeated back to back."""
    table = pq.read_table(
        folder / "requests" / f"{case.trace}.parquet", columns=["t_s", "input_tokens", "output_tokens"]
    )
    t_s, input_tokens, output_tokens = (table[name].to_numpy() for name in table.column_names)
    span_s = float(t_s.max()) + 1.0
    arrival_s = np.concatenate([np.sort(t_s) + again * span_s for again in range(times_over)]) / case.faster
    return Requests(
        arrival_s,
        np.tile(np.maximum(input_tokens, 1).astype(np.int64), times_over),
        np.tile(np.maximum(output_tokens, 1).astype(np.int64), times_over),
        np.zeros(len(arrival_s), dtype=np.int64),
    )


def times_of(limits: EngineLimits) -> StepTimes:
    """Return the step times of Llama-3.1-8B on one H100 under vLLM."""
    query = ServingQuery(
        model=model_named("llama-3.1-8b"), gpu=board("H100-SXM"), stored=WeightFormat.BF16, engine="vllm", year=2026,
        load=Load.ONLINE, requests=1, input_tokens=1155, output_tokens=211,
    )  # fmt: skip
    columns = serving_columns([query])
    coefficients = coefficients_of([query], columns)
    return step_times(columns, coefficients, max_num_seqs=limits.max_num_seqs, step_tokens=limits.step_tokens)


def measure(folder: Path, case: Case) -> dict[str, str | float]:
    """Return the figures of a case, timed after a first call."""
    requests, times = recorded(folder, case, TIMES_OVER), times_of(case.limits)
    replay_engine(chosen(requests, slice(100)), case.limits, times, clients=case.clients)
    wall_s, core_s = time.perf_counter(), time.process_time()
    replayed = replay_engine(requests, case.limits, times, clients=case.clients)
    wall_s, core_s = time.perf_counter() - wall_s, time.process_time() - core_s
    number = len(requests.arrival_s)
    return {
        "trace": case.trace,
        "load": case.load,
        "requests": number,
        "requests_per_s": round(number / core_s),
        "requests_per_wall_s": round(number / wall_s),
        "output_tokens_per_s": round(replayed.output_tokens / core_s),
        "mean_batch": round(replayed.output_tokens / replayed.steps, 1),
        "max_num_seqs": case.limits.max_num_seqs,
        "step_tokens": case.limits.step_tokens,
        "mean_input_tokens": round(float(requests.input_tokens.mean())),
        "mean_output_tokens": round(float(requests.output_tokens.mean())),
        "preemptions": replayed.preemptions,
        "refused": int(replayed.refused.sum()),
    }


def check(folder: Path, case: Case) -> dict[str, float]:
    """Return the time of the plain scheduler for a part of a case, and how far its answers are from the replay's."""
    requests = chosen(recorded(folder, case, 1), slice(CHECKED))
    times = times_of(case.limits)
    replayed = replay_engine(requests, case.limits, times, clients=case.clients)
    began = time.process_time()
    jobs, _ = serve_step_by_step(requests, case.limits, times, clients=case.clients)
    spent_s = time.process_time() - began
    ends = np.array([job.end_s for job in jobs])
    return {
        "requests": CHECKED,
        "steps_one_by_one_s": round(spent_s, 2),
        "largest_difference_frac": float(np.max(np.abs(replayed.served.end_s / ends - 1))),
    }


def main() -> None:
    arguments = data_argument(__doc__).parse_args()
    cases = []
    for case in CASES:
        cases.append(measure(arguments.data, case))
        print(cases[-1])
    pressed = min(float(found["requests_per_s"]) for found in cases if found["preemptions"])
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / BYTES_PER_GIB
    result = {
        "benchmark": "engine_replay",
        "data": str(arguments.data),
        "requests_per_s_with_preemption": pressed,
        "peak_rss_gib": round(peak_gib, 2),
        "cases": cases,
        "against_plain_python": check(arguments.data, CASES[2]),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
