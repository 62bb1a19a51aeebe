"""No tightened limit makes bill and work together cheaper, and what a limit is said to cost is what two plans differ by."""

from dataclasses import replace
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import HealthCheck, given, seed, settings
from tests.fleets import FleetRows
from tests.plan.fleets import KeptOutcomes, make_plan
from tests.properties.test_audit_of_random_fleets import CATALOG, FLEETS_SEED, bundle_of, fleets

from trimtab.emit.document.plan import LimitPart
from trimtab.emit.words import limit_line
from trimtab.errors import PlanError
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.reach import quotas_of, without_quota
from trimtab.fleet.settings import Settings
from trimtab.pipeline import split_window
from trimtab.plan.effort import effort_micro_usd
from trimtab.units import per_month, usd

SETTINGS = Settings()
FEW = settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow])
OUTCOMES = KeptOutcomes()
"""Limits change no replay, so plans under other limits replay nothing anew."""


def fleet_of(bundle):
    return build_fleet(bundle, SETTINGS, split_window(bundle_window(bundle), SETTINGS).fit)


def plan_under(fleet, **limits):
    chosen = replace(SETTINGS, limits=replace(SETTINGS.limits, **limits))
    market = Market.of(CATALOG, None, chosen)
    return make_plan(fleet, market, chosen, seed=1, progress=lambda stage, share: None, store=OUTCOMES)


def bill_and_work_usd_mo(planned):
    drafted, hours = planned.drafted, planned.fleet.window.hours
    work = effort_micro_usd(drafted.actions, SETTINGS, hours)
    return per_month(usd(drafted.cost(drafted.everything) + work), hours)


def slack_usd_mo(*plans):
    """What solvers may leave: the gap that was asked for, of each plan."""
    return 0.01 + sum(SETTINGS.planning.mip_gap_frac * bill_and_work_usd_mo(one) for one in plans)


def most_used(planned):
    """The pool of which the plan uses most nodes at once, as a quota states it, and how many; None where it uses none."""
    drafted = planned.drafted
    peaks = {}
    for index, deployment in drafted.in_force(drafted.everything).items():
        place = drafted.enacted.evaluators[index].place(deployment)
        for pool, seconds in drafted.enacted.outcome(index, deployment).usage(place).items():
            peaks[pool] = peaks.get(pool, 0) + ceil(int(seconds.max()) / 3600)
    if not peaks:
        return None
    pool = max(sorted(peaks), key=lambda one: peaks[one])
    return f"{pool.instance_type}@{pool.region}:{pool.capacity}", peaks[pool]


@FEW
@seed(FLEETS_SEED)
@given(fleets())
def test_a_tightened_quota_never_lowers_bill_and_work_and_costs_what_two_plans_differ_by(drawn):
    fleet = fleet_of(bundle_of(drawn))
    free = plan_under(fleet)
    used = most_used(free)
    if used is None:
        return
    last = free
    for nodes in sorted({used[1] - 1, 0}, reverse=True):
        try:
            tight = plan_under(fleet, quotas=f"{used[0]}={nodes}")
        except PlanError:
            return
        assert bill_and_work_usd_mo(tight) >= bill_and_work_usd_mo(last) - slack_usd_mo(last, tight)
        told = sum(limit.cost_usd_mo for limit in tight.plan.limits)
        differ = bill_and_work_usd_mo(tight) - bill_and_work_usd_mo(free)
        assert min((limit.cost_usd_mo for limit in tight.plan.limits), default=0.0) >= 0
        assert told == pytest.approx(differ, abs=slack_usd_mo(free, tight))
        last = tight


@FEW
@seed(FLEETS_SEED)
@given(fleets())
def test_less_spot_never_lowers_bill_and_work(drawn):
    fleet = fleet_of(bundle_of(drawn))

    costs = [bill_and_work_usd_mo(plan_under(fleet, spot_max_frac=frac)) for frac in (1.0, 0.3, 0.0)]

    for looser, tighter in pairwise(costs):
        assert tighter >= looser - 2 * SETTINGS.planning.mip_gap_frac * tighter - 0.01


def wide_runs():
    """A run a day of eight hours on four GPUs of which one works: on a node of one GPU it would cost a quarter."""
    rows = FleetRows(3).node("n", "p3.8xlarge", region="eu-central-1")
    for day in range(3):
        start = 24 * day + 2
        rows.hold("lab/runs", "n", range(4), start, start + 8, pod=f"runs-{day}", owner_kind="Job")
        rows.job("lab/runs", start, start, start + 8, 4, name=f"runs-{day}")
        for gpu in range(4):
            rows.use("lab/runs", "n", gpu, range(start, start + 8), sm=0.6 if gpu == 0 else 0.0)
    return rows.bundle()


def test_a_quota_costs_the_options_that_missed_their_targets_under_it_too():
    fleet = fleet_of(wide_runs())
    free, tight = plan_under(fleet), plan_under(fleet, quotas="p3.2xlarge=0")

    (limit,) = tight.plan.limits
    differ = bill_and_work_usd_mo(tight) - bill_and_work_usd_mo(free)
    assert differ > 100
    assert limit.cost_usd_mo == pytest.approx(differ, abs=0.01)
    assert limit.bill_usd_mo > limit.cost_usd_mo
    said = limit_line(
        LimitPart(
            limit=limit.use.words,
            most=limit.use.limit,
            used=limit.use.used,
            binds=limit.use.binds,
            cost_usd_mo=limit.cost_usd_mo,
            bill_usd_mo=limit.bill_usd_mo,
        )
    )
    assert "without it, bill and work would cost" in said
    assert "(the bill" in said
    assert "more)" in said


def test_a_quota_of_all_regions_is_lifted_in_one():
    (pool,) = fleet_of(wide_runs()).usage.pools

    left = without_quota("p3.8xlarge=3,g5.xlarge@us-east-1=2", pool, ["eu-central-1", "us-east-1"])

    assert {(one.instance_type, one.region, one.nodes) for one in quotas_of(left)} == {
        ("p3.8xlarge", "us-east-1", 3),
        ("g5.xlarge", "us-east-1", 2),
    }
