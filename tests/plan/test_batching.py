"""Batching in the joint plan: what is advised, with how many replicas, and what is asked for where it is not known."""

import pytest
from tests.fleets import FleetRows, few_machines

from trimtab.deployment.effects import BatchForm, SetBatchPolicy, UseOffering
from trimtab.levers import autoscaling, batching, commitments, right_size
from trimtab.pipeline import audit, open_demo

DAYS = 9
LE_S = (0.5, 0.7, 0.85, 1.0, 1.3, 2.0, 4.0, float("inf"))
SECONDS = {1: 0.85, 2: 0.92, 4: 1.06, 8: 1.34, 16: 1.90}
ADVISED = {batching.NAME, right_size.NAME, autoscaling.NAME, commitments.NAME}


def quad(*, requests_hr=2_000, batching=None, running=None, limit_s=4.0, model=None):
    """Four A100s that answer one request at a time: SM 35 %, DRAM high, and a latency target."""
    rows = FleetRows(DAYS).node("n", "p4d.24xlarge")
    rows.hold("prod/caption", "n", range(4), owner_kind="Deployment")
    for number, allocation in enumerate(rows.rows["allocations"]):
        allocation["pod"] = f"caption-{number}"
    for gpu in range(4):
        rows.use("prod/caption", "n", gpu, range(DAYS * 24), sm=0.35, tensor=0.1, dram=0.7, memory_gib=17.5)

    def of_hour(hour):
        return requests_hr * (0.6 if hour % 24 < 12 else 1.4)

    def counts(hour):
        return [share * of_hour(hour) for share in (0.02, 0.2, 0.3, 0.25, 0.15, 0.07, 0.01, 0.0)]

    in_work = running or (lambda hour: of_hour(hour) * 0.85 / 3600)
    rows.demand("prod/caption", of_hour, 4, LE_S, counts, running=in_work)
    spec = {"targets": [{"metric": "latency", "quantile": 0.95, "limit_s": limit_s}]}
    if model is not None:
        spec["model"] = model
        for row in rows.rows["demand"]:
            row["input_tokens_mean"], row["output_tokens_mean"] = 300.0, 60.0
    rows.workloads = {"prod/caption": spec | ({} if batching is None else {"batching": batching})}
    return rows.bundle()


@pytest.fixture(scope="module")
def advised():
    return audit(quad(batching={"seconds": SECONDS, "item_gib": 0.15}), catalog=few_machines())


def effects(found, kind):
    return [
        change.effect for action in found.plan.actions for change in action.changes if isinstance(change.effect, kind)
    ]


def reason(found, lever):
    return next(one.reason for one in found.plan.not_worth_doing if one.lever == lever)


def test_four_gpus_that_wait_for_latency_are_told_to_batch_and_never_to_buy_a_larger_gpu(advised):
    levers = {action.lever for action in advised.plan.actions}
    gpus = {effect.gpu for effect in effects(advised, UseOffering)}

    assert batching.NAME in levers
    assert levers <= ADVISED
    assert not any(gpu.startswith(("H100", "H200", "B200", "B300")) for gpu in gpus)


def test_the_target_holds_in_the_proof_with_fewer_replicas(advised):
    (policy,) = effects(advised, SetBatchPolicy)

    assert policy.max_batch > 1
    assert all(one.kept for one in advised.proof.targets)
    assert advised.plan.joint_saving_micro_usd > 0.5 * advised.plan.before_micro_usd


def test_the_evidence_names_batch_times_and_rates(advised):
    action = next(one for one in advised.plan.actions if one.lever == batching.NAME)
    lines = " ".join(f"{row.what} {row.value}" for row in action.evidence)

    assert "seconds by batch size 1: 0.85" in lines
    assert "greedy" in lines


def test_a_service_whose_batch_times_nobody_knows_is_told_what_to_measure():
    found = audit(quad(), catalog=few_machines())

    assert batching.NAME not in {action.lever for action in found.plan.actions}
    assert "measure the seconds that batches" in reason(found, batching.NAME)


def test_a_known_model_that_takes_one_request_at_a_time_gets_a_continuous_engine():
    found = audit(quad(requests_hr=11_000, model="mistralai/Mistral-7B-Instruct-v0.3"), catalog=few_machines())

    (policy,) = effects(found, SetBatchPolicy)
    assert policy.form is BatchForm.CONTINUOUS
    assert policy.seconds[0] == pytest.approx(0.85, rel=0.02)
    assert policy.seconds[-1] < policy.sizes[-1] * policy.seconds[0]  # sharing a GPU beats taking turns
    assert not any(size.gpu.startswith(("H100", "H200", "B200")) for size in effects(found, UseOffering))
    assert all(one.kept for one in found.proof.targets)


def test_batch_times_that_contradict_what_was_seen_are_not_used():
    found = audit(quad(batching={"seconds": {1: 0.1, 8: 0.2}}), catalog=few_machines())

    assert "measure the batch times again" in reason(found, batching.NAME)


def test_a_service_that_runs_several_at_once_is_not_told_to_batch():
    found = audit(quad(batching={"seconds": SECONDS}, running=lambda hour: 4 * 6.0), catalog=few_machines())

    assert reason(found, batching.NAME) == "runs up to 6 requests a replica at once already"


def test_the_demonstration_of_four_gpus_saves_three_quarters_by_batches_on_one():
    found = audit(open_demo("quad-a100"))

    (policy,) = effects(found, SetBatchPolicy)
    assert policy.replicas == 1
    assert {action.lever for action in found.plan.actions} <= ADVISED
    assert not any(size.gpu.startswith(("H100", "H200", "B200")) for size in effects(found, UseOffering))
    assert found.plan.joint_saving_micro_usd > 0.75 * found.plan.before_micro_usd
    assert all(one.kept for one in found.proof.targets)
