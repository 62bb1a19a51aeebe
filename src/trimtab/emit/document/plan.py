"""The plan: what was chosen, what was rejected, what limits it, and the year ahead."""

from __future__ import annotations

from pydantic import JsonValue

from trimtab.emit.document.part import EvidencePart, Part, WindowPart
from trimtab.emit.money import bill_left, whole_dollars


class ChangePart(Part):
    """One setting changed on one subject."""

    subject: str
    """Workload, pool or set of nodes."""
    kind: str
    """The kind of effect, from a closed set."""
    summary: str
    """The change in words."""
    settings: dict[str, JsonValue]
    """The exact values that the manifests are written from."""


class TargetPart(Part):
    """A target, and what history and the plan reach on the proof window."""

    workload: str
    """Namespace and name."""
    metric: str
    """The bounded metric: latency, ttft, tpot, throughput or queue_wait."""
    target: str
    """The target in words."""
    required_frac: float
    """Share of requests or runs that must be within the limit, or share of the observed throughput."""
    before_frac: float | None
    """What history reached; null if it could not be measured."""
    attained_frac: float
    """What the plan reaches."""
    kept: bool
    """True if attained is at least required."""
    declared: bool
    """True if somebody declared it; false for `no worse than observed`."""
    because: str
    """Where the target comes from."""
    limit_s: float | None = None
    """The time limit; null for throughput, and in documents made before it was recorded."""
    promise: str = ""
    """Its kind: latency, queue, throughput or hours; empty in documents made before kinds were recorded."""
    touched: bool = True
    """False if the plan does not change the workload, so it reaches what history did."""
    times_as_late: float | None = None
    """Factor by which late requests or runs grow against history; null if history had none, or if unknown."""


class ActionPart(Part):
    """One action of the plan."""

    id: str
    """Short name, as `trimtab explain` takes it."""
    lever: str
    """The lever that saves."""
    subject: str
    """What it changes."""
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
    """How the figure and its interval were obtained."""
    standalone_usd_mo: float
    """Saving if it were the only action; 0 if alone it saves nothing or misses a target."""
    last_in_usd_mo: float
    """Loss if it were left out, together with the actions that need it to keep a target. Actions that then do not pay are left
    out too."""
    moving_usd_mo: float = 0.0
    """What it adds to moving and traffic costs across regions and clouds. All savings are net of it."""
    spend_usd_mo: float | None
    """Today's spend on what it changes: workloads, idle time of their nodes, nodes given back; null if it changes none."""
    effort_weeks: float
    """Engineer-weeks."""
    saving_per_week_usd_mo: float
    """Monthly saving per engineer-week."""
    risk: str
    """low, medium or high."""
    quarter: int
    """Quarter in which it is due, 1 to 4; 0 = later than a year."""
    evidence: tuple[EvidencePart, ...]
    """The evidence it is based on."""
    changes: tuple[ChangePart, ...]
    """The individual changes it consists of."""
    targets: tuple[TargetPart, ...]
    """The targets of the workloads it changes."""
    canary: tuple[str, ...]
    """Steps to try it on a small part first."""
    rollback: str
    """How to undo it."""
    share_low_usd_mo: float | None = None
    """Lower end of the share's 95% interval if orders were sampled; the share itself if all orders were enumerated."""
    share_high_usd_mo: float | None = None
    """Upper end of that interval."""
    fragile: tuple[str, ...] = ()
    """Stress tests (see `robustness`) in which its workloads miss a target."""
    enables: tuple[str, ...] = ()
    """Actions that would miss a target without it: their savings need it."""
    hazards: tuple[str, ...] = ()
    """What can happen once it is done; its risk is derived from this."""
    ask_first: tuple[str, ...] = ()
    """What owners may permit that would leave part of a purchase unused. Ask before buying."""
    preconditions: tuple[str, ...] = ()
    """What must be changed before it, with the command: quotas and limits of the cluster that would refuse its pods."""


