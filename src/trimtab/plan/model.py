"""What a plan says: actions with savings that sum to the joint one, the bound, the year ahead, the proof.

Beside it stands what is judged for every fleet though no plan contains it: another cloud, own kernels, own hardware, a savings
plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from trimtab.deployment.effects import Effect
from trimtab.deployment.kept_form import ByClass
from trimtab.fleet.model import Target, Window
from trimtab.ledger.arrays import FloatArray
from trimtab.levers.lever import Risk
from trimtab.notebook import ShownInNotebook
from trimtab.plan.program.limits import LimitPrice
from trimtab.provenance import Estimate, Evidence
from trimtab.units import per_month, usd

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One effect on one workload (`subject`), pool or set of nodes."""

    subject: str
    effect: Annotated[Effect, ByClass()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Precondition:
    """What a person must change in a cluster (empty: the only one) before an action, in words.

    `command` changes it, as far as a single command does.
    """

    what: str
    cluster: str = ""
    command: str = ""

    @property
    def words(self) -> str:
        """Say it, with its cluster where there are several, and its command."""
        said = f"in cluster {self.cluster}, {self.what}" if self.cluster else self.what
        return f"{said}; {self.command}" if self.command else said


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One lever on one class of workloads. `saving_micro_usd` is its share of the joint saving over the fit window, exact."""

    id: str
    lever: str
    subject: str
    changes: tuple[Change, ...]
    saving_micro_usd: int
    saving_usd_mo: Estimate
    standalone_usd_mo: float
    """What it would save alone."""
    last_in_usd_mo: float
    """What is lost if it is left out, with what needs it to keep a target; what then does not pay waits."""
    effort_weeks: float
    risk: Risk
    quarter: int
    """1..4; 0 = later than a year."""
    evidence: tuple[Evidence, ...]
    rollback: str
    moving_usd_mo: float = 0.0
    """What it adds to moving and traffic, which its saving is net of."""
    share_low_usd_mo: float | None = None
    """Lower end of the 95 % interval of its sampled share; the share itself where all orders were enumerated."""
    share_high_usd_mo: float | None = None
    spend_usd_mo: float | None = None
    """Today's spend on what it touches, the idle time of its workloads' nodes within it; None where it touches no node."""
    enables: tuple[str, ...] = ()
    """The actions that would miss a target without it."""
    hazards: tuple[str, ...] = ()
    """What can happen once it is done, in words: what its risk is derived from."""
    ask_first: tuple[str, ...] = ()
    """What owners may permit that would leave a purchase in part unused, in words: to be asked before it is bought."""
    preconditions: tuple[Precondition, ...] = ()
    """What a person must change in a cluster before it: quotas that would refuse its pods."""

    @property
    def saving_per_week_usd_mo(self) -> float:
        """Return the monthly saving per engineer-week."""
        return self.saving_usd_mo.value / max(self.effort_weeks, 0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotWorthDoing:
    """A lever judged and refused, with the sum that decided it (None where no option passed its targets)."""

    lever: str
    subject: str
    saving_usd_mo: float | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsSpend:
    """What a workload's runs cost under the plan over the fit window, on nodes that come and go with them."""

    micro_usd: int
    lumps_frac: float
    """Standard error of the work that comes in such a window, as a share of it: large where few runs make it up."""
    speed: Estimate | None
    """How fast they are said to run there beside today; None where nothing about that changes."""
    spot_micro_usd: int = 0
    """What spot nodes save of it, beside the same nodes on demand."""
    spot_up_frac: float = 0.0
    """The share of the time in which spot is assumed to be there; 0 where they are not on spot."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan(ShownInNotebook):
    """The chosen actions over the fit window. Micro-dollars are exact hourly re-bills; `bound` is certified."""

    window: Window
    before_micro_usd: int
    after_micro_usd: int
    bound_micro_usd: int
    """No combination of the options considered costs less."""
    actions: tuple[Action, ...]
    not_worth_doing: tuple[NotWorthDoing, ...]
    options: int
    """Options considered over all workloads."""
    pruned: dict[str, int] = field(default_factory=dict)
    """Options dropped, by the proof that nothing is lost."""
    attribution: str = "exact Shapley"
    limits: tuple[LimitPrice, ...] = ()
    """Quotas and the limit on spot: what the plan uses of each, and what each costs."""
    roadmap: Roadmap | None = None
    """The year ahead; None in plans kept before it was worked out, and in those that an outlook alone is made of."""
    alternatives: tuple[Alternative, ...] = ()
    """What is judged for every fleet and never planned."""
    moving_micro_usd: int = 0
    """What moving and traffic across regions and clouds are of `after`."""
    runs: tuple[RunsSpend, ...] = ()
    """What runs cost, of those whose cost goes with how many come and how fast they are."""
    queues_micro_usd: tuple[int, ...] = ()
    """What scaled services would cost more over the fit window, each, if requests waited beyond their careful capacity."""
    losses_micro_usd: tuple[tuple[int, int], ...] = ()
    """What each workload on spot would cost more over the fit window, and less, if nodes were lost as often, and as seldom, as
    their odds leave open."""
    work_gap_frac: float | None = None
    """How far bill and work together may be from the best, as a share of both: the gap of what was chosen by, while `bound` is
    one on the bill over all options, those whose work does not pay among them. None in plans kept before it was known."""

    @property
    def gap_frac(self) -> float:
        """Return how far the plan may be from the best, as a share of its cost."""
        return (self.after_micro_usd - self.bound_micro_usd) / self.after_micro_usd if self.after_micro_usd else 0.0

    @property
    def joint_saving_micro_usd(self) -> int:
        """Return the joint saving over the fit window."""
        return self.before_micro_usd - self.after_micro_usd

    def usd_mo(self, micro_usd: int) -> float:
        """Scale an amount of the fit window to a month."""
        return per_month(usd(micro_usd), self.window.hours)


class Promise(Enum):
    """What a target promises: kinds of targets are counted apart, for one missed latency is no hour that a notebook waits."""

    LATENCY = "latency"
    QUEUE = "queue"
    THROUGHPUT = "throughput"
    HOURS = "hours"
    """The share of the hours in which history worked that a timetable leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetResult:
    """One target over the proof window: what was required, what history attained, what the plan attains."""

    workload: str
    target: Target
    promise: Promise
    before_frac: float | None
    attained_frac: float
    touched: bool = True
    """False: the plan leaves the workload as it is, and attains what history did."""

    @property
    def kept(self) -> bool:
        """Return whether the plan keeps it."""
        return self.attained_frac >= self.target.required_frac - _ROUNDING

    @property
    def is_missed_by_plan(self) -> bool:
        """Return whether the plan misses it and does worse than history did."""
        before = self.before_frac
        return not self.kept and self.touched and (before is None or self.attained_frac < before - _ROUNDING)

    @property
    def is_mended(self) -> bool:
        """Return whether the plan keeps it where history missed it."""
        return self.kept and self.before_frac is not None and self.before_frac < self.target.required_frac

    @property
    def times_as_late(self) -> float | None:
        """Return how many times as many requests or runs come late as in history; None where that says nothing."""
        if self.target.limit_s is None or self.before_frac is None or self.before_frac >= 1 - _ROUNDING:
            return None
        return (1 - self.attained_frac) / (1 - self.before_frac)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A workload whose planned way missed targets on the proof window, and what the plan does with it instead."""

    workload: str
    was: tuple[str, ...]
    """What the plan did before, in words."""
    now: tuple[str, ...]
    """What it does instead; empty where the workload stays as it is."""
    missed: tuple[TargetResult, ...]
    """The targets that the first way missed, with what it attained; empty where it cost more than history instead."""
    when_slow: bool = False
    """They were missed only with the new GPUs at the low end of their predicted speed, and that is what was attained."""
    extra_micro_usd: int = 0
    """What the first way, with all that goes with it, cost beyond history over the proof window, where that is why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionProof:
    """What one action was predicted to save and what it saves on the proof window, both as dollars a month."""

    id: str
    measure: str
    """`share`: of the joint saving; `last in`: what is lost without it alone."""
    predicted_usd_mo: float
    replayed_usd_mo: float
    held: bool | None
    """Whether the replayed share lies in the predicted interval; None where shares were not replayed."""
    work_ratio: float | None = None
    """GPU activity of its workloads an hour of the proof window, over that of the fit window; None where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Proof(ShownInNotebook):
    """The plan replayed over the proof window. The planner never saw it, but for vetoes of what failed there (`repairs`)."""

    window: Window
    before_micro_usd: int
    after_micro_usd: int
    clairvoyant_micro_usd: int | None
    """A bound on what any plan could have cost with the future known; None where it was not asked for."""
    hourly_before_usd: FloatArray
    hourly_after_usd: FloatArray
    targets: tuple[TargetResult, ...]
    interruptions: int
    lost_gpu_hr: float
    notes: tuple[str, ...] = ()
    moving_micro_usd: int = 0
    """What moving and traffic across regions and clouds are of `after`."""
    actions: tuple[ActionProof, ...] = ()
    """Action by action, where it was worked out."""
    repairs: tuple[Repair, ...] = ()
    """What the plan does otherwise since its first form missed targets here."""
    first_saving_micro_usd: int | None = None
    """What the plan claimed to save over its fit window before the repairs; None where nothing was repaired."""
    runs_without_node: int = 0
    """Runs that waited while no node could be had."""
    longest_without_node_s: float = 0.0

    @property
    def saving_frac(self) -> float:
        """Return the share of the bill saved."""
        return 1 - self.after_micro_usd / self.before_micro_usd if self.before_micro_usd else 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CapacityPicture:
    """Demand against capacity of one service over the proof window, per hour, in GPUs (n_hours,)."""

    workload: str
    demand_gpus: FloatArray
    before_gpus: FloatArray
    after_gpus: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledAction:
    """One action of a course: when it is worked on, and the bill once it is done."""

    action: str
    start_mo: float
    done_mo: float
    bill_usd_mo: float
    quick_win: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """An order of actions played through a year."""

    steps: tuple[ScheduledAction, ...]
    bill_usd_mo: tuple[float, ...]
    """The monthly bill at each month's end, from 0 (today) to 12."""
    year_usd: float
    """What the twelve months cost together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffortSensitivity:
    """The order where one lever takes half or twice its effort."""

    lever: str
    factor: float
    same_frac: float
    """Share of pairs of actions that stay in the same order."""
    first: str
    """The action that comes first."""
    regret_usd: float
    """What keeping the plan's order would cost over the year, against the order made for that effort; 0 or more where the
    other order is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roadmap:
    """The plan's course, the course that guides give for the same actions, and how firm the plan's order is."""

    course: Schedule
    fixed: Schedule
    sways: tuple[EffortSensitivity, ...]
    per_week_loss_usd: float | None = None
    """What the year would cost more with the largest saving per engineer-week first; None in plans kept before it was known."""
    best: bool = False
    """No order of these actions, one at a time, makes the year cheaper."""

    @property
    def gain_usd(self) -> float:
        """Return what the plan's order saves over the year against the fixed one."""
        return self.fixed.year_usd - self.course.year_usd


class AlternativeKind(Enum):
    """What people propose whatever the fleet."""

    ANOTHER_CLOUD = "another cloud"
    OWN_KERNELS = "own kernels"
    OWN_HARDWARE = "buying hardware"
    SAVINGS_PLAN = "a savings plan"
    UNISOLATED = "sharing without isolation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One of them with its sum, beside the plan's bill. The saving is after what it costs to run, not what it costs to do."""

    kind: AlternativeKind
    subject: str
    saving_usd_mo: Estimate
    once_usd: float
    """What doing it costs once: work, data, machines."""
    worth: bool
    """Whether the low end of the saving pays `once_usd` back in time."""
    payback_mo: float | None
    """Months after which `once_usd` is paid back, as estimated; None where never."""
    reason: str
    assumptions: tuple[str, ...]
    """`setting = value`, as in force; where each comes from is in the reference of settings."""
