"""An audit written by hand, with the numbers of a $200k-a-month fleet, for the golden files of every face."""

import math
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import pairwise

import numpy as np

from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.effects import (
    BuyCommitment,
    Effect,
    ReleaseIdle,
    ReleaseNodes,
    SetCapacityType,
    SetGpuCount,
    SetReplicaPolicy,
    SetSchedule,
    StartBeforeRuns,
    Tranche,
    UseOffering,
)
from trimtab.diagnose.findings import ProductForm, Spend, Unjudged, Verdict, Waste, WasteKind
from trimtab.diagnose.token_cost import token_charge
from trimtab.fleet.law_evidence import BackTest, BackTestedMeasure, Bound, LawEvidence
from trimtab.fleet.model import Coverage, Target, Window
from trimtab.fleet.token_work import TokenAmounts, TokenRule, TokenUse
from trimtab.levers import autoscaling, commitments, gpu_count, idle_release, right_size, schedule, spot
from trimtab.plan.audit import Audit, HeatMap
from trimtab.plan.commitments.known_rates import KnownRates
from trimtab.plan.model import (
    Action,
    ActionProof,
    Alternative,
    AlternativeKind,
    CapacityPicture,
    Change,
    EffortSensitivity,
    NotWorthDoing,
    Plan,
    Promise,
    Proof,
    Repair,
    Risk,
    Roadmap,
    Schedule,
    ScheduledAction,
    TargetResult,
)
from trimtab.plan.proof.law_report import LawFinding, LoadTest
from trimtab.plan.proof.undeclared import FewerCommitted, Undeclared, with_questions_first
from trimtab.policies.scaling import HpaPolicy
from trimtab.provenance import Basis, Estimate, Evidence
from trimtab.tables.workloads import TargetMetric
from trimtab.units import HR_PER_MO, HR_PER_WEEK, micro_usd

WHOLE = Window(start=datetime(2026, 9, 21, tzinfo=UTC), hours=42 * 24)
FIT = WHOLE.part(0, 28 * 24)
PROOF = WHOLE.part(28 * 24, 14 * 24)
P4D = Pool("aws", "p4d.24xlarge", "us-east-1")
P3 = Pool("aws", "p3.8xlarge", "us-east-1")
P3_SMALL = Pool("aws", "p3.2xlarge", "us-east-1")
G5 = Pool("aws", "g5.xlarge", "us-east-1")


def fit_micro(usd_mo: float) -> int:
    """Micro-dollars over the fit window that are so many dollars a month."""
    return round(micro_usd(usd_mo) * FIT.hours / HR_PER_MO)


def saving(usd_mo: float, spread: float, basis: Basis, because: str) -> Estimate:
    return Estimate(value=usd_mo, low=usd_mo * (1 - spread), high=usd_mo * (1 + spread), basis=basis, because=because)


def evidence(what: str, value: str, threshold: str = "", query: str = "gpu_usage.sm_active_mean") -> Evidence:
    return Evidence(what=what, query=query, window=str(FIT), value=value, threshold=threshold)


SPEND = {
    "research/vision-exp": ("experiment", "vision", 45_870.40, 16_400.0, 0.15),
    "research/nlp-exp": ("experiment", "nlp", 34_546.40, 12_210.0, 0.13),
    "prod/chat-api": ("serving", "assistant", 48_087.23, 16_128.0, 0.205),
    "prod/search-rank": ("serving", "search", 16_029.08, 5_376.0, 0.19),
    "prod/embed-api": ("serving", "search", 16_029.08, 5_376.0, 0.195),
    "ml/ranker-train": ("training", "search", 16_029.08, 5_376.0, 0.82),
    "eval/weekly-eval": ("evaluation", "assistant", 4_579.74, 1_536.0, 0.19),
    "data/nightly-embed": ("batch", "data-platform", 4_140.56, 672.0, 0.04),
    "notebooks/ana": ("notebook", "vision", 1_958.34, 672.0, 0.04),
    "notebooks/bo": ("notebook", "vision", 1_958.35, 672.0, 0.05),
    "notebooks/chen": ("notebook", "vision", 1_958.35, 672.0, None),
    "held by nobody": ("held by nobody", "held by nobody", 8_935.20, 0.0, None),
}


