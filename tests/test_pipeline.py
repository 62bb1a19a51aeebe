"""An audit refuses what it cannot answer, degrades where it must, and keeps what it cannot judge."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.fleets import FleetRows, few_machines
from tests.web.fleet import rows as whole_fleet

from trimtab.deployment.effects import ReleaseIdle, ReleaseNodes
from trimtab.emit.manifests import cluster_facts
from trimtab.errors import InputError, MissingPrice
from trimtab.fleet.build import bundle_window
from trimtab.fleet.settings import Planning, Settings
from trimtab.levers import commitments
from trimtab.pipeline import afterwards, audit, auditing, open_demo, split_window
from trimtab.tables.arrow import table_from_rows


def rows(days):
    found = FleetRows(days).node("n", "g5.xlarge").hold("a/x", "n", [0], owner_kind="Deployment")
    return found.use("a/x", "n", 0, range(days * 24), sm=0.3)


def split(days):
    return split_window(bundle_window(rows(days).bundle()), Settings())


def test_the_proof_is_the_last_third_and_the_fit_is_whole_weeks():
    parts = split(42)

    assert (parts.fit.days, parts.proof.days) == (28, 14)
    assert parts.fit.end == parts.proof.start


def test_little_history_is_marked_degraded():
    assert "14 are the least" in split(6).degraded[0]
    assert split(14).degraded == ()


def test_a_day_to_plan_on_is_always_left():
    split = split_window(bundle_window(rows(10).bundle()), Settings(planning=Planning(proof_frac=0.99)))

    assert split.fit.days == 1


def test_less_than_two_days_are_refused():
    with pytest.raises(InputError, match="at least 2 whole days"):
        split(1)


def test_a_node_without_a_price_is_named_with_the_cure():
    fleet = rows(14)
    fleet.rows["nodes"][0]["instance_type"] = "g5.xlarg"

    with pytest.raises(MissingPrice, match=r"(?s)--prices FILE.*g5\.xlarg.*did you mean g5\.xlarge"):
        audit(fleet.bundle())


def test_a_workload_without_readings_stays_with_its_cost_and_the_reason():
    fleet = FleetRows(14).node("n", "g5.xlarge").hold("a/x", "n", [0], owner_kind="Deployment")

    found = audit(fleet.bundle())

    assert [(one.workload, one.reason) for one in found.unjudged] == [("a/x", "no activity was measured")]
    assert found.unjudged[0].micro_usd == found.bill_micro_usd


def released_by(found):
    effects = [change.effect for action in found.plan.actions for change in action.changes]
    return {name for effect in effects if isinstance(effect, ReleaseNodes) for name in effect.nodes}


def test_nodes_are_not_given_back_where_nobodys_pods_were_read():
    found = audit(FleetRows(14).node("a", "g5.xlarge").node("b", "g5.xlarge").bundle())

    assert not released_by(found)
    assert any("neither pods nor GPU activity were read" in reason for reason in found.coverage.counts)


@pytest.mark.parametrize(("seen", "released"), [((), set()), (("empty",), {"empty"})])
def test_a_node_without_any_pod_in_a_snapshot_that_has_others_is_half_a_snapshot(seen, released):
    fleet = rows(14).node("empty", "g5.xlarge")
    for node in ("n", *seen):
        fleet.rows["pods"].append(
            {"pod": f"proxy-{node}", "namespace": "kube-system", "workload": "kube-system/proxy", "node": node,
             "owner_kind": "DaemonSet", "phase": "Running", "gpus": 0.0, "created": fleet.rows["nodes"][0]["start"]}
        )  # fmt: skip

    assert released_by(audit(fleet.bundle())) == released


def recorded_runs(days, *, waits_hr):
    """Runs of four hours, every eight, on two nodes of which nothing was read; each waited first."""
    fleet = FleetRows(days)
    for node in ("m", "n"):
        fleet.node(node, "p3.8xlarge")
        for number, start in enumerate(range(2, days * 24 - 6, 8)):
            pod = f"{node}-{number}"
            fleet.hold("ml/train", node, range(4), start=start, end=start + 4, pod=pod, owner_kind="Job")
            fleet.job("ml/train", start - waits_hr, start, start + 4, 4, name=pod)
    return fleet


def test_nodes_that_idle_between_runs_are_advised_on_without_any_reading():
    found = audit(recorded_runs(14, waits_hr=1).bundle(), catalog=few_machines())

    assert not found.unjudged
    effects = [change.effect for action in found.plan.actions for change in action.changes]
    assert [type(effect) for effect in effects] == [ReleaseIdle]
    # four hours of every eight, and the start of a node for each run
    assert 0.4 < 1 - found.plan.after_micro_usd / found.plan.before_micro_usd < 0.5


def test_a_service_without_readings_is_still_left_as_it_is():
    fleet = recorded_runs(14, waits_hr=1).node("s", "g5.xlarge").hold("prod/chat", "s", [0], owner_kind="Deployment")

    found = audit(fleet.bundle(), catalog=few_machines())

    assert [row.workload for row in found.unjudged] == ["prod/chat"]


def test_the_same_history_gives_the_same_plan():
    first, second = audit(rows(14).bundle()), audit(rows(14).bundle())

    assert first.plan.actions == second.plan.actions
    assert first.proof.after_micro_usd == second.proof.after_micro_usd


def test_a_workload_that_appears_in_the_proof_window_stays_as_it_is():
    fleet = rows(21).node("late", "g5.xlarge", start=17 * 24).hold("a/new", "late", [0], 17 * 24)

    found = audit(fleet.bundle())

    assert "a/new" in found.proof.notes[0]
    assert found.proof.after_micro_usd > 0


@pytest.mark.parametrize("capacity_type", ["reserved", "spot", "on-demand"])
def test_only_on_demand_nodes_are_committed_and_reserved_ones_save_nothing(capacity_type):
    steady = FleetRows(14).node("n0", "p4d.24xlarge", capacity_type=capacity_type)
    steady.node("unheld", "p4d.24xlarge", capacity_type=capacity_type)
    steady.hold("team/train", "n0", range(8), end=14 * 8)
    for device in range(8):
        steady.use("team/train", "n0", device, range(14 * 8), sm=0.9 if device == 0 else 0.0)

    found = audit(steady.bundle())

    committed = [action for action in found.plan.actions if action.lever == commitments.NAME]
    assert bool(committed) <= (capacity_type == "on-demand")
    assert (found.plan.after_micro_usd < found.plan.before_micro_usd) == (capacity_type != "reserved")
    if capacity_type == "reserved":
        assert not found.plan.actions
        assert any("paid for whether used or not" in one.reason for one in found.plan.not_worth_doing)


def test_a_node_at_work_that_nobody_is_known_to_hold_is_never_given_back():
    fleet = rows(14).node("beside", "g5.xlarge").node("empty", "g5.xlarge").use(None, "beside", 0, range(48), sm=0.8)

    found = audit(fleet.bundle())

    released = [effect for one in found.plan.actions for change in one.changes if (effect := change.effect)]
    assert [effect.nodes for effect in released if isinstance(effect, ReleaseNodes)] == [("empty",)]


def test_runs_go_to_spot_where_the_fleets_own_record_says_that_it_is_there():
    stated = open_demo("finetune-7b")
    place = {"provider": "aws", "instance_type": "p4d.24xlarge", "region": "us-east-1", "zone": None}
    hours = int((stated.end - stated.start).total_seconds() // 3600)
    events = [
        {
            **place,
            "at": stated.start + timedelta(hours=hour),
            "event": "launched",
            "notice_s": None,
            "spot_usd_hr": None,
        }
        for hour in range(hours)
    ]
    recorded = replace(stated, tables={**stated.tables, "spot_events": table_from_rows("spot_events", events)})

    by_odds, by_record = audit(stated), audit(recorded)

    assert "spot" not in {action.lever for action in by_odds.plan.actions}
    on_spot = next(action for action in by_record.plan.actions if action.lever == "spot")
    assert any(line.what.endswith("a spot node is lost") for line in on_spot.evidence)
    assert "spot nodes lost more or less often" in on_spot.saving_usd_mo.because
    assert len(by_record.plan.losses_micro_usd) == 1
    assert any("the record counts 99%" in note for note in by_record.coverage.notes)


def test_an_audit_with_its_kept_plan_builds_each_window_once_and_learns_each_law_once(monkeypatch):
    bundle, built, learnt = whole_fleet().bundle(), [], []

    def counted(found, function):
        return lambda *args, **kwargs: found.append(function) or function(*args, **kwargs)

    monkeypatch.setattr(auditing, "build_fleet", counted(built, auditing.build_fleet))
    monkeypatch.setattr(afterwards, "build_fleet", counted(built, afterwards.build_fleet))
    monkeypatch.setattr(cluster_facts, "law_of", counted(learnt, cluster_facts.law_of))
    found, made = auditing.audited(auditing.PlanningInput(bundle=bundle, catalog=few_machines()))
    kept = auditing.kept_plan(found, bundle, made)

    assert len(built) == 2
    assert not learnt
    assert kept.facts == auditing.emit_facts(
        found.plan,
        bundle,
        made.opened.fit,
        made.opened.market,
        made.opened.settings,
        later=made.opened.proof,
    )
