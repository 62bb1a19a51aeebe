"""PromQL in the world against cases worked by hand from Prometheus' documentation, and rules as a group evaluates them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from benchmarks.proving.world.clock import TICK_S
from benchmarks.proving.world.promql import NotUnderstood, Scope, Value, Vector, evaluate, parse
from benchmarks.proving.world.rules import Group, Monitoring, Pod, RecordingRule
from benchmarks.proving.world.samples import Labels, Store
from benchmarks.proving.world.service import Nodes, Scaling, Server, Start, play

A: Labels = (("pod", "a"),)
B: Labels = (("pod", "b"),)


def store(**series: Sequence[float]) -> Store:
    """Return series of pod `a` with a sample every 15 s from 15 s on; what is NaN is no sample."""
    found = Store()
    for name, values in series.items():
        for step, value in enumerate(values):
            if not math.isnan(value):
                found.write(name, (step + 1) * 15.0, {A: value})
    return found


RISING = store(load=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("load", 6.0),
        ("load offset 15s", 5.0),
        ("avg_over_time(load[29s])", 5.5),
        ("max_over_time(load[29s] offset 30s)", 4.0),
        ("min_over_time(load[1m])", 3.0),
        ("last_over_time(load[14s] offset 1m)", 2.0),
        ("15 * deriv(load[1m])", 1.0),
        ("idelta(load[1m])", 1.0),
        ("load > 5", 6.0),
        ("load > bool 7", 0.0),
        ("(load >= 7) or (0.5 * load)", 3.0),
        ("2 ^ 3 ^ 0 * load - 1", 11.0),
        ("-2 ^ 2 + load", 2.0),
        ("clamp(load, 0, 4.5) + clamp_min(load, 8) + clamp_max(load, 1)", 13.5),
        ("sqrt(ceil(load - 2.5))", 2.0),
        ("load % 4", 2.0),
        ("load / 0", math.inf),
        ('avg by (pod) (load{pod=~"a|b",zone=""})', 6.0),
        ("load - on (pod) load", 0.0),
    ],
)  # fmt: skip
def test_an_expression_has_its_documented_value(text: str, value: float) -> None:
    assert evaluate(text, RISING, 90.0) == {A: pytest.approx(value)}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("load < 5", {}),
        ('load{pod!="a"}', {}),
        ('load{pod=~"aa?b"}', {}),
        ("load unless load", {}),
        ("load and nothing", {}),
        ("nothing or vector(0)", {(): 0.0}),
        ("sum(load)", {(): 6.0}),
        ("clamp(load, 2, 1)", {}),
        ("deriv(load[15s])", {}),
        ("1 + 2 * 3", 7.0),
        ("1 > bool 2", 0.0),
    ],
)
def test_what_is_absent_stays_absent_and_numbers_are_numbers(text: str, value: Value) -> None:
    assert evaluate(text, RISING, 90.0) == value


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("histogram_quantile(0.9, load)", "histogram_quantile"),
        ("predict_linear(load[1h], 60)", "predict_linear"),
        ("rate(load[1m])", "rate"),
        ("max_over_time(load[1h:1m])", ":1m"),
        ("load * on (pod) group_left load", "group_left"),
        ("load @ 3", "@"),
        ("load[1m]", "outside a function"),
        ("1 > 2", "without bool"),
        ("sum without (pod) (load)", "without"),
        ("load load", "load"),
        ("(load", r"\)"),
        ("clamp_min(load)", "clamp_min of 1"),
        ('load{__name__="x"}', "__name__"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(NotUnderstood, match=named):
        evaluate(text, RISING, 90.0)


def test_a_counter_counts_from_zero_after_a_reset() -> None:
    assert evaluate("irate(done[1m])", store(done=[10.0, 40.0]), 30.0) == {A: 2.0}
    assert evaluate("irate(done[1m])", store(done=[40.0, 30.0]), 30.0) == {A: 2.0}
    assert evaluate("irate(done[1m])", store(done=[40.0]), 30.0) == {}


def test_vectors_meet_where_their_labels_are_the_same() -> None:
    pods = Store()
    pods.write("done", 15.0, {A: 1.0, B: 2.0})
    pods.write("waiting", 15.0, {B: 5.0})

    assert evaluate("done + waiting", pods, 15.0) == {B: 7.0}
    assert evaluate("(done + waiting) or done", pods, 15.0) == {B: 7.0, A: 1.0}
    assert evaluate("sum(done) + ignoring (pod) waiting", pods, 15.0) == {(): 8.0}
    with pytest.raises(NotUnderstood, match="several elements"):
        evaluate("sum(done) + ignoring (pod) done", pods, 15.0)


def test_a_series_that_ended_is_not_read_and_one_that_merely_missed_a_scrape_is() -> None:
    pods = Store()
    pods.write("done", 15.0, {A: 1.0, B: 2.0})
    pods.write("done", 30.0, {A: 3.0})

    assert evaluate("done", pods, 30.0) == {A: 3.0}
    assert evaluate("last_over_time(done[1m])", pods, 30.0) == {A: 3.0, B: 2.0}
    assert evaluate("done", pods, 325.0) == {A: 3.0}
    assert evaluate("done", pods, 335.0) == {}


def test_a_series_is_forgotten_once_no_rule_looks_so_far_back() -> None:
    scope = Scope()
    parse("irate(done[1m] offset 1m) + max_over_time(done[90s])", scope)
    assert scope.reach_s == {"done": 120.0}

    pods = Store(scope.reach_s)
    pods.write("done", 15.0, {A: 1.0, B: 2.0})
    for step in range(2, 12):
        pods.write("done", step * 15.0, {A: float(step)})

    assert [labels for labels, _ in pods.named("done")] == [A]


def test_rules_of_a_group_see_what_those_before_them_recorded_and_themselves_an_interval_ago() -> None:
    group = Group(
        [
            RecordingRule(record="twice", expression="2 * load", labels={"workload": "x"}),
            RecordingRule(record="total", expression="(last_over_time(total[1h]) or 0 * twice) + twice", labels={}),
        ]
    )
    found = Store(group.scope.reach_s)
    for step in range(1, 4):
        found.write("load", step * 15.0, {A: float(step)})
        group.evaluate(found, step * 15.0)

    labels = (*A, ("workload", "x"))
    assert evaluate("twice", found, 45.0) == {labels: 6.0}
    assert evaluate("total", found, 45.0) == {labels: 12.0}


def test_a_rule_that_cannot_be_read_is_named() -> None:
    with pytest.raises(NotUnderstood, match="trimtab:odd: the function holt_winters"):
        Group([RecordingRule(record="trimtab:odd", expression="holt_winters(x[1h], 0.5, 0.5)", labels={})])
    with pytest.raises(NotUnderstood, match="sglang:queue"):
        Monitoring("prod", "chat", [], "sum(sglang:queue)")


CAPACITY_REQ_S = 2.0
POD = '{namespace="prod",pod=~"chat-[a-z0-9]+-[a-z0-9]{5}"}'
ANSWERED = f"sum by (namespace, pod) (irate(vllm:request_success_total{POD}[60s]))"
WAITING = f"sum by (namespace, pod) (vllm:num_requests_waiting{POD})"
GROWTH = f"sum by (namespace, pod) (idelta(vllm:num_requests_waiting{POD}[60s])) / 15"
DEMAND = f"clamp_min(sum by (namespace) (({ANSWERED} + {GROWTH} + {WAITING} / 15) / {CAPACITY_REQ_S}), 0)"
READY = f"sum by (namespace) (kube_pod_status_ready{POD})"
CURRENT = 'sum by (namespace) (kube_deployment_status_replicas{deployment="chat"})'


def rules_on_demand(target: float, tolerance: float) -> Iterator[RecordingRule]:
    """Yield the rules that the world knows natively: demand, and what holds replicas that have enough to do."""
    for record, expression in (
        ("demand", DEMAND),
        ("ready", READY),
        ("current", CURRENT),
        (
            "scaling",
            f"(demand < {target * (1 - tolerance)} * ready) or (demand > {target} * current)"
            f" or ({target} * current and demand)",
        ),
    ):
        yield RecordingRule(record=record, expression=expression, labels={})


def test_rules_evaluated_live_decide_as_the_world_decides_natively() -> None:
    # given: a day's wave of requests on replicas of four places
    rng = np.random.default_rng(3)
    arrival_s = np.cumsum(rng.exponential(1 / 8.0, 100_000))
    arrival_s = arrival_s[(rng.random(len(arrival_s)) < 0.55 + 0.45 * np.sin(arrival_s / 2000))]
    arrival_s = arrival_s[arrival_s < 3 * 3600]
    work_s = rng.exponential(2.0, len(arrival_s))

    def played(scaling: Scaling) -> tuple[float, float]:
        found = play(
            arrival_s,
            work_s,
            server=Server(slots=4),
            nodes=Nodes(boot_s=60.0, load_s=30.0),
            start=Start.packed(4, 1),
            horizon_s=3.0 * 3600,
            scaling=scaling,
        )
        return float((found.nodes[:, 1] - found.nodes[:, 0]).sum()), float((found.latency_s <= 6.0).mean())

    monitoring = Monitoring("prod", "chat", list(rules_on_demand(0.7, 0.1)), "scaling")
    native = Scaling(minimum=2, maximum=12, target_frac=0.7, capacity_req_s=CAPACITY_REQ_S)
    live = Scaling(minimum=2, maximum=12, target_frac=0.7, follows=2, monitoring=monitoring)

    (native_s, native_frac), (live_s, live_frac) = played(native), played(live)

    # what a pod that goes answered after its last scrape, and one that came before its second, no server has seen
    assert live_s == pytest.approx(native_s, rel=0.03)
    assert live_frac == pytest.approx(native_frac, abs=0.005)
    assert native_s < 0.9 * 12 * 3 * 3600


def test_replicas_stay_where_the_autoscaler_is_told_nothing() -> None:
    found = play(
        np.arange(0.0, 1800.0, 0.25),
        np.ones(7200),
        server=Server(slots=1),
        nodes=Nodes(),
        start=Start.packed(2, 1),
        horizon_s=1800.0,
        scaling=Scaling(
            minimum=1, maximum=8, target_frac=0.7, follows=2, monitoring=Monitoring("prod", "chat", [], "vector(1) > 2")
        ),
    )

    assert set(found.replicas.tolist()) == {2}


def test_a_rule_that_fails_in_the_middle_of_a_play_is_said() -> None:
    # two pods match by no label, which Prometheus refuses as a many-to-many match
    query = "sum(kube_pod_status_ready) * ignoring (pod, namespace, condition) kube_pod_status_ready"

    with pytest.raises(NotUnderstood, match="several elements"):
        play(
            np.zeros(0),
            np.zeros(0),
            server=Server(slots=1),
            nodes=Nodes(),
            start=Start.packed(2, 1),
            horizon_s=60.0,
            scaling=Scaling(
                minimum=1, maximum=8, target_frac=0.7, follows=2, monitoring=Monitoring("prod", "chat", [], query)
            ),
        )


def test_a_pod_is_scraped_once_it_serves_and_until_it_is_gone() -> None:
    monitoring = Monitoring("prod", "chat", [], "sum(vllm:num_requests_waiting)")

    def pod(number: int, *, serves: bool, ready: bool) -> Pod:
        return Pod(number=number, serves=serves, ready=ready, answered=7.0, activity_frac=0.5)

    pods = [pod(0, serves=True, ready=True), pod(1, serves=False, ready=False), pod(2, serves=True, ready=False)]
    waiting = monitoring.told(float(TICK_S), pods, 6, 2)

    def seen(text: str) -> Vector:
        value = evaluate(text, monitoring.store, float(TICK_S))
        assert isinstance(value, dict)
        return value

    assert waiting == 6.0
    assert len(seen("vllm:request_success_total")) == 2
    assert sorted(seen("kube_pod_status_ready").values()) == [0.0, 0.0, 1.0]
    assert list(seen("kube_deployment_status_replicas").values()) == [2.0]