def action(
    name: str,
    lever: str,
    subject: str,
    usd_mo: float,
    changes: dict[str, Effect],
    *,
    weeks: float,
    risk: Risk,
    quarter: int,
    seen: tuple[Evidence, ...],
    rollback: str,
    spread: float = 0.12,
    basis: Basis = Basis.CALIBRATED,
    because: str = "replay of the fit window; interval from its weeks",
) -> Action:
    return Action(
        id=name,
        lever=lever,
        subject=subject,
        changes=tuple(Change(subject=on, effect=effect) for on, effect in changes.items()),
        saving_micro_usd=fit_micro(usd_mo),
        saving_usd_mo=saving(usd_mo, spread, basis, because),
        standalone_usd_mo=usd_mo * 1.21,
        last_in_usd_mo=usd_mo * 0.83,
        effort_weeks=weeks,
        risk=risk,
        quarter=quarter,
        evidence=seen,
        rollback=rollback,
        spend_usd_mo=sum(SPEND[on][2] for on in changes if on in SPEND) or None,
    )


def hpa(low: int, high: int) -> SetReplicaPolicy:
    return SetReplicaPolicy(
        policy=HpaPolicy(target_frac=0.7, min_replicas=low, max_replicas=high), metric="vllm:num_requests_running"
    )


ACTIONS = (
    action(
        "a1",
        idle_release.NAME,
        "nodes that no workload holds",
        8_935.20,
        {"research-old": ReleaseNodes(nodes=("ip-10-0-7-3",))},
        weeks=0.1,
        risk=Risk.LOW,
        quarter=1,
        seen=(evidence("GPU-hours held on the node", "0 of 2,688", "> 0", "allocations"),),
        rollback="add the node back to its group: 5 minutes",
        spread=0.0,
        basis=Basis.MEASURED,
        because="the node's own bill",
    ),
    action(
        "a2",
        commitments.NAME,
        "p4d.24xlarge in us-east-1",
        11_842.37,
        {
            str(P4D): BuyCommitment(
                pool=P4D,
                option=BuyingOption.RESERVED_1Y,
                count=2,
                rate_micro_usd_hr=13_846_000,
                on_demand_micro_usd_hr=21_957_642,
                tranches=(
                    Tranche(after_days=0, quantity=1, on=date(2026, 12, 1)),
                    Tranche(after_days=30, quantity=1, on=date(2026, 12, 31)),
                ),
            )
        },
        weeks=0.1,
        risk=Risk.HIGH,
        quarter=2,
        seen=(evidence("fewest nodes held in any hour under the plan", "2", ">= 2", "replay"),),
        rollback="cannot be undone before its term ends: sell on where the provider allows it",
        spread=0.05,
        because="hours held in every week of the fit window",
    ),
    action(
        "a3",
        gpu_count.NAME,
        "experiments",
        41_218.66,
        {
            "research/vision-exp": SetGpuCount(gpus=1, before=4, pool=P3_SMALL, gpus_per_node=1),
            "research/nlp-exp": SetGpuCount(gpus=1, before=4, pool=P3_SMALL, gpus_per_node=1),
        },
        weeks=1.0,
        risk=Risk.LOW,
        quarter=1,
        seen=(
            evidence("GPUs that showed any activity, of those a run holds", "1 of 4", "4 of 4"),
            evidence("SM activity of the busy GPU, mean", "58 %", "60-85 % is healthy"),
        ),
        rollback="ask for 4 GPUs again in the job template",
    ),
    action(
        "a4",
        schedule.NAME,
        "weekly evaluation",
        2_988.11,
        {"eval/weekly-eval": StartBeforeRuns(lead_s=600.0)},
        weeks=0.5,
        risk=Risk.LOW,
        quarter=1,
        seen=(evidence("hours held against hours run", "24 h against 8 h a week", "", "allocations, jobs"),),
        rollback="keep the nodes up: remove the timetable",
    ),
    action(
        "a5",
        idle_release.NAME,
        "experiments",
        9_107.43,
        {
            "research/vision-exp": ReleaseIdle(startup_s=300.0),
            "research/nlp-exp": ReleaseIdle(startup_s=300.0),
        },
        weeks=1.0,
        risk=Risk.LOW,
        quarter=1,
        seen=(evidence("share of node-hours with no run on the node", "46 %", "< 5 %", "allocations"),),
        rollback="raise the node group's minimum to 9",
    ),
    action(
        "a6",
        spot.NAME,
        "interruptible training",
        6_377.02,
        {"research/vision-exp": SetCapacityType(pool=P3_SMALL.held_as(CapacityType.SPOT), loss_per_hr=0.05)},
        weeks=3.0,
        risk=Risk.MEDIUM,
        quarter=1,
        seen=(evidence("checkpoint interval, declared", "30 min", "<= 60 min", "workloads.yaml"),),
        rollback="set the node pool back to on-demand",
        spread=0.35,
        basis=Basis.MODELLED,
        because="public interruption rates; your own are not in the history",
    ),
    action(
        "a7",
        schedule.NAME,
        "notebooks",
        3_204.55,
        {f"notebooks/{user}": SetSchedule(hours_of_week=tuple(range(8, 20))) for user in ("ana", "bo", "chen")},
        weeks=0.5,
        risk=Risk.MEDIUM,
        quarter=1,
        seen=(evidence("hours with any activity", "31 of 168 a week", ""),),
        rollback="remove the timetable",
    ),
    action(
        "a8",
        autoscaling.NAME,
        "serving",
        32_480.91,
        {"prod/chat-api": hpa(4, 30), "prod/search-rank": hpa(2, 12), "prod/embed-api": hpa(2, 10)},
        weeks=12.0,
        risk=Risk.MEDIUM,
        quarter=2,
        seen=(
            evidence("mean SM activity", "20 %", "< 25 % is over-provisioned"),
            evidence("busiest hour over mean", "3.4 x", "", "demand.arrivals"),
        ),
        rollback="delete the autoscaler and set replicas to 24, 8 and 8",
    ),
    action(
        "a9",
        right_size.NAME,
        "batch",
        1_270.18,
        {
            "data/nightly-embed": UseOffering(
                pool=G5,
                gpu="A10G",
                gpus_per_node=1,
                speed=Estimate(value=1.0, low=0.95, high=1.05, basis=Basis.CALIBRATED),
            )
        },
        weeks=2.0,
        risk=Risk.LOW,
        quarter=3,
        seen=(evidence("GPUs that showed any activity", "1 of 4", "4 of 4"),),
        rollback="set the node selector back to g5.12xlarge",
    ),
)


