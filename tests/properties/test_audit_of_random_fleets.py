"""What every audit promises, on random small fleets: money agrees everywhere, targets are kept, nothing is lost."""

import re
from functools import cache
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, seed, settings, strategies as st
from tests.fleets import FleetRows
from tests.plan.fleets import KeptOutcomes, make_plan

from trimtab.catalog import load_catalog
from trimtab.deployment.effects import BuyCommitment
from trimtab.emit.audit_document import audit_document
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.ledger import bill
from trimtab.pipeline import SEED, audit, split_window
from trimtab.replay.outcomes.evaluate import Evaluator

SETTINGS = Settings()
CATALOG = load_catalog()
GPUS = {"p3.8xlarge": 4, "g5.xlarge": 1, "p4d.24xlarge": 8}
FLEETS_SEED = 20260907
OUTCOMES = KeptOutcomes()
few = settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])


class Drawn(NamedTuple):
    """One workload of a random fleet, alone on its node."""

    kind: str
    instance_type: str
    region: str
    level: float
    runs: tuple[tuple[int, int, int], ...]
    """Hours of submission, start and end of each run."""
    declared: tuple[tuple[str, Any], ...]


@st.composite
def fleets(draw):
    """Draw days, and workloads: all that a fleet is made of, so that what is known of a fleet can be looked up by it."""
    days = draw(st.sampled_from([3, 28]))
    return days, tuple(draw(workloads(days)) for _ in range(draw(st.integers(1, 3))))


@st.composite
def workloads(draw, days):
    kind = draw(st.sampled_from(["service", "runs", "notebook", "empty"]))
    instance_type = draw(st.sampled_from(sorted(GPUS)))
    region = draw(st.sampled_from(["us-east-1", "eu-central-1"]))
    level = draw(st.floats(0.02, 0.9))
    runs, declared = [], {}
    if kind == "runs":
        declared = {
            "interruptible": draw(st.booleans()),
            "regions": draw(st.sampled_from([None, ("us-east-1",)])),
            "data_gib": draw(st.sampled_from([0.0, 1e5])),
            "traffic_gib_mo": 1.0,
        }
        for day in range(days):
            start = day * 24 + draw(st.integers(0, 5))
            runs.append((start - draw(st.integers(0, 3)) if day else start, start, start + draw(st.integers(1, 12))))
    return Drawn(kind, instance_type, region, level, tuple(runs), tuple(declared.items()))


def bundle_of(fleet):
    """Return the bundle of a drawn fleet."""
    days, drawn = fleet
    rows = FleetRows(days)
    for number, workload in enumerate(drawn):
        add_workload(rows, number, workload)
    return rows.bundle()


def add_workload(rows, number, workload):
    node, gpus, level = f"node-{number}", range(GPUS[workload.instance_type]), workload.level
    hours = range(rows.days * 24)
    rows.node(node, workload.instance_type, region=workload.region)
    match workload.kind:
        case "service":
            rows.hold(f"prod/s{number}", node, gpus, owner_kind="Deployment")
            rows.demand(f"prod/s{number}", lambda hour: 3600 * (1 + hour % 24), len(gpus))
            for gpu in gpus:
                rows.use(f"prod/s{number}", node, gpu, hours, sm=lambda hour: level * (1 + hour % 24) / 24)
        case "runs":
            name = f"research/r{number}"
            rows.workloads[name] = dict(workload.declared)
            for day, (submit, start, end) in enumerate(workload.runs):
                rows.hold(name, node, gpus, start, end, pod=f"{name}-{day}", owner_kind="Job")
                rows.job(name, submit, start, end, len(gpus), name=f"{name}-{day}")
                rows.use(name, node, 0, range(start, end), sm=level)
                for gpu in gpus[1:]:
                    rows.use(name, node, gpu, range(start, end), sm=0.0)
        case "notebook":
            rows.hold(f"notebooks/n{number}", node, [0], owner_kind="Notebook")
            at_work = {hour: level if 9 <= hour % 24 < 17 else 0.0 for hour in hours}
            rows.use(f"notebooks/n{number}", node, 0, hours, sm=at_work.get)


def of_random_fleets(test):
    """Check a property on random fleets: the same for every property, so that each is audited once and not once for each."""
    return few(seed(FLEETS_SEED)(given(fleets())(test)))


@cache
def audited(fleet):
    return audit(bundle_of(fleet), SETTINGS, CATALOG, store=OUTCOMES)


@cache
def planned(fleet):
    """Return the market, the fleet as it was in the days of the fit, and its plan."""
    bundle = bundle_of(fleet)
    market = Market(catalog=CATALOG, at=None, max_term_years=1, assumptions=SETTINGS.assumptions)
    built = build_fleet(bundle, SETTINGS, split_window(bundle_window(bundle), SETTINGS).fit)
    return (
        market,
        built,
        make_plan(built, market, SETTINGS, seed=SEED, progress=lambda stage, share: None, store=OUTCOMES),
    )


