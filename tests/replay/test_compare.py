"""Policies side by side: the front, the notes, the names."""

import numpy as np
import pytest

from trimtab.errors import UnknownName, UsageError
from trimtab.policies.forecast import ForecastPolicy
from trimtab.policies.keda import CronPolicy
from trimtab.policies.scaling import HpaPolicy, StaticReplicas
from trimtab.replay.compare import NAMES, FitContext, compare, expanded, named_policy
from trimtab.replay.services import ServiceHistory, ServiceModel

DAY = 24 * 60


def model(**changes):
    facts = {
        "capacity_req_s": 2.0,
        "load_grid": np.array([0.0, 1.0]),
        "ok_frac": np.ones((1, 2)),
        "wait_limit_s": np.array([1.0]),
        "cold_start_s": 120.0,
    }
    return ServiceModel(**{**facts, **changes})


def days(count, seed=0):
    rng = np.random.default_rng(seed)
    at = np.arange(count * DAY)
    return ServiceHistory(arrivals=rng.poisson(700 * (1.2 + np.sin(at * 2 * np.pi / DAY))).astype(float), step_s=60)


def context():
    return FitContext(
        history=days(7),
        model=model(),
        required_frac=np.array([0.99]),
        observed_replicas=16,
        min_replicas=1,
        max_replicas=60,
    )


def by_name(policies, **changes):
    runs = compare(days(2, seed=1), model(**changes), policies, required_frac=np.array([0.99]))
    return {run.name: run for run in runs}


def test_every_name_is_a_policy_that_can_be_compared():
    # without what is tuned over all loads, which takes a while
    names = [name for name in NAMES if name != "forecast"]

    runs = by_name({name: named_policy(name, context()) for name in names})

    assert set(runs) == set(names)
    assert all(run.replay.replica_hr > 0 for run in runs.values())


def test_the_best_in_hindsight_is_out_of_reach():
    runs = by_name({"enough": StaticReplicas(16), "hpa": HpaPolicy(0.7, 1, 60)})
    assert all(run.over_clairvoyant > 1 for run in runs.values())
    assert runs["hpa"].over_clairvoyant < runs["enough"].over_clairvoyant


def test_a_dearer_policy_that_serves_no_more_is_off_the_front():
    runs = by_name({"enough": StaticReplicas(16), "twice": StaticReplicas(32), "few": StaticReplicas(4)})
    assert [run.undominated for run in runs.values()] == [True, False, True]


def test_too_few_replicas_do_not_keep_the_target():
    runs = by_name({"few": StaticReplicas(4)})
    assert not runs["few"].keeps
    assert "gave up" in runs["few"].notes[0]


def test_a_policy_that_turns_often_is_called_oscillating():
    nervous = HpaPolicy(0.7, 1, 60, tolerance_up_frac=0.0, tolerance_down_frac=0.0, down_stabilization_s=0)
    runs = by_name({"nervous": nervous, "calm": StaticReplicas(16)})
    assert "oscillates" in runs["nervous"].notes[0]
    assert runs["calm"].notes == ()


def test_a_quota_that_is_short_is_reported():
    runs = by_name({"hpa": HpaPolicy(0.7, 1, 60)}, quota_replicas=5)
    assert any("short of quota" in note for note in runs["hpa"].notes)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("hpa:70", ["hpa:70"]),
        ("hpa:50..60:5", ["hpa:50", "hpa:55", "hpa:60"]),
        ("static:2..4:1", ["static:2", "static:3", "static:4"]),
    ],
)
def test_a_sweep_names_its_policies(text, names):
    assert expanded(text) == names


def test_an_empty_sweep_is_refused():
    with pytest.raises(UsageError, match="sweeps nothing"):
        expanded("hpa:90..50:5")


def test_names_mean_policies():
    assert named_policy("static", context()) == StaticReplicas(16)
    assert named_policy("hpa:65", context()) == HpaPolicy(0.65, 1, 60)
    assert isinstance(named_policy("forecast:90", context()), ForecastPolicy)


def test_a_timetable_covers_what_the_same_hours_needed():
    timetable = named_policy("cron", context())
    assert isinstance(timetable, CronPolicy)
    assert len(timetable.replicas_by_hour) == 168
    assert max(timetable.replicas_by_hour) > 2 * min(timetable.replicas_by_hour)


def test_a_misspelt_policy_gets_near_matches():
    with pytest.raises(UnknownName, match="did you mean hpa"):
        named_policy("hpaa:70", context())


def test_a_policy_number_must_be_one():
    with pytest.raises(UsageError, match="not a number"):
        named_policy("hpa:lots", context())