def spend(by: int | None) -> tuple[Spend, ...]:
    """Spend by workload (None), by kind (0) or by team (1), dearest first."""
    groups: dict[str, list[tuple[float, float, float | None]]] = {}
    for name, row in SPEND.items():
        key = name if by is None else str(row[by])
        groups.setdefault(key, []).append((row[2], row[3], row[4]))
    rows = []
    for name, parts in groups.items():
        known = [(hours, activity) for _, hours, activity in parts if activity is not None]
        hours = sum(part for part, _ in known)
        rows.append(
            Spend(
                name=name,
                micro_usd=sum(fit_micro(usd) for usd, _, _ in parts),
                gpu_hours=sum(hours for _, hours, _ in parts),
                activity_frac=sum(h * a for h, a in known) / hours if hours else None,
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.micro_usd))


def waste(bill: int) -> tuple[Waste, ...]:
    parts = {
        WasteKind.OVER_PARALLEL: (fit_micro(43_310.07), ("research/vision-exp", "research/nlp-exp")),
        WasteKind.OVER_PROVISIONED: (fit_micro(38_102.4), ("prod/chat-api", "prod/search-rank")),
        WasteKind.BUYING_OPTION: (fit_micro(18_240.0), ("ml/ranker-train",)),
        WasteKind.HOURS_NOT_USED: (fit_micro(17_400.0), ("research/vision-exp", "eval/weekly-eval")),
        WasteKind.UNALLOCATED_NODES: (fit_micro(8_935.20), ("research-old",)),
        WasteKind.IDLE: (fit_micro(6_120.0), ("notebooks/ana", "notebooks/bo")),
        WasteKind.OVER_SIZED: (fit_micro(5_230.0), ("data/nightly-embed",)),
        WasteKind.NON_GPU_PODS: (fit_micro(1_410.0), ("data/feature-etl",)),
        WasteKind.UNMEASURED: (fit_micro(2_010.0), ("notebooks/chen",)),
        WasteKind.UNUSED_COMMITMENT: (0, ()),
    }
    rows = [Waste(kind=kind, micro_usd=micro, where=where) for kind, (micro, where) in parts.items()]
    left = bill - sum(row.micro_usd for row in rows)
    return (*rows, Waste(kind=WasteKind.USEFUL, micro_usd=left, where=()))


