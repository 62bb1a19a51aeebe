"""The whole document of an audit, with its scenario, the series behind its pictures, and the price of what was not declared."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from trimtab.emit.document.actions import ActionPart
from trimtab.emit.document.bill import (
    BrokenPart,
    CoveragePart,
    HygienePart,
    OwnedPart,
    OwnedSpendPart,
    ProductFormPart,
    SpendTables,
    TokenCostPart,
    UnjudgedPart,
    VerdictPart,
    WastePart,
)
from trimtab.emit.document.part import Part
from trimtab.emit.document.plan import PlanPart
from trimtab.emit.document.proof import LawPart, ProofPart, RobustnessPart


class ComparedPart(Part):
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


class WhatIfPart(Part):
    """A scenario planned beside the world as it is."""

    scenario: tuple[str, ...]
    """What is different."""
    refused: str
    """Why there is no plan in that world; empty where there is one."""
    figures: tuple[ComparedPart, ...]
    """Both worlds, figure by figure."""


class BillByHour(Part):
    """The bill over the proof window, hour by hour."""

    start: datetime
    """The first hour."""
    before_usd: tuple[float, ...]
    """As it was."""
    after_usd: tuple[float, ...]
    """Under the plan."""


class HeatMapPart(Part):
    """Mean activity by row and hour of the week."""

    rows: tuple[str, ...]
    """What each row is."""
    activity_frac: tuple[tuple[float | None, ...], ...]
    """168 values a row, from Monday 00:00 UTC; null where nothing was held or measured."""


class CapacityPart(Part):
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


class Pictures(Part):
    """The series behind the pictures of the HTML report."""

    bill_by_hour: BillByHour
    """Bill before and after."""
    heat_map: HeatMapPart
    """Utilization through the week."""
    capacity: tuple[CapacityPart, ...]
    """Demand against capacity, one entry a service."""


class UndeclaredPart(Part):
    """What was not declared in workloads.yaml, and what the plan would save if it were."""

    workloads: tuple[str, ...]
    """Whom it concerns: one, or several that it takes together."""
    permission: str
    """interruptible, latency, min_replicas, quantize, open_hours or isolation."""
    known: str
    """What history says about it."""
    permits: str
    """What would be declared, in words."""
    gives_up: str
    """What the owner accepts with it."""
    saves_usd_mo: float
    """Dollars a month beside the plan, the rest of it as it is; alternatives, which do not add up."""
    declaration: str
    """YAML to put under `workloads:` in workloads.yaml, or into the entry that is there."""
    saves_once_bought_usd_mo: float | None = None
    """The same once the plan's commitments are bought, below 0 where it then costs; null where it needs all of them."""


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
    broken: tuple[BrokenPart, ...] = ()
    """What was broken over the whole history, the most dollars first."""
    hygiene: tuple[HygienePart, ...] = ()
    """What is untidy in the cluster, offender by offender, the most dollars first."""
    robustness: RobustnessPart | None = None
    """The plan where speeds and demand depart from what it was made for; null in documents made before it was known."""
    tokens: tuple[TokenCostPart, ...] = ()
    """What services' tokens cost, the largest share of the bill first; services whose tokens were read."""
    what_if: WhatIfPart | None = None
    """A scenario beside the world as it is; null where none was asked for."""

    def action(self, name: str) -> ActionPart | None:
        """Return an action by its id, or None."""
        return next((action for action in self.plan.actions if action.id == name), None)
