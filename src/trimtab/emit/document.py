"""The audit as a document: what every face shows, JSON publishes, and a later command reads back.

`audit_document.audit_document` builds it from an `Audit`; money is rounded there, once, so that all faces agree to the cent.
The docstring under each field is its description in the published schema (`schemas/audit-1.json`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

SCHEMA_VERSION: Literal[1] = 1


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class WindowPart(_Part):
    """Whole hours `[start, end)`, UTC."""

    start: datetime
    """First moment."""
    end: datetime
    """First moment after it."""
    hours: int
    """Hours between the two."""


class CoveragePart(_Part):
    """What was seen of what there was."""

    summary: str
    """One line for people."""
    window: WindowPart
    """The history that was read."""
    asked_days: float
    """Days that were asked for."""
    device_hours_seen_frac: float
    """Share of the GPU-hours in use that have readings."""
    sm_active_frac: float
    """Share of those that carry SM activity, and not only the coarser GPU_UTIL."""
    gpus: int
    """GPUs on them."""
    nodes: int
    """Nodes billed in the fit window, those that came and went included."""
    notes: tuple[str, ...]
    """What was missing, and what that costs in certainty."""
    counts: dict[str, int]
    """Reason -> readings or rows that were clamped or dropped."""


class SpendPart(_Part):
    """A share of the bill."""

    name: str
    """Workload, team or workload type."""
    usd_mo: float
    """Dollars a month."""
    share_frac: float
    """Share of the bill."""
    gpu_hours: float
    """GPU-hours held over the fit window."""
    activity_frac: float | None
    """Mean activity of the GPUs held; null where not measured."""


class SpendTables(_Part):
    """The bill, split three ways; each table sums to the bill to the cent."""

    by_kind: tuple[SpendPart, ...]
    """By workload type."""
    by_team: tuple[SpendPart, ...]
    """By team."""
    by_workload: tuple[SpendPart, ...]
    """By workload."""


class ProductFormPart(_Part):
    """GPU-hours paid that did work, as a product of three shares."""

    allocation_frac: float
    """Share of the paid GPU-hours that a workload held."""
    busy_frac: float | None
    """Share of the held GPU-hours in which the GPU ran anything; null where not measured."""
    efficiency_frac: float | None
    """How much of the GPU was in use while it ran; null where not measured."""
    product_frac: float | None
    """The three multiplied; null where one is."""


class WastePart(_Part):
    """One kind of waste; all kinds, with useful work, sum to the bill to the cent."""

    kind: str
    """Kind of waste, or `useful work`."""
    usd_mo: float
    """Dollars a month."""
    share_frac: float
    """Share of the bill."""
    meaning: str
    """The kind in plain words."""
    where: tuple[str, ...]
    """The workloads that carry most of it."""


class EvidencePart(_Part):
    """What a statement rests on: a statistic of the history, over a window, against a threshold."""

    what: str
    """The statistic, in words."""
    query: str
    """How it was read."""
    window: str
    """Over which hours."""
    value: str
    """What was seen."""
    threshold: str
    """What it was held against; empty where there is none."""


class VerdictPart(_Part):
    """What a workload's activity says."""

    workload: str
    """Namespace and name."""
    headline: str
    """The verdict in one line."""
    evidence: tuple[EvidencePart, ...]
    """What it rests on."""


class ChangePart(_Part):
    """One setting changed on one subject."""

    subject: str
    """Workload, pool or set of nodes."""
    kind: str
    """Which of the closed set of effects it is."""
    summary: str
    """The change in words."""
    settings: dict[str, JsonValue]
    """The exact values that the manifests are written from."""


class TargetPart(_Part):
    """A target, and what history and the plan attain of it over the proof window."""

    workload: str
    """Namespace and name."""
    metric: str
    """What is bounded: latency, ttft, tpot, throughput or queue_wait."""
    target: str
    """The target in words."""
    required_frac: float
    """Share of requests or runs that must be within the limit, or share of the observed throughput."""
    before_frac: float | None
    """What history attained; null where it cannot be told."""
    attained_frac: float
    """What the plan attains."""
    kept: bool
    """Whether attained is not below required."""
    declared: bool
    """True where a person declared it; false for `no worse than observed`."""
    because: str
    """Where the target comes from."""
    limit_s: float | None = None
    """The time that it bounds; null for throughput, and in documents made before it was kept."""


