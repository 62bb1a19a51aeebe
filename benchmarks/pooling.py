"""GPUs that seldom-used models need if they take turns on shared ones, against one warm replica each; targets replayed.

Clients of ServeGen (m-mid and m-small, 14 days) stand for services with a model each. Their requests are drawn from the
recorded rates and coefficients of variation by 10 minutes (gamma distributed times between requests, as ServeGen draws them),
with the mean tokens that were recorded by 6 hours; lengths are exponential around the mean. The models are Qwen3's, 4B, 8B, 14B
and 32B in turn (bf16, on H100s with 80 GB), with the step times of the serving model. Two further cases have one size for all.

A request is in time if its first token comes within 10 s and its answer takes at most 100 ms a token (the targets of Aegaeon,
SOSP'25); 99 % must be in time, or as many as with one warm replica where that keeps fewer. The first week is history only. Each
day of the second week is placed on the seven days before it and then replayed. `reported` are the 50 clients with fewest
requests. Rules and margin were chosen on `design`: other clients (ranks 51 to 150), with requests left out until they are as
rare as the reported ones, either any (`design`) or all but those of their busiest moments (`bursts`). `--images` is a second
source: the checkpoints of a recorded image service (GenTD26, 13.7 days).

The last line is one JSON object: GPUs of each case, and each service's share in time pooled and with a warm replica.

Run: python -m benchmarks.pooling [--data DIR] [--design | --images] [--case NAME] [--rules NAME]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.traces import RATE_WINDOW_S, Floats, data_argument
from trimtab.emit.manifests.own_replicas import SEEN_LATE_S
from trimtab.levers.pooling import (
    ASLEEP_GIB,
    HOST_MEMORY,
    PoolMargin,
    PoolService,
    replay_daily,
    warm_frac,
    warm_replay,
)
from trimtab.physics.formats import WeightFormat
from trimtab.physics.models import model_named
from trimtab.physics.offers import board
from trimtab.physics.predict import coefficients_of
from trimtab.physics.serving import StepTimes, step_times
from trimtab.physics.serving_query import Load, ServingQuery, serving_columns
from trimtab.policies.pooling import LLAMA_SWAP, OWN_REPLICAS, PoolPolicy
from trimtab.replay.pooling import PooledModel, PoolRequests
from trimtab.units import BYTES_PER_GIB, S_PER_DAY, S_PER_HR

SPAN_S, IMAGES_S = 14 * S_PER_DAY, 13.67 * S_PER_DAY
HISTORY_S = 7 * S_PER_DAY
"""The first week is history only; each later day is placed on the seven days before it."""
CLIENTS = 50
FIRST_TOKEN_S, TOKEN_S, REQUIRED_FRAC = 10.0, 0.1, 0.99
GPU_GIB = 79.6 * 0.95
"""What an H100 with 80 GB reports, less a twentieth for fragments."""
START_S = 180.0
"""From the decision until an own replica is ready: a node, an image, weights."""
MOST_CONTEXT, KV_GIB = 16, (2.0, 12.0)
MODELS = ("qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b")
CASES = {"mixed": MODELS, "all 8B": ("qwen3-8b",), "all 32B": ("qwen3-32b",)}
BATCH, STEP_TOKENS = 256, 8192
TOKENS_WINDOW_S = 6 * S_PER_HR
MOST_CV = 30.0
UNKNOWN_TOKENS = (1000.0, 200.0)
"""Tokens of the few clients whose lengths are not published."""
RULES = {"llama-swap": LLAMA_SWAP, "own-replicas": OWN_REPLICAS}
"""Both are what emitted files carry out: the shared GPU's router alone, or with own replicas that KEDA scales."""
MARGIN = PoolMargin()
CHECKPOINT_GIB, CHECKPOINT_WEIGHTS_GIB = 20.1, 6.5
"""Memory of an image server in the same recording, and the weights of a checkpoint of Stable Diffusion XL in 16 bits."""
IMAGE_STRETCH = 2.0
"""Images are computed one at a time; on a shared GPU one may take twice as long as recorded."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Client:
    """A recorded client: the start, rate and variation of its windows, and its mean tokens in each."""

    name: str
    start_s: Floats
    rate: Floats
    cv: Floats
    input_tokens: Floats
    output_tokens: Floats

    @property
    def requests(self) -> float:
        """Return how many requests were recorded."""
        return float(self.rate.sum() * RATE_WINDOW_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One service over the days that are scored."""

    service: str
    awake_gib: float
    requests: int
    days_alone: int
    in_time_frac: float
    warm_frac: float
    kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """GPUs held on average: all, those that several services share, and those of a single service."""

    total: float
    shared: float
    alone: float


