"""Scaling rules of LLM stacks beside ours on recorded tokens: llm-d, Dynamo's planner, TokenScale, outstanding tokens.

Demand is the engine's work: each recorded request takes the seconds of a full replica that the serving model says its prompt
and its answer add to the steps of Llama-3.1-8B on one H100 under vLLM, at a full batch (`serving.token_seconds`).
Traces: every request of Azure 2023 and Mooncake (one hour each), and two weeks of ServeGen m-mid and m-small: clients' recorded
rates by 10 minutes times their mean tokens by 6 hours, for those clients whose tokens are published (71 % and 43 % of the
requests), drawn as `benchmarks.traces` draws rates.

The game is that of `benchmarks.autoscale`: a fluid queue in 15 s steps, starting replicas are billed and serve nothing for
120 s, a request is in time if it queues for at most 1 s, and the 99.99 % quantile of the load is 8 or 40 replicas. `ours` is
what the replay chooses on the first half of each trace: the tuned forecast, or an HPA on demand of 50 to 90 %, whichever
keeps the share with half of the permitted misses at the least cost. It sees tokens arrive; `ours on requests` is told requests
of the mean work of the first half. All are scored on the second half. The rules of others have their defaults, Dynamo's among
them 50 ms a token; what a replica holds at a load is that of the model. `outstanding tokens` are HPAs on tokens in work and
waiting, with targets that a load of 50, 70 and 85 % has.

The last line is one JSON object. `beaten_by` names, by case, the rules that keep 0.999 at less cost than ours.

Run: python -m benchmarks.token_rules [--data DIR]
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.autoscale import REQUIRED_FRAC
from benchmarks.engine_replay import MAX_NUM_SEQS, times_of
from benchmarks.traces import PEAK_SHARE, RATE_WINDOW_S, STEP_S, Floats, data_argument, drawn
from trimtab.physics.serving import token_seconds
from trimtab.policies.forecast import ForecastPolicy
from trimtab.policies.scaling import NO_LIMIT, HpaPolicy
from trimtab.policies.serving_stacks import (
    OutstandingPolicy,
    PlannerPolicy,
    ReplicaTokens,
    SaturationPolicy,
    TokenAwarePolicy,
    TokenVelocityPolicy,
    token_saturation,
)
from trimtab.replay.compare import SLACK_FRAC, clairvoyant_replica_hr, forecast_first_replicas, tune_scaling
from trimtab.replay.engine import EngineLimits
from trimtab.replay.recorded import record, wanted_loads
from trimtab.replay.services import ScalingPolicy, ServiceHistory, ServiceModel, replay_service
from trimtab.units import S_PER_HR

LIMITS = EngineLimits(MAX_NUM_SEQS, 8192, 40_000)
COLD_START_S = 120
PLANNER_TOKEN_S = 0.05
"""Dynamo's default limit on a time per token (`SLAPlannerDefaults.itl`)."""
PEAK_REPLICAS = (8, 40)
TOKENS_WINDOW_S = 6 * S_PER_HR
HPA_PERCENT = range(50, 95, 5)
OURS, OURS_ON_REQUESTS = "ours", "ours on requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWork:
    """What tokens take of a full replica, in seconds each, and what a replica holds by load and by the work that waits."""

    input_s: float
    output_s: float
    tokens: ReplicaTokens
    engine_load: float
    """Load at which a token takes as long as Dynamo's planner allows."""
    prompt_frac: float
    """The share of the mean request's work that is its prompt."""
    kv_full_frac: float
    """The share of the cache that a full batch of mean requests uses."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenDemand:
    """Work and requests by step of 15 s; `work_s` in seconds of one full replica, `work` what a token takes."""

    name: str
    work_s: Floats
    requests: Floats
    work: TokenWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One rule on one trace at one size."""

    case: str
    rule: str
    cost_ratio: float
    attainment_frac: float
    cold_starts: int
    chosen: str = ""


