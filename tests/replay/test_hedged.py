from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.policies.hedge import HedgePolicy
from trimtab.policies.keda import CronPolicy
from trimtab.policies.scaling import HpaPolicy, StaticReplicas
from trimtab.replay.fluid import serve_history
from trimtab.replay.hedged import SpotZones, replay_hedged
from trimtab.replay.services import ServiceHistory, ServiceModel, replay_service

MODEL = ServiceModel(
    capacity_req_s=1.0,
    load_grid=np.array([0.0, 1.0]),
    ok_frac=np.ones((1, 2)),
    wait_limit_s=np.array([1.0]),
    cold_start_s=120,
)
ALL_ON_DEMAND, ALL_SPOT = HedgePolicy(1), HedgePolicy(0)
HPA = HpaPolicy(target_frac=0.7, min_replicas=1, max_replicas=50)
HOUR = 240
TWO = StaticReplicas(2)


def history(hours=6, seed=1):
    return ServiceHistory(arrivals=np.random.default_rng(seed).poisson(15 * 4.0, hours * HOUR).astype(float), step_s=15)


def always(steps, zones=3):
    return np.ones((zones, steps), dtype=bool)


def test_without_spot_it_is_the_plain_replay():
    served = history()
    plain = replay_service(served, MODEL, HPA, initial_replicas=6)
    hedged = replay_hedged(served, MODEL, HPA, ALL_ON_DEMAND, always(6 * HOUR), initial_replicas=6)

    assert hedged.on_demand_node_seconds.tolist() == plain.node_seconds.tolist()
    assert hedged.ok.tolist() == plain.ok.tolist()
    assert hedged.spot_node_seconds.sum() == hedged.lost == 0


def test_replicas_move_to_spot_once_and_none_is_lost_where_nothing_goes():
    hedged = replay_hedged(history(), MODEL, StaticReplicas(8), ALL_SPOT, always(6 * HOUR), initial_replicas=8)

    assert hedged.on_demand_node_seconds[1:].sum() == 0
    assert hedged.on_demand_node_seconds[0] == pytest.approx(8 * 135, abs=8 * 15)
    assert (hedged.spot_node_seconds[1:] == 8 * 3600).all()


def test_a_zone_that_goes_takes_its_replicas_and_the_others_take_over_after_a_cold_start():
    up = always(6 * HOUR)
    up[0, 2 * HOUR : 3 * HOUR] = False
    hedged = replay_hedged(history(), MODEL, StaticReplicas(9), ALL_SPOT, up, initial_replicas=9)

    assert hedged.lost == 3
    assert hedged.attained_frac[0] > 0.999, "two thirds of nine bear a load of four"


def test_on_demand_stands_in_while_all_zones_are_gone_and_goes_when_they_are_back():
    up = always(6 * HOUR)
    up[:, 2 * HOUR : 3 * HOUR] = False
    hedged = replay_hedged(history(), MODEL, StaticReplicas(8), ALL_SPOT, up, initial_replicas=8)

    assert hedged.on_demand_node_seconds[2] == 8 * 3600 - 8 * 15
    assert hedged.on_demand_node_seconds[4:].sum() == 0
    assert hedged.attained_frac[0] < 0.99, "nothing answered for a cold start"


def test_a_service_that_lost_every_replica_still_wants_them_all():
    """A Deployment's replicas stay wanted when their nodes go: the autoscaler must not take the loss for its own doing."""
    up = always(6 * HOUR)
    up[:, 2 * HOUR : 3 * HOUR] = False
    hedged = replay_hedged(history(), MODEL, HPA, ALL_SPOT, up, initial_replicas=6)

    assert hedged.on_demand_node_seconds[2] >= 5 * (3600 - 30)
    assert hedged.spot_node_seconds[4:].min() >= 4 * 3600
    assert hedged.attained_frac[0] > 0.9


def test_a_floor_answers_while_spot_is_gone():
    up = always(6 * HOUR)
    up[:, 2 * HOUR : 3 * HOUR] = False
    low, high = (
        replay_hedged(history(), MODEL, StaticReplicas(10), HedgePolicy(one_in), up, initial_replicas=10)
        for one_in in (0, 2)
    )

    assert high.attained_frac[0] > low.attained_frac[0]
    assert high.attained_frac[0] > 0.999


def late_requests(up, policy=TWO, arrivals=None, **changes):
    """Two replicas on spot, each enough for two thirds of what comes; return the requests that waited too long."""
    arrivals = np.full(6 * HOUR, 15 * 1.5) if arrivals is None else arrivals
    one = replace(MODEL, cold_start_s=480.0, queue_limit_s=1e4, **{"gpus_per_node": 2, **changes})
    replay = replay_hedged(ServiceHistory(arrivals=arrivals, step_s=15), one, policy, ALL_SPOT, up, initial_replicas=2)
    return replay.requests - replay.ok[0]


