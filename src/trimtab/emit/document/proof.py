"""Whether the plan holds: on history that the planner never saw, and where the world departs."""

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


class ProofPart(Part):
    """The plan replayed over the proof window, which the planner never saw."""

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


class StressedPart(Part):
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


class RobustnessPart(Part):
    """What the plan is worth where the world departs, and what its headroom costs."""

    stressed: tuple[StressedPart, ...]
    """One entry a departure."""
    price_usd_mo: float
    """Dollars a month that a plan without headroom for demand, speed and targets would save besides."""
