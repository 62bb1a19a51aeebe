"""The whole document."""

from __future__ import annotations

from typing import Literal

from trimtab.emit.document.actions import ActionPart
from trimtab.emit.document.bill import (
    CoveragePart,
    OwnedPart,
    OwnedSpendPart,
    ProductFormPart,
    SpendTables,
    UnjudgedPart,
    VerdictPart,
    WastePart,
)
from trimtab.emit.document.laws import LawPart
from trimtab.emit.document.part import Part
from trimtab.emit.document.pictures import Pictures
from trimtab.emit.document.plan import PlanPart
from trimtab.emit.document.proof import ProofPart, RobustnessPart
from trimtab.emit.document.scenario import WhatIfPart
from trimtab.emit.document.undeclared import UndeclaredPart

SCHEMA_VERSION: Literal[1] = 1


class AuditDocument(Part):
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
    owned_spend: tuple[OwnedSpendPart, ...] = ()
    """Commitments to spend that run already."""
    laws: tuple[LawPart, ...] = ()
    """What the plan takes a replica of each service to serve, and how that did against history."""
    undeclared: tuple[UndeclaredPart, ...] = ()
    """What owners did not declare, and what the plan would save if they did; alternatives, the most first."""
    robustness: RobustnessPart | None = None
    """The plan where speeds and demand depart from what it was made for; null in documents made before it was known."""
    what_if: WhatIfPart | None = None
    """A scenario beside the world as it is; null where none was asked for."""

    def action(self, name: str) -> ActionPart | None:
        """Return an action by its id, or None."""
        return next((action for action in self.plan.actions if action.id == name), None)
