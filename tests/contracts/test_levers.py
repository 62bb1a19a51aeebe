"""Every lever of the registry is whole: named, documented, with effort, risk and words, and a golden case of what it writes."""

from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from tests.contracts.test_emitted_is_replayed import plan_of
from tests.emit.cluster_example import example_facts
from tests.emit.example import FIT

from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.pools import Pool, SharedPool
from trimtab.cli.reference import levers_page
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import (
    BatchForm,
    BookBlocks,
    BuyCommitment,
    OverflowTo,
    ReleaseIdle,
    Relocate,
    ServingHalf,
    SetBatchPolicy,
    SetCapacityType,
    SetGpuCount,
    SetPrecision,
    SetReplicaGpus,
    SetReplicaPolicy,
    SetReplicas,
    SetSchedule,
    SetTrainingMemory,
    ShortenStart,
    SplitServing,
    UseOffering,
    UseSlots,
    Wake,
)
from trimtab.diagnose.findings import WasteKind
from trimtab.emit.manifests.facts import Autoscaler
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.emit.manifests.plan_pages import decision_record
from trimtab.emit.sections.finance import PLAIN_LEVERS, PLAIN_WASTE
from trimtab.errors import InputError
from trimtab.fleet.token_work import TokenWork
from trimtab.levers import registry
from trimtab.levers.lever import CompositionStage, Lever
from trimtab.levers.registry import BUILT_IN, lever_named, title_of
from trimtab.physics.disaggregated import TIME_SHARES
from trimtab.physics.formats import WeightFormat
from trimtab.physics.training import Optimizer, Recompute, Sharding
from trimtab.plan.model import Change
from trimtab.policies.blocks import BlockCalendar
from trimtab.policies.keda import KedaPolicy
from trimtab.policies.scaling import HpaPolicy
from trimtab.provenance import Basis, Estimate
from trimtab.units import WORKDAYS_PER_WEEK

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "levers.md"
HERE, THERE = Pool("aws", "g5.xlarge", "us-east-1"), Pool("aws", "p4d.24xlarge", "us-east-1")
HOME_OF_RUNS = Pool("aws", "p3.8xlarge", "us-east-1")
FASTER = Estimate(value=2.0, low=1.6, high=2.4, basis=Basis.MODELLED, because="a test")
BIGGER = UseOffering(pool=THERE, gpu="A100-SXM4-40GB", gpus_per_node=8, speed=FASTER)
SERVICE, RUNS, NOTEBOOK = "prod/chat-api", "research/vision-exp", "notebooks/ana"


def half(pool, gpu, gpus_per_node, gpus, replica_req_s, work):
    """Prefill or decode with times at two loads."""
    times = (tuple(0.1 * (1 + share) for share in TIME_SHARES), tuple(0.2 * (1 + share) for share in TIME_SHARES))
    return ServingHalf(
        nodes=UseOffering(pool=pool, gpu=gpu, gpus_per_node=gpus_per_node, speed=FASTER.scaled(0.5)),
        gpus=gpus, concurrency=64, replica_req_s=replica_req_s, loads=(0.1, 0.9), wait_s=times, token_s=(), answer_s=times,
        scaling=SetReplicaPolicy(
            policy=HpaPolicy(target_frac=0.6, min_replicas=2, max_replicas=9), metric="token work per replica", tokens=work
        ),
    )  # fmt: skip


def served(nodes, gpus, before):
    """Replicas on another number of GPUs, with times at two loads."""
    times = (tuple(0.1 * (1 + share) for share in TIME_SHARES), tuple(0.2 * (1 + share) for share in TIME_SHARES))
    return SetReplicaGpus(
        nodes=replace(nodes, speed=FASTER.scaled(0.5)), gpus=gpus, before=before, concurrency=64, replica_req_s=16.0,
        today_req_s=4.0, loads=(0.1, 0.9), wait_s=times, token_s=(), answer_s=times,
    )  # fmt: skip