class ActionPart(_Part):
    """One action of the plan."""

    id: str
    """Short name, as `trimtab explain` takes it."""
    lever: str
    """What the saving is owed to."""
    subject: str
    """What it is done to."""
    effect: str
    """What to do, in words."""
    saving_usd_mo: float
    """Its share of the joint saving, dollars a month; the shares sum to the joint saving to the cent."""
    saving_low_usd_mo: float
    """Lower end of the 80% interval."""
    saving_high_usd_mo: float
    """Upper end of the 80% interval."""
    saving_basis: str
    """measured, calibrated, modelled or assumed."""
    saving_because: str
    """What the figure and its interval come from."""
    standalone_usd_mo: float
    """What it would save if it were the only action."""
    last_in_usd_mo: float
    """What would be lost if it alone were left out."""
    spend_usd_mo: float | None
    """Today's spend on the workloads it touches; null where it touches none."""
    effort_weeks: float
    """Engineer-weeks."""
    saving_per_week_usd_mo: float
    """Monthly saving per engineer-week."""
    risk: str
    """low, medium or high."""
    quarter: int
    """1 to 4; 0 = later than a year."""
    evidence: tuple[EvidencePart, ...]
    """What it rests on."""
    changes: tuple[ChangePart, ...]
    """The single changes it is made of."""
    targets: tuple[TargetPart, ...]
    """The targets of the workloads it touches."""
    canary: tuple[str, ...]
    """Steps that try it on a small part first."""
    rollback: str
    """How to undo it."""
    share_low_usd_mo: float | None = None
    """Lower end of the 95% interval of its share where orders were sampled; the share itself where all were enumerated."""
    share_high_usd_mo: float | None = None
    """Upper end of it."""
    fragile: tuple[str, ...] = ()
    """Departures (see `robustness`) under which its workloads miss a target."""


class NotWorthPart(_Part):
    """A lever that was judged and refused."""

    lever: str
    """Which lever."""
    subject: str
    """On what."""
    saving_usd_mo: float | None
    """What it would save; null where no option kept its targets."""
    reason: str
    """Why not."""


class VenturePart(_Part):
    """What is judged for every fleet and never planned, with its sum beside the plan's bill."""

    kind: str
    """another cloud, own kernels, buying hardware, a savings plan, or sharing without isolation."""
    subject: str
    """Of what."""
    saving_usd_mo: float
    """Dollars a month that it would save beside the plan, running costs counted in; below 0 it costs more."""
    saving_low_usd_mo: float
    """Low end under the stated assumptions."""
    saving_high_usd_mo: float
    """High end."""
    once_usd: float
    """What doing it costs once."""
    payback_mo: float | None
    """Months until that is paid back; null where never."""
    worth: bool
    """Whether the low end pays it back in time: then it is worth a closer look."""
    reason: str
    """What decided it."""
    assumptions: tuple[str, ...]
    """The settings that the sum rests on, with their values in force."""


class StepPart(_Part):
    """One action in the course of a year."""

    action: str
    """Its id."""
    start_mo: float
    """Months from the start until work on it begins."""
    done_mo: float
    """Months from the start until it is done."""
    bill_usd_mo: float
    """The monthly bill from then on."""
    quick_win: bool
    """Little work, low risk, paid back within a month."""


class CoursePart(_Part):
    """An order of actions played through a year."""

    steps: tuple[StepPart, ...]
    """In the order in which work on them begins."""
    bill_usd_mo: tuple[float, ...]
    """The monthly bill at the end of each month, from 0 (today) to 12."""
    year_usd: float
    """What the twelve months cost together."""


class SwayPart(_Part):
    """The order if one lever took half or twice its effort."""

    lever: str
    """Which lever."""
    factor: float
    """On its effort."""
    same_frac: float
    """Share of pairs of actions that keep their order."""
    first: str
    """The action that comes first then."""
    regret_usd: float
    """What keeping the plan's order would cost over the year against the order made for that effort; below 0 it is better."""


class RoadmapPart(_Part):
    """The year ahead: the bill as actions are done, beside the order that guides give for the same actions."""

    course: CoursePart
    """In the plan's order."""
    fixed: CoursePart
    """In the fixed order: autoscale, right-size, capacity, quantize, MIG, taints, long tail."""
    gain_usd: float
    """What the plan's order saves over the year against the fixed one."""
    year_end_bill_usd_mo: float
    """The monthly bill after twelve months."""
    year_end_saving_frac: float
    """How much lower that is than today's bill, as a share of it."""
    folklore_low_frac: float
    """Lower end of what guides promise within a year, as a share of the bill."""
    folklore_high_frac: float
    """Upper end of it."""
    sways: tuple[SwayPart, ...]
    """How firm the order is: each lever at half and at twice its effort."""


