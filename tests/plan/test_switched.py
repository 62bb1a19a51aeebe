"""A plan with actions switched off is the best plan without them: never the old one less some shares."""

from itertools import combinations

import pytest
from tests.web.fleet import whole

from trimtab.plan.effort import effort_micro_usd
from trimtab.plan.proof.switched import switched


@pytest.fixture(scope="module")
def made():
    return whole()[1]


def every_set(made):
    ids = [action.id for action in made.planned.plan.actions]
    return [off for size in range(len(ids) + 1) for off in combinations(ids, size)]


def without(made, off):
    return switched(made.planned, made.proven, off)


def test_with_nothing_off_it_is_the_plan_and_its_proof_to_the_micro_dollar(made):
    found = without(made, ())

    plan, proof = made.planned.plan, made.proven.proof
    assert (found.before_micro_usd, found.after_micro_usd) == (plan.before_micro_usd, plan.after_micro_usd)
    assert found.proof_before_micro_usd == proof.before_micro_usd
    assert found.proof_after_micro_usd == proof.after_micro_usd
    assert found.targets == proof.targets
    assert {action.was for action in found.actions} == {action.id for action in plan.actions}


def test_an_id_that_the_plan_does_not_have_changes_nothing(made):
    assert without(made, ["a99"]) == without(made, ())


def test_a_switched_action_is_not_done_by_another_name(made):
    for action in made.planned.plan.actions:
        subjects = {(other.draft.lever, other.draft.subject) for other in without(made, [action.id]).actions}
        assert (action.lever, action.subject) not in subjects


def test_without_its_idle_node_a_fleet_is_not_told_to_commit_to_it(made):
    (release,) = [action for action in made.planned.plan.actions if action.lever == "idle-release"]

    found = without(made, [release.id])

    bought = {action.draft.subject for action in found.actions if action.draft.lever == "commitment"}
    assert "2 x p4d.24xlarge" in bought
    assert "3 x p4d.24xlarge" not in bought


def test_another_action_takes_the_place_of_one_that_is_off_and_pays(made):
    (schedule,) = [action for action in made.planned.plan.actions if action.lever == "schedule"]

    found = without(made, [schedule.id])

    # runs that keep their node around the clock are worth a commitment of it
    assert [action.draft.subject for action in found.actions if action.was is None] == ["1 x g5.12xlarge"]
    assert found.after_micro_usd < found.rest_micro_usd


def test_shares_sum_to_the_joint_saving_of_every_set_that_is_left(made):
    for off in every_set(made):
        found = without(made, off)
        assert found.shared
        assert (
            sum(action.saving_micro_usd for action in found.actions) == found.before_micro_usd - found.after_micro_usd
        )


def test_no_set_is_better_in_bill_and_work_with_more_of_it_forbidden(made):
    hours, settings = made.planned.plan.window.hours, made.opened.settings
    cost = {}
    for off in every_set(made):
        found = without(made, off)
        work = effort_micro_usd([action.draft for action in found.actions], settings, hours)
        cost[frozenset(off)] = found.after_micro_usd + work
        assert found.after_micro_usd <= found.before_micro_usd
    for off, amount in cost.items():
        for fewer in (off - {name} for name in off):
            # a purchase is backed by what is left of the fleet, and no more: within a cent of the solver's gap
            assert amount >= cost[fewer] * (1 - 1e-6)
