"""The price of what was not declared: as much as a plan in which it is declared saves, with YAML that says just that."""

from collections import Counter
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
import yaml
from hypothesis import given, settings, strategies as st
from tests.fleets import FleetRows, few_machines, with_starts
from tests.plan.fleets import make_plan

from trimtab.deployment.deployment import AS_IT_IS
from trimtab.emit.audit_document import undeclared_part
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Assumptions, Settings
from trimtab.levers.lever import LeverRequest
from trimtab.plan.proof import undeclared as module
from trimtab.plan.proof.permissions import PlannedWorkloadState, permissions, sharers
from trimtab.plan.proof.undeclared import undeclared, with_questions_first
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.replay.outcomes.service_model import cold_start_of
from trimtab.tables.workloads import parse_workloads
from trimtab.units import per_month, usd

SETTINGS = Settings(assumptions=Assumptions(spot_unavailable_frac=0.0))
"""With spot always there, so that it pays."""
LE_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, float("inf"))
DAYS = 9
HOURS = DAYS * 24


def silent(_stage, _share):
    """Tell nobody."""


def market():
    return Market(catalog=few_machines(), at=date(2026, 9, 30), max_term_years=1, assumptions=SETTINGS.assumptions)


def runs(declared):
    """Runs of hours on four nodes, declared as given."""
    rows = FleetRows(DAYS)
    for number in range(4):
        node = f"n{number}"
        rows.node(node, "g5.12xlarge").hold("research/exp", node, [0, 1, 2, 3], owner_kind="Job")
        for device in range(4):
            rows.use("research/exp", node, device, range(HOURS), sm=0.8)
        for start in range(0, HOURS - 4, 4):
            rows.job("research/exp", float(start), float(start), start + 3.5, 4, name=f"{node}-{start}")
    rows.workloads = {"research/exp": {"kind": "experiment", "checkpoint": {"interval_s": 600}, **declared}}
    return build_fleet(rows.bundle(), SETTINGS)


def service(declared):
    """A service on large GPUs that answers in 0.05 s and is at work a little of the time, declared as given."""
    rows = FleetRows(DAYS)
    rows.node("n", "p4d.24xlarge")
    for device in range(8):
        rows.hold("prod/api", "n", [device], pod=f"api-{device}", owner_kind="Deployment")
        rows.use("prod/api", "n", device, range(HOURS), sm=0.1, util=0.1, memory_gib=8.0, tensor=0.01, dram=0.09)
    rows.demand(
        "prod/api",
        lambda hour: 60_000,
        8,
        le_s=LE_S,
        counts=lambda _: (0, 48_000, 10_800, 1200, 0, 0, 0),
        running=lambda _: 0.8,
    )
    rows.workloads = {"prod/api": {"kind": "serving", "interruptible": False, **declared}}
    return build_fleet(rows.bundle(), SETTINGS)


def quiet_services(declared):
    """Three services on a GPU each, two small ones and one of 30 GiB, declared as given beside a latency limit."""
    rows = FleetRows(DAYS)
    workloads = {}
    for name, machine, sm, memory_gib in [
        ("small", "g5.12xlarge", 0.05, 4.0),
        ("other", "g5.12xlarge", 0.05, 4.0),
        ("large", "p4d.24xlarge", 0.4, 30.0),
    ]:
        workload = f"prod/{name}"
        rows.node(name, machine).hold(workload, name, [0], pod=f"{name}-0", owner_kind="Deployment")
        rows.use(workload, name, 0, range(HOURS), sm=sm, memory_gib=memory_gib, tensor=sm / 2, dram=sm / 2)
        rows.demand(
            workload, lambda hour: 100, 1, le_s=LE_S, counts=lambda _: (0, 80, 18, 2, 0, 0, 0), running=lambda _: 0.06
        )
        limit = {"targets": [{"metric": "latency", "quantile": 0.95, "limit_s": 0.5}]}
        workloads[workload] = {"kind": "serving", "interruptible": False, **limit, **declared.get(workload, {})}
    rows.workloads = workloads
    return build_fleet(rows.bundle(), SETTINGS)