def clients(traces: Path) -> list[Client]:
    """Read the clients of the models recorded over 14 days, those with fewest requests first."""
    rates = pq.read_table(traces / "requests" / "servegen_client_rates_10min.parquet").to_pandas()
    tokens = pq.read_table(traces / "requests" / "servegen_client_tokens_6h.parquet").to_pandas()
    found = []
    for (model, number), part in rates[rates["model"].isin(["m-mid", "m-small"])].groupby(
        ["model", "client"], observed=True
    ):
        mine = tokens[(tokens["model"] == model) & (tokens["client"] == number)][
            ["t_s", "in_mean", "out_mean"]
        ].dropna()
        start_s = part["t_s"].to_numpy(dtype=float)
        if len(mine):
            middle_s = mine["t_s"].to_numpy(dtype=float) + TOKENS_WINDOW_S / 2
            nearest = np.abs(start_s[:, None] - middle_s).argmin(axis=1)
            lengths = mine[["in_mean", "out_mean"]].to_numpy(dtype=float)[nearest]
        else:
            lengths = np.tile(UNKNOWN_TOKENS, (len(part), 1))
        found.append(
            Client(
                name=f"{model}/{number}", start_s=start_s, rate=part["requests_per_s"].to_numpy(dtype=float),
                cv=np.minimum(part["iat_cv"].to_numpy(dtype=float), MOST_CV),
                input_tokens=lengths[:, 0], output_tokens=lengths[:, 1],
            )
        )  # fmt: skip
    return sorted(found, key=lambda client: client.requests)


def drawn(client: Client, kept_frac: float, seed: int) -> tuple[Floats, Floats, Floats]:
    """Draw the arrivals of a client, and the tokens of their prompts and answers; `kept_frac` of them are kept."""
    rng = np.random.default_rng(seed)
    arrivals, at = [], []
    for window, (start_s, rate, cv) in enumerate(zip(client.start_s, client.rate, client.cv, strict=True)):
        count = round(rate * RATE_WINDOW_S)
        kept = count if kept_frac == 1 else int(rng.binomial(count, kept_frac))
        if kept == 0:
            continue
        shape = 1 / cv**2
        places = np.arange(count) if kept == count else np.sort(rng.choice(count, kept, replace=False, shuffle=False))
        # the sum of k gaps of one gamma distribution is gamma distributed with k times the shape
        gaps = rng.gamma(shape * np.diff(places, prepend=-1, append=count), 1 / shape)
        # the window's count is what was recorded; its gaps have the recorded variation
        moments = np.cumsum(gaps)[:-1] / max(gaps.sum(), 1e-300) * RATE_WINDOW_S
        arrivals.append(start_s + moments)
        at.append(np.full(kept, window))
    arrival_s, window_of = np.concatenate(arrivals), np.concatenate(at)
    order = np.argsort(arrival_s, kind="stable")
    arrival_s, window_of = arrival_s[order], window_of[order]
    prompt = np.maximum(rng.exponential(client.input_tokens[window_of]), 1)
    answer = np.maximum(rng.exponential(client.output_tokens[window_of]), 1)
    return arrival_s, prompt, answer


