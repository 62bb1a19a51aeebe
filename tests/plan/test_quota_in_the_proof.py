"""A quota holds in every replay: what it has no room for waits, in the plan and in the proof."""

from datetime import date

import pytest
from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import ReleaseIdle
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Limits, Settings
from trimtab.levers import autoscaling, idle_release
from trimtab.levers.lever import LeverRequest
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of

QUOTA = 3
LIMITED = Settings(limits=Limits(quotas=f"g5.xlarge={QUOTA}"))
DAYS = 7


@pytest.fixture(scope="module")
def market():
    return Market(catalog=load_catalog(), at=date(2026, 9, 30), max_term_years=1, assumptions=LIMITED.assumptions)


def service():
    rows = FleetRows(DAYS)
    for number in range(4):
        rows.node(f"n{number}", "g5.xlarge").hold("prod/api", f"n{number}", [0], owner_kind="Deployment")
        rows.use("prod/api", f"n{number}", 0, range(DAYS * 24), sm=0.3, util=0.4)
    rows.demand("prod/api", lambda hour: 40_000 if 8 <= hour % 24 < 20 else 4_000, 4, running=lambda hour: 3.0)
    return rows


def runs():
    rows = FleetRows(DAYS)
    for number in range(5):
        rows.node(f"n{number}", "g5.xlarge")
        for day in range(DAYS):
            begin = 24 * day + 6
            rows.hold("ml/sweep", f"n{number}", [0], begin, begin + 2, pod=f"{number}-{day}", owner_kind="Job")
            rows.use("ml/sweep", f"n{number}", 0, range(begin, begin + 2), sm=0.8)
            rows.job("ml/sweep", begin, begin, begin + 2, 1, name=f"{number}-{day}")
    return rows


def evaluator_of(rows, settings=LIMITED):
    (case,) = cases_of(build_fleet(rows.bundle(), settings), settings, seed=7).values()
    return Evaluator(case=case)


def test_an_autoscaler_is_offered_no_higher_a_ceiling_than_the_quota_has_room_for(market):
    limited, free = (evaluator_of(service(), settings) for settings in (LIMITED, Settings()))

    for evaluator, most in ((limited, QUOTA), (free, 4 * autoscaling.ROOM_TO_GROW)):
        ways = list(autoscaling.LEVER.ways(AS_IT_IS, LeverRequest(evaluator=evaluator, market=market)))
        assert {way.scaling.hpa.max_replicas for way in ways} == {most}
        for way in ways[:3]:
            assert evaluator.outcome(way).gpus[1:].max() <= most * 3600  # it starts with history's replicas


def test_a_quota_below_the_least_replicas_offers_no_autoscaler(market):
    tight = Settings(limits=Limits(quotas="g5.xlarge=1"))
    assert not list(
        autoscaling.LEVER.ways(AS_IT_IS, LeverRequest(evaluator=evaluator_of(service(), tight), market=market))
    )


def test_runs_queue_for_the_nodes_that_a_quota_allows():
    release = Deployment.of((idle_release.NAME, ReleaseIdle(startup_s=300.0)))
    free, limited = (evaluator_of(runs(), settings).outcome(release) for settings in (Settings(), LIMITED))

    assert free.on_demand.max() == 5 * 3600
    assert (
        limited.on_demand.max() <= QUOTA * 3600 * 1.5
    )  # nodes of ended runs stay up for a while beside their successors
    assert limited.on_demand.sum() == free.on_demand.sum()
