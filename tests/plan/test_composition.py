"""What goes together: places, precisions, batches, scalers and spot compose; what contradicts itself is never offered."""

from itertools import combinations

import pytest
from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.catalog.pools import Pool
from trimtab.emit.manifests.batching import batch_curve
from trimtab.emit.manifests.scope import moved
from trimtab.fleet.build import build_fleet
from trimtab.fleet.effects import HedgeOnSpot
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Lever, Settings
from trimtab.levers import batching
from trimtab.physics.formats import WeightFormat
from trimtab.plan.options.batch_options import batches_fit, fitting_profile
from trimtab.plan.options.composition import SpotOffers, on_demand
from trimtab.plan.options.workload_options import options_of
from trimtab.plan.outcomes.evaluate import Evaluator, cases_of
from trimtab.plan.outcomes.outcome import placement
from trimtab.plan.outcomes.places import places_of
from trimtab.replay.batched_law import carried_curve

SETTINGS = Settings()
LE_S = (0.5, 0.7, 0.85, 1.0, 1.3, 2.0, 4.0, float("inf"))


def captions(**spec):
    """Two A100s that answer one request of a known model at a time, for a week."""
    rows = FleetRows(7).node("n", "p4d.24xlarge")
    rows.hold("prod/caption", "n", range(2), owner_kind="Deployment")
    for number, allocation in enumerate(rows.rows["allocations"]):
        allocation["pod"] = f"caption-{number}"
    for gpu in range(2):
        rows.use("prod/caption", "n", gpu, range(168), sm=0.35, tensor=0.1, dram=0.7, memory_gib=24.0)
    counts = [2_000 * share for share in (0.02, 0.2, 0.3, 0.25, 0.15, 0.07, 0.01, 0.0)]
    rows.demand("prod/caption", lambda hour: 2_000, 2, LE_S, lambda hour: counts, running=lambda hour: 0.5)
    for row in rows.rows["demand"]:
        row["input_tokens_mean"], row["output_tokens_mean"] = 300.0, 60.0
    declared = {
        "model": "mistralai/Mistral-7B-Instruct-v0.3",
        "targets": [{"metric": "latency", "quantile": 0.95, "limit_s": 20.0}],
        "batching": {"seconds": {1: 0.85, 2: 0.92, 4: 1.06, 8: 1.34}, "item_gib": 1.0},
    }
    rows.workloads = {"prod/caption": declared | spec}
    (case,) = cases_of(build_fleet(rows.bundle(), SETTINGS), SETTINGS, seed=7).values()
    return case


@pytest.fixture(scope="module")
def market():
    return Market(catalog=load_catalog(), at=None, max_term_years=1, assumptions=SETTINGS.assumptions)


@pytest.fixture(scope="module")
def anything():
    return captions(quantize=["int8", "awq"], interruptible=True)


@pytest.fixture(scope="module")
def ways(anything, market):
    return list(on_demand(Evaluator(case=anything), market, places_of(anything, market).fitting))


def test_every_pair_of_levers_of_a_service_goes_together_and_so_do_all_three(ways):
    found = {frozenset(one) for one in ways}
    levers = (Lever.QUANTIZATION, Lever.BATCHING, Lever.SHARING)

    for some in (*combinations(levers, 2), levers):
        assert any(frozenset(some) <= one for one in found), some
    assert any({Lever.QUANTIZATION, Lever.RIGHT_SIZE, Lever.AUTOSCALING} <= one for one in found)


def test_nobody_moves_to_two_places_or_holds_replicas_in_two_ways(ways):
    for one in ways:
        assert len(one.keys() & {Lever.RIGHT_SIZE, Lever.SHARING}) <= 1
        assert len(one.keys() & {Lever.AUTOSCALING, Lever.SCHEDULE, Lever.IDLE_RELEASE}) <= 1
        batched = one.get(Lever.BATCHING)
        assert batched is None or (batched.replicas is None) == (Lever.AUTOSCALING in one)


def test_a_place_that_holds_the_model_only_in_fewer_bits_never_comes_without_them(ways):
    tight = [one for one in ways if any(getattr(effect, "only_quantized", False) for effect in one.values())]

    assert tight
    assert all(Lever.QUANTIZATION in one for one in tight)


def test_fewer_bits_leave_room_for_larger_batches(anything, market):
    profile = batching.profile_of(anything.workload, market.gpu(anything.workload.gpu))
    places = places_of(anything, market).fitting

    def most(where):
        fitting = fitting_profile(anything, where, profile, market)
        return 1 if fitting is None else fitting.sizes[-1]

    def at(where):
        place = where.get(Lever.RIGHT_SIZE) or where.get(Lever.SHARING)
        return None if place is None else getattr(place, "shared", place.pool)

    plain = {at(where): most(where) for where in places if Lever.QUANTIZATION not in where}
    fewer = {at(where): most(where) for where in places if Lever.QUANTIZATION in where}
    both = plain.keys() & fewer.keys()

    assert all(fewer[one] >= plain[one] for one in both)
    assert any(fewer[one] > plain[one] for one in both)


def test_slots_of_shared_nodes_are_never_held_on_spot(anything, market, ways):
    spot = SpotOffers.of(anything, market)
    shared = [one for one in ways if placement(anything.workload, one).shared is not None]

    assert shared
    assert not any(spot.for_place(one) for one in shared)
    assert any(spot.for_place(one) for one in ways if Lever.BATCHING in one)
    assert any(spot.for_place(one) for one in ways if Lever.QUANTIZATION in one)


def test_what_batches_may_also_serve_from_spot(market):
    options = options_of(captions(interruptible=True), market)

    spot = [one for one in options.candidates if isinstance(one.effects.get(Lever.SPOT), HedgeOnSpot)]
    assert any(Lever.BATCHING in one.effects for one in spot)
    assert all(options.evaluator.keeps_targets(one.effects) for one in spot)


def test_batches_that_fit_only_fewer_bits_need_them_first(anything, market):
    larger = [
        one
        for one in on_demand(Evaluator(case=anything), market, places_of(anything, market).fitting[:1])
        if Lever.BATCHING in one
    ]
    (tight,) = [
        where
        for where in places_of(anything, market).fitting
        if Lever.QUANTIZATION in where
        and where[Lever.QUANTIZATION].after is WeightFormat.INT8
        and getattr(where.get(Lever.RIGHT_SIZE), "pool", None) == Pool("aws", "g7.2xlarge", "us-east-1")
    ]
    most = max((one[Lever.BATCHING] for one in larger), key=lambda policy: policy.max_batch)
    whole = {**tight, Lever.BATCHING: most}

    assert most.max_batch == 8
    assert batches_fit(anything, whole, market)
    assert not batches_fit(anything, {Lever.RIGHT_SIZE: tight[Lever.RIGHT_SIZE], Lever.BATCHING: most}, market)


def test_the_page_states_the_batch_times_that_the_plan_rests_on(anything, ways):
    both = [one for one in ways if {Lever.BATCHING, Lever.QUANTIZATION} <= one.keys()]
    for one in both[:: max(1, len(both) // 20)]:
        place, policy = placement(anything.workload, one), one[Lever.BATCHING]
        page = batch_curve(policy, moved([*one.values()]), one[Lever.QUANTIZATION])

        assert page == carried_curve(policy, place.speed.value, place.work_speed.value)
