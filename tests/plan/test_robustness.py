"""The proof under stress: what departs changes the answer, what does not depart leaves it."""

import pytest

from trimtab.fleet.settings import Settings
from trimtab.pipeline import audit, open_demo
from trimtab.plan.proof.robustness import DEPARTURES


@pytest.fixture(scope="module")
def found():
    return audit(open_demo("finetune-7b"), Settings())


def test_every_departure_is_judged_on_the_targets_of_the_proof(found):
    stressed = found.robustness.stressed

    assert [one.departure for one in stressed] == list(DEPARTURES)
    assert {one.targets for one in stressed} == {len(found.proof.targets)}
    assert all(one.targets_kept <= one.targets for one in stressed)


def test_faster_replicas_miss_no_target_that_the_proof_keeps(found):
    faster = next(one for one in found.robustness.stressed if one.departure.speed > 1)

    assert faster.missed == ()


def test_headroom_is_never_worth_less_than_nothing(found):
    assert found.robustness.price_usd_mo >= 0


def test_an_action_is_fragile_exactly_where_its_workloads_miss(found):
    missed = {name for one in found.robustness.stressed for name in one.missed}
    for action in found.plan.actions:
        touched = {change.subject for change in action.changes} & missed
        assert bool(found.robustness.fragile(action)) == bool(touched)