NOT_WORTH = (
    NotWorthDoing(
        lever=spot.NAME,
        subject="ml/ranker-train",
        saving_usd_mo=None,
        reason="declared not interruptible; a lost day would miss its throughput target",
    ),
    NotWorthDoing(
        lever=right_size.NAME,
        subject="prod/chat-api",
        saving_usd_mo=-2_140.0,
        reason="an L40S fits, but twice as many are needed to keep p95 within 4 s",
    ),
    NotWorthDoing(
        lever=autoscaling.NAME,
        subject="prod/moderate-text",
        saving_usd_mo=31.0,
        reason="saves less than $50 a month",
    ),
)


ALTERNATIVES = (
    Alternative(
        kind=AlternativeKind.OWN_KERNELS,
        subject="serving and training",
        saving_usd_mo=Estimate(value=1_847.0, low=-1_733.0, high=7_219.0, basis=Basis.ASSUMED),
        once_usd=104_000.0,
        worth=False,
        payback_mo=56.3,
        reason="engines already carry tuned kernels",
        assumptions=("alternatives.kernels_weeks = 26",),
    ),
    Alternative(
        kind=AlternativeKind.ANOTHER_CLOUD,
        subject="to verda",
        saving_usd_mo=Estimate(value=31_206.0, low=29_262.0, high=33_150.0, basis=Basis.ASSUMED),
        once_usd=105_800.0,
        worth=True,
        payback_mo=3.4,
        reason="list rates of the same GPUs",
        assumptions=("alternatives.migration_weeks = 26",),
    ),
)


def course(bill: int, order: tuple[str, ...]) -> Schedule:
    """One action after another, a month each; the bill falls by each saving when it is done."""
    savings = {one.id: one.saving_usd_mo.value for one in ACTIONS}
    today = bill / 1e6 * HR_PER_MO / FIT.hours
    bills = [today]
    for name in order:
        bills.append(bills[-1] - savings[name])
    steps = tuple(
        ScheduledAction(
            action=name, start_mo=float(at), done_mo=at + 0.5, bill_usd_mo=bills[at + 1], quick_win=name in ("a1", "a3")
        )
        for at, name in enumerate(order)
    )
    ends = tuple([*bills, *[bills[-1]] * 12][:13])
    return Schedule(steps=steps, bill_usd_mo=ends, year_usd=sum((a + b) / 2 for a, b in pairwise(ends)))


def roadmap(bill: int) -> Roadmap:
    mine = tuple(f"a{number}" for number in range(1, 10))
    return Roadmap(
        course=course(bill, mine),
        per_week_loss_usd=4_321.0,
        best=True,
        fixed=course(bill, ("a8", "a9", "a3", "a6", "a2", "a1", "a4", "a5", "a7")),
        sways=(
            EffortSensitivity(lever=autoscaling.NAME, factor=0.5, same_frac=0.94, first="a1", regret_usd=8_120.0),
            EffortSensitivity(lever=autoscaling.NAME, factor=2.0, same_frac=1.0, first="a1", regret_usd=0.0),
        ),
    )


def target(metric: TargetMetric, frac: float, limit_s: float | None, declared: bool = False) -> Target:
    because = "declared in workloads.yaml" if declared else "no worse than observed in the fit window"
    return Target(metric=metric, required_frac=frac, limit_s=limit_s, declared=declared, because=because)


TARGETS = (
    TargetResult(
        workload="prod/chat-api",
        target=target(TargetMetric.LATENCY, 0.95, 4.0, declared=True),
        promise=Promise.LATENCY,
        before_frac=0.991,
        attained_frac=0.9713,
    ),
    TargetResult(
        workload="prod/search-rank",
        target=target(TargetMetric.LATENCY, 0.95, 0.13),
        promise=Promise.LATENCY,
        before_frac=0.95,
        attained_frac=0.9574,
    ),
    TargetResult(
        workload="prod/embed-api",
        target=target(TargetMetric.LATENCY, 0.99, 0.11),
        promise=Promise.LATENCY,
        before_frac=0.99,
        attained_frac=0.9921,
    ),
    TargetResult(
        workload="research/vision-exp",
        target=target(TargetMetric.QUEUE_WAIT, 0.95, 2_710.0),
        promise=Promise.QUEUE,
        before_frac=0.95,
        attained_frac=0.998,
    ),
    TargetResult(
        workload="research/nlp-exp",
        target=target(TargetMetric.QUEUE_WAIT, 0.95, 1_930.0),
        promise=Promise.QUEUE,
        before_frac=None,
        attained_frac=0.9462,
    ),
    TargetResult(
        workload="ml/ranker-train",
        target=target(TargetMetric.THROUGHPUT, 0.9, None),
        promise=Promise.THROUGHPUT,
        before_frac=1.0,
        attained_frac=1.0,
    ),
)