@of_random_fleets
def test_savings_sum_to_the_joint_one_and_the_bill_to_its_parts(fleet):
    found = audited(fleet)
    plan = found.plan

    assert sum(action.saving_micro_usd for action in plan.actions) == plan.joint_saving_micro_usd
    assert sum(waste.micro_usd for waste in found.waste) == found.bill_micro_usd
    for spend in (found.spend_by_kind, found.spend_by_team, found.spend_by_workload):
        assert sum(row.micro_usd for row in spend) == found.bill_micro_usd


@of_random_fleets
def test_the_plan_never_costs_more_and_its_bound_is_below_it(fleet):
    plan = audited(fleet).plan

    assert plan.bound_micro_usd <= plan.after_micro_usd <= plan.before_micro_usd


@of_random_fleets
def test_what_a_set_of_actions_uses_is_the_same_in_parts_and_as_a_whole(fleet):
    _, _, made = planned(fleet)
    drafted = made.drafted
    for number in [None, *sorted(drafted.everything)]:
        for some in (drafted.everything - {number}, frozenset() if number is None else frozenset({number})):
            whole = drafted.enacted.usage(drafted.in_force(some), drafted.gone(some))
            parts = drafted.usage(some)

            assert parts.keys() == whole.keys()
            assert all((parts[pool] == whole[pool]).all() for pool in whole)
            assert drafted.moving(some) == drafted.enacted.moving(drafted.in_force(some))


@of_random_fleets
def test_no_purchase_is_credited_with_more_than_it_can_save(fleet):
    plan = audited(fleet).plan

    for action in plan.actions:
        bought = [change.effect for change in action.changes if isinstance(change.effect, BuyCommitment)]
        spared = sum(one.count * (one.on_demand_micro_usd_hr - one.rate_micro_usd_hr) for one in bought)
        if bought:
            assert 0 <= action.saving_micro_usd <= spared * plan.window.hours
            assert action.standalone_usd_mo <= plan.usd_mo(spared * plan.window.hours) + 0.01


@of_random_fleets
def test_history_is_billed_the_same_by_ledger_plan_and_replay(fleet):
    market, built, found = planned(fleet)
    ledger = bill(built.usage, market.rates(built.usage.pools))

    assert found.plan.before_micro_usd == ledger.total


@of_random_fleets
def test_every_target_that_the_plan_touches_is_kept_on_the_fit_window(fleet):
    _, _, found = planned(fleet)

    for name, deployment in found.deployments.items():
        assert Evaluator(case=found.cases[name]).keeps_targets(deployment), name


@of_random_fleets
def test_no_figure_of_the_document_contradicts_another(fleet):
    document = audit_document(audited(fleet))
    plan, proof = document.plan, document.proof

    assert plan.bound_usd_mo <= plan.objective_usd_mo <= plan.before_usd_mo
    assert proof.clairvoyant_usd <= proof.after_usd
    for action in plan.actions:
        assert min(action.saving_usd_mo, action.standalone_usd_mo, action.last_in_usd_mo) >= 0
        assert action.saving_low_usd_mo <= action.saving_usd_mo <= action.saving_high_usd_mo
        assert action.last_in_usd_mo <= plan.before_usd_mo - plan.bound_usd_mo + 0.01
        assert action.spend_usd_mo is None or action.standalone_usd_mo <= action.spend_usd_mo + 0.01
        assert not [row for row in action.evidence if fails_its_bound(row.value, row.threshold)]
    for limit in plan.limits:
        assert limit.cost_usd_mo is None or limit.cost_usd_mo >= 0
    assert proof.targets_kept == sum(one.kept for one in proof.by_promise)
    assert len(proof.targets) == sum(one.targets for one in proof.by_promise)
    if plan.roadmap is not None:
        assert min(plan.roadmap.course.bill_usd_mo) >= plan.bound_usd_mo - 0.01
    for repair in proof.repairs:
        assert all(target.attained_frac < target.required_frac for target in repair.missed)
    if document.robustness is not None:
        for one in document.robustness.stressed:
            assert one.targets_kept == sum(target.kept for target in one.attained)


def fails_its_bound(value, threshold):
    """Tell whether a percentage is not within the bound that stands beside it."""
    bound = re.match(r"(>=|>|<=|<) ([0-9.]+)\s?%", threshold)
    figure = re.match(r"([0-9.]+)\s?%", value)
    if bound is None or figure is None:
        return False
    share, limit = float(figure[1]), float(bound[2])
    return share < limit if bound[1].startswith(">") else share > limit


@of_random_fleets
def test_the_document_says_the_same_to_the_cent(fleet):
    plan = audit_document(audited(fleet)).plan

    assert sum(round(action.saving_usd_mo * 100) for action in plan.actions) == round(plan.joint_saving_usd_mo * 100)