def priced(fleet):
    planned = make_plan(fleet, market(), SETTINGS, seed=7, progress=silent)
    return planned, undeclared(planned, market(), SETTINGS, silent)


@pytest.fixture(scope="module")
def undeclared_service():
    """The plan of a service of which nothing is declared, and what is asked for."""
    return priced(service({}))


def declared_by(found, name):
    """What the YAML to paste declares of a workload, read as a workloads.yaml."""
    body = "\n".join(f"  {line}" for line in undeclared_part(found).declaration.splitlines())
    spec = parse_workloads(f"workloads:\n{body}\n").spec(name)
    return spec.model_dump(mode="json", exclude_unset=True)


def test_runs_save_what_a_plan_saves_in_which_they_are_declared_interruptible():
    planned, (found,) = priced(runs({}))

    pasted = declared_by(found, "research/exp")
    other, rest = priced(runs(pasted))

    assert pasted == {"interruptible": True}  # how they save was declared already
    between = planned.plan.after_micro_usd - other.plan.after_micro_usd
    assert found.saves_usd_mo == pytest.approx(per_month(usd(between), planned.fleet.window.hours), abs=0.01)
    assert rest == ()


def test_runs_of_which_nobody_said_how_they_save_are_told_what_is_assumed():
    fleet = runs({"checkpoint": None})

    _, (found,) = priced(fleet)

    assumed = SETTINGS.assumptions
    assert declared_by(found, "research/exp") == {
        "interruptible": True,
        "checkpoint": {
            "interval_s": assumed.checkpoint_interval_s,
            "save_s": assumed.checkpoint_save_s,
            "restore_s": assumed.checkpoint_restore_s,
        },
    }


@pytest.mark.parametrize("said", [True, False])
def test_nothing_is_asked_of_what_was_declared(said):
    _, found = priced(runs({"interruptible": said}))

    assert found == ()


def test_no_spot_no_question():
    settings = replace(SETTINGS, limits=replace(SETTINGS.limits, use_spot=False))
    fleet = runs({})

    planned = make_plan(fleet, market(), settings, seed=7, progress=silent)

    assert undeclared(planned, market(), settings, silent) == ()


def test_a_latency_limit_saves_no_more_than_the_plan_in_which_it_is_declared(undeclared_service):
    planned, lines = undeclared_service
    (found,) = (one for one in lines if one.permission == "latency")

    pasted = declared_by(found, "prod/api")
    assert pasted["targets"][0]["quantile"] == 0.95
    other, rest = priced(service(pasted))

    between = planned.plan.after_micro_usd - other.plan.after_micro_usd
    assert 0 < found.saves_usd_mo <= per_month(usd(between), planned.fleet.window.hours) + 0.01
    assert not any(one.permission == "latency" for one in rest)


@pytest.mark.parametrize("fleet", [service, quiet_services, runs])
def test_searches_that_wait_find_what_all_of_them_find(fleet, monkeypatch):
    planned, found = priced(fleet({}))
    waited = Counter[bool]()

    def at_once(admitted, search):
        waited[bool(search.lower_bounds)] += 1
        admitted._made(search)

    monkeypatch.setattr(module._Admitted, "consider", at_once)

    assert undeclared(planned, market(), SETTINGS, silent) == found
    assert waited[fleet is not runs]


def test_what_a_purchase_binds_is_paid_whatever_is_permitted_afterwards(undeclared_service):
    planned, lines = undeclared_service
    (purchase,) = planned.drafted.discounts
    (limit,) = [one for one in lines if one.permission == "latency"]
    assert [(one.pool, one.planned, one.then) for one in limit.fewer] == [(purchase.offer.pool, 1, 0)]
    bound_usd_mo = per_month(usd(purchase.offer.rate_micro_usd_hr) * HOURS, HOURS)
    # the plan pays for the node alone; with the limit its committed rate comes on top of what the others cost
    assert limit.saves_once_bought_usd_mo == pytest.approx(limit.saves_usd_mo - bound_usd_mo, abs=0.01)


