"""What a workload does not feel of a stress changes nothing of its outcome, so that nobody need replay it."""

from dataclasses import fields

import numpy as np
import pytest
from tests.fleets import FleetRows

from trimtab.catalog.kinds import CapacityType
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import (
    HedgeOnSpot,
    ReleaseIdle,
    SetCapacityType,
    SetReplicaPolicy,
    SetReplicas,
    SetSchedule,
    StartBeforeRuns,
    UseOffering,
)
from trimtab.fleet.build import build_fleet
from trimtab.fleet.settings import Settings
from trimtab.fleet.starts import SlowStarts
from trimtab.policies.scaling import HpaPolicy
from trimtab.provenance import Basis, Estimate
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.replay.outcomes.outcome import AS_PREDICTED, Outcome, Stress
from trimtab.tables.workloads import TargetMetric

DAYS = 5
SERVICE, RUNS, NOTEBOOK = "prod/api", "research/exp", "lab/ana"


@pytest.fixture(scope="module")
def cases():
    rows = FleetRows(DAYS)
    for number in range(4):
        rows.node(f"n{number}", "g5.xlarge").hold(SERVICE, f"n{number}", [0], owner_kind="Deployment")
        rows.use(SERVICE, f"n{number}", 0, range(DAYS * 24), sm=0.3, util=0.4)
    requests = [40_000 if 8 <= hour % 24 < 20 else 4_000 for hour in range(DAYS * 24)]
    rows.demand(
        SERVICE,
        lambda hour: requests[hour],
        4,
        le_s=(0.5, 1.0, 2.0, float("inf")),
        counts=lambda hour: [requests[hour] * share for share in (0.8, 0.17, 0.03, 0.0)],
        running=lambda hour: requests[hour] / 3600 * 0.3,
    )
    rows.node("r", "p4d.24xlarge")
    for hour in range(0, DAYS * 24, 6):
        rows.hold(RUNS, "r", range(8), start=hour, end=hour + 2, pod=f"exp-{hour}", owner_kind="Job")
        rows.job(RUNS, hour, hour, hour + 2, 8, name=f"exp-{hour}")
    for device in range(8):
        rows.use(RUNS, "r", device, [hour for hour in range(DAYS * 24) if hour % 6 < 2], sm=0.9)
    rows.node("lab", "g5.xlarge").hold(NOTEBOOK, "lab", [0], owner_kind="Notebook")
    rows.use(NOTEBOOK, "lab", 0, range(DAYS * 24), sm=lambda hour: 0.3 * (9 <= hour % 24 < 17))
    rows.workloads = {SERVICE: {"targets": [{"metric": "latency", "quantile": 0.95, "limit_s": 1.0}]}}
    return cases_of(build_fleet(rows.bundle(), Settings()), Settings(), seed=7)


def slower(pool):
    speed = Estimate(value=0.9, low=0.8, high=1.0, basis=Basis.MODELLED, because="another GPU")
    return UseOffering(pool=pool, gpu="A10G", gpus_per_node=8, speed=speed)


def ways(case):
    """Deployments of every kind for a workload, and by what it runs as history had it."""
    pool = case.workload.pool
    spot = pool.held_as(CapacityType.SPOT)
    by_day = SetSchedule(hours_of_week=tuple(hour for hour in range(168) if 6 <= hour % 24 < 22))
    match case.workload.name:
        case "prod/api":
            policy = SetReplicaPolicy(policy=HpaPolicy(0.7, 1, 8), metric="requests")
            hedge = HedgeOnSpot(pool=spot, one_in=2, zones=2, loss_per_hr=0.05, outage_s=1800.0)
            effects = [[SetReplicas(replicas=3, before=4)], [policy], [by_day], [hedge], [policy, hedge]]
        case "research/exp":
            taken = SetCapacityType(pool=spot, loss_per_hr=0.1)
            effects = [
                [ReleaseIdle(startup_s=300.0)], [StartBeforeRuns(lead_s=600.0)], [taken],
                [ReleaseIdle(startup_s=300.0), taken], [slower(pool)],
            ]  # fmt: skip
        case _:
            effects = [[by_day], [slower(pool)]]
    return [AS_IT_IS, *(Deployment.of(*(("test", effect) for effect in some)) for some in effects)]


def stresses(case):
    latency = tuple(target for target in case.workload.targets if target.metric is TargetMetric.LATENCY)
    slow = SlowStarts(node_s=3000.0, own_s={case.workload.name: 900.0})
    every = {
        "speed": 0.8, "closed_hours": (32, 38), "runs_closed_hours": (30, 42), "zones_lost": 1, "metrics_late_s": 120.0,
        "starts": slow, "guards": latency,
    }  # fmt: skip
    return [*(Stress(**{name: value}) for name, value in every.items()), Stress(**every)]


def told(outcome):
    """An outcome's values, arrays as bytes."""
    values = {field.name: getattr(outcome, field.name) for field in fields(Outcome)}
    return {name: value.tobytes() if isinstance(value, np.ndarray) else value for name, value in values.items()}


@pytest.mark.parametrize("name", [SERVICE, RUNS, NOTEBOOK])
def test_an_outcome_is_the_same_under_what_is_felt_of_a_stress(cases, name):
    felt_none = 0
    for deployment in ways(cases[name]):
        evaluator = Evaluator(case=cases[name])
        for stress in stresses(cases[name]):
            felt = evaluator.felt(deployment, stress)
            felt_none += felt == AS_PREDICTED

            whole = Evaluator(case=cases[name]).stressed(stress).outcome(deployment)
            # among replays of all other stresses, which must not be taken for its own
            found = (evaluator if felt == AS_PREDICTED else evaluator.stressed(felt)).outcome(deployment)

            assert told(found) == told(whole), (deployment, stress)
    assert felt_none > 0


def test_without_headroom_all_but_the_careful_share_is_the_same(cases):
    for deployment in ways(cases[SERVICE]):
        whole = told(Evaluator(case=cases[SERVICE]).stressed(Stress(speed=0.9)).outcome(deployment))
        bare = told(Evaluator(case=cases[SERVICE]).stressed(Stress(speed=0.9, with_headroom=False)).outcome(deployment))

        assert [one.frac for one in bare.pop("attained")] == [one.frac for one in whole.pop("attained")]
        assert bare == whole


def test_a_service_that_stands_still_feels_its_speed_alone_and_a_notebook_nothing(cases):
    every = stresses(cases[SERVICE])[-1]

    assert Evaluator(case=cases[SERVICE]).felt(AS_IT_IS, every) == Stress(speed=0.8)
    assert Evaluator(case=cases[NOTEBOOK]).felt(AS_IT_IS, every) == AS_PREDICTED
    assert Evaluator(case=cases[RUNS]).felt(AS_IT_IS, every) == AS_PREDICTED
