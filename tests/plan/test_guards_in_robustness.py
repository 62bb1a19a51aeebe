"""The proof under stress: guards as they are emitted have rows of their own, and nothing is replayed twice or for nothing."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.emit.example import example_audit
from tests.fleets import FleetRows, at

from trimtab.cli.audit.run import render_audit
from trimtab.cli.output import Format
from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.emit.audit_document import audit_document
from trimtab.fleet.starts import MeasuredStarts
from trimtab.pipeline.auditing import PlanningInput, emitted_guards, plan_and_prove
from trimtab.plan.proof.proof_window import prove
from trimtab.plan.proof.robustness import DEPARTURES, GUARDS_ALONE, LATE_METRICS, NO_CAPACITY, WITH_GUARDS, robustness
from trimtab.replay.outcomes import service_replays

SLOWER, FASTER, MORE = DEPARTURES
DAYS = 14
LE_S = (0.5, 1.0, 2.0, 4.0, float("inf"))
REPLICAS = 4
PER_REPLICA = 10.0
"""Requests/s that fill a replica."""


def busy_frac(hour):
    """How busy four replicas are: with two thirds of what they serve from 9 to 18 h, else with a twelfth of it."""
    return 0.66 if 9 <= hour % 24 < 18 else 0.08


def add_service(rows, name, gpus=8):
    """Add replicas of a node each, whose requests take the longer the busier they are."""
    for replica in range(REPLICAS):
        node = f"{name.replace('/', '-')}-{replica}"
        rows.node(node, "p4d.24xlarge").hold(name, node, range(gpus), owner_kind="Deployment", pod=f"{name}-{replica}")
        for gpu in range(gpus):
            rows.use(name, node, gpu, range(DAYS * 24), sm=busy_frac, dram=0.2)
    rng = np.random.default_rng(1)
    for step in range(DAYS * 24 * 4):
        load = busy_frac(step // 4)
        came = float(rng.poisson(load * PER_REPLICA * REPLICAS * 900))
        late = 0.01 + 0.05 * load**2
        rows.rows["demand"].append(
            {
                "workload": name, "start": at(step / 4), "interval_s": 900.0, "arrivals": came,
                "replicas_ready": float(REPLICAS), "running_mean": load * REPLICAS, "latency_le_s": list(LE_S),
                "latency_count": [round(came * part) for part in (0.6, 0.4 - late, late * 0.6, late * 0.4, 0.0)],
                "ttft_le_s": None, "ttft_count": None,
            }
        )  # fmt: skip


@pytest.fixture(scope="module")
def proven():
    """A service that the plan scales, and one that it leaves alone; the plan, its proof, and what they rest on."""
    rows = FleetRows(DAYS)
    add_service(rows, "prod/chat")
    rows.node("small", "g5.xlarge").hold("prod/small", "small", [0], owner_kind="StatefulSet")
    rows.use("prod/small", "small", 0, range(DAYS * 24), sm=lambda hour: 0.3 * (9 <= hour % 24 < 17))
    latency = {"metric": "latency", "quantile": 0.95, "limit_s": 2.0}
    rows.workloads = {"prod/chat": {"kind": "serving", "targets": [latency]}}
    bundle = rows.bundle()
    made = plan_and_prove(PlanningInput(bundle=bundle))
    planned, opened = made.planned, made.opened
    proof = prove(planned, opened.proof, opened.market, opened.settings, seed=7)
    return planned, proof, opened, emitted_guards(planned, bundle, opened)


def stressed(proven, guards):
    planned, proof, opened, _ = proven
    return robustness(
        planned, proof, opened.proof, opened.market, opened.settings, seed=7, starts=MeasuredStarts(), guards=guards
    )


@pytest.fixture(scope="module")
def found(proven):
    return stressed(proven, proven[-1])


def row_of(found, departure):
    (row,) = (row for row in found.stressed if row.departure == departure)
    return row


def attained(row):
    return [(result.workload, result.target, result.attained_frac) for result in row.results]


def test_the_guard_that_is_emitted_for_a_service_is_the_one_that_is_played(proven):
    planned, _, _, guards = proven
    (chat,) = (case.workload for case in planned.cases.values() if case.workload.name == "prod/chat")

    assert isinstance(planned.deployments["prod/chat"].scaling, SetReplicaPolicy)
    assert guards == {"prod/chat": tuple(target for target in chat.targets if target.limit_s is not None)}
    assert [target.limit_s for target in guards["prod/chat"]] == [2.0]


def test_with_guards_slow_replicas_keep_more_and_cost_more(found):
    without, guarded = row_of(found, SLOWER), row_of(found, WITH_GUARDS)

    assert guarded.bill_usd_mo > without.bill_usd_mo
    for (name, target, kept), (other, same, before) in zip(attained(guarded), attained(without), strict=True):
        assert (name, target) == (other, same)
        assert kept > before + 0.1 if target.limit_s is not None else kept >= before - 1e-9


def test_guards_cost_something_even_where_nothing_departs_and_lose_nothing(proven, found):
    _, proof, _, _ = proven
    alone = row_of(found, GUARDS_ALONE)
    usual = {(result.workload, result.target): result.attained_frac for result in proof.proof.targets}

    assert alone.missed == ()
    assert all(frac >= usual[name, target] - 0.001 for name, target, frac in attained(alone))
    assert row_of(found, WITH_GUARDS).bill_usd_mo >= alone.bill_usd_mo


def test_a_service_without_a_guard_does_with_guards_what_it_does_without(proven):
    found = stressed(proven, {"prod/chat": ()})

    assert attained(row_of(found, WITH_GUARDS)) == attained(row_of(found, SLOWER))
    assert row_of(found, WITH_GUARDS).bill_usd_mo == row_of(found, SLOWER).bill_usd_mo


def test_where_no_guard_is_emitted_no_row_plays_one_and_a_note_says_why(proven, found):
    reason = "a HorizontalPodAutoscaler gets its demand alone"
    bare = stressed(proven, {"prod/chat": reason})

    assert not any(row.departure.guards for row in bare.stressed)
    assert f"No guard on latency is emitted for prod/chat: {reason}." in bare.notes
    assert [row for row in found.stressed if not row.departure.guards] == list(bare.stressed)


@pytest.mark.parametrize("form", [Format.TABLE, Format.JSON, Format.MARKDOWN, Format.HTML])
def test_every_face_shows_the_row(found, form):
    document = audit_document(replace(example_audit(), robustness=found))

    text = " ".join(render_audit(document, form, width=10_000, colour=False).split())

    assert WITH_GUARDS.name in text


def counted(monkeypatch, proven, guards):
    """Return how many replays of services the rows took."""
    count, real = Counter(), service_replays.replay_service

    def counting(*args, **kwargs):
        count["replays"] += 1
        return real(*args, **kwargs)

    monkeypatch.setattr(service_replays, "replay_service", counting)
    stressed(proven, guards)
    return count["replays"]


def test_a_service_is_replayed_once_for_each_departure_that_it_feels(monkeypatch, proven):
    """Two speeds, more demand, no node and late metrics: five, and one more with guards for each of two rows."""
    assert {NO_CAPACITY, LATE_METRICS} <= {row.departure for row in stressed(proven, {}).stressed}

    assert counted(monkeypatch, proven, {}) == 5
    assert counted(monkeypatch, proven, {"prod/chat": ()}) == 5
    assert counted(monkeypatch, proven, proven[-1]) == 7