REPAIRS = (
    Repair(
        workload="prod/search-rank",
        was=("scale replicas at 80% of what a replica serves",),
        now=("scale replicas at 65% of what a replica serves",),
        missed=(replace(TARGETS[1], attained_frac=0.9312),),
    ),
)


def day_curve(hours: int, low: float, high: float, shift: int = 0) -> np.ndarray:
    at = np.arange(hours)
    weekend = np.where((at // 24) % 7 >= 5, 0.6, 1.0)
    return (low + (high - low) * (0.5 - 0.5 * np.cos((at - shift) * 2 * math.pi / 24)) ** 2) * weekend


def proof(*, before: int, after: int) -> Proof:
    after_shape = day_curve(PROOF.hours, 0.7, 1.6, 5)
    before_shape = np.where(np.arange(PROOF.hours) % 168 > 140, 1.0, 0.97)
    return Proof(
        window=PROOF,
        before_micro_usd=before,
        after_micro_usd=after,
        clairvoyant_micro_usd=round(after * 0.86),
        hourly_before_usd=before_shape / before_shape.sum() * before / 1e6,
        hourly_after_usd=after_shape / after_shape.sum() * after / 1e6,
        targets=TARGETS,
        interruptions=7,
        lost_gpu_hr=2.31,
        notes=("prod/moderate-text is new in the proof window: kept as it was",),
        repairs=REPAIRS,
        first_saving_micro_usd=fit_micro(121_310.5),
        actions=tuple(
            ActionProof(
                id=one.id,
                measure="share",
                predicted_usd_mo=one.saving_usd_mo.value,
                replayed_usd_mo=one.saving_usd_mo.value * 0.94,
                held=one.id != "a2",
                work_ratio=0.71 if one.id == "a2" else 1.02,
            )
            for one in ACTIONS
        ),
    )


def heat_map() -> HeatMap:
    rows = tuple(name for name in SPEND if name != "held by nobody")
    grid = np.vstack([day_curve(HR_PER_WEEK, 0.02, min(0.9, (SPEND[name][4] or 0.1) * 2.2), i * 2) for i, name in
                      enumerate(rows)])  # fmt: skip
    grid[6, 24:144] = np.nan
    return HeatMap(rows=rows, activity_frac=grid)


def capacity() -> tuple[CapacityPicture, ...]:
    pictures = []
    for name, held, shift in (("prod/chat-api", 24.0, 7), ("prod/search-rank", 8.0, 13)):
        demand = day_curve(PROOF.hours, held * 0.08, held * 0.5, shift)
        demand[100:104] = np.nan
        pictures.append(
            CapacityPicture(
                workload=name,
                demand_gpus=demand,
                before_gpus=np.full(PROOF.hours, held),
                after_gpus=np.ceil(day_curve(PROOF.hours, held * 0.12, held * 0.75, shift)),
            )
        )
    return tuple(pictures)


UNDECLARED = (
    Undeclared(
        permission="latency",
        declarations={"prod/embed-api": {"targets": [{"metric": "latency", "quantile": 0.95, "limit_s": 0.3}]}},
        known="p95 0.08 s observed, no latency limit declared",
        permits="a limit of 0.3 s",
        gives_up="p95 may rise to it, and nothing bounds p99",
        saves_usd_mo=5318.473,
        fewer=(FewerCommitted(pool=P4D, planned=2, then=1),),
        saves_once_bought_usd_mo=-812.5,
    ),
    Undeclared(
        permission="isolation",
        declarations={"prod/ocr": {"isolation": "none"}, "prod/tag": {"isolation": "none"}},
        known="they keep less than a GPU busy each, and are kept apart by hardware for nothing else is said",
        permits="sharing GPUs",
        gives_up="requests wait for one another, and a fault of one stops all on its GPU",
        saves_usd_mo=612.0,
    ),
)
LAWS = (
    LawFinding(
        workload="prod/chat-api",
        capacity_req_s=7.27,
        top_req_s=5.816,
        requests=True,
        tested=LawEvidence(
            bound=Bound.UNTOLD,
            activity_req_s=9.38,
            shown_req_s=5.816,
            back_test=BackTest(
                fitted_req_s=3.36,
                tested_req_s=5.03,
                limit_s=4.0,
                in_time=BackTestedMeasure(foretold=0.9655, measured=0.9907),
                running=BackTestedMeasure(foretold=7.68, measured=7.58),
                waiting=BackTestedMeasure(foretold=0.0, measured=0.0),
                gpu_s=BackTestedMeasure(foretold=0.1083, measured=0.1044),
                late_frac=0.0,
            ),
        ),
        load_test=LoadTest(reach_req_s=7.504, saves_usd_mo=2_432.49),
    ),
    LawFinding(
        workload="prod/embed-api",
        capacity_req_s=41.0,
        top_req_s=32.8,
        requests=True,
        tested=LawEvidence(
            bound=Bound.PLACES,
            activity_req_s=155.0,
            shown_req_s=41.0,
            back_test="too few hours with requests to hold some out",
        ),
        load_test=None,
    ),
    LawFinding(
        workload="prod/search-rank",
        capacity_req_s=0.4,
        top_req_s=0.32,
        requests=False,
        tested=LawEvidence(bound=Bound.UNTOLD, activity_req_s=1.0, shown_req_s=0.32, back_test="no request metrics"),
        load_test=LoadTest(reach_req_s=0.8, saves_usd_mo=None),
    ),
)


TOKEN_COSTS = (
    token_charge(
        "prod/chat-api",
        fit_micro(SPEND["prod/chat-api"][2]),
        TokenUse(
            tokens=TokenAmounts(input=41e9, output=15.2e9, cached=22e9),
            cached_known=True,
            weights=TokenAmounts(input=0.031, output=0.094, cached=0.002),
            rule=TokenRule.MODELLED,
            because="step times of mistral-7b on A100-SXM4-40GB for its mean request at its usual concurrency",
            read_frac=0.96,
        ),
    ),
    token_charge(
        "prod/embed-api",
        fit_micro(SPEND["prod/embed-api"][2]),
        TokenUse(
            tokens=TokenAmounts(input=61e9, output=0.0, cached=0.0),
            cached_known=False,
            weights=TokenAmounts(input=61e9, output=0.0, cached=0.0),
            rule=TokenRule.BLENDED,
            because="one price for every token: its tokens are all of one kind",
            read_frac=1.0,
        ),
    ),
)


def example_audit() -> Audit:
    """The audit: 9 actions, one target missed, one workload unjudged, one input missing."""
    by_workload = spend(None)
    bill = sum(row.micro_usd for row in by_workload)
    joint = sum(action.saving_micro_usd for action in ACTIONS)
    before = round(bill * PROOF.hours / FIT.hours * 1.031)
    plan = Plan(
        window=FIT,
        before_micro_usd=bill,
        after_micro_usd=bill - joint,
        bound_micro_usd=round((bill - joint) * 0.988),
        actions=ACTIONS,
        not_worth_doing=NOT_WORTH,
        options=4_812,
        pruned={"dominated": 3_971, "memory does not fit": 512, "breaks its target": 96},
        roadmap=roadmap(bill),
        alternatives=ALTERNATIVES,
    )
    plan = with_questions_first(plan, UNDECLARED)
    return Audit(
        laws=LAWS,
        undeclared=UNDECLARED,
        fleet="demo two-hundred-k",
        coverage=Coverage(
            window=WHOLE,
            asked_days=42,
            device_hours_seen_frac=0.9712,
            sm_active_frac=0.98,
            gpus=112,
            nodes=27,
            notes=("no TTFT metric for prod/embed-api: request latency stands in for it",),
            counts={"negative power readings dropped": 14},
        ),
        degraded=("one service has only 9 days of request metrics: its interval is wider",),
        bill_micro_usd=bill,
        spend_by_kind=spend(0),
        spend_by_team=spend(1),
        spend_by_workload=by_workload,
        token_costs=TOKEN_COSTS,
        product_form=ProductForm(allocation_frac=0.912, busy_frac=0.634, efficiency_frac=0.331),
        waste=waste(bill),
        verdicts=(
            Verdict(
                workload="prod/chat-api",
                headline="over-provisioned: 20 % mean SM activity",
                evidence=(evidence("SM activity, mean", "20 %", "< 25 %"),),
            ),
        ),
        unjudged=(Unjudged(workload="notebooks/chen", micro_usd=fit_micro(1_958.35), reason="no GPU readings"),),
        committed_rates=KnownRates(
            on_demand_usd_mo=61_400.5,
            unjudged_usd_mo=9_210.25,
            unjudged_pools=(Pool("aws", "p5.48xlarge", "us-east-1"),),
        ),
        plan=plan,
        proof=proof(before=before, after=round(before * 0.4021)),
        heat_map=heat_map(),
        capacity=capacity(),
    )