def test_a_lost_replica_starts_sooner_where_another_zone_has_room_on_a_node_that_is_up():
    """One replica is short of half a request a second until the second is back, and the queue drains as fast as it grew."""
    up = always(6 * HOUR, zones=2)
    up[0, 2 * HOUR :] = False

    assert late_requests(up) == pytest.approx(1.5 * 2 * (480 + 15), rel=0.02)
    assert late_requests(up, warm_start_s=180.0) == pytest.approx(1.5 * 2 * (180 + 15), rel=0.02)


def test_nodes_that_a_zone_took_along_are_not_started_on():
    """The zone is back after a minute with other nodes: its replicas take as long as on any."""
    up = always(6 * HOUR, zones=1)
    up[0, 2 * HOUR : 2 * HOUR + 4] = False

    assert late_requests(up, warm_start_s=180.0, empty_node_kept_s=600.0) == late_requests(up, empty_node_kept_s=600.0)


def test_an_empty_node_is_lost_with_its_zone_too():
    """The second replica stops for an hour, in zone 0, whose empty node would be kept; the zone goes for a minute meanwhile."""
    policy = CronPolicy((2, 2, 1, *[2] * 21), lead_s=0)
    arrivals = np.full(6 * HOUR, 15 * 1.5)
    arrivals[2 * HOUR : 3 * HOUR] = 15 * 0.5
    stays = always(6 * HOUR, zones=2)
    goes = stays.copy()
    goes[0, 2 * HOUR + 120 : 2 * HOUR + 124] = False

    cold, kept, lost = (
        late_requests(up, policy, arrivals, gpus_per_node=1, empty_node_kept_s=7200.0, warm_start_s=warm_start_s)
        for up, warm_start_s in ((stays, None), (stays, 180.0), (goes, 180.0))
    )

    assert kept < lost == cold


def test_lives_and_outages_have_the_lengths_that_were_asked_for():
    up = SpotZones(zones=3, loss_per_hr=0.5, outage_s=1800).spells(400 * HOUR, seed=3)

    losses = (~up[:, 1:] & up[:, :-1]).sum()
    assert losses / (up.sum() / HOUR) == pytest.approx(0.5, rel=0.15)
    assert (~up).sum() * 15 / losses == pytest.approx(1800, rel=0.2)
    assert SpotZones(zones=3, loss_per_hr=0.5, outage_s=1800).spells(400 * HOUR, seed=3).tobytes() == up.tobytes()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0, 2, 4]))
def test_shuffling_the_future_changes_no_past_hour(seed, one_in):
    served = history(hours=4, seed=seed)
    up = SpotZones(zones=3, loss_per_hr=1.0, outage_s=900).spells(4 * HOUR, seed)
    rng = np.random.default_rng(seed)
    later = served.arrivals.copy()
    later[2 * HOUR :] = rng.permutation(later[2 * HOUR :])
    changed = up.copy()
    changed[:, 2 * HOUR :] = rng.random((3, 2 * HOUR)) < 0.5

    before = replay_hedged(served, MODEL, HPA, HedgePolicy(one_in), up, initial_replicas=6)
    after = replay_hedged(
        ServiceHistory(arrivals=later, step_s=15), MODEL, HPA, HedgePolicy(one_in), changed, initial_replicas=6
    )

    assert before.spot_node_seconds[:2].tolist() == after.spot_node_seconds[:2].tolist()
    assert before.on_demand_node_seconds[:2].tolist() == after.on_demand_node_seconds[:2].tolist()


def test_interpreted_and_compiled_give_the_same_bytes(monkeypatch):
    served = history(hours=2)
    up = SpotZones(zones=3, loss_per_hr=2.0, outage_s=600).spells(2 * HOUR, seed=5)
    compiled = replay_hedged(served, MODEL, HPA, HedgePolicy(4), up, initial_replicas=6)
    monkeypatch.setattr("trimtab.replay.services.serve_history", serve_history.py_func)
    interpreted = replay_hedged(served, MODEL, HPA, HedgePolicy(4), up, initial_replicas=6)

    assert interpreted.ok.tobytes() == compiled.ok.tobytes()
    assert interpreted.spot_node_seconds.tobytes() == compiled.spot_node_seconds.tobytes()
    assert interpreted.lost == compiled.lost


def test_availability_must_cover_the_history():
    with pytest.raises(ValueError, match="3 steps of spot availability"):
        replay_hedged(history(), MODEL, HPA, ALL_SPOT, always(3), initial_replicas=1)
