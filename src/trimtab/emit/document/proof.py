"""Whether the plan holds: on history that the planner never saw, where the world departs, and how services answer."""

from __future__ import annotations

from trimtab.emit.document.actions import TargetPart
from trimtab.emit.document.part import Part, WindowPart


class ActionProofPart(Part):
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


class PromisePart(Part):
    """The targets of one kind."""

    promise: str
    """latency, queue, throughput or hours."""
    kept: int
    """How many are kept."""
    targets: int
    """How many there are."""
    untouched: int
    """How many of them belong to workloads that the plan leaves as they are."""


class RepairPart(Part):
    """A workload whose first planned way missed targets on the proof window, or cost more there than history: planned again."""

    workload: str
    """Namespace and name."""
    was: tuple[str, ...]
    """What the plan did first."""
    now: tuple[str, ...]
    """What it does instead; empty where the workload stays as it is."""
    missed: tuple[TargetPart, ...]
    """The targets that the first way missed, with what it attained; empty where it cost more than history instead."""
    when_slow: bool = False
    """Whether they were missed only with the new GPUs at the low end of their predicted speed; what was attained is of that."""
    extra_usd: float = 0.0
    """What the first way, with all that goes with it, cost beyond history over the proof window, where that is why."""


class ProofPart(Part):
    """The plan replayed over the proof window. The planner never saw it, but for vetoes of what failed there (`repairs`)."""

    window: WindowPart
    """The proof window."""
    before_usd: float
    """What the window cost."""
    after_usd: float
    """What it would have cost under the plan, with moving and traffic."""
    moving_usd: float = 0.0
    """Moving and traffic, within that."""
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
    by_promise: tuple[PromisePart, ...] = ()
    """The targets counted by kind; empty in documents made before kinds were told apart."""
    repairs: tuple[RepairPart, ...] = ()
    """What the plan does otherwise since its first form missed targets on this window. For these workloads the window is no
    longer unseen: it refused a way, and chose none."""
    first_saving_usd_mo: float | None = None
    """What the plan claimed to save a month before the repairs; null where nothing was repaired."""


class StressedTargetPart(Part):
    """What a target becomes where the world departs."""

    workload: str
    """Namespace and name."""
    metric: str
    """latency, ttft, tpot, throughput or queue_wait."""
    required_frac: float
    """Share that is required."""
    attained_frac: float
    """Share that the plan attains there."""
    kept: bool
    """Whether attained is not below required."""


class StressedPart(Part):
    """The proof again in a world that departs from what the plan was made for."""

    departure: str
    """What departs: speeds of replicas and of moved runs, demand, or what capacity is there."""
    saving_frac: float
    """Share of the bill that the plan saves there, against the fleet run as today."""
    targets_kept: int
    """Targets kept there."""
    targets: int
    """Targets in all."""
    missed: tuple[str, ...]
    """Workloads that miss a target which they keep where nothing departs."""
    bill_usd_mo: float | None = None
    """The bill under the plan there, dollars a month; null in documents made before it was told."""
    attained: tuple[StressedTargetPart, ...] = ()
    """Every target there."""
    runs_without_node: int = 0
    """Runs that wait while no node can be had."""
    longest_without_node_s: float = 0.0
    """The longest of these waits, in seconds."""


class RobustnessPart(Part):
    """What the plan is worth where the world departs, and what its headroom costs."""

    stressed: tuple[StressedPart, ...]
    """One entry a departure."""
    price_usd_mo: float
    """Dollars a month that a plan without headroom for demand, speed and targets would save besides."""
    notes: tuple[str, ...] = ()
    """What no departure could be made of, such as start-up times that nobody measured."""


class HeldPart(Part):
    """A measure as a law foretold it and as it was."""

    foretold: float
    """By the law fitted on the hours of less load."""
    measured: float
    """In the hours held out."""


class BackTestPart(Part):
    """A law fitted on the hours of less load, held against those of more."""

    fitted_req_s: float
    """Highest load of a replica that it was fitted on, requests/s."""
    tested_req_s: float
    """Highest load that it was tested on, requests/s."""
    limit_s: float | None
    """The latency limit that came out worst; null where no target has one."""
    in_time: HeldPart | None
    """Shares of requests within it, 0..1; null where not measured."""
    running: HeldPart | None
    """Requests in work of a replica, mean; null where not measured."""
    waiting: HeldPart | None
    """Requests that wait, of a replica, mean; null where not measured."""
    gpu_s: HeldPart | None
    """GPU-seconds of activity per request; null where not measured."""
    error_frac: float
    """How far it was off: of the GPU time per request or of requests in time, the larger share."""


class LawPart(Part):
    """What the plan takes a replica of a service to serve."""

    workload: str
    """Namespace and name."""
    bound: str
    """What told the most that a replica serves."""
    unit: str
    """Of the three loads: `requests/s`, or `GPUs at work` without request metrics."""
    planned: float
    """The load of a replica that the plan aims at, at most."""
    shown: float
    """The highest load that history shows a replica to sustain."""
    by_activity: float
    """What it would serve at full GPU activity, if nothing else is full before."""
    back_test: BackTestPart | None
    """Null where none was possible."""
    untested: str
    """Why none was; empty where it was."""
    load_test: str
    """How to show that a replica serves more; empty where that would buy nothing."""
    load_test_saves_usd_mo: float | None
    """Dollars a month that the plan could save with it, at most and before commitments; null where unknown."""
