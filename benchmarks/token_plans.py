"""Plans of a language model's service told of requests beside plans told of tokens, both proved on tokens held back.

A service of 16 replicas on one A10G each answers two weeks of a ServeGen model (m-mid, m-small), those clients whose tokens are
published, sized for its busiest minute. Each request takes the time of an engine that the serving model gives its tokens
(`benchmarks.token_rules`), so that GPU activity, latencies and queues follow the tokens. Its server counts them by minute.
In `measured` fleets it counts the time of its steps too, as SGLang does, so that what a token takes is known exactly; in
`modelled` ones it runs a declared Llama-3.1-8B, as vLLM, and what a token takes is what physics says of an A10G at its usual
concurrency, while in truth it takes what it takes on an H100 with a full batch: wrong by intent.

The plan is made on the first week and everything is proved on the second, in which tokens take what they truly take:

- `tokens`: the cheapest rule that keeps its targets in replay, of those that count tokens;
- `requests`: the same of those that count requests, replayed on the work of tokens;
- `blind`: what is chosen where nobody counts tokens, and the replay takes each request for a mean one, as until now.

Two models, and nothing here is fitted on either. The last line is one JSON object.

Run: python -m benchmarks.token_plans [--data DIR]
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from benchmarks.enact import ProvedFleet, proved_fleet, row_of
from benchmarks.token_rules import ClientSteps, TokenWork, client_steps, mean_work
from benchmarks.traces import STEP_S, data_argument
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.emit.manifests.facts import NodeMaker
from trimtab.fleet.build import build_fleet
from trimtab.fleet.settings import Settings
from trimtab.levers import autoscaling
from trimtab.pipeline.auditing import SEED
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.replay.outcomes.outcome import Case
from trimtab.sources.demo.demand import SIX_WEEKS, DemoService, LatencyLaw, ServedMinutes, Span, answer
from trimtab.sources.demo.draft import FleetDraft, meta
from trimtab.sources.demo.machines import G5_XLARGE
from trimtab.sources.demo.placement import nodes
from trimtab.sources.demo.usage import UsageBlock, serving
from trimtab.tables.bundle import Bundle, BundleMeta, memory_bundle
from trimtab.tables.workloads import Workloads
from trimtab.units import HR_PER_DAY, S_PER_DAY, S_PER_HR, S_PER_MIN

MODELS = ("m-mid", "m-small")
NAME = "prod/chat"
REPLICAS = 16
PEAK_LOAD = 0.8
COLD_START_S = 120
DECLARED = {
    "cold_start_s": COLD_START_S,
    "targets": [
        {"metric": "latency", "quantile": 0.99, "limit_s": 10.0},
        {"metric": "ttft", "quantile": 0.95, "limit_s": 1.0},
    ],
}
MODEL = {"model": "llama-3.1-8b"}
LATENCY, TTFT = LatencyLaw(base_s=2.0), LatencyLaw(base_s=0.2, load_gain=0.8, sigma=0.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One way to choose the rule of a fleet: replica-hours and shares in time on the proof window."""

    case: str
    chosen_by: str
    rule: str
    replica_hr: float
    attained: Mapping[str, float]
    keeps: bool


def bundle(steps: ClientSteps, work: TokenWork, *, measured: bool, counted: bool = True) -> Bundle:
    """Return the fleet of a model; `counted`: its server counts tokens."""
    per_minute = S_PER_MIN // STEP_S
    whole = len(steps.requests) // (per_minute * 60 * HR_PER_DAY) * per_minute * 60 * HR_PER_DAY
    requests, prompts, answers = (
        values[:whole].reshape(-1, per_minute).sum(axis=1)
        for values in (steps.requests, steps.requests * steps.input_tokens, steps.requests * steps.output_tokens)
    )
    spent_s = prompts * work.input_s + answers * work.output_s
    done = spent_s * requests.sum() / spent_s.sum()
    span = _span(len(requests))
    draft = FleetDraft("chat", span, SEED)
    rng = draft.stream(NAME)
    service = DemoService(
        workload=NAME, team="chat", replicas=REPLICAS, latency=LATENCY, ttft=TTFT,
        requests_per_day=float(done.mean()) * S_PER_DAY / S_PER_MIN,
        mean_util_frac=PEAK_LOAD * float(done.mean() / done.max()),
    )  # fmt: skip
    served = answer(service, done, rng)
    columns = served.columns | {"arrivals": requests, "completed": requests}
    if counted:
        columns |= {"input_tokens": prompts, "output_tokens": answers}
    if counted and measured:
        columns |= {"prefill_s": prompts * work.input_s, "decode_s": answers * work.output_s}
    columns |= {
        "input_tokens_mean": np.where(requests > 0, prompts / np.maximum(requests, 1), np.nan),
        "output_tokens_mean": np.where(requests > 0, answers / np.maximum(requests, 1), np.nan),
    }
    draft.demand(NAME, replace(served, columns=columns))
    _place(draft, served, rng)
    declared = Workloads.model_validate({"version": 1, "workloads": {NAME: DECLARED | ({} if measured else MODEL)}})
    return memory_bundle(draft.tables(), BundleMeta.model_validate(meta("chat", span)), declared)


def _span(minutes: int) -> Span:
    start: datetime = SIX_WEEKS.start
    end = start + timedelta(minutes=minutes)
    return Span(start=start, proof=end, end=end)