def times_of(model: str) -> StepTimes:
    """Return the step times of a model on one H100 under vLLM."""
    query = ServingQuery(
        model=model_named(model), gpu=board("H100-SXM"), stored=WeightFormat.BF16, engine="vllm", year=2026,
        load=Load.ONLINE, requests=1, input_tokens=1000, output_tokens=200,
    )  # fmt: skip
    columns = serving_columns([query])
    coefficients = coefficients_of([query], columns)
    return step_times(columns, coefficients, max_num_seqs=BATCH, step_tokens=STEP_TOKENS)


def service(client: Client, model: str, kept_frac: float, seed: int) -> PoolService:
    """Return a client as a service of a model."""
    arrival_s, prompt, answer = drawn(client, kept_frac, seed)
    times, architecture = times_of(model), model_named(model)
    input_tokens, output_tokens = float(client.input_tokens.mean()), float(client.output_tokens.mean())
    context = input_tokens + output_tokens
    weights_gib = architecture.params_b * 1e9 * 2 / BYTES_PER_GIB
    token_gib = 2 * 2 * architecture.layers * architecture.kv_heads * architecture.head_dim / BYTES_PER_GIB
    kv_gib = min(max(MOST_CONTEXT * context * token_gib, KV_GIB[0]), KV_GIB[1])
    own_kv_gib = GPU_GIB - weights_gib - ASLEEP_GIB - 2
    prefill_s = float(times.mixed_s[STEP_TOKENS]) / STEP_TOKENS
    alone_s = float(times.decode_s[1]) + times.context_s * context
    full_s = float(times.decode_s[BATCH]) + times.context_s * context * BATCH
    # a prompt is computed, not read, so it slows others down for as long as it takes alone
    prompt_s, answer_s = input_tokens * prefill_s, output_tokens * alone_s
    growth = (prompt_s + output_tokens * (full_s - alone_s) / (BATCH - 1)) / (prompt_s + answer_s)
    wake_s = HOST_MEMORY.wake_s(weights_gib)
    return PoolService(
        model=PooledModel(
            name=client.name, awake_gib=weights_gib + kv_gib + ASLEEP_GIB + 1.5, asleep_gib=ASLEEP_GIB, wake_s=wake_s,
            sleep_s=wake_s, growth=growth, concurrency=_at_once(kv_gib, context * token_gib),
            own_concurrency=_at_once(own_kv_gib, context * token_gib), own_start_s=START_S + SEEN_LATE_S,
            wait_limit_s=FIRST_TOKEN_S,
        ),
        requests=PoolRequests(arrival_s=arrival_s, prompt_s=prompt * prefill_s, answer_s=answer * alone_s),
        required_frac=REQUIRED_FRAC,
        first_limit_s=FIRST_TOKEN_S,
        stretch_limit=TOKEN_S / alone_s,
    )  # fmt: skip


def _at_once(kv_gib: float, request_gib: float) -> int:
    return int(min(max(kv_gib / request_gib, 1), BATCH))


def services(
    found: Sequence[Client], models: Sequence[str], wanted: Sequence[float] | None = None
) -> list[PoolService]:
    """Return clients as services; `wanted` requests each, where they are made rarer."""
    return [
        service(
            client, models[at % len(models)], 1.0 if wanted is None else min(1.0, wanted[at] / client.requests), seed=at
        )
        for at, client in enumerate(found)
    ]


