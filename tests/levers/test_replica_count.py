"""A constant number of replicas: the fewest that keep every target, and nothing that scales already."""

from dataclasses import replace
from datetime import date

import numpy as np
from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.deployment.deployment import AS_IT_IS
from trimtab.deployment.effects import SetReplicas
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.service_law import service_law
from trimtab.fleet.settings import Limits, Settings
from trimtab.levers import replica_count
from trimtab.levers.lever import LeverRequest
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of

DAYS, REPLICAS = 7, 8
LE_S = (0.5, 1.0, 2.0, float("inf"))


def office_hours(hour):
    return 3600 * (4 if 9 <= hour % 24 < 17 else 1)


def asked(
    settings=None,
    declared=None,
    replicas_of_hour=None,
    gpu_bound=True,
    requests=office_hours,
):
    """Eight replicas, each of which could serve ten requests a second; four come in office hours.

    `gpu_bound`: as if a load test had shown that nothing but the GPU limits them.
    """
    settings = settings or Settings()
    rows = FleetRows(DAYS)
    for number in range(REPLICAS):
        rows.node(f"n{number}", "g5.xlarge").hold("prod/api", f"n{number}", [0], owner_kind="Deployment")
        rows.use("prod/api", f"n{number}", 0, range(DAYS * 24), sm=lambda hour: requests(hour) / 3600 / REPLICAS / 10)
    rows.demand(
        "prod/api",
        requests,
        REPLICAS,
        LE_S,
        lambda hour: [requests(hour), 0, 0, 0],
    )
    for row in rows.rows["demand"] if replicas_of_hour else ():
        row["replicas_ready"] = float(
            replicas_of_hour((row["start"] - rows.rows["demand"][0]["start"]).seconds // 3600)
        )
    rows.workloads = {
        "prod/api": {"targets": [{"metric": "latency", "quantile": 0.95, "limit_s": 1.0}], **(declared or {})}
    }
    (case,) = cases_of(build_fleet(rows.bundle(), settings), settings, seed=7).values()
    market = Market(catalog=load_catalog(), at=date(2026, 9, 30), max_term_years=1, assumptions=settings.assumptions)
    if gpu_bound:
        case = replace(case, law=service_law(case.workload, settings.bands.healthy_frac))
    return LeverRequest(evaluator=Evaluator(case=case), market=market)


def counts(ask):
    found = replica_count.fewest(AS_IT_IS, ask)
    return [] if found is None else [found.scaling.replicas]


def test_the_fewest_replicas_that_keep_every_target_are_offered_and_two_at_least():
    assert counts(asked()) == [2]
    assert counts(asked(declared={"min_replicas": 1})) == [1]


def test_one_fewer_would_miss_a_target():
    ask = asked(requests=lambda hour: 3600 * (30 if 9 <= hour % 24 < 17 else 5))
    (count,) = counts(ask)

    assert 2 < count < REPLICAS
    kept = [
        ask.evaluator.keeps_targets(AS_IT_IS.plus((replica_count.NAME, SetReplicas(replicas=one, before=REPLICAS))))
        for one in (count - 1, count)
    ]
    assert kept == [False, True]


def test_a_way_on_offer_holds_no_more_than_the_fewest_that_keep_the_targets_and_these_are_there_instead():
    ask = asked(requests=lambda hour: 3600 * (30 if 9 <= hour % 24 < 17 else 5))
    (way,) = replica_count.LEVER.ways(AS_IT_IS, ask)
    (count,) = counts(ask)
    too_few = AS_IT_IS.plus((replica_count.NAME, SetReplicas(replicas=count - 1, before=REPLICAS)))

    assert way.scaling.replicas <= count
    assert replica_count.instead(too_few, ask).scaling.replicas == count
    assert replica_count.instead(replica_count.instead(too_few, ask), ask) is None


def test_where_history_never_showed_a_hotter_replica_none_is_taken_away():
    assert counts(asked(gpu_bound=False)) == []


def test_what_came_and_went_is_scaled_by_something_and_is_left_alone():
    ask = asked(replicas_of_hour=lambda hour: 8 if 9 <= hour % 24 < 17 else 3)

    assert counts(ask) == []
    assert not replica_count.stands_still(ask)


def test_a_quota_bounds_it():
    limited = Settings(limits=Limits(quotas="g5.xlarge=3"))
    busy = asked(limited, requests=lambda hour: 3600 * (30 if 9 <= hour % 24 < 17 else 5))
    assert counts(busy) == []
    assert counts(asked(limited)) == [2]


def test_the_replicas_are_billed_at_all_hours():
    ask = asked()
    (way,) = replica_count.LEVER.ways(AS_IT_IS, ask)

    assert np.all(ask.evaluator.outcome(way).on_demand[1:] == 2 * 3600)
