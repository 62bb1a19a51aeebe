"""A small fleet audited whole: the proof by action, the year ahead and what is always judged agree with plan and proof."""

import pytest
from tests.fleets import FleetRows

from trimtab.pipeline import audit
from trimtab.plan.actions import roadmap_planner
from trimtab.plan.model import AlternativeKind
from trimtab.plan.proof import proof_window as module
from trimtab.units import per_month, usd

DAYS, PROOF_FROM = 28, 14


def wasteful(later_hours=8, measured=lambda day: True):
    """A node that nobody holds, and a notebook that is at work in office hours on a node of four GPUs.

    In the days on which plans are proved it is at work for some of these hours; it is not measured on all days.
    """
    end = [9 + (8 if day < PROOF_FROM else later_hours) for day in range(DAYS)]
    rows = FleetRows(DAYS).node("spare", "p4d.24xlarge").node("n", "p3.8xlarge")
    rows.hold("lab/notebook", "n", [0], owner_kind="Notebook")
    hours = [hour for hour in range(DAYS * 24) if measured(hour // 24)]
    rows.use("lab/notebook", "n", 0, hours, sm=lambda hour: 0.5 if 9 <= hour % 24 < end[hour // 24] else 0.0)
    return rows.bundle()


@pytest.fixture(scope="module")
def found():
    return audit(wasteful())


def test_replayed_shares_sum_to_what_the_proof_saves(found):
    saved = per_month(usd(found.proof.before_micro_usd - found.proof.after_micro_usd), found.proof.window.hours)

    assert found.plan.actions
    assert [one.id for one in found.proof.actions] == [one.id for one in found.plan.actions]
    assert sum(one.replayed_usd_mo for one in found.proof.actions) == pytest.approx(saved, abs=0.01)
    assert all(one.measure == "share" for one in found.proof.actions)


def test_an_action_says_how_much_more_its_workloads_did_on_the_days_of_the_proof(found):
    less = audit(wasteful(later_hours=2))
    with_gaps = audit(wasteful(measured=lambda day: day < PROOF_FROM or day % 2 == 0))

    def ratios(result):
        return [one.work_ratio for one in result.proof.actions if one.work_ratio is not None]

    assert ratios(found) == pytest.approx([1.0] * len(ratios(found)))
    assert ratios(less) == pytest.approx([0.25] * len(ratios(less)))
    assert ratios(with_gaps) == pytest.approx([1.0] * len(ratios(with_gaps)))
    assert ratios(less)
    assert ratios(with_gaps)


def test_both_orders_of_the_year_end_at_the_bill_of_the_plan(found):
    course, fixed = found.plan.roadmap.course, found.plan.roadmap.fixed
    after = found.plan.usd_mo(found.plan.after_micro_usd)

    assert course.bill_usd_mo[0] == pytest.approx(found.plan.usd_mo(found.plan.before_micro_usd))
    assert course.steps[-1].bill_usd_mo == pytest.approx(after)
    assert min(step.bill_usd_mo for step in fixed.steps) == pytest.approx(after)
    assert [step.action for step in course.steps] == [one.id for one in found.plan.actions]


def test_the_order_of_the_year_is_at_least_as_good_as_the_others(found):
    roadmap = found.plan.roadmap

    assert roadmap.best
    assert roadmap.per_week_loss_usd >= -0.01
    assert all(sway.regret_usd >= -0.02 for sway in roadmap.sways)


def test_a_quarter_is_that_of_the_month_in_which_an_action_is_done(found):
    done = {step.action: step.done_mo for step in found.plan.roadmap.course.steps}

    assert all(one.quarter == 0 or done[one.id] <= 3 * one.quarter + 1e-6 for one in found.plan.actions)


def test_all_four_alternatives_are_judged(found):
    assert {one.kind for one in found.plan.alternatives} == set(AlternativeKind)


def test_where_actions_are_too_many_to_enumerate_each_is_left_out_alone(found, monkeypatch):
    monkeypatch.setattr(module, "MOST_BILLS", 0)

    again = audit(wasteful())

    assert {one.measure for one in again.proof.actions} == {"last in"}
    assert [one.predicted_usd_mo for one in again.proof.actions] == [one.last_in_usd_mo for one in found.plan.actions]


def test_an_order_of_many_actions_is_judged_by_their_shares(found, monkeypatch):
    monkeypatch.setattr(roadmap_planner, "EXACT_PLAYERS", 0)

    again = audit(wasteful())

    assert {step.action for step in again.plan.roadmap.course.steps} == {one.id for one in found.plan.actions}
    near = 0.01 * found.plan.roadmap.course.year_usd  # shares say nearly what bills do
    assert all(
        sway.regret_usd == pytest.approx(other.regret_usd, abs=near)
        for sway, other in zip(again.plan.roadmap.sways, found.plan.roadmap.sways, strict=True)
    )