def scored(
    found: Sequence[PoolService], policy: PoolPolicy, margin: PoolMargin, start_s: float, end_s: float
) -> tuple[list[Row], Gpus]:
    """Replay the later part day by day: a row for each service, and the GPUs held on average."""
    days = list(
        replay_daily(
            found, policy, memory_gib=GPU_GIB, start_s=start_s, end_s=end_s, history_s=HISTORY_S, margin=margin
        )
    )
    in_time = np.sum([day.in_time for day in days], axis=0)
    requests = np.sum([day.requests for day in days], axis=0)
    rows = []
    for number, each in enumerate(found):
        later = each.with_requests(each.requests.within(start_s, end_s))
        warm = warm_frac(later, memory_gib=GPU_GIB, span_s=end_s - start_s)
        pooled = float(in_time[number] / requests[number]) if requests[number] else 1.0
        rows.append(
            Row(
                service=each.model.name, awake_gib=round(each.model.awake_gib, 1), requests=int(requests[number]),
                days_alone=sum(number in day.plan.alone for day in days), in_time_frac=round(pooled, 5),
                warm_frac=round(warm, 5), kept=bool(pooled >= min(each.required_frac, warm)),
            )
        )  # fmt: skip
    return rows, Gpus(
        total=float(np.mean([day.gpus for day in days])),
        shared=float(np.mean([len(day.plan.gpus) for day in days])),
        alone=float(np.mean([len(day.plan.alone) for day in days])),
    )


def foresight_gpus(found: Sequence[PoolService], start_s: float, end_s: float) -> float:
    """Return the GPUs held on average if each service had one replica of its own just while it has requests.

    Each starts `START_S` before the first of them, so that every answer is as with a warm replica, and goes with the last,
    unless it would be wanted again before another could have started. No rule without foresight does this, nor need the best
    one hold as many: nothing is shared.
    """
    held_s = 0.0
    for each in found:
        later = each.with_requests(each.requests.within(start_s, end_s))
        arrival_s = later.requests.arrival_s
        if len(arrival_s):
            replayed, _ = warm_replay(later, memory_gib=GPU_GIB, span_s=end_s - start_s)
            done_s = np.maximum.accumulate(arrival_s + replayed.last_s[0])
            between_s = arrival_s[1:] - done_s[:-1]
            gone_s = between_s[between_s > START_S] - START_S
            held_s += float(done_s[-1] - max(arrival_s[0] - START_S, 0.0) - gone_s.sum())
    return held_s / (end_s - start_s)


def diffusion_services(traces: Path) -> list[PoolService]:
    """Return the checkpoints of a recorded image service (GenTD26) as services: an image at a time, in its recorded time."""
    table = pq.read_table(traces / "requests" / "gentd26_diffusion_requests.parquet").to_pandas()
    table = table[table["exec_time_seconds"] > 0]
    found = []
    for name, part in table.groupby("checkpoint_model_version_id"):
        arrival_s = part["t_s"].to_numpy(dtype=float)
        model = PooledModel(
            name=str(name), awake_gib=CHECKPOINT_GIB, asleep_gib=ASLEEP_GIB, wake_s=HOST_MEMORY.wake_s(CHECKPOINT_WEIGHTS_GIB),
            sleep_s=HOST_MEMORY.wake_s(CHECKPOINT_WEIGHTS_GIB), growth=1.0, concurrency=1, own_concurrency=1,
            own_start_s=START_S + SEEN_LATE_S, wait_limit_s=FIRST_TOKEN_S,
        )  # fmt: skip
        requests = PoolRequests(
            arrival_s=arrival_s, prompt_s=np.zeros(len(arrival_s)), answer_s=part["exec_time_seconds"].to_numpy(dtype=float)
        )  # fmt: skip
        found.append(
            PoolService(
                model=model, requests=requests, required_frac=REQUIRED_FRAC, first_limit_s=FIRST_TOKEN_S,
                stretch_limit=IMAGE_STRETCH,
            )
        )  # fmt: skip
    return found


def design_sets(found: Sequence[Client]) -> Iterator[tuple[str, list[Client], list[float] | None]]:
    """Yield other clients in two sets of 50, each made as rare as one of those reported."""
    reported = [client.requests for client in found[:CLIENTS]]
    for odd in (0, 1):
        others = list(found[CLIENTS + odd :: 2][:CLIENTS])
        yield f"design {odd}", others, reported
        yield f"bursts {odd}", [bursts(*each) for each in zip(others, reported, strict=True)], None


