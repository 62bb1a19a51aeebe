"""The actions of a plan: changes, targets, savings, and how to try and undo each."""

from __future__ import annotations

from pydantic import JsonValue

from trimtab.emit.document.part import EvidencePart, Part


class ChangePart(Part):
    """One setting changed on one subject."""

    subject: str
    """Workload, pool or set of nodes."""
    kind: str
    """Which of the closed set of effects it is."""
    summary: str
    """The change in words."""
    settings: dict[str, JsonValue]
    """The exact values that the manifests are written from."""


class TargetPart(Part):
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
    promise: str = ""
    """Its kind: latency, queue, throughput or hours; empty in documents made before kinds were told apart."""
    touched: bool = True
    """False where the plan leaves the workload as it is, so that it attains what history did."""
    times_as_late: float | None = None
    """How many times as many requests or runs come late as in history; null where none did, or where that is not known."""


class ActionPart(Part):
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
    """What it would save if it were the only action; 0 where alone it saves nothing or misses a target."""
    last_in_usd_mo: float
    """What would be lost if it were left out, with what needs it to keep a target; what then does not pay waits."""
    moving_usd_mo: float = 0.0
    """What it adds to moving and traffic across regions and clouds; all savings are net of it."""
    spend_usd_mo: float | None
    """Today's spend on what it touches: workloads, idle time of their nodes, nodes given back; null where it touches none."""
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
    enables: tuple[str, ...] = ()
    """Actions that would miss a target without it: what they save needs it."""
    hazards: tuple[str, ...] = ()
    """What can happen once it is done: what its risk is derived from."""
    ask_first: tuple[str, ...] = ()
    """What owners may permit that would leave a purchase in part unused: to be asked before it is bought."""
