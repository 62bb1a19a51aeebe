"""The plan: what was chosen, what was refused, what limits it, and the year ahead."""

from __future__ import annotations

from trimtab.emit.document.actions import ActionPart
from trimtab.emit.document.part import Part, WindowPart


class StepPart(Part):
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


class SchedulePart(Part):
    """An order of actions played through a year."""

    steps: tuple[StepPart, ...]
    """In the order in which work on them begins."""
    bill_usd_mo: tuple[float, ...]
    """The monthly bill at the end of each month, from 0 (today) to 12."""
    year_usd: float
    """What the twelve months cost together."""


class EffortSensitivityPart(Part):
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


class RoadmapPart(Part):
    """The year ahead: the bill as actions are done, beside the order that guides give for the same actions."""

    course: SchedulePart
    """In the plan's order."""
    fixed: SchedulePart
    """In the fixed order: autoscale, right-size, capacity, quantize, MIG, taints, long tail."""
    gain_usd: float
    """What the plan's order saves over the year against the fixed one."""
    best: bool = False
    """No order of these actions, one at a time, makes the year cheaper."""
    per_week_loss_usd: float | None = None
    """What the year would cost more with the largest saving per engineer-week first; null where it was not known yet."""
    year_end_bill_usd_mo: float
    """The monthly bill after twelve months."""
    year_end_saving_frac: float
    """How much lower that is than today's bill, as a share of it."""
    folklore_low_frac: float
    """Lower end of what guides promise within a year, as a share of the bill."""
    folklore_high_frac: float
    """Upper end of it."""
    sways: tuple[EffortSensitivityPart, ...]
    """How firm the order is: each lever at half and at twice its effort."""


class NotWorthPart(Part):
    """A lever that was judged and refused."""

    lever: str
    """Which lever."""
    subject: str
    """On what."""
    saving_usd_mo: float | None
    """What it would save; null where no option kept its targets."""
    reason: str
    """Why not."""


class VenturePart(Part):
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


class LimitPart(Part):
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
    """What bill and work together would cost less, dollars a month, were this limit alone not there; null where not known."""
    bill_usd_mo: float | None = None
    """The part of it that is the bill: below 0 where the plan without the limit leaves out work that does not pay there."""


class PlanPart(Part):
    """The chosen actions over the fit window."""

    window: WindowPart
    """The fit window: the only history that the planner saw."""
    before_usd_mo: float
    """Today's bill, dollars a month."""
    objective_usd_mo: float
    """The bill under the plan: an exact hourly re-bill, with moving and traffic."""
    moving_usd_mo: float = 0.0
    """Moving and traffic, within the objective: what leaves for another region or cloud costs besides nodes."""
    bound_usd_mo: float
    """No combination of the options considered costs less."""
    gap_frac: float
    """How far the plan may be from that bound, as a share of its cost."""
    work_gap_frac: float | None = None
    """How far bill and work together may be from the best, as a share of both: what the plan is chosen by. The bound on the
    bill is one over all options, those whose work does not pay back among them. Null in documents made before it was known."""
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