def work_of(input_tokens: float, output_tokens: float) -> TokenWork:
    """Return what tokens take where a full batch of such mean requests decodes."""
    times = times_of(LIMITS)
    fit = LIMITS.kv_blocks * LIMITS.block_tokens / (input_tokens + output_tokens / 2)
    batch = max(1, min(MAX_NUM_SEQS, int(fit)))
    spent = token_seconds(
        times, input_tokens=input_tokens, cached_tokens=0, output_tokens=output_tokens, requests=batch
    )
    alone_s = float(times.decode_s[1]) + times.context_s * (input_tokens + output_tokens / 2)
    # by little's law a request is in a full replica for as long as the batch takes to be replaced
    request_s = batch * sum(spent)
    step_s = request_s / output_tokens
    # a step is affine in the batch: the share of a full one whose step lasts as long as is allowed, and what it serves
    allowed_s = min(max(PLANNER_TOKEN_S, alone_s * 1.01), step_s)
    engine_load = (allowed_s - alone_s) / (step_s - alone_s) * step_s / allowed_s
    return TokenWork(
        input_s=spent.input_s / input_tokens,
        output_s=spent.output_s / output_tokens,
        tokens=ReplicaTokens(
            fixed_frac=alone_s / step_s,
            queue_s=request_s * (input_tokens + output_tokens / 2) / input_tokens,
        ),
        engine_load=engine_load,
        prompt_frac=spent.input_s / sum(spent),
        kv_full_frac=batch / fit,
    )