def bursts(client: Client, wanted: float) -> Client:
    """Return a client in its busiest windows only, as many as hold the wanted requests."""
    order = np.argsort(-client.rate, kind="stable")
    most = int(np.searchsorted(np.cumsum(client.rate[order]) * RATE_WINDOW_S, wanted)) + 1
    kept = np.sort(order[:most])
    rate = client.rate[kept] * min(1.0, wanted / (client.rate[kept].sum() * RATE_WINDOW_S))
    return Client(
        name=client.name, start_s=client.start_s[kept], rate=rate, cv=client.cv[kept],
        input_tokens=client.input_tokens[kept], output_tokens=client.output_tokens[kept],
    )  # fmt: skip


def main() -> None:
    """Run the benchmark; the last line is one JSON object."""
    parser = data_argument(__doc__)
    parser.add_argument(
        "--design", action="store_true", help="score on the clients that policy and margin were chosen on"
    )
    parser.add_argument("--case", choices=list(CASES), action="append", help="only this case; give several")
    parser.add_argument("--rules", choices=list(RULES), action="append", help="only this router's rules; give several")
    parser.add_argument("--images", action="store_true", help="score on the recorded image service")
    arguments = parser.parse_args()
    cases = [case_of(*case, rules) for case in chosen_cases(arguments) for rules in (arguments.rules or RULES)]
    print(json.dumps({"benchmark": "pooling", "data": str(arguments.data), "cases": cases}))


def chosen_cases(arguments: argparse.Namespace) -> Iterator[tuple[str, str, list[PoolService], float]]:
    """Yield the set, the case, the services and the length of each replay that was requested."""
    if arguments.images:
        yield "images", "recorded checkpoints", diffusion_services(arguments.data), IMAGES_S
        return
    found = clients(arguments.data)
    sets = list(design_sets(found)) if arguments.design else [("reported", found[:CLIENTS], None)]
    for name, chosen, wanted in sets:
        for case in arguments.case or CASES:
            yield name, case, services(chosen, CASES[case], wanted), SPAN_S


def case_of(name: str, case: str, found: Sequence[PoolService], span_s: float, rules: str) -> dict[str, object]:
    """Return the figures of one set of services, and print them."""
    rows, gpus = scored(found, RULES[rules], MARGIN, HISTORY_S, span_s)
    missed = [row for row in rows if not row.kept]
    foresight = foresight_gpus(found, HISTORY_S, span_s)
    requests = max(sum(row.requests for row in rows), 1)
    in_time, warm = (
        sum(getattr(row, of) * row.requests for row in rows) / requests for of in ("in_time_frac", "warm_frac")
    )
    print(
        f"{name}, {case}, {rules}: {gpus.total:.2f} GPUs ({gpus.shared:.1f} shared, {gpus.alone:.1f} alone, the rest own "
        f"replicas for a while) instead of {len(rows)}, {1 - gpus.total / len(rows):.1%} fewer; {len(rows) - len(missed)} of "
        f"{len(rows)} targets kept; {in_time:.1%} of all requests in time, with warm replicas {warm:.1%}; with foresight and "
        f"nothing shared {foresight:.1f} GPUs",
        flush=True,
    )
    for row in missed:
        print(f"  missed: {row}")
    return {
        "set": name, "case": case, "rules": rules, "gpus": round(gpus.total, 2), "shared_gpus": round(gpus.shared, 2),
        "alone": round(gpus.alone, 2), "fewer_frac": round(1 - gpus.total / len(rows), 4),
        "kept": len(rows) - len(missed), "services": len(rows),
        "in_time_frac": round(in_time, 4), "warm_frac": round(warm, 4), "foresight_gpus": round(foresight, 2),
        "rows": [asdict(row) for row in rows],
    }  # fmt: skip


if __name__ == "__main__":
    main()
