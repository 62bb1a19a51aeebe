"""The order of actions and their months: little work in progress, what must come first, the guides' order beside it."""

import math
from dataclasses import replace
from itertools import pairwise

from hypothesis import given, strategies as st
from tests.plan.fleets import A, nodes_of, so_much

from trimtab.fleet.settings import Planning, Settings
from trimtab.levers import autoscaling, commitments, quantization, right_size, schedule, sharing, spot
from trimtab.levers.registry import BUILT_IN
from trimtab.plan.actions.draft_actions import DraftAction
from trimtab.plan.actions.roadmap import fixed_order, levers_taken, precedence, quarter_of, ranked, scheduled

LEVERS = st.sampled_from([lever.name for lever in BUILT_IN])
ONE_A_MONTH = Planning(engineers=1.0, weeks_per_quarter=12.0)
"""Four engineer-weeks a month, one lever a month, one action at once."""


def draft(lever, name="w", touches=(), discounts=(), used_in_any_order=False):
    return DraftAction(
        lever=lever,
        subject=name,
        class_name=name,
        workloads=(0,),
        changes=(),
        released=(),
        discounts=discounts,
        touches=frozenset(touches),
        hazards=(),
        used_in_any_order=used_in_any_order,
    )


def test_one_action_is_finished_before_the_next_begins():
    slots = scheduled([0, 1], [spot.NAME, spot.NAME], [2.0, 2.0], {0: frozenset(), 1: frozenset()}, ONE_A_MONTH)

    assert [(slot.start_mo, slot.done_mo) for slot in slots] == [(0.0, 0.5), (0.5, 1.0)]


def test_a_second_lever_waits_for_its_month():
    slots = scheduled([0, 1], [spot.NAME, schedule.NAME], [2.0, 2.0], {0: frozenset(), 1: frozenset()}, ONE_A_MONTH)

    assert [(slot.start_mo, slot.done_mo) for slot in slots] == [(0.0, 0.5), (1.0, 1.5)]


def test_a_team_that_waits_goes_on_with_a_lever_already_taken_up():
    levers = [spot.NAME, schedule.NAME, spot.NAME]
    slots = scheduled([0, 1, 2], levers, [2.0, 2.0, 2.0], dict.fromkeys(range(3), frozenset()), ONE_A_MONTH)

    assert [slot.number for slot in slots] == [0, 2, 1]


def test_a_purchase_waits_for_what_may_empty_its_nodes_and_for_nothing_else():
    bought = (so_much(2, nodes_of(A, 60)),)
    work = draft(right_size.NAME, touches=["pool"])
    firm = draft(commitments.NAME, touches=["pool"], discounts=bought, used_in_any_order=True)
    rest = draft(commitments.NAME, touches=["pool"], discounts=bought)

    assert precedence([work, firm, rest], {}) == {0: frozenset(), 1: frozenset(), 2: frozenset({0, 1})}


def test_a_purchase_that_nothing_can_make_wrong_takes_up_no_lever_and_waits_for_no_month():
    drafts = [draft(spot.NAME), draft(commitments.NAME, used_in_any_order=True), draft(schedule.NAME)]
    before = dict.fromkeys(range(3), frozenset())
    slots = scheduled([0, 1, 2], levers_taken(drafts), [1.0, 0.1, 1.0], before, ONE_A_MONTH)

    assert [(slot.number, slot.start_mo) for slot in slots] == [(0, 0.0), (1, 0.25), (2, 1.0)]


def test_two_at_once_divide_the_team():
    planning = replace(ONE_A_MONTH, levers_at_once=2, levers_per_mo=0.0)
    slots = scheduled([0, 1], [spot.NAME, schedule.NAME], [2.0, 2.0], {0: frozenset(), 1: frozenset()}, planning)

    assert [(slot.start_mo, slot.done_mo) for slot in slots] == [(0.0, 1.0), (0.0, 1.0)]


def test_a_team_without_engineers_finishes_nothing():
    slots = scheduled([0], [spot.NAME], [1.0], {0: frozenset()}, replace(ONE_A_MONTH, engineers=0.0))

    assert slots[0].done_mo == math.inf
    assert slots[0].quarter == 0


def test_a_commitment_comes_after_whatever_touches_its_nodes_though_it_earns_most():
    bought = draft(commitments.NAME, touches=["pool"], discounts=(so_much(1, nodes_of(A, 1)),))
    drafts = [bought, draft(autoscaling.NAME, touches=["pool"])]

    assert ranked(drafts, [100.0, 1.0], [0.1, 12.0], {}) == [1, 0]
    assert fixed_order(drafts, [100.0, 1.0], {}) == [1, 0]
    assert precedence(drafts, {})[0] == {1}


def test_the_fixed_order_is_by_kind_whatever_is_saved():
    levers = [schedule.NAME, sharing.NAME, spot.NAME, quantization.NAME, right_size.NAME, autoscaling.NAME]
    drafts = [draft(lever) for lever in levers]

    assert fixed_order(drafts, [9.0, 5.0, 4.0, 3.0, 2.0, 1.0], {}) == [5, 4, 2, 3, 1, 0]


def test_what_others_need_for_their_targets_comes_first_in_both_orders():
    drafts = [draft(autoscaling.NAME), draft(schedule.NAME)]
    needed_first = {1: frozenset({0})}

    assert ranked(drafts, [100.0, 1.0], [1.0, 1.0], needed_first) == [1, 0]
    assert fixed_order(drafts, [100.0, 1.0], needed_first) == [1, 0]


def test_quarters_end_with_their_third_month():
    assert [quarter_of(month) for month in (0.0, 3.0, 3.01, 12.0, 12.01)] == [1, 1, 2, 4, 0]


@given(
    works=st.lists(st.tuples(LEVERS, st.floats(0.1, 20.0)), min_size=1, max_size=12),
    at_once=st.integers(1, 3),
    per_mo=st.sampled_from([0.0, 1.0, 2.0]),
)
def test_no_more_is_in_progress_than_allowed_and_levers_come_a_month_apart(works, at_once, per_mo):
    planning = Planning(levers_at_once=at_once, levers_per_mo=per_mo)
    levers, weeks = [lever for lever, _ in works], [effort for _, effort in works]
    before = {number: frozenset({number - 2} if number >= 2 else ()) for number in range(len(works))}

    slots = scheduled(range(len(works)), levers, weeks, before, planning)

    done = {slot.number: slot.done_mo for slot in slots}
    assert sorted(done) == list(range(len(works)))
    for slot in slots:
        assert sum(o.start_mo <= slot.start_mo + 1e-9 < o.done_mo for o in slots if o is not slot) < at_once
        assert all(done[other] <= slot.start_mo + 1e-9 for other in before[slot.number])
    if per_mo:
        first = sorted(
            {lever: min(s.start_mo for s in slots if levers[s.number] == lever) for lever in levers}.values()
        )
        assert all(b - a >= 1 / per_mo - 1e-9 for a, b in pairwise(first))


def test_one_lever_a_month_finished_before_the_next_is_the_default():
    assert (Settings().planning.levers_per_mo, Settings().planning.levers_at_once) == (1.0, 1)