SAMPLES = {
    "right-size": (SERVICE, BIGGER),
    "relocation": (
        SERVICE,
        Relocate(
            to=BIGGER, home=HERE, rtt_s=0.09, data_gib=40.0, traffic_gib_mo=20.0, copy_usd=0.8, overlap_usd=168.0,
            traffic_usd_mo=0.4,
        ),
    ),
    "sharing": (
        SERVICE,
        UseSlots(
            shared=SharedPool(THERE, 56, "1g.5gb"), gpu="A100-SXM4-40GB", gpus_per_node=8, slots=1, memory_gib=4.8,
            speed=FASTER, work_speed=FASTER,
        ),
    ),
    "replica-gpus": (SERVICE, served(BIGGER, 2, 1)),
    "gpu-count": (RUNS, SetGpuCount(gpus=1, before=8, pool=HERE, gpus_per_node=1)),
    "training-memory": (
        RUNS,
        SetTrainingMemory(
            pool=THERE, gpu="A100-SXM4-40GB", gpus_per_node=8, gpus=4, before=8, optimizer=Optimizer.ADAMW_8BIT,
            recompute=Recompute.FULL, sharding=Sharding.WEIGHTS, micro_batch=4, accumulate=6, memory_gib=33.0,
            speed=FASTER, model="meta-llama/Llama-2-7b-hf",
        ),
    ),
    "quantization": (
        SERVICE,
        SetPrecision(
            before=WeightFormat.BF16, after=WeightFormat.FP8, speed=FASTER, speed_there=FASTER, saved_gib=7.0,
            model="mistralai/Mistral-7B-Instruct-v0.3",
        ),
    ),
    "overflow": (
        SERVICE,
        OverflowTo(
            pool=THERE,
            first_nodes=3,
            further=UseOffering(pool=HERE, gpu="A10G", gpus_per_node=1, speed=FASTER.scaled(0.25)),
        ),
    ),
    "autoscaling": (
        SERVICE,
        SetReplicaPolicy(policy=HpaPolicy(target_frac=0.7, min_replicas=2, max_replicas=9), metric="requests"),
    ),
    "scale-to-zero": (
        SERVICE,
        SetReplicaPolicy(
            policy=KedaPolicy(HpaPolicy(target_frac=0.6, min_replicas=0, max_replicas=4), polling_s=15, cooldown_s=540),
            metric="requests",
            wake=Wake(query='sum(rate(envoy_cluster_upstream_rq_total{envoy_cluster_name="chat"}[2m]))', hold_s=900.0),
        ),
    ),
    "replica-count": (SERVICE, SetReplicas(replicas=2, before=4)),
    "idle-release": (RUNS, ReleaseIdle(startup_s=300.0)),
    "schedule": (NOTEBOOK, SetSchedule(hours_of_week=tuple(range(9, 18)))),
    "closed-hours": (SERVICE, SetSchedule(hours_of_week=tuple(range(8, 18)))),
    "batching": (
        SERVICE,
        SetBatchPolicy(
            form=BatchForm.GREEDY, max_batch=4, window_s=0.0, replicas=2, before=4, sizes=(1, 2, 4),
            seconds=(0.85, 0.92, 1.06), basis=Basis.CALIBRATED,
        ),
    ),
    "disaggregation": (
        SERVICE,
        SplitServing(
            prefill=half(HERE, "A10G", 1, 1, 16.0, TokenWork(input_req=1e-3, output_req=0.0, cached_req=0.0)),
            decode=half(THERE, "A100-SXM4-40GB", 8, 2, 9.0, TokenWork(input_req=0.0, output_req=5e-3, cached_req=0.0)),
            model="mistralai/Mistral-7B-Instruct-v0.3", stored=WeightFormat.BF16, context=8192, prompt_mb=134.0, link_gb_s=1.25,
            link="10 Gbit/s of g5.xlarge",
        ),
    ),
    "faster-start": (SERVICE, ShortenStart(start_s=60.0, before_s=240.0, images=True, weights=True)),
    "spot": (
        RUNS,
        SetCapacityType(pool=THERE.held_as(CapacityType.SPOT), loss_per_hr=0.05),
    ),
    "capacity-block": (
        RUNS,
        BookBlocks(
            pool=HOME_OF_RUNS.held_as(CapacityType.CAPACITY_BLOCK), calendar=BlockCalendar((1, 1, 1, 1, 1, 0, 0)),
            rate_micro_usd_hr=20_000_000, on_demand_micro_usd_hr=32_000_000,
        ),
    ),
    "commitment": (
        str(THERE),
        BuyCommitment(
            pool=THERE, option=BuyingOption.RESERVED_1Y, count=2, rate_micro_usd_hr=20_000_000,
            on_demand_micro_usd_hr=32_000_000,
        ),
    ),
}  # fmt: skip
"""One effect of each lever, on a workload of the example cluster."""


def sample_plan(lever):
    """A plan of one action of a lever."""
    subject, effect = SAMPLES[lever.name]
    plan = plan_of(subject, Deployment.of((lever.name, ReleaseIdle(startup_s=1.0))), FIT)
    (action,) = plan.actions
    change = Change(subject=subject, effect=effect)
    return replace(plan, actions=(replace(action, changes=(change,), rollback=lever.rollback, risk=lever.risk),))