class StepPart(Part):
    """One action in the course of the year."""

    action: str
    """Its id."""
    start_mo: float
    """Months from the start until work on it begins."""
    done_mo: float
    """Months from the start until it is done."""
    bill_usd_mo: float
    """The monthly bill from then on."""
    quick_win: bool
    """True for a quick win: little work, low risk, paid back within a month."""


class SchedulePart(Part):
    """The year under one order of the actions."""

    steps: tuple[StepPart, ...]
    """The actions, in the order in which work on them begins."""
    bill_usd_mo: tuple[float, ...]
    """The monthly bill at the end of each month, from 0 (today) to 12."""
    year_usd: float
    """The cost of the twelve months together."""


class EffortSensitivityPart(Part):
    """The order if one lever took half or twice its effort."""

    lever: str
    """Which lever."""
    factor: float
    """The factor on its effort."""
    same_frac: float
    """Share of pairs of actions that keep their order."""
    first: str
    """The action that would then come first."""
    regret_usd: float
    """What keeping the plan's order would cost over the year, compared with the order optimized for that effort; below 0 it is
    better."""


class RoadmapPart(Part):
    """The year ahead: the bill as actions are completed, in the plan's order and in the order of common cost guides."""

    course: SchedulePart
    """In the plan's order."""
    fixed: SchedulePart
    """In the customary order: autoscale, right-size, capacity, quantize, MIG, taints, long tail."""
    gain_usd: float
    """What the plan's order saves over the year, compared with the customary one."""
    best: bool = False
    """True if no other order of these actions, one at a time, makes the year cheaper."""
    per_week_loss_usd: float | None = None
    """How much more the year would cost with the largest saving per engineer-week first; null if that was not computed."""
    year_end_bill_usd_mo: float
    """The monthly bill after twelve months."""
    year_end_saving_frac: float
    """How much lower that is than today's bill, as a share of it."""
    folklore_low_frac: float
    """Lower end of the saving that cost guides promise within a year, as a share of the bill."""
    folklore_high_frac: float
    """Upper end of it."""
    sways: tuple[EffortSensitivityPart, ...]
    """How robust the order is: each lever at half and at twice its effort."""


class NotWorthPart(Part):
    """A lever that was considered and rejected."""

    lever: str
    """Which lever."""
    subject: str
    """On which workloads or pools."""
    saving_usd_mo: float | None
    """What it would save; null if no option kept its targets."""
    reason: str
    """The reason."""


class AlternativePart(Part):
    """An alternative that is judged for every fleet and never planned, with its figures beside the plan's bill."""

    kind: str
    """another cloud, own kernels, buying hardware, a savings plan, or sharing without isolation."""
    subject: str
    """On what."""
    saving_usd_mo: float
    """Dollars a month that it would save in addition to the plan, net of running costs; below 0 it costs money."""
    saving_low_usd_mo: float
    """Low end under the stated assumptions."""
    saving_high_usd_mo: float
    """High end."""
    once_usd: float
    """One-time cost."""
    payback_mo: float | None
    """Months until that is paid back; null if never."""
    worth: bool
    """True if even the low end pays it back in time; then it is worth a closer look."""
    reason: str
    """The deciding reason."""
    assumptions: tuple[str, ...]
    """The settings that it depends on, with their current values."""


class LimitPart(Part):
    """A quota or the limit on spot, and how much of it the plan uses."""

    limit: str
    """The limit in words."""
    most: float
    """Nodes at once, or share of node-hours on spot."""
    used: float
    """The plan's most nodes in any hour, or its share of node-hours on spot."""
    binds: bool
    """True if the plan is at the limit."""
    cost_usd_mo: float | None
    """How much less bill and work together would cost without this limit alone, dollars a month; null if not known."""
    bill_usd_mo: float | None = None
    """The part of it that is the bill: below 0 if the plan without the limit leaves out work that does not pay there."""