def test_a_purchase_says_what_to_ask_first(undeclared_service):
    planned, lines = undeclared_service
    actions = with_questions_first(planned.plan, lines).actions
    (asked,) = [action.ask_first for action in actions if action.lever == "commitment"]
    (limit,) = [one for one in lines if one.permission == "latency"]
    assert asked == (f"prod/api: {limit.permits} would leave 1 of 1 p4d.24xlarge unused",)
    assert not any(action.ask_first for action in actions if action.lever != "commitment")


def test_a_permission_that_needs_all_that_is_bought_asks_nothing_first():
    planned, lines = priced(quiet_services({}))
    assert lines
    assert all(one.saves_once_bought_usd_mo is None and not one.fewer for one in lines)
    assert not any(action.ask_first for action in with_questions_first(planned.plan, lines).actions)


def test_lines_come_by_what_they_save(undeclared_service):
    _, lines = undeclared_service

    saved = [one.saves_usd_mo for one in lines]
    assert saved == sorted(saved, reverse=True)
    assert np.all(np.array(saved) > SETTINGS.planning.min_saving_usd_mo)


def test_the_declarations_are_plain_yaml(undeclared_service):
    _, lines = undeclared_service

    for one in lines:
        assert yaml.safe_load(undeclared_part(one).declaration) == {
            name: dict(fields) for name, fields in one.declarations.items()
        }


@pytest.mark.parametrize(
    ("said", "limits"),
    [({}, [0.8, 0.5, None]), ({"targets": [{"metric": "latency", "quantile": 0.95, "limit_s": 0.2}]}, [None])],
)
def test_sharing_is_asked_for_with_the_latency_that_it_needs_unless_one_is_declared(said, limits):
    case = cases_of(service(said), SETTINGS, 7)["prod/api"]
    now = PlannedWorkloadState(evaluator=Evaluator(case=case), market=market(), deployment=AS_IT_IS, formats_save=False)

    asked = [one.fields for (one,) in sharers([now])]

    assert [fields["isolation"] for fields in asked] == ["none"] * len(limits)
    assert [fields["targets"][-1]["limit_s"] if "targets" in fields else None for fields in asked] == limits


def test_services_that_would_share_are_asked_for_it_together():
    planned, (found,) = priced(quiet_services({}))

    assert found.permission == "isolation"
    assert list(found.declarations) == ["prod/large", "prod/other", "prod/small"]

    other, rest = priced(quiet_services(found.declarations))
    assert [name for name, way in other.deployments.items() if way.sharing] == list(found.declarations)
    between = planned.plan.after_micro_usd - other.plan.after_micro_usd
    assert found.saves_usd_mo == pytest.approx(per_month(usd(between), planned.fleet.window.hours), abs=0.01)
    assert rest == ()


def scaled_service(pods, declared=None):
    """A service whose load comes at once after quiet hours, on nodes for which it waits, with pods that tell their starts.

    Of each pod how long its start took, and of that the pulls of its images and the load (30 s where nothing is said).
    """
    rows = FleetRows(DAYS)
    for number in range(8):
        rows.node(f"n{number}", "g5.xlarge")
        rows.hold("prod/api", f"n{number}", [0], pod=f"api-{number}", owner_kind="Deployment")
        rows.use("prod/api", f"n{number}", 0, range(HOURS), sm=0.2, memory_gib=8.0, tensor=0.1, dram=0.1)
    rows.demand(
        "prod/api",
        lambda hour: 4000 if 8 <= hour % 24 < 18 else 200,
        8,
        le_s=LE_S,
        counts=lambda _: (0, 800, 180, 20, 0, 0, 0),
        running=lambda _: 4,
    )
    rows.workloads = {
        "prod/api": {
            "kind": "serving",
            "interruptible": False,
            "targets": [{"metric": "latency", "quantile": 0.95, "limit_s": 0.5}],
            **(declared or {}),
        }
    }
    return build_fleet(with_starts(rows.bundle(), *pods), SETTINGS)


