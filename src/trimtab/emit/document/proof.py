"""Whether the plan holds: on history that the planner never saw, under stress, and how services respond to load."""

from __future__ import annotations

from trimtab.emit.document.part import Part, WindowPart
from trimtab.emit.document.plan import TargetPart


class ActionProofPart(Part):
    """One action's predicted saving, and its saving in the replay of the proof window."""

    id: str
    """The action."""
    measure: str
    """`share`: its share of the joint saving; `last in`: what is lost if it alone is left out."""
    predicted_usd_mo: float
    """From the fit window, dollars a month."""
    replayed_usd_mo: float
    """On the proof window, dollars a month."""
    held: bool | None
    """True if the replayed share lies in the predicted 80% interval; null if shares were not replayed."""
    work_ratio: float | None = None
    """GPU activity of its workloads an hour of the proof window, over that of the days planned on; null if not measured."""


class PromisePart(Part):
    """The targets of one kind."""

    promise: str
    """latency, queue, throughput or hours."""
    kept: int
    """How many are kept."""
    targets: int
    """How many there are."""
    untouched: int
    """How many of them belong to workloads that the plan does not change."""


class RepairPart(Part):
    """A workload that was planned again, because its first option missed targets on the proof window or cost more than
    history."""

    workload: str
    """Namespace and name."""
    was: tuple[str, ...]
    """What the plan did first."""
    now: tuple[str, ...]
    """What it does instead; empty if the workload stays unchanged."""
    missed: tuple[TargetPart, ...]
    """The targets that the first option missed, with what it reached; empty if it cost more than history instead."""
    when_slow: bool = False
    """True if they were missed only with the new GPUs at the low end of their predicted speed; the attained values are from
    that replay."""
    extra_usd: float = 0.0
    """What the first option, with its dependent changes, cost beyond history over the proof window, if that is the reason."""


class ProofPart(Part):
    """The plan replayed over the proof window. The planner did not see it, except to reject options that failed there
    (`repairs`)."""

    window: WindowPart
    """The proof window."""
    before_usd: float
    """What the window cost."""
    after_usd: float
    """What it would have cost under the plan, with moving and traffic."""
    moving_usd: float = 0.0
    """Moving and traffic, within that."""
    clairvoyant_usd: float
    """A lower bound of what any plan could have cost with the future known."""
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
    """GPU-hours of work repeated because of them."""
    notes: tuple[str, ...]
    """Notes on the proof."""
    actions: tuple[ActionProofPart, ...] = ()
    """Action by action; empty if not computed."""
    given_up: tuple[str, ...] = ()
    """Targets that the plan meets with less margin than history did, within what was declared."""
    by_promise: tuple[PromisePart, ...] = ()
    """The targets counted by kind; empty in documents made before kinds were recorded."""
    repairs: tuple[RepairPart, ...] = ()
    """What the plan changed after its first version missed targets on this window. For these workloads the window is not a
    longer unseen: it was used to reject an option, but not to choose one."""
    first_saving_usd_mo: float | None = None
    """The saving a month before the repairs; null if there were none."""


class StressedTargetPart(Part):
    """A target under one stress test."""

    workload: str
    """Namespace and name."""
    metric: str
    """latency, ttft, tpot, throughput or queue_wait."""
    required_frac: float
    """Share that is required."""
    attained_frac: float
    """Share that the plan reaches there."""
    kept: bool
    """True if attained is at least required."""


class StressedPart(Part):
    """The proof repeated under conditions that differ from what the plan assumes."""

    departure: str
    """What differs: speeds of replicas and of moved runs, demand, or available capacity."""
    saving_frac: float
    """Share of the bill that the plan saves there, compared with the fleet run as today."""
    targets_kept: int
    """Targets met there."""
    targets: int
    """Targets in all."""
    missed: tuple[str, ...]
    """Workloads that miss a target only under this stress test."""
    bill_usd_mo: float | None = None
    """The bill under the plan there, dollars a month; null in documents made before it was recorded."""
    attained: tuple[StressedTargetPart, ...] = ()
    """Every target there."""
    runs_without_node: int = 0
    """Runs that wait while no node is available."""
    longest_without_node_s: float = 0.0
    """The longest of these waits, in seconds."""


class RobustnessPart(Part):
    """The plan's result under stress, and what its headroom costs."""

    stressed: tuple[StressedPart, ...]
    """One entry per stress test."""
    price_usd_mo: float
    """Dollars a month that a plan without headroom for demand, speed and targets would save in addition."""
    notes: tuple[str, ...] = ()
    """Stress tests that were not possible, such as start-up times that were not measured."""


class HeldPart(Part):
    """A measure as predicted by a fitted model, and as observed."""

    foretold: float
    """Predicted by the model fitted on the less busy hours."""
    measured: float
    """Observed in the hours held out."""


class BackTestPart(Part):
    """A back-test: the model fitted on the less busy hours, compared with the busier ones."""

    fitted_req_s: float
    """Highest load of a replica used in the fit, requests/s."""
    tested_req_s: float
    """Highest load that it was tested on, requests/s."""
    limit_s: float | None
    """The latency limit with the worst result; null if no target has one."""
    in_time: HeldPart | None
    """Shares of requests within it, 0..1; null if not measured."""
    running: HeldPart | None
    """Mean requests in progress per replica; null if not measured."""
    waiting: HeldPart | None
    """Mean requests waiting per replica; null if not measured."""
    gpu_s: HeldPart | None
    """GPU-seconds of activity per request; null if not measured."""
    error_frac: float
    """Its error: of the GPU time per request or of requests in time, whichever is larger."""


class LawPart(Part):
    """The capacity that the plan assumes for a replica of a service."""

    workload: str
    """Namespace and name."""
    bound: str
    """What determines the highest load of a replica."""
    unit: str
    """Unit of the three loads: `requests/s`, or `busy GPUs` without request metrics."""
    planned: float
    """The highest load of a replica that the plan aims at."""
    shown: float
    """The highest load that history shows a replica to sustain."""
    by_activity: float
    """What it would serve at full GPU activity, if no other limit is reached first."""
    back_test: BackTestPart | None
    """Null if no back-test was possible."""
    untested: str
    """Why not; empty if it was."""
    load_test: str
    """How to show that a replica serves more; empty if that would save nothing."""
    load_test_saves_usd_mo: float | None
    """Dollars a month that the plan could save with it, at most and before commitments; null if unknown."""
