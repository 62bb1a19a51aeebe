"""What was emitted decides what was replayed: a real Prometheus evaluates it, and the HPA rule follows."""

import math
import random
import re
from collections import defaultdict
from dataclasses import dataclass

import benchmarks.demand_rules as mishaps
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from tests.e2e.backfilled import STEP_S, ask, openmetrics, prometheus_over
from tests.emit.example import example_audit

from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.emit.manifests.demand_rules import DEMAND, LOAD, PER_REPLICA, SCALING
from trimtab.emit.manifests.facts import SERVERS, EmitFacts, ServiceFacts, WorkloadFacts
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.fleet.token_work import TokenWork
from trimtab.plan.model import Change
from trimtab.policies.forecast import forecast_policy
from trimtab.policies.scaling import HpaPolicy, Metric, Observation, hpa_memory, hpa_step
from trimtab.replay.services import ServiceHistory, ServiceModel, replay_service

POLICY = HpaPolicy(target_frac=0.7, min_replicas=2, max_replicas=40)
COLD_START_S = 120
FIRST = 14


@dataclass
class Cluster:
    """Replicas that start slowly, as the replay has them: ready after the cold start, the newest first to go."""

    ready: int
    due: dict

    def at(self, step):
        self.ready += self.due.pop(step, 0)

    @property
    def starting(self):
        return sum(self.due.values())

    def rescale(self, step, wanted):
        change = wanted - self.ready - self.starting
        if change > 0:
            self.due[step + 1 + COLD_START_S // STEP_S] = change
        for at in sorted(self.due, reverse=True):
            gone = min(max(-change, 0), self.due[at])
            self.due[at] -= gone
            change += gone
        self.ready += min(change, 0)


@dataclass
class History:
    """What a service did, step by step."""

    replicas: list
    ready: list
    served: list
    queue: list


def lived(arrivals, capacity_req_s):
    """The fluid queue under the policy itself, in the open: what the replay computes and does not keep."""
    cluster, memory, queue = Cluster(FIRST, defaultdict(int)), hpa_memory(POLICY), 0.0
    history = History([], [], [], [])
    for step, arrived in enumerate(arrivals):
        cluster.at(step)
        history.replicas.append(cluster.ready + cluster.starting)
        history.ready.append(cluster.ready)
        served = min(queue + arrived, cluster.ready * capacity_req_s * STEP_S)
        queue += arrived - served
        history.served.append(served)
        history.queue.append(queue)
        load, backlog = arrived / (capacity_req_s * STEP_S), queue / capacity_req_s
        seen = Observation(step, cluster.ready, cluster.starting, load, 0.0, backlog, math.nan)
        cluster.rescale(step, hpa_step(POLICY, memory, seen))
    return history


def followed(policy, steps, reading):
    """Replicas when the rule sees only what Prometheus said: `reading(step, cluster)`, the demand in replicas."""
    cluster, memory, replicas = Cluster(FIRST, defaultdict(int)), hpa_memory(policy), []
    for step in range(steps):
        cluster.at(step)
        replicas.append(cluster.ready + cluster.starting)
        total = reading(step, cluster)
        seen = Observation(step, cluster.ready, cluster.starting, total, 0.0, 0.0, total)
        cluster.rescale(step, hpa_step(policy, memory, seen))
    return replicas


def replayed(arrivals, capacity_req_s):
    model = ServiceModel(
        capacity_req_s=capacity_req_s,
        load_grid=np.array([0.0, 1.0]),
        ok_frac=np.ones((1, 2)),
        wait_limit_s=np.array([1.0]),
        cold_start_s=COLD_START_S,
        queue_limit_s=1e9,
    )
    history = ServiceHistory(arrivals=np.asarray(arrivals, dtype=float), step_s=STEP_S)
    return replay_service(history, model, POLICY, initial_replicas=FIRST).replicas.tolist()


def emitted_rules(capacity_req_s, policy=POLICY, tokens=None):
    known = WorkloadFacts(
        name="prod/chat-api",
        replicas=FIRST,
        service=ServiceFacts(capacity_req_s=capacity_req_s, signals=SERVERS["vllm"]),
    )
    plan = example_audit().plan
    base = next(action for action in plan.actions if action.id == "a8")
    effect = SetReplicaPolicy(policy=policy, metric="requests per replica", tokens=tokens)
    action = type(base)(
        **{name: getattr(base, name) for name in base.__slots__ if name != "changes"},
        changes=(Change(subject=known.name, effect=effect),),
    )
    only = type(plan)(**{name: getattr(plan, name) for name in plan.__slots__ if name != "actions"}, actions=(action,))
    emission = emit_plan(only, EmitFacts(workloads=(known,)))
    text = next(file.text for file in emission.files if file.kind == "PrometheusRule")
    return known, yaml.safe_load(text)["spec"]


def a_day_with_a_burst():
    rng = np.random.default_rng(11)
    at = np.arange(8 * 240)
    rate = 20 + 14 * np.sin(at / 300) + np.where((at > 900) & (at < 960), 30, 0)
    return rng.poisson(rate * STEP_S).astype(float), 2.5


def a_day_known_by_the_minute():
    arrivals, capacity_req_s = a_day_with_a_burst()
    by_minute = arrivals.reshape(-1, 60 // STEP_S).mean(axis=1)
    return np.repeat(by_minute, 60 // STEP_S), capacity_req_s


def a_recorded_hour(shared_dir, name, capacity_req_s):
    t_s = pq.read_table(shared_dir / f"data/traces/requests/{name}.parquet")["t_s"].to_numpy()
    return np.bincount((t_s // STEP_S).astype(int)).astype(float), capacity_req_s


RECORDED = {"azure2023_conv": 0.5, "mooncake_conversation": 0.35}


def within_one(some, others):
    return np.mean(np.abs(np.asarray(some) - np.asarray(others)) <= 1)


@pytest.fixture(params=["quarter-minutes", "minutes", *RECORDED])
def trace(request):
    if request.param == "quarter-minutes":
        return a_day_with_a_burst()
    if request.param == "minutes":
        return a_day_known_by_the_minute()
    return a_recorded_hour(request.getfixturevalue("shared_dir"), request.param, RECORDED[request.param])


def recorded(rules):
    return {rule["record"]: rule["expr"] for rule in rules["groups"][0]["rules"]}


def expanded(expression, expressions):
    """An expression over recorded series as one over what was scraped."""
    for name, recorded in expressions.items():
        expression = re.sub(rf"{name}\{{[^}}]*\}}", lambda _, recorded=recorded: f"({recorded})", expression)
    return expression


def by_step(answer, steps):
    (values,) = answer.values()
    return [values.get(step, math.nan) for step in range(steps)]


def external(ready, current, total):
    """What the emitted expression makes of demand, for replicas that are not those of the backfill."""
    floor, held = POLICY.target_frac * (1 - POLICY.tolerance_down_frac) * ready, POLICY.target_frac * current
    return total if total < floor else max(total, held)


@pytest.mark.prometheus
def test_the_emitted_expressions_make_an_hpa_do_what_was_replayed(trace, tmp_path, prometheus_bin, promtool_bin):
    arrivals, capacity_req_s = trace
    steps = len(arrivals)
    history = lived(arrivals, capacity_req_s)
    assert history.replicas == replayed(arrivals, capacity_req_s)
    known, rules = emitted_rules(capacity_req_s)
    expressions = recorded(rules)
    forecast = recorded(emitted_rules(capacity_req_s, forecast_policy(cold_start_s=COLD_START_S, max_replicas=40))[1])

    with prometheus_over(openmetrics(known, history), rules, tmp_path, prometheus_bin, promtool_bin) as address:
        total = by_step(ask(address, expressions[DEMAND], steps), steps)
        scaling = by_step(ask(address, expanded(expressions[SCALING], expressions), steps), steps)
        pods = ask(address, expressions[PER_REPLICA], steps)
        load = by_step(ask(address, forecast[LOAD], steps), steps)

    by_pod = [sum(one[step] for one in pods.values() if step in one) for step in range(steps)]
    pods_metric = followed(POLICY, steps, lambda step, _cluster: by_pod[step])
    asked = POLICY._replace(metric=Metric.SIGNAL)
    external_metric = followed(
        asked, steps, lambda step, now: external(now.ready, now.ready + now.starting, total[step])
    )
    as_recorded = [external(*state) for state in zip(history.ready, history.replicas, total, strict=True)]
    assert scaling[1:] == pytest.approx(as_recorded[1:])
    calm = [step for step in range(1, steps) if history.queue[step] == history.queue[step - 1] == 0]
    assert [load[step] for step in calm] == pytest.approx(
        [arrivals[step] / (capacity_req_s * STEP_S) for step in calm], rel=1e-6
    )
    assert within_one(pods_metric, history.replicas) >= 0.99
    assert within_one(external_metric, history.replicas) >= 0.99


WORK = TokenWork(input_req=0.0005, output_req=0.004, cached_req=0.0005)


def lengths(steps):
    """By step what a mean request's work is: requests, prompt and answer tokens; ten times as long each in the second half."""
    each = []
    for step in range(steps):
        prompt, answer = (200.0, 25.0) if step < steps // 2 else (2000.0, 250.0)
        requests = 1 / (prompt * WORK.input_req + answer * WORK.output_req)
        each.append((requests, requests * prompt, requests * answer))
    return each


@pytest.mark.prometheus
def test_a_rule_on_tokens_makes_an_hpa_do_what_was_replayed_however_long_requests_are(
    tmp_path, prometheus_bin, promtool_bin
):
    arrivals, capacity_req_s = a_day_with_a_burst()
    steps = len(arrivals)
    history = lived(arrivals, capacity_req_s)
    known, rules = emitted_rules(capacity_req_s, tokens=WORK)
    by_tokens, by_requests = recorded(rules), recorded(emitted_rules(capacity_req_s)[1])

    text = openmetrics(known, history, lengths(steps))
    with prometheus_over(text, rules, tmp_path, prometheus_bin, promtool_bin) as address:
        total = by_step(ask(address, by_tokens[DEMAND], steps), steps)
        requests = by_step(ask(address, by_requests[DEMAND], steps), steps)

    asked = POLICY._replace(metric=Metric.SIGNAL)
    replicas = followed(asked, steps, lambda step, now: external(now.ready, now.ready + now.starting, total[step]))
    assert within_one(replicas, history.replicas) >= 0.99
    # while each request is two mean ones, a rule on requests is told of half of their work
    calm = [step for step in range(1, steps) if history.queue[step] == history.queue[step - 1] == 0]
    late = [step for step in calm if step > steps // 2]
    assert np.mean([requests[step] / total[step] for step in late]) == pytest.approx(0.5, rel=0.01)


@pytest.mark.prometheus
@pytest.mark.parametrize("scrape_s", mishaps.SCRAPES_S)
def test_a_rule_on_tokens_knows_demand_through_a_restart_at_every_scrape_interval(scrape_s, promtool_bin):
    both = mishaps.replicas("a replica restarts", scrape_s, random.Random(scrape_s))

    read = mishaps.readings("vllm", scrape_s, both, promtool_bin, by_tokens=True)

    true = {at: mishaps.truth(both, SERVERS["vllm"], at, scrape_s, by_tokens=True) for at in read}
    assert read == pytest.approx(true, rel=mishaps.WITHIN_FRAC)
