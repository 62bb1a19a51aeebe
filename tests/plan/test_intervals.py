"""Intervals of savings: never narrower than savings were seen to drift, and in scale with what they are about."""

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.fleet.model import Window
from trimtab.levers import commitments, right_size, spot
from trimtab.levers.registry import BUILT_IN, lever_named
from trimtab.plan.actions.intervals import OTHER_DRIFT_FRAC, joint_saving, saving_estimate
from trimtab.plan.model import Plan, RunsSpend
from trimtab.provenance import Basis, Estimate

HOURS = 4 * 168
LEVERS = [lever.name for lever in BUILT_IN]


def speed(low, value, high):
    return Estimate(value=value, low=low, high=high, basis=Basis.MODELLED)


@pytest.mark.parametrize("lever", LEVERS)
def test_a_saving_that_never_varied_is_still_as_unsure_as_such_savings_were(lever):
    found = saving_estimate(1000.0, np.full(HOURS, 1.0), None, lever)

    known = lever_named(lever).drift_frac
    drift = OTHER_DRIFT_FRAC if known is None else known
    assert (found.low, found.high) == pytest.approx((1000 * (1 - drift), 1000 * (1 + drift)))


def test_weeks_that_differ_widen_the_interval_beyond_the_drift():
    weeks = np.repeat([0.2, 1.8, 0.1, 1.9], 168)

    found = saving_estimate(1000.0, weeks, None, commitments.NAME)

    assert found.low < 1000 * (1 - commitments.LEVER.drift_frac)


def test_doubt_about_the_speed_widens_the_interval():
    sure = saving_estimate(1000.0, np.full(HOURS, 1.0), None, right_size.NAME)
    unsure = saving_estimate(1000.0, np.full(HOURS, 1.0), speed(0.5, 1.0, 2.0), right_size.NAME)

    assert unsure.low < sure.low
    assert unsure.high > sure.high


def test_assumed_odds_of_spot_widen_the_interval_and_certain_spot_does_not():
    known, assumed = (
        saving_estimate(1000.0, np.full(HOURS, 1.0), None, spot.NAME, spot_up_frac=up_frac) for up_frac in (1.0, 0.5)
    )

    assert known.low == pytest.approx(1000 * (1 - spot.LEVER.drift_frac))
    assert assumed.low == pytest.approx(620.0)
    assert assumed.high == pytest.approx(1580.0)


@given(st.floats(-1e6, 1e6), st.sampled_from(LEVERS), st.floats(0.1, 10.0))
def test_an_interval_scales_with_its_saving(saving, lever, factor):
    hourly = np.tile([1.0, 2.0], HOURS // 2)

    one, other = (saving_estimate(amount, hourly, None, lever) for amount in (saving, saving * factor))

    assert other.low == pytest.approx(one.low * factor, abs=1e-6)
    assert other.high == pytest.approx(one.high * factor, abs=1e-6)


def plan_of(*runs, saved_usd=600.0, queues_usd=(), losses_usd=()):
    micro = 1_000_000
    return Plan(
        window=Window(start=datetime(2026, 1, 5, tzinfo=UTC), hours=730),
        before_micro_usd=1000 * micro,
        after_micro_usd=round((1000 - saved_usd) * micro),
        bound_micro_usd=0,
        actions=(),
        not_worth_doing=(),
        options=1,
        runs=runs,
        queues_micro_usd=tuple(round(one * micro) for one in queues_usd),
        losses_micro_usd=tuple((round(more * micro), round(less * micro)) for more, less in losses_usd),
    )


def spend(usd, lumps_frac=0.0, at_speed=None):
    return RunsSpend(micro_usd=usd * 1_000_000, lumps_frac=lumps_frac, speed=at_speed)


def test_few_runs_widen_a_plans_interval_and_many_hardly_do():
    plain, many, few = (joint_saving(plan_of(*runs)) for runs in ((), (spend(400, 0.01),), (spend(400, 0.35),)))

    assert many.high - many.low == pytest.approx(plain.high - plain.low, rel=0.02)
    # 80 % of 400 x (1 +- 0.35) twice over: 1.2816 x sqrt(2) x 140 = 253.7, beside a drift of 0.0717 x sqrt(600 x 1000) = 55.5
    assert few.high - few.value == pytest.approx(259.7, abs=0.2)


def test_queues_that_may_come_earlier_make_a_plan_dearer_and_never_cheaper():
    plain, doubted = joint_saving(plan_of()), joint_saving(plan_of(queues_usd=(30.0, 40.0)))

    # each service for itself: 30 and 40 come to 50, beside a drift of 0.0717 x sqrt(600 x 1000) = 55.5
    assert doubted.value - doubted.low == pytest.approx(np.hypot(50.0, 55.54), rel=1e-3)
    assert doubted.high == plain.high


def test_runs_on_gpus_whose_speed_is_predicted_may_cost_what_its_interval_says():
    found = joint_saving(plan_of(spend(400, at_speed=speed(1.0, 2.0, 3.0))))
    as_predicted = joint_saving(plan_of(spend(400, at_speed=speed(1.0, 2.0, 3.0))), speeds_as_predicted=True)

    drift = 0.0717 * (600 * 1000) ** 0.5
    assert found.value - found.low == pytest.approx(np.hypot(drift, 400.0), rel=1e-3)
    assert found.high - found.value == pytest.approx(np.hypot(drift, 400 / 3), rel=1e-3)
    assert as_predicted.high - as_predicted.value == pytest.approx(drift, rel=1e-3)


def test_runs_on_spot_save_in_proportion_to_how_often_spot_is_there():
    half_the_time = RunsSpend(micro_usd=400_000_000, lumps_frac=0.0, speed=None, spot_micro_usd=10**8, spot_up_frac=0.5)
    found = joint_saving(plan_of(half_the_time))

    # recorded zones had it 31 to 79 % of the time, so that $100 saved at 50 % are 62 to 158
    drift = 0.0717 * (600 * 1000) ** 0.5
    assert found.value - found.low == pytest.approx(np.hypot(drift, 38.0), rel=1e-3)
    assert found.high - found.value == pytest.approx(np.hypot(drift, 58.0), rel=1e-3)
    assert "how often spot is there" in found.because


def test_no_more_can_be_saved_than_there_is_to_save():
    wide = saving_estimate(1000.0, np.full(HOURS, 1.0), speed(0.5, 1.0, 2.0), right_size.NAME)
    within = saving_estimate(1000.0, np.full(HOURS, 1.0), speed(0.5, 1.0, 2.0), right_size.NAME, most_usd_mo=1050.0)

    assert wide.high > 1050.0
    assert (within.low, within.value, within.high) == (wide.low, 1000.0, 1050.0)


def test_spot_nodes_that_may_be_lost_more_often_make_a_plan_cost_more_all_together():
    found = joint_saving(plan_of(losses_usd=((30.0, 3.0), (40.0, 4.0))))

    drift = 0.0717 * (600 * 1000) ** 0.5
    assert found.value - found.low == pytest.approx(np.hypot(drift, 70.0), rel=1e-3)
    assert found.high - found.value == pytest.approx(np.hypot(drift, 7.0), rel=1e-3)
    assert "how often spot nodes are lost" in found.because


def test_an_action_on_spot_may_save_less_by_what_lost_nodes_cost():
    hourly = np.full(HOURS, 1.0)

    plain, doubted = (
        saving_estimate(100.0, hourly, None, "spot", losses_usd_mo=usd) for usd in ((0.0, 0.0), (60.0, 5.0))
    )

    assert doubted.low == pytest.approx(40.0)
    assert doubted.high == plain.high