class LimitPart(_Part):
    """A quota or the limit on spot, and what the plan makes of it."""

    limit: str
    """The limit in words."""
    most: float
    """Nodes at once, or share of node-hours on spot."""
    used: float
    """The plan's most nodes in any hour, or its share of node-hours on spot."""
    binds: bool
    """Whether the plan stands at the limit."""
    cost_usd_mo: float | None
    """What the plan would save besides, dollars a month, were this limit alone not there; null where not worked out."""


class OwnedPart(_Part):
    """A commitment that runs already, judged on the fit window's use."""

    name: str
    """Its name in the file."""
    pool: str
    """The nodes that it covers."""
    count: int
    """How many nodes."""
    end: str
    """The first day after it."""
    used_frac: float
    """Share of what it pays for that was in use."""
    sunk_usd_mo: float
    """Paid a month for nodes that nothing ran on, whatever is planned, until it ends."""


class ComparedPart(_Part):
    """One figure in the world as it is and in the scenario."""

    section: str
    """What it belongs to: the plan, actions, limits, budget or deadline."""
    what: str
    """The figure."""
    unit: str
    """usd_mo, frac, weeks, count or text."""
    base: float | str | None
    """As it is; null where that world has none."""
    scenario: float | str | None
    """In the scenario; null where that world has none."""


class WhatIfPart(_Part):
    """A scenario planned beside the world as it is."""

    scenario: tuple[str, ...]
    """What is different."""
    refused: str
    """Why there is no plan in that world; empty where there is one."""
    figures: tuple[ComparedPart, ...]
    """Both worlds, figure by figure."""


class PlanPart(_Part):
    """The chosen actions over the fit window."""

    window: WindowPart
    """The fit window: the only history that the planner saw."""
    before_usd_mo: float
    """Today's bill, dollars a month."""
    objective_usd_mo: float
    """The bill under the plan: an exact hourly re-bill."""
    bound_usd_mo: float
    """No combination of the options considered costs less."""
    gap_frac: float
    """How far the plan may be from that bound, as a share of its cost."""
    joint_saving_usd_mo: float
    """before - objective."""
    joint_saving_low_usd_mo: float | None = None
    """Lower end of its 80% interval: what a replay of later weeks would show. Null in documents made before it was known."""
    joint_saving_high_usd_mo: float | None = None
    """Upper end of that interval."""
    saving_frac: float
    """The joint saving as a share of the bill."""
    attribution: str
    """How the joint saving was shared among the actions."""
    options: int
    """Options considered over all workloads."""
    pruned: dict[str, int]
    """Proof that nothing is lost -> options dropped by it."""
    actions: tuple[ActionPart, ...]
    """In the order in which to do them."""
    not_worth_doing: tuple[NotWorthPart, ...]
    """Judged and refused."""
    limits: tuple[LimitPart, ...] = ()
    """Quotas and the limit on spot, what the plan uses of each, and what each costs."""
    roadmap: RoadmapPart | None = None
    """The year ahead; null where there is nothing to do, and in documents made before it was worked out."""
    always_judged: tuple[VenturePart, ...] = ()
    """Another cloud, own kernels, buying hardware, a savings plan, sharing without isolation: always judged, never planned."""


class ActionProofPart(_Part):
    """One action's predicted saving beside what its replay over the proof window saves."""

    id: str
    """The action."""
    measure: str
    """`share`: of the joint saving, which sums to it; `last in`: what is lost without it alone."""
    predicted_usd_mo: float
    """From the fit window, dollars a month."""
    replayed_usd_mo: float
    """On the proof window, dollars a month."""
    held: bool | None
    """Whether the replayed share lies in the predicted 80% interval; null where shares were not replayed."""