def recorded(path: Path) -> TokenDemand:
    """Read a trace of requests."""
    columns = ["t_s", "input_tokens", "output_tokens"]
    t_s, prompt, answer = (pq.read_table(path, columns=columns)[name].to_numpy().astype(float) for name in columns)
    at = (t_s // STEP_S).astype(int)
    work = work_of(float(prompt.mean()), float(answer.mean()))
    spent = np.bincount(at, weights=prompt * work.input_s + answer * work.output_s)[:-1]
    name = "_".join(path.stem.split("_")[:2])
    return TokenDemand(name=name, work_s=spent.astype(float), requests=np.bincount(at)[:-1].astype(float), work=work)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClientSteps:
    """Requests of a ServeGen model by step of 15 s, and the mean tokens of each step's prompts and answers."""

    requests: Floats
    input_tokens: Floats
    output_tokens: Floats


def client_steps(folder: Path, model: str) -> ClientSteps:
    """Add up the clients of a model whose tokens are published; a window without figures has the nearest's."""
    rates = pq.read_table(folder / "servegen_client_rates_10min.parquet")
    rates = rates.filter(pc.equal(rates["model"].cast("string"), model)).to_pandas()
    tokens = pq.read_table(folder / "servegen_client_tokens_6h.parquet")
    tokens = tokens.filter(pc.equal(tokens["model"].cast("string"), model)).to_pandas()
    tokens = tokens[["client", "t_s", "in_mean", "out_mean"]].dropna().sort_values("t_s")
    rates = rates[rates["client"].isin(set(tokens["client"]))].sort_values("t_s")
    both = rates.assign(t_s=rates["t_s"].astype(float)).merge(
        tokens.iloc[:0].drop(columns="t_s"), how="left", on="client"
    )
    found = []
    for client, part in both.groupby("client"):
        mine = tokens[tokens["client"] == client]
        nearest = np.abs(part["t_s"].to_numpy()[:, None] - (mine["t_s"].to_numpy() + TOKENS_WINDOW_S / 2)).argmin(
            axis=1
        )
        found.append(np.column_stack([
            part["t_s"], part["requests_per_s"], mine["in_mean"].to_numpy()[nearest], mine["out_mean"].to_numpy()[nearest],
        ]))  # fmt: skip
    t_s, rate, prompt, answer = np.concatenate(found).T
    grid_s = np.arange(0, t_s.max() + RATE_WINDOW_S, RATE_WINDOW_S)
    at = (t_s // RATE_WINDOW_S).astype(int)
    summed = np.bincount(at, weights=rate, minlength=len(grid_s))
    kept = summed > 0
    requests = drawn(model, grid_s, np.interp(grid_s, grid_s[kept], summed[kept])).arrivals

    def by_step(tokens: Floats) -> Floats:
        total = np.bincount(at, weights=rate * tokens, minlength=len(grid_s))
        mean = np.interp(grid_s, grid_s[kept], total[kept] / summed[kept])
        return np.asarray(
            np.interp(np.arange(len(requests)) * STEP_S, grid_s + RATE_WINDOW_S / 2, mean), dtype=np.float64
        )

    return ClientSteps(requests=requests, input_tokens=by_step(prompt), output_tokens=by_step(answer))


def mean_work(steps: ClientSteps) -> TokenWork:
    """Return what tokens take where a full batch of a model's mean requests decodes."""
    return work_of(
        float(np.average(steps.input_tokens, weights=steps.requests)),
        float(np.average(steps.output_tokens, weights=steps.requests)),
    )


def of_clients(folder: Path, model: str) -> TokenDemand:
    """Return the demand of a ServeGen model."""
    steps = client_steps(folder, model)
    work = mean_work(steps)
    each_s = steps.input_tokens * work.input_s + steps.output_tokens * work.output_s
    return TokenDemand(name=f"servegen_{model}", work_s=steps.requests * each_s, requests=steps.requests, work=work)


def demands(traces: Path) -> Iterator[TokenDemand]:
    """Return every trace that records tokens."""
    for name in ("azure2023_conv", "mooncake_conversation"):
        yield recorded(traces / "requests" / f"{name}.parquet")
    for model in ("m-mid", "m-small"):
        yield of_clients(traces / "requests", model)


def rules_of(work: TokenWork) -> dict[str, ScalingPolicy]:
    """Return the rules of others, and plain rules on outstanding tokens."""
    tokens, fixed, engine_load = work.tokens, work.tokens.fixed_frac, work.engine_load
    planner = PlannerPolicy(1, NO_LIMIT, tokens, engine_load)
    rules: dict[str, ScalingPolicy] = {
        "llm-d saturation (until v0.5)": SaturationPolicy(1, NO_LIMIT),
        "llm-d saturation by tokens": token_saturation(1, NO_LIMIT, tokens),
        "llm-d token-aware": TokenAwarePolicy(
            HpaPolicy(1.0, 1, NO_LIMIT), tokens, prompt_frac=work.prompt_frac, kv_full_frac=work.kv_full_frac
        ),
        "TokenScale's signal": TokenVelocityPolicy(1, NO_LIMIT, engine_load),
        "Dynamo planner": planner,
        "Dynamo planner with load scaling": planner._replace(scales_by_load=True),
    }
    for percent in (50, 70, 85):
        load = percent / 100
        held = load * fixed / (1 - load * (1 - fixed))
        rules[f"outstanding tokens of {percent}%"] = OutstandingPolicy(HpaPolicy(held, 1, NO_LIMIT), tokens)
    return rules


def game(demand: TokenDemand, peak: int) -> tuple[ServiceModel, Floats]:
    """Return the replica, which serves a load of 1 a second, and the load of each step in seconds of it."""
    scale = peak * STEP_S / float(np.quantile(demand.work_s, PEAK_SHARE))
    model = ServiceModel(
        capacity_req_s=1.0,
        load_grid=np.array([0.0, 1.0]),
        ok_frac=np.ones((1, 2)),
        wait_limit_s=np.array([1.0]),
        cold_start_s=COLD_START_S,
        queue_limit_s=math.inf,
    )
    return model, demand.work_s * scale


def rows_of(demand: TokenDemand, peak: int) -> Iterator[Row]:
    """Replay all rules over the second half of a trace."""
    model, work_s = game(demand, peak)
    split = len(work_s) // 2
    # what a rule on requests is told: each request as the mean one of the first half
    told_s = demand.requests * work_s[:split].sum() / demand.requests[:split].sum()
    rest = ServiceHistory(arrivals=work_s[split:], step_s=STEP_S)
    best_hr = clairvoyant_replica_hr(rest.load(model), step_s=STEP_S, cold_start_s=COLD_START_S)
    start = math.ceil(work_s[split] / STEP_S / 0.7) + 1
    runs: dict[str, tuple[ScalingPolicy, ServiceHistory, int]] = {
        name: (rule, rest, start) for name, rule in rules_of(demand.work).items()
    }
    for name, seen_s in ((OURS, work_s), (OURS_ON_REQUESTS, told_s)):
        runs[name] = tuned(model, work_s, seen_s, split)
    for name, (rule, history, first) in runs.items():
        replayed = replay_service(history, model, rule, initial_replicas=first)
        yield Row(
            case=f"{demand.name}/{peak}",
            rule=name,
            cost_ratio=round(replayed.replica_hr / best_hr, 3),
            attainment_frac=round(float(replayed.attained_frac[0]), 4),
            cold_starts=replayed.cold_starts,
            chosen=_words(rule) if name.startswith(OURS) else "",
        )


def tuned(model: ServiceModel, work_s: Floats, seen_s: Floats, split: int) -> tuple[ScalingPolicy, ServiceHistory, int]:
    """Return what keeps the share at the least cost on the first half, with room, and what it sees of the second."""
    whole = ServiceHistory(arrivals=work_s, step_s=STEP_S, within=seen_s)
    fit = replace(whole, arrivals=work_s[:split], within=seen_s[:split])
    rest = replace(whole, arrivals=work_s[split:], within=seen_s[split:])
    tried = tune_scaling(fit, model, required_frac=REQUIRED_FRAC)
    start = math.ceil(work_s[0] / STEP_S / 0.7) + 1
    choices: list[tuple[bool, float, ScalingPolicy]] = [(not tried.feasible, tried.replay.replica_hr, tried.policy)]
    for percent in HPA_PERCENT:
        rule = HpaPolicy(percent / 100, 1, NO_LIMIT)
        replayed = replay_service(fit, model, rule, initial_replicas=start)
        missed = float(replayed.attained_frac[0]) < 1 - (1 - REQUIRED_FRAC) * SLACK_FRAC
        choices.append((missed, replayed.replica_hr, rule))
    best = min(choices, key=lambda choice: choice[:2])[2]
    if not isinstance(best, ForecastPolicy):
        return best, rest, math.ceil(work_s[split] / STEP_S / 0.7) + 1
    rate, step_s = whole.rate_seen()
    wanted = wanted_loads(best, rate, record(rate, step_s=step_s, rules=best.rules), step_s=step_s)[split:]
    return best, replace(rest, signal=wanted), forecast_first_replicas(best, wanted)


def _words(rule: ScalingPolicy) -> str:
    return f"HPA on demand {rule.target_frac:.0%}" if isinstance(rule, HpaPolicy) else "forecast"


def beaten_by(rows: list[Row]) -> list[str]:
    """Return the rules of a case that keep the share at less cost than ours; if ours misses it, those that keep it."""
    ours = next(row for row in rows if row.rule == OURS)
    others = [row for row in rows if not row.rule.startswith(OURS) and row.attainment_frac >= REQUIRED_FRAC]
    keeps = ours.attainment_frac >= REQUIRED_FRAC
    return [row.rule for row in others if not keeps or row.cost_ratio < ours.cost_ratio]


def main() -> None:
    """Run the benchmark; the last line is one JSON object."""
    arguments = data_argument(__doc__).parse_args()
    cases: list[Row] = []
    beaten: dict[str, list[str]] = {}
    for demand in demands(arguments.data):
        print(f"{demand.name}: {demand.work}")
        for peak in PEAK_REPLICAS:
            found = list(rows_of(demand, peak))
            cases += found
            beaten[found[0].case] = beaten_by(found)
            for row in found:
                print(
                    f"{row.case:28} {row.rule:34} {row.cost_ratio:7.3f} x clairvoyant  {row.attainment_frac:.4f} {row.chosen}"
                )
    result = {
        "benchmark": "token_rules",
        "data": str(arguments.data),
        "ours_wins": sum(not rules for rules in beaten.values()),
        "ours_keeps_target": sum(row.rule == OURS and row.attainment_frac >= REQUIRED_FRAC for row in cases),
        "beaten_by": beaten,
        "cases": [asdict(row) for row in cases],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
