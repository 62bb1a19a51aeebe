"""What goes together: places, precisions, batches, scalers and spot compose; what contradicts itself is never offered."""

from dataclasses import replace
from itertools import combinations

import pytest
from tests.emit.cluster_example import example_facts
from tests.emit.example import example_audit
from tests.fleets import FleetRows, few_machines

from trimtab.catalog.pools import Pool
from trimtab.deployment.effects import HedgeOnSpot
from trimtab.deployment.placement import resolve
from trimtab.emit.manifests.facts import WorkloadFacts
from trimtab.emit.manifests.pool_specs import placed_workloads
from trimtab.emit.manifests.program_settings import batching_page
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.levers import autoscaling, batching, idle_release, quantization, right_size, schedule, sharing, spot
from trimtab.levers.batching import batches_fit, fitting_profile
from trimtab.levers.lever import LeverRequest
from trimtab.physics.formats import WeightFormat
from trimtab.plan.model import Change
from trimtab.plan.options.composition import bought, on_demand, places
from trimtab.plan.options.workload_options import options_of
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of

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
    return Market(
        catalog=few_machines("g7.2xlarge", "g6e.xlarge"), at=None, max_term_years=1, assumptions=SETTINGS.assumptions
    )


@pytest.fixture(scope="module")
def anything():
    return captions(quantize=["int8", "awq"], interruptible=True)


@pytest.fixture(scope="module")
def ask(anything, market):
    return LeverRequest(evaluator=Evaluator(case=anything), market=market)


@pytest.fixture(scope="module")
def ways(ask):
    return list(on_demand(ask))


def test_every_pair_of_levers_of_a_service_goes_together_and_so_do_all_three(ways):
    found = {one.levers for one in ways}
    levers = (quantization.NAME, batching.NAME, sharing.NAME)

    for some in (*combinations(levers, 2), levers):
        assert any(frozenset(some) <= one for one in found), some
    assert any({quantization.NAME, right_size.NAME, autoscaling.NAME} <= one for one in found)


def test_nobody_moves_to_two_places_or_holds_replicas_in_two_ways(ways):
    for one in ways:
        assert len(one.levers & {right_size.NAME, sharing.NAME}) <= 1
        assert len(one.levers & {autoscaling.NAME, schedule.NAME, idle_release.NAME}) <= 1
        assert one.batching is None or (one.batching.replicas is None) == (autoscaling.NAME in one.levers)


def test_a_place_that_holds_the_model_only_in_fewer_bits_never_comes_without_them(ways):
    tight = [one for one in ways if any(getattr(effect, "only_quantized", False) for _, effect in one.changes)]

    assert tight
    assert all(quantization.NAME in one.levers for one in tight)


def test_fewer_bits_leave_room_for_larger_batches(anything, ask, market):
    profile = batching.profile_of(anything.workload, market.gpu(anything.workload.gpu))
    offered = places(ask)

    def most(where):
        fitting = fitting_profile(anything, ask.evaluator.place(where), profile, market)
        return 1 if fitting is None else fitting.sizes[-1]

    def at(where):
        place = where.offering or where.sharing
        return None if place is None else getattr(place, "shared", place.pool)

    plain = {at(where): most(where) for where in offered if where.precision is None}
    fewer = {at(where): most(where) for where in offered if where.precision is not None}
    both = plain.keys() & fewer.keys()

    assert all(fewer[one] >= plain[one] for one in both)
    assert any(fewer[one] > plain[one] for one in both)


def test_slots_of_shared_nodes_are_never_held_on_spot(anything, ask, ways):
    shared = [one for one in ways if resolve(anything.workload, one).shared is not None]

    assert shared
    assert not any(any(bought(one, ask)) for one in shared)
    assert any(any(bought(one, ask)) for one in ways if batching.NAME in one.levers)
    assert any(any(bought(one, ask)) for one in ways if quantization.NAME in one.levers)


def test_what_batches_may_also_serve_from_spot(market):
    options = options_of(captions(interruptible=True), market)

    hedged = [one.deployment for one in options.candidates if isinstance(one.deployment.buying, HedgeOnSpot)]
    assert all(spot.NAME in one.levers for one in hedged)
    assert any(batching.NAME in one.levers for one in hedged)
    assert all(options.evaluator.keeps_targets(one) for one in hedged)


def test_batches_that_fit_only_fewer_bits_need_them_first(anything, ask, market, ways):
    at_home = [one for one in ways if one.batching is not None and not one.without("batching", "scaling").changes]
    (tight,) = [
        where
        for where in places(ask)
        if where.precision is not None
        and where.precision.after is WeightFormat.INT8
        and getattr(where.offering, "pool", None) == Pool("aws", "g7.2xlarge", "us-east-1")
    ]
    most = max((one.batching for one in at_home), key=lambda policy: policy.max_batch)
    whole = tight.plus((batching.NAME, most))

    assert most.max_batch == 8
    assert batches_fit(anything, resolve(anything.workload, whole), market)
    assert not batches_fit(anything, resolve(anything.workload, whole.without("precision")), market)


def test_the_page_states_the_batch_times_that_the_plan_rests_on(anything, ways):
    workload = anything.workload
    known = WorkloadFacts(
        name=workload.name,
        gpus_per_pod=workload.gpus_per_pod,
        gpu=workload.gpu,
        pool=workload.pool,
        gpus_per_node=workload.gpus_per_node,
    )
    both = [one for one in ways if {batching.NAME, quantization.NAME} <= one.levers]
    for one in both[:: max(1, len(both) // 20)]:
        action = example_audit().plan.actions[0]
        actions = [
            replace(action, lever=lever, changes=(Change(subject=workload.name, effect=effect),))
            for lever, effect in reversed(one.changes)
        ]
        place = resolve(workload, one)
        (placed,) = placed_workloads(actions, [known]).values()

        page = placed.place.batch_curve()
        assert page == one.batching.curve.carried(place.speed.value, place.work_speed.value)
        text = batching_page(action, workload.name, one.batching, placed, example_facts())
        assert all(
            f"| {size} | {page.run_s(size):.3g} |" in text for size in page.sizes if size <= one.batching.max_batch
        )