def asked_of(fleet):
    """The permissions that are asked about, by name."""
    case = cases_of(fleet, SETTINGS, 7)["prod/api"]
    now = PlannedWorkloadState(evaluator=Evaluator(case=case), market=market(), deployment=AS_IT_IS, formats_save=False)
    return {ladder[0].name: ladder[0] for ladder in permissions(now) if ladder}


def test_plans_take_starts_as_they_were_measured():
    (api,) = scaled_service([(400.0, 300.0)] * 3).workloads
    (few,) = scaled_service([(400.0, 300.0)] * 2).workloads

    assert (api.start_s, api.pull_s) == (400.0, 300.0)
    assert (few.start_s, few.pull_s) == (None, None)


def test_images_alone_are_asked_of_nobody_because_they_are_an_option_of_the_plan():
    assert "cold_start_s" not in asked_of(scaled_service([(400.0, 300.0)] * 4))


def test_loads_as_short_as_the_shortest_are_asked_about_beside_pulls_the_most_first():
    fleet = scaled_service([(400.0, 100.0, 250.0)] * 3 + [(210.0, 100.0, 60.0)])
    case = cases_of(fleet, SETTINGS, 7)["prod/api"]
    now = PlannedWorkloadState(evaluator=Evaluator(case=case), market=market(), deployment=AS_IT_IS, formats_save=False)

    (ladder,) = [ladder for ladder in permissions(now) if ladder and ladder[0].name == "cold_start_s"]

    # starts of 400 s: pulls of 100 s, loads of 250 s of which the shortest took 60 s
    assert [one.fields["cold_start_s"] for one in ladder] == [110.0, 210.0]
    assert "images" in ladder[0].permits
    assert "the compile cache kept" in ladder[1].permits
    assert "images" not in ladder[1].permits


@pytest.mark.parametrize("shortest", [250.0, 130.0])
def test_loads_that_scatter_ask_for_nothing(shortest):
    starts = [(400.0, 10.0, 250.0)] * 4 + [(400.0, 10.0, shortest)]

    assert "cold_start_s" not in asked_of(scaled_service(starts))


@given(st.lists(st.tuples(st.floats(1.0, 400.0), st.floats(0.0, 300.0), st.floats(0.0, 300.0)), min_size=3, max_size=8))
@settings(max_examples=8, deadline=None)
def test_a_start_is_never_asked_to_be_shorter_than_its_parts_let_it(parts):
    pods = [(setup + pull + load, pull, load) for setup, pull, load in parts]
    fleet = scaled_service(pods)
    case = cases_of(fleet, SETTINGS, 7)["prod/api"]
    now = PlannedWorkloadState(evaluator=Evaluator(case=case), market=market(), deployment=AS_IT_IS, formats_save=False)

    for ladder in permissions(now):
        for asked in (one for one in ladder if one.name == "cold_start_s"):
            assert 0.0 <= asked.fields["cold_start_s"] <= case.workload.start_s * 0.9 + 0.1


def test_shorter_loads_admit_only_what_the_measured_start_does_not():
    found = asked_of(scaled_service([(3000.0, 0.0, 2990.0)] * 3 + [(100.0, 0.0, 90.0)]))["cold_start_s"]
    before, after = (Evaluator(case=case) for case in (found.asked_of, found.case))
    ask = LeverRequest(evaluator=after, market=market(), among_largest=False)

    ways = [way for search in found.ways(ask) for way in search.find(lambda _: True)]

    needed = [way for way in ways if found.needs(way)]
    assert all(not before.keeps_targets(way) for way in needed)
    assert cold_start_of(found.case) == cold_start_of(found.asked_of) - 2900.0
    assert any(after.keeps_targets(way) for way in needed)