class ProofPart(_Part):
    """The plan replayed over the proof window, which the planner never saw."""

    window: WindowPart
    """The proof window."""
    before_usd: float
    """What the window cost."""
    after_usd: float
    """What it would have cost under the plan."""
    clairvoyant_usd: float
    """A bound on what any plan could have cost with the future known."""
    before_usd_mo: float
    """What the window cost, scaled to a month."""
    after_usd_mo: float
    """What it would have cost under the plan, scaled to a month."""
    saving_frac: float
    """Share of the window's bill saved."""
    targets: tuple[TargetPart, ...]
    """Every target."""
    targets_kept: int
    """How many of them are kept."""
    interruptions: int
    """Spot interruptions in the replay."""
    lost_gpu_hr: float
    """GPU-hours of work done twice because of them."""
    notes: tuple[str, ...]
    """What the reader should know of the proof."""
    actions: tuple[ActionProofPart, ...] = ()
    """Action by action; empty where it was not worked out."""
    given_up: tuple[str, ...] = ()
    """Targets that the plan keeps with less to spare than history did: what it takes from users within what was declared."""


class StressedPart(_Part):
    """The proof again in a world that departs from what the plan was made for."""

    departure: str
    """What departs: speeds of replicas and of moved runs, or demand."""
    saving_frac: float
    """Share of the bill that the plan saves there, against the fleet run as today."""
    targets_kept: int
    """Targets kept there."""
    targets: int
    """Targets in all."""
    missed: tuple[str, ...]
    """Workloads that miss a target which they keep where nothing departs."""


class RobustnessPart(_Part):
    """What the plan is worth where the world departs, and what its headroom costs."""

    stressed: tuple[StressedPart, ...]
    """One entry a departure."""
    price_usd_mo: float
    """Dollars a month that a plan without headroom for demand, speed and targets would save besides."""


class UnjudgedPart(_Part):
    """A workload that no plan was made for."""

    workload: str
    """Namespace and name."""
    usd_mo: float
    """Dollars a month."""
    reason: str
    """Why it could not be judged."""


class BillByHour(_Part):
    """The bill over the proof window, hour by hour."""

    start: datetime
    """The first hour."""
    before_usd: tuple[float, ...]
    """As it was."""
    after_usd: tuple[float, ...]
    """Under the plan."""


class HeatMapPart(_Part):
    """Mean activity by row and hour of the week."""

    rows: tuple[str, ...]
    """What each row is."""
    activity_frac: tuple[tuple[float | None, ...], ...]
    """168 values a row, from Monday 00:00 UTC; null where nothing was held or measured."""


class CapacityPart(_Part):
    """Demand against capacity of one service over the proof window, hour by hour, in GPUs."""

    workload: str
    """Namespace and name."""
    start: datetime
    """The first hour."""
    demand_gpus: tuple[float | None, ...]
    """What its requests needed; null where not measured."""
    before_gpus: tuple[float | None, ...]
    """What was held."""
    after_gpus: tuple[float | None, ...]
    """What the plan holds."""


class Pictures(_Part):
    """The series behind the pictures of the HTML report."""

    bill_by_hour: BillByHour
    """Bill before and after."""
    heat_map: HeatMapPart
    """Utilization through the week."""
    capacity: tuple[CapacityPart, ...]
    """Demand against capacity, one entry a service."""


class AuditDocument(_Part):
    """What `trimtab audit` found."""

    schema_version: Literal[1]
    """Version of this layout; a key is never renamed or removed within a version."""
    trimtab_version: str
    """The program that wrote it."""
    fleet: str
    """Where the history came from: a bundle's path or a demonstration's name."""
    coverage: CoveragePart
    """How much history the answer rests on."""
    degraded: tuple[str, ...]
    """Why the answer is weaker than asked; empty when it is not."""
    bill_usd_mo: float
    """Today's bill: the fit window, scaled to a month of 730 hours."""
    spend: SpendTables
    """Where it goes."""
    product_form: ProductFormPart
    """How much of what is paid does work."""
    waste: tuple[WastePart, ...]
    """What it buys and does not buy; sums to the bill."""
    verdicts: tuple[VerdictPart, ...]
    """What each workload's activity says."""
    plan: PlanPart
    """What to do."""
    proof: ProofPart
    """Whether it holds on history that the planner never saw."""
    unjudged: tuple[UnjudgedPart, ...]
    """Workloads left out of the plan, with cost and reason."""
    pictures: Pictures
    """Series behind the report's pictures."""
    owned: tuple[OwnedPart, ...] = ()
    """Commitments that run already."""
    robustness: RobustnessPart | None = None
    """The plan where speeds and demand depart from what it was made for; null in documents made before it was known."""
    what_if: WhatIfPart | None = None
    """A scenario beside the world as it is; null where none was asked for."""

    def action(self, name: str) -> ActionPart | None:
        """Return an action by its id, or None."""
        return next((action for action in self.plan.actions if action.id == name), None)
