"""The actions of a plan: changes, targets, savings, and how to try and undo each."""

from __future__ import annotations

from pydantic import JsonValue

from trimtab.emit.document.part import EvidencePart, Part


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