class PlanPart(Part):
    """The chosen actions over the fit window."""

    window: WindowPart
    """The fit window: the only history that the planner saw."""
    before_usd_mo: float
    """Today's bill, dollars a month."""
    objective_usd_mo: float
    """The bill under the plan: exact hour by hour, with moving and traffic."""
    moving_usd_mo: float = 0.0
    """Moving and traffic, within the objective: what relocation to another region or cloud costs in addition to nodes."""
    bound_usd_mo: float
    """Lower bound: no combination of the options considered costs less."""
    gap_frac: float
    """How far the plan may be from that bound, as a share of its cost."""
    work_gap_frac: float | None = None
    """How far bill and work together may be from the optimum, as a share of both. The plan minimizes their sum. The bound on
    the bill alone covers all options, including those whose work does not pay back. Null in documents made before this was
    computed."""
    joint_saving_usd_mo: float
    """before - objective."""
    joint_saving_low_usd_mo: float | None = None
    """Lower end of its 80% interval: what a replay of later weeks would show. Null in documents made before this was computed.
    """
    joint_saving_high_usd_mo: float | None = None
    """Upper end of that interval."""
    saving_frac: float
    """The joint saving as a share of the bill."""
    attribution: str
    """How the joint saving was divided among the actions."""
    options: int
    """Options considered over all workloads."""
    pruned: dict[str, int]
    """Reason -> number of options dropped without losing the optimum."""
    actions: tuple[ActionPart, ...]
    """In the order to do them."""
    not_worth_doing: tuple[NotWorthPart, ...]
    """Considered and rejected."""
    limits: tuple[LimitPart, ...] = ()
    """Quotas and the limit on spot, what the plan uses of each, and what each costs."""
    roadmap: RoadmapPart | None = None
    """The year ahead; null if there is nothing to do, and in documents made before this was computed."""
    always_judged: tuple[AlternativePart, ...] = ()
    """Another cloud, own kernels, buying hardware, a savings plan, sharing without isolation: always judged, never planned."""

    def shown_bill_usd_mo(self) -> int:
        """Return the bill under the plan in whole dollars, as every page shows it: the bill shown less the saving shown."""
        return bill_left(self.before_usd_mo, self.objective_usd_mo)

    def shown_savings_usd_mo(self) -> dict[str, int]:
        """Return each action's share in whole dollars, by id, as every page shows it: they sum to the joint saving shown."""
        shown = whole_dollars([action.saving_usd_mo for action in self.actions])
        return {action.id: usd_mo for action, usd_mo in zip(self.actions, shown, strict=True)}


class SwitchedActionPart(Part):
    """An action of the plan that was chosen again."""

    id: str | None
    """Id of the same action in the plan; null if it replaces an action that is off."""
    lever: str
    """The lever that saves."""
    subject: str
    """What it changes."""
    effect: str
    """What to do, in words."""
    saving_usd_mo: float
    """Its share of the joint saving; if `shares` is false, what is lost if it alone is left out."""
    risk: str
    """low, medium or high."""


class SwitchedPart(Part):
    """The best plan without some actions; with none off, the plan itself."""

    off: tuple[str, ...]
    """Ids of the actions that are off."""
    before_usd_mo: float
    """Today's bill at the plan's rates."""
    bill_usd_mo: float
    """The bill with the remaining actions and their replacements."""
    rest_usd_mo: float
    """The bill with the remaining actions only."""
    joint_saving_usd_mo: float
    """`before_usd_mo` less `bill_usd_mo`, to the cent."""
    saving_frac: float
    """That as a share of the bill."""
    actions: tuple[SwitchedActionPart, ...]
    """The actions, largest saving first."""
    shares: bool
    """True if the actions' savings sum to the joint saving."""
    proof_saving_frac: float
    """What the replay of the proof window saves, as a share of its bill."""
    targets: tuple[TargetPart, ...]
    """What the targets reach there."""
    targets_kept: int
    """How many of them are met."""