def _place(draft: FleetDraft, served: ServedMinutes, rng: np.random.Generator) -> None:
    """Put each replica on a node of its own, as busy as the work makes it."""
    homes = [(node, device) for node, devices in nodes(draft, G5_XLARGE, "serving", REPLICAS) for device in devices]
    for node, device in homes:
        draft.pod(NAME, "chat", "Deployment", node, (device,), start=draft.span.start)
    draft.usage(
        UsageBlock(
            machine=G5_XLARGE,
            devices=tuple(device for _, device in homes),
            start=draft.span.start,
            workloads=(NAME,),
            owner=np.zeros((REPLICAS, len(served.rho)), dtype=np.int64),
            activity=serving(served.rho, REPLICAS, memory_gib=19.0, tensor_of_sm=0.3, dram_of_sm=0.85, rng=rng),
            unseen=np.zeros((REPLICAS, len(served.rho)), dtype=np.bool_),
        )
    )


def cheapest(case: Case, rules: Iterable[SetReplicaPolicy]) -> SetReplicaPolicy:
    """Return the rule that keeps the targets of a case with their margin, with the fewest node-seconds."""
    evaluator, best, least = Evaluator(case=case), None, np.inf
    for rule in rules:
        way = Deployment.of((autoscaling.NAME, rule))
        if evaluator.keeps_targets(way) and (held := _replica_hr(evaluator, way)) < least:
            best, least = rule, held
    if best is None:
        raise SystemExit(f"no rule keeps the targets of {case.workload.name}")
    return best


def _replica_hr(evaluator: Evaluator, way: Deployment) -> float:
    gpus = evaluator.outcome(way).gpus
    assert gpus is not None
    return float(gpus.sum()) / S_PER_HR


def proved(name: str, chosen_by: str, rule: SetReplicaPolicy, evaluator: Evaluator) -> Row:
    """Replay a rule over the proof window."""
    return judged(name, chosen_by, rule.describe(), Deployment.of((autoscaling.NAME, rule)), evaluator)


def judged(name: str, chosen_by: str, rule: str, way: Deployment, evaluator: Evaluator) -> Row:
    """Replay a deployment over the proof window."""
    attained = evaluator.outcome(way).attained
    return Row(
        case=name,
        chosen_by=chosen_by,
        rule=rule,
        replica_hr=round(_replica_hr(evaluator, way), 1),
        attained={one.target.describe(): round(one.frac, 5) for one in attained},
        keeps=all(one.frac >= one.target.required_frac for one in attained),
    )


def rows_of(model: str, folder: Path, *, measured: bool) -> tuple[list[Row], dict[str, object]]:
    """Plan one fleet told of tokens and of requests, and prove both where tokens take what they truly take."""
    steps = client_steps(folder, model)
    work = mean_work(steps)
    name = f"{model}/{'measured' if measured else 'modelled'}"
    told = proved_fleet(name, bundle(steps, work, measured=measured), None)
    exact = proved_fleet(name, bundle(steps, work, measured=True), None) if not measured else told
    case = _case(told.planned.cases[NAME])
    case_blind = _blind_case(bundle(steps, work, measured=measured, counted=False), told)
    (later,) = exact.proven.enacted.evaluators.values()
    offered = autoscaling.propose(case)
    rows = [
        proved(name, "tokens", cheapest(case, (rule for rule in offered if rule.tokens is not None)), later),
        proved(name, "requests", cheapest(case, (rule for rule in offered if rule.tokens is None)), later),
        proved(name, "blind", cheapest(case_blind, autoscaling.propose(case_blind)), later),
    ]
    with tempfile.TemporaryDirectory() as files:
        read = row_of(told, NodeMaker.KARPENTER, Path(files))
    rows.append(judged(name, "as it is", "16 replicas at all times", AS_IT_IS, later))
    planned = [effect for _, effect in told.planned.deployments[NAME].changes]
    return rows, {
        "case": name,
        "plan": [effect.describe() for effect in planned],
        "counts_tokens": any(isinstance(effect, SetReplicaPolicy) and effect.tokens is not None for effect in planned),
        "saving_frac": 1 - told.proven.proof.after_micro_usd / told.proven.proof.before_micro_usd,
        "files_off_frac": read.off_frac,
        "targets_equal": f"{read.targets_equal} of {read.targets}",
        "faults": read.faults,
    }


def _blind_case(blind: Bundle, told: ProvedFleet) -> Case:
    """Return the case of the same fit window where nobody counts tokens."""
    window = told.planned.fleet.window
    return _case(cases_of(build_fleet(blind, Settings(), window), Settings(), seed=SEED)[NAME])


def _case(found: Case | str) -> Case:
    if isinstance(found, str):
        raise SystemExit(found)
    return found


def main() -> None:
    """Run the benchmark; the last line is one JSON object."""
    arguments = data_argument(__doc__).parse_args()
    rows: list[Row] = []
    plans = []
    for model in MODELS:
        for measured in (True, False):
            found, plan = rows_of(model, arguments.data / "requests", measured=measured)
            rows += found
            plans.append(plan)
            for row in found:
                print(row, flush=True)
            print(plan, flush=True)
    print(json.dumps({"benchmark": "token_plans", "cases": [asdict(row) for row in rows], "plans": plans}))


if __name__ == "__main__":
    main()
