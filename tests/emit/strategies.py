"""Any effect at all, for properties that hold of every one of them."""

from typing import get_args

from hypothesis import strategies as st

from trimtab.catalog.kinds import BuyingOption, CapacityType, Isolation
from trimtab.catalog.pools import Pool, SharedPool
from trimtab.deployment.effects import (
    BatchForm,
    BookBlocks,
    BuyCommitment,
    BuySpendPlan,
    DeferRuns,
    Effect,
    HedgeOnSpot,
    OverflowTo,
    PlanRate,
    ReleaseIdle,
    ReleaseNodes,
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
    StartBeforeRuns,
    Tranche,
    UseOffering,
    UseSlots,
    Wake,
)
from trimtab.fleet.token_work import TokenWork
from trimtab.physics.disaggregated import TIME_SHARES
from trimtab.physics.formats import WeightFormat
from trimtab.physics.training import Optimizer, Recompute, Sharding
from trimtab.policies.blocks import BlockCalendar
from trimtab.policies.deferral import DeferPolicy
from trimtab.policies.forecast import forecast_policy
from trimtab.policies.keda import KedaPolicy
from trimtab.policies.scaling import NO_LIMIT, HpaPolicy, Metric
from trimtab.provenance import Basis, Estimate

COUNTS = st.integers(1, 64)
TRANCHES = st.lists(
    st.builds(Tranche, after_days=st.integers(0, 365), quantity=COUNTS, on=st.none() | st.dates()), max_size=3
).map(tuple)
SECONDS = st.floats(0, 86_400, allow_nan=False).map(lambda value: round(value, 3))
SHARES = st.sampled_from([0.1, 0.35, 0.7, 0.8, 1.0])
PROVIDERS = st.sampled_from(["aws", "gcp", "azure", "lambda", "owned"])
POOLS = st.builds(
    Pool,
    PROVIDERS,
    st.sampled_from(["p4d.24xlarge", "Standard_ND96asr_v4", "a2-highgpu-8g", "gpu_8x_h100 sxm"]),
    st.sampled_from(["us-east-1", "any"]),
    capacity=st.sampled_from([kind.value for kind in CapacityType]),
)
SPEEDS = st.floats(0.1, 10).map(
    lambda value: Estimate(value=value, low=value / 2, high=value * 2, basis=Basis.MODELLED)
)
LIMITS = st.one_of(COUNTS, st.just(NO_LIMIT))
POLICIES = st.fixed_dictionaries(
    {
        "target_frac": SHARES,
        "min_replicas": st.integers(0, 5),
        "max_replicas": LIMITS,
        "metric": st.sampled_from(Metric),
        "up_pods": st.integers(0, 8),
        "up_frac": st.sampled_from([0.0, 0.5, 1.0]),
        "down_stabilization_s": st.sampled_from([0, 300, 3600]),
    }
).map(lambda values: HpaPolicy(**{**values, "max_replicas": max(values["max_replicas"], values["min_replicas"])}))
FORECASTS = st.builds(
    forecast_policy, cold_start_s=SECONDS, mean_req_s=st.floats(0.1, 1000), min_replicas=st.integers(0, 5),
    max_replicas=LIMITS.map(lambda most: max(most, 5)), target_frac=SHARES,
)  # fmt: skip
TO_NONE = st.builds(
    SetReplicaPolicy,
    policy=st.builds(
        KedaPolicy,
        POLICIES.map(lambda hpa: hpa._replace(min_replicas=0)),
        polling_s=st.just(15),
        cooldown_s=st.sampled_from([300, 540]),
        # all that plans write is finite: the review alone reads triggers that nothing in wait activates
        activation_load=SHARES,
        activation_window_s=st.sampled_from([15, 120]),
        activation_backlog_replica_s=SECONDS,
        idles=st.booleans(),
    ),
    metric=st.just("requests"),
    wake=st.builds(Wake, query=st.just('sum(queue_messages{queue="jobs"})'), hold_s=SECONDS),
)
HALVES = st.builds(
    ServingHalf,
    nodes=st.builds(UseOffering, pool=POOLS, gpu=st.just("A100"), gpus_per_node=st.just(8), speed=SPEEDS),
    gpus=st.sampled_from([1, 2, 8]),
    concurrency=COUNTS,
    replica_req_s=st.sampled_from([0.5, 8.0]),
    loads=st.just((0.1, 0.9)),
    wait_s=st.just(((0.1,) * len(TIME_SHARES), (0.2,) * len(TIME_SHARES))),
    token_s=st.just(()),
    answer_s=st.just(((0.3,) * len(TIME_SHARES), (0.4,) * len(TIME_SHARES))),
    scaling=st.builds(
        SetReplicaPolicy,
        policy=POLICIES,
        metric=st.just("token work per replica"),
        tokens=st.just(TokenWork(input_req=0.001, output_req=0.0, cached_req=0.0)),
    ),
)
EFFECTS = {
    UseOffering: st.builds(UseOffering, pool=POOLS, gpu=st.just("A100"), gpus_per_node=COUNTS, speed=SPEEDS),
    Relocate: st.builds(
        Relocate,
        to=st.builds(UseOffering, pool=POOLS, gpu=st.just("A100"), gpus_per_node=COUNTS, speed=SPEEDS),
        home=POOLS,
        rtt_s=SECONDS,
        data_gib=SECONDS,
        traffic_gib_mo=SECONDS,
        copy_usd=SECONDS,
        overlap_usd=SECONDS,
        traffic_usd_mo=SECONDS,
    ),
    UseSlots: st.builds(
        lambda shared, **rest: UseSlots(shared=shared, gpus_per_node=shared.slots_per_node, **rest),
        shared=st.builds(SharedPool, POOLS, COUNTS)
        | st.builds(SharedPool, POOLS, COUNTS, st.just("1g.10gb"))
        | st.builds(
            SharedPool,
            POOLS,
            COUNTS,
            isolation=st.sampled_from([Isolation.MPS.value, Isolation.TIME_SLICING.value]),
            busy_frac=st.just(0.1),
        ),
        gpu=st.just("A100"),
        slots=st.just(1),
        memory_gib=st.just(9.6),
        speed=SPEEDS,
        work_speed=SPEEDS,
    ),
    SetGpuCount: st.builds(SetGpuCount, gpus=COUNTS, before=COUNTS, pool=POOLS, gpus_per_node=COUNTS),
    SetReplicaPolicy: st.builds(SetReplicaPolicy, policy=POLICIES | FORECASTS, metric=st.just("requests")) | TO_NONE,
    SetBatchPolicy: st.builds(
        SetBatchPolicy,
        form=st.sampled_from(BatchForm),
        max_batch=st.sampled_from([2, 4]),
        window_s=st.sampled_from([0.0, 0.25]),
        replicas=st.none() | COUNTS,
        before=COUNTS,
        sizes=st.just((1, 2, 4)),
        seconds=st.just((0.85, 0.92, 1.06)),
        basis=st.sampled_from(Basis),
        model=st.none() | st.just("Qwen/Qwen2-VL-7B-Instruct"),
    ),
    SetTrainingMemory: st.builds(
        SetTrainingMemory,
        pool=POOLS,
        gpu=st.just("A100"),
        gpus_per_node=COUNTS,
        gpus=COUNTS,
        before=COUNTS,
        optimizer=st.sampled_from(Optimizer),
        recompute=st.sampled_from(Recompute),
        sharding=st.sampled_from(Sharding),
        micro_batch=COUNTS,
        accumulate=COUNTS,
        memory_gib=st.sampled_from([20.0, 36.5]),
        speed=SPEEDS,
        model=st.just("meta-llama/Llama-2-7b-hf"),
    ),
    SetPrecision: st.builds(
        SetPrecision,
        before=st.just(WeightFormat.BF16),
        after=st.sampled_from(WeightFormat),
        speed=SPEEDS,
        speed_there=SPEEDS,
        saved_gib=st.sampled_from([0.0, 7.5]),
        model=st.just("mistralai/Mistral-7B-Instruct-v0.3"),
        answers=st.sampled_from(["", "-0.10 points (-0.60 to +0.40) on 4,500 questions of mmlu, 2026-11-20"]),
    ),
    OverflowTo: st.builds(
        OverflowTo,
        pool=POOLS,
        first_nodes=COUNTS,
        further=st.builds(UseOffering, pool=POOLS, gpu=st.just("A100"), gpus_per_node=COUNTS, speed=SPEEDS),
    ),
    SetReplicaGpus: st.builds(
        SetReplicaGpus,
        nodes=st.builds(UseOffering, pool=POOLS, gpu=st.just("A100"), gpus_per_node=st.just(8), speed=SPEEDS),
        gpus=st.sampled_from([1, 2, 8]),
        before=COUNTS,
        concurrency=COUNTS,
        replica_req_s=st.sampled_from([0.5, 8.0]),
        today_req_s=st.sampled_from([0.5, 8.0]),
        loads=st.just((0.1, 0.9)),
        wait_s=st.just(((0.1,) * len(TIME_SHARES), (0.2,) * len(TIME_SHARES))),
        token_s=st.just(()),
        answer_s=st.just(((0.3,) * len(TIME_SHARES), (0.4,) * len(TIME_SHARES))),
    ),
    SplitServing: st.builds(
        SplitServing,
        prefill=HALVES,
        decode=HALVES,
        model=st.just("mistralai/Mistral-7B-Instruct-v0.3"),
        stored=st.sampled_from([WeightFormat.BF16, WeightFormat.INT4]),
        context=COUNTS,
        prompt_mb=SHARES,
        link_gb_s=SHARES,
        link=st.just("10 Gbit/s of g5.xlarge"),
    ),
    SetCapacityType: st.builds(SetCapacityType, pool=POOLS, loss_per_hr=SHARES),
    HedgeOnSpot: st.builds(
        HedgeOnSpot,
        pool=POOLS,
        one_in=st.sampled_from([0, 2, 4]),
        zones=st.integers(1, 4),
        loss_per_hr=SHARES,
        outage_s=SECONDS,
    ),
    SetReplicas: st.builds(SetReplicas, replicas=COUNTS, before=COUNTS),
    SetSchedule: st.builds(
        SetSchedule, hours_of_week=st.sets(st.integers(0, 167), min_size=1).map(lambda hours: tuple(sorted(hours)))
    ),
    StartBeforeRuns: st.builds(StartBeforeRuns, lead_s=SECONDS),
    DeferRuns: st.builds(
        DeferRuns,
        policy=st.builds(DeferPolicy, start_hour=st.integers(0, 23), within_s=st.integers(1, 23 * 3600)),
        startup_s=SECONDS,
    ),
    BookBlocks: st.builds(
        BookBlocks,
        pool=POOLS,
        calendar=st.builds(BlockCalendar, st.tuples(*[COUNTS] * 7)),
        rate_micro_usd_hr=st.integers(1, 10**8),
        on_demand_micro_usd_hr=st.integers(1, 10**8),
    ),
    ReleaseIdle: st.builds(ReleaseIdle, startup_s=SECONDS),
    ShortenStart: st.builds(ShortenStart, start_s=SECONDS, before_s=SECONDS, restored=st.booleans()),
    ReleaseNodes: st.builds(ReleaseNodes, nodes=st.lists(st.from_regex(r"node-[0-9]+", fullmatch=True)).map(tuple)),
    BuyCommitment: st.builds(
        BuyCommitment,
        pool=POOLS,
        option=st.sampled_from([BuyingOption.RESERVED_1Y, BuyingOption.RESERVED_3Y]),
        count=COUNTS,
        rate_micro_usd_hr=st.integers(1, 10**8),
        on_demand_micro_usd_hr=st.integers(1, 10**8),
        tranches=TRANCHES,
    ),
    BuySpendPlan: st.builds(
        BuySpendPlan,
        provider=st.sampled_from(["aws", "azure", "gcp"]),
        option=st.sampled_from([BuyingOption.SAVINGS_PLAN_1Y, BuyingOption.SAVINGS_PLAN_3Y]),
        spend_micro_usd_hr=st.integers(1, 10**9),
        rates=st.lists(
            st.builds(
                PlanRate,
                pool=POOLS,
                rate_micro_usd_hr=st.integers(1, 10**8),
                on_demand_micro_usd_hr=st.integers(1, 10**8),
            )
        ).map(tuple),
        tranches=TRANCHES,
    ),
}
assert set(EFFECTS) == set(get_args(Effect)), "a new effect needs its strategy here"
