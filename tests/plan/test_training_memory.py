"""Other memory plans of training runs: what fits, how fast, and what is said of those that a target forbids."""

from typing import get_args

import pytest
from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import SetTrainingMemory
from trimtab.deployment.placement import resolve
from trimtab.fleet.build import build_fleet
from trimtab.fleet.declared_models import trained_model
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Assumptions, Settings
from trimtab.levers import spot, training_memory
from trimtab.physics.training import Method, Optimizer, Recompute
from trimtab.pipeline import audit, open_demo
from trimtab.tables.workloads import DeclaredTraining

SETTINGS = Settings()
DECLARED = {
    "method": "full",
    "optimizer": "adamw",
    "recompute": "full",
    "sharding": 3,
    "sequence": 4096,
    "micro_batch": 6,
    "global_batch": 96,
}


def tuning(*, memory_gib=36.4, training=DECLARED, targets=None, model="meta-llama/Llama-2-7b-hf"):
    """A node of eight A100s on which a 7B model is tuned, seven hours a day."""
    rows = FleetRows(21).node("n", "p4d.24xlarge")
    for day in range(21):
        rows.hold("ml/tune", "n", range(8), day * 24 + 9, day * 24 + 16, pod=f"p{day}", owner_kind="Job")
        rows.job("ml/tune", day * 24 + 9, day * 24 + 9, day * 24 + 16, 8, name=f"j{day}")
        for gpu in range(8):
            hours = range(day * 24 + 9, day * 24 + 16)
            rows.use("ml/tune", "n", gpu, hours, sm=0.8, util=0.95, tensor=0.4, dram=0.5, memory_gib=memory_gib)
    spec = {"kind": "training", "model": model, "interruptible": False}
    spec |= {} if training is None else {"training": training}
    rows.workloads = {"ml/tune": spec | ({} if targets is None else {"targets": targets})}
    return rows.bundle()


def workload(**changes):
    return build_fleet(tuning(**changes), SETTINGS).workload("ml/tune")


@pytest.fixture(scope="module")
def offered():
    runs = workload()
    market = Market(catalog=load_catalog(), at=None, max_term_years=1, assumptions=SETTINGS.assumptions)
    return runs, market, training_memory.propose(runs, trained_model(runs), market, SETTINGS.assumptions)


def test_the_words_of_the_declaration_are_those_of_the_physics():
    fields = DeclaredTraining.model_fields

    assert set(get_args(fields["method"].annotation)) == {one.value for one in Method}
    assert set(get_args(fields["optimizer"].annotation)) == {one.value for one in Optimizer}
    assert set(get_args(fields["recompute"].annotation)) == {one.value for one in Recompute}


def test_computed_memory_is_fixed_to_the_peak_that_was_seen():
    model = trained_model(workload(memory_gib=33.0))

    assert model.memory_gib(model.plan) == pytest.approx(33.0)


def test_a_declaration_that_does_not_explain_the_memory_seen_is_refused():
    assert "check training:" in trained_model(workload(memory_gib=8.0))


def test_eight_bit_states_make_room_to_recompute_less(offered):
    runs, _, plans = offered
    here = next(one for one in plans if one.pool == runs.pool and one.gpus == 8)

    assert here.optimizer is Optimizer.ADAMW_8BIT
    assert here.recompute is not Recompute.FULL
    assert here.speed.value > 1
    assert here.memory_gib <= 40 * 0.95


def test_every_plan_fits_and_keeps_the_batch_of_a_step(offered):
    _, market, plans = offered

    for one in plans:
        assert one.memory_gib <= market.gpu(one.gpu).memory_gib * 0.95
        assert one.micro_batch * one.accumulate * one.gpus == 96


def test_no_plan_takes_dearer_nodes_or_more_gpus(offered):
    runs, market, plans = offered

    assert plans
    assert all(market.rate(one.pool) <= market.rate(runs.pool) and one.gpus <= 8 for one in plans)


def test_no_run_is_put_on_an_accelerator_that_programs_are_compiled_for(offered):
    """A node of Trainium costs less than one of A100s and computes in the same precision (NeuronCores need other programs)."""
    _, _, plans = offered

    assert {plan.gpu for plan in plans} & {"Trainium", "Inferentia2"} == set()


def test_a_plan_places_its_runs_on_its_own_gpus(offered):
    runs, _, plans = offered
    single = next(one for one in plans if one.gpus == 1)

    place = resolve(runs, Deployment.of((training_memory.NAME, single)))

    assert (place.pool, place.gpus_per_pod, place.speed) == (single.pool, 1.0, single.speed)


def test_slower_plans_that_a_target_forbids_are_listed_with_the_sum():
    found = audit(tuning())
    reasons = [one.reason for one in found.plan.not_worth_doing if one.lever == training_memory.NAME]

    assert any(
        "times as long, which its target forbids" in reason and "a run on demand" in reason for reason in reasons
    )


def test_runs_that_may_be_slow_train_on_fewer_gpus():
    found = audit(tuning(targets=[{"metric": "throughput", "limit_frac": 0.15}]))
    (plan,) = [
        change.effect
        for action in found.plan.actions
        for change in action.changes
        if isinstance(change.effect, SetTrainingMemory)
    ]

    assert plan.gpus < 8
    assert all(one.kept for one in found.proof.targets)


def test_a_spot_pool_follows_the_place_when_the_plan_that_chose_it_is_left_out():
    always_there = Settings(assumptions=Assumptions(spot_unavailable_frac=0.0))
    found = audit(open_demo("finetune-7b"), always_there)
    changes = {action.lever: action.changes[0].effect for action in found.plan.actions}

    assert training_memory.NAME not in changes
    assert changes[spot.NAME].pool.instance_type == "p4d.24xlarge"


def test_a_workload_that_declares_no_plan_is_asked_for_it():
    assert "not declared" in trained_model(workload(training=None))