@pytest.mark.parametrize("lever", BUILT_IN, ids=lambda lever: lever.name)
def test_a_lever_says_all_that_there_is_to_say_of_it(lever):
    assert lever.title
    assert lever.meaning[0].isupper()
    assert not lever.meaning.endswith(".")
    assert lever.effort.weeks > 0
    assert lever.effort.per in {"fleet", "class", "action"}
    assert lever.rollback
    assert bool(lever.kinds) == (lever.stage is not CompositionStage.FLEET)
    assert lever.drift_frac is None or 0 < lever.drift_frac < 1
    assert 0 <= lever.guide_order <= 6
    assert (ROOT / "docs" / lever.page).is_file(), f"{lever.page} is not there"
    assert all(lever.canary(SAMPLES[lever.name][1]))


@pytest.mark.parametrize("lever", BUILT_IN, ids=lambda lever: lever.name)
def test_the_effort_of_a_lever_is_the_sum_of_the_steps_that_its_page_lists(lever):
    first, each = (sum(step.days for step in steps) / WORKDAYS_PER_WEEK for steps in (lever.first_steps, lever.steps))

    assert (lever.effort.first_weeks, lever.effort.weeks) == (pytest.approx(first), pytest.approx(each))


def test_levers_have_names_of_their_own_and_a_sample_each():
    names = [lever.name for lever in BUILT_IN]

    assert len(set(names)) == len(names)
    assert set(SAMPLES) == set(names)


@pytest.mark.parametrize("lever", BUILT_IN, ids=lambda lever: lever.name)
def test_a_lever_writes_what_its_golden_case_says(lever, golden):
    plan = sample_plan(lever)
    emission = emit_plan(plan, example_facts(Autoscaler.KEDA))
    written = sorted(file.path for file in emission.files if not file.path.startswith(("decisions/", "APPLY")))
    left = [f"`{one.subject}`: {one.reason}" for one in emission.withheld]

    assert written or left
    golden(f"lever-{lever.name}.md", decision_record(plan.actions[0], plan, written=written, withheld=left))


def test_the_reference_page_is_what_the_registry_says():
    assert PAGE.read_text(encoding="utf-8") == levers_page(), (
        "run python -m trimtab.cli.reference levers > docs/reference/levers.md"
    )


def ours() -> Lever:
    return LEVER


LEVER = Lever(
    name="ours",
    title="Ours",
    meaning="Does what only we do",
    page="how-to/read-an-audit.md",
    stage=CompositionStage.HOLD,
    kinds=frozenset(),
    effort=BUILT_IN[0].effort,
    risk=BUILT_IN[0].risk,
    rollback="undo it",
    canary=lambda effect: ("try it",),
)


@pytest.fixture
def installed(monkeypatch):
    """Install entry points of a package that is not there."""

    def install(*points):
        def entry_points(*, group):
            return [EntryPoint(name=name, value=value, group=group) for name, value in points]

        monkeypatch.setattr(registry, "entry_points", entry_points)
        registry.levers.cache_clear()

    yield install
    monkeypatch.undo()
    registry.levers.cache_clear()


@pytest.mark.parametrize("what", ["LEVER", "ours"])
def test_an_installed_package_adds_a_lever_by_an_entry_point(installed, what):
    installed(("ours", f"{__name__}:{what}"))

    assert [lever.name for lever in registry.levers()] == [*(lever.name for lever in BUILT_IN), "ours"]
    assert title_of("ours") == "Ours"


@pytest.mark.parametrize("value", [f"{__name__}:BIGGER", "nowhere.at.all:LEVER", "trimtab.levers.spot:LEVER"])
def test_an_entry_point_that_is_no_lever_of_its_own_is_refused_by_name(installed, value):
    installed(("theirs", value))

    with pytest.raises(InputError, match="entry point theirs"):
        registry.levers()


def test_a_lever_that_is_not_installed_any_more_is_named_and_its_kept_audit_stays_readable():
    assert title_of("ours") == "ours"
    with pytest.raises(InputError, match="'ours'"):
        lever_named("ours")


def test_every_lever_and_every_part_of_the_bill_has_words_for_those_who_pay():
    assert set(PLAIN_LEVERS) == {lever.name for lever in BUILT_IN}
    assert set(PLAIN_WASTE) == {kind.value for kind in WasteKind}
