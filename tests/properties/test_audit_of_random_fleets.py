"""What every audit promises, on random small fleets: money agrees everywhere, targets are kept, nothing is lost."""

import re

from hypothesis import HealthCheck, given, settings, strategies as st
from tests.fleets import FleetRows
from tests.plan.fleets import make_plan

from trimtab.catalog import load_catalog
from trimtab.deployment.effects import BuyCommitment
from trimtab.emit.audit_document import audit_document
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.ledger import bill
from trimtab.pipeline import audit, split_window
from trimtab.replay.outcomes.evaluate import Evaluator

SETTINGS = Settings()
CATALOG = load_catalog()
FEW = settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def fleets(draw):
    days = draw(st.sampled_from([3, 28]))
    rows = FleetRows(days)
    hours = range(days * 24)
    for number in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["service", "runs", "notebook", "empty"]))
        node = f"node-{number}"
        instance_type = draw(st.sampled_from(["p3.8xlarge", "g5.xlarge", "p4d.24xlarge"]))
        rows.node(node, instance_type, region=draw(st.sampled_from(["us-east-1", "eu-central-1"])))
        level = draw(st.floats(0.02, 0.9))
        gpus = range({"p3.8xlarge": 4, "g5.xlarge": 1, "p4d.24xlarge": 8}[instance_type])
        if kind == "service":
            rows.hold(f"prod/s{number}", node, gpus, owner_kind="Deployment")
            rows.demand(f"prod/s{number}", lambda hour: 3600 * (1 + hour % 24), len(gpus))
            for gpu in gpus:
                rows.use(f"prod/s{number}", node, gpu, hours, sm=lambda hour, level=level: level * (1 + hour % 24) / 24)
        elif kind == "runs":
            name = f"research/r{number}"
            rows.workloads[name] = {
                "interruptible": draw(st.booleans()),
                "regions": draw(st.sampled_from([None, ["us-east-1"]])),
                "data_gib": draw(st.sampled_from([0.0, 1e5])),
                "traffic_gib_mo": 1.0,
            }
            for day in range(days):
                start = day * 24 + draw(st.integers(0, 5))
                end = start + draw(st.integers(1, 12))
                rows.hold(name, node, gpus, start, end, pod=f"{name}-{day}", owner_kind="Job")
                rows.job(
                    name, start - draw(st.integers(0, 3)) if day else start, start, end, len(gpus), name=f"{name}-{day}"
                )
                rows.use(name, node, 0, range(start, end), sm=level)
                for gpu in gpus[1:]:
                    rows.use(name, node, gpu, range(start, end), sm=0.0)
        elif kind == "notebook":
            rows.hold(f"notebooks/n{number}", node, [0], owner_kind="Notebook")
            rows.use(
                f"notebooks/n{number}",
                node,
                0,
                hours,
                sm=lambda hour, level=level: level if 9 <= hour % 24 < 17 else 0.0,
            )
    return rows.bundle()


@FEW
@given(fleets())
def test_savings_sum_to_the_joint_one_and_the_bill_to_its_parts(bundle):
    found = audit(bundle, SETTINGS, CATALOG)
    plan = found.plan

    assert sum(action.saving_micro_usd for action in plan.actions) == plan.joint_saving_micro_usd
    assert sum(waste.micro_usd for waste in found.waste) == found.bill_micro_usd
    for spend in (found.spend_by_kind, found.spend_by_team, found.spend_by_workload):
        assert sum(row.micro_usd for row in spend) == found.bill_micro_usd


@FEW
@given(fleets())
def test_the_plan_never_costs_more_and_its_bound_is_below_it(bundle):
    plan = audit(bundle, SETTINGS, CATALOG).plan

    assert plan.bound_micro_usd <= plan.after_micro_usd <= plan.before_micro_usd


@FEW
@given(fleets())
def test_no_purchase_is_credited_with_more_than_it_can_save(bundle):
    plan = audit(bundle, SETTINGS, CATALOG).plan

    for action in plan.actions:
        bought = [change.effect for change in action.changes if isinstance(change.effect, BuyCommitment)]
        spared = sum(one.count * (one.on_demand_micro_usd_hr - one.rate_micro_usd_hr) for one in bought)
        if bought:
            assert 0 <= action.saving_micro_usd <= spared * plan.window.hours
            assert action.standalone_usd_mo <= plan.usd_mo(spared * plan.window.hours) + 0.01


@FEW
@given(fleets())
def test_history_is_billed_the_same_by_ledger_plan_and_replay(bundle):
    split = split_window(bundle_window(bundle), SETTINGS)
    market = Market(catalog=CATALOG, at=None, max_term_years=1, assumptions=SETTINGS.assumptions)
    fleet = build_fleet(bundle, SETTINGS, split.fit)
    ledger = bill(fleet.usage, market.rates(fleet.usage.pools))
    planned = make_plan(fleet, market, SETTINGS, seed=1, progress=lambda stage, share: None)

    assert planned.plan.before_micro_usd == ledger.total


@FEW
@given(fleets())
def test_every_target_that_the_plan_touches_is_kept_on_the_fit_window(bundle):
    split = split_window(bundle_window(bundle), SETTINGS)
    market = Market(catalog=CATALOG, at=None, max_term_years=1, assumptions=SETTINGS.assumptions)
    fleet = build_fleet(bundle, SETTINGS, split.fit)
    planned = make_plan(fleet, market, SETTINGS, seed=1, progress=lambda stage, share: None)

    for name, deployment in planned.deployments.items():
        assert Evaluator(case=planned.cases[name]).keeps_targets(deployment), name


@FEW
@given(fleets())
def test_no_figure_of_the_document_contradicts_another(bundle):
    document = audit_document(audit(bundle, SETTINGS, CATALOG))
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


@FEW
@given(fleets())
def test_the_document_says_the_same_to_the_cent(bundle):
    plan = audit_document(audit(bundle, SETTINGS, CATALOG)).plan

    assert sum(round(action.saving_usd_mo * 100) for action in plan.actions) == round(plan.joint_saving_usd_mo * 100)
