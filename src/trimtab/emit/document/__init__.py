"""The audit as a document: what every output shows, JSON publishes, and later commands read back.

`audit_document.audit_document` builds it from an `Audit`. Money is rounded there and nowhere else, so all outputs agree to the
cent. The docstring under each field is its description in the published schema (`schemas/audit-1.json`). Functions below the
class write the document as JSON and YAML, read it back, and give that schema.
"""

from __future__ import annotations

import json
from datetime import datetime
from importlib.resources import files
from typing import Literal

import yaml
from pydantic import ValidationError

from trimtab.emit.document.bill import (
    BrokenPart,
    CommittedRatesPart,
    CoveragePart,
    HygienePart,
    LongTailPart,
    OwnedPart,
    OwnedSpendPart,
    ProductFormPart,
    SpendTables,
    TokenCostPart,
    UnjudgedPart,
    VerdictPart,
    WastePart,
)
from trimtab.emit.document.part import Part, faults
from trimtab.emit.document.plan import ActionPart, PlanPart
from trimtab.emit.document.proof import LawPart, ProofPart, RobustnessPart
from trimtab.errors import InputError


class ComparedPart(Part):
    """One figure in the baseline and in the scenario."""

    section: str
    """What it belongs to: the plan, actions, limits, budget or deadline."""
    what: str
    """The name of the figure."""
    unit: str
    """usd_mo, frac, weeks, count or text."""
    base: float | str | None
    """In the baseline; null if it has no value there."""
    scenario: float | str | None
    """In the scenario; null if it has no value there."""


class WhatIfPart(Part):
    """A scenario planned beside the baseline."""

    scenario: tuple[str, ...]
    """What is changed."""
    refused: str
    """Why no plan is possible in it; empty if there is one."""
    figures: tuple[ComparedPart, ...]
    """Both plans, figure by figure."""


class BillByHour(Part):
    """The bill over the proof window, hour by hour."""

    start: datetime
    """The first hour."""
    before_usd: tuple[float, ...]
    """Without the plan."""
    after_usd: tuple[float, ...]
    """Under the plan."""


class HeatMapPart(Part):
    """Mean activity by row and hour of the week."""

    rows: tuple[str, ...]
    """What each row is."""
    activity_frac: tuple[tuple[float | None, ...], ...]
    """168 values per row, from Monday 00:00 UTC; null if nothing was held or measured."""


class CapacityPart(Part):
    """Demand against capacity of one service over the proof window, hour by hour, in GPUs."""

    workload: str
    """Namespace and name."""
    start: datetime
    """The first hour."""
    demand_gpus: tuple[float | None, ...]
    """What its requests needed; null if not measured."""
    before_gpus: tuple[float | None, ...]
    """What was held."""
    after_gpus: tuple[float | None, ...]
    """What the plan holds."""


class Pictures(Part):
    """The series behind the charts of the HTML report."""

    bill_by_hour: BillByHour
    """Bill before and after."""
    heat_map: HeatMapPart
    """Utilization through the week."""
    capacity: tuple[CapacityPart, ...]
    """Demand against capacity, one entry per service."""


class UndeclaredPart(Part):
    """What was not declared in workloads.yaml, and what the plan would save if it were."""

    workloads: tuple[str, ...]
    """The workloads concerned: one, or several that are priced together."""
    permission: str
    """interruptible, latency, min_replicas, quantize, open_hours or isolation."""
    known: str
    """What history says about it."""
    permits: str
    """What would be declared, in words."""
    gives_up: str
    """What the owner accepts with it."""
    saves_usd_mo: float
    """Dollars a month saved in addition to the plan, with the rest of it unchanged. The entries are alternatives and do not add
    up."""
    declaration: str
    """YAML to put under `workloads:` in workloads.yaml, or into an existing entry."""
    saves_once_bought_usd_mo: float | None = None
    """The same once the plan's commitments are bought, below 0 if it then costs money; null if it needs all of them."""


SCHEMA_VERSION: Literal[1] = 1


class AuditDocument(Part):
    """What `trimtab audit` found."""

    schema_version: Literal[1]
    """Version of this layout; a key is never renamed or removed within a version."""
    trimtab_version: str
    """The program that wrote it."""
    fleet: str
    """Source of the history: a bundle's path or a demonstration's name."""
    coverage: CoveragePart
    """How much history was available."""
    degraded: tuple[str, ...]
    """Reasons why the answer is less certain than requested; empty if there are none."""
    bill_usd_mo: float
    """Today's bill: the fit window, scaled to a month of 730 hours."""
    spend: SpendTables
    """Where it goes."""
    product_form: ProductFormPart
    """How much of the paid GPU-hours does work."""
    waste: tuple[WastePart, ...]
    """What the bill pays for, useful work and waste; sums to the bill."""
    verdicts: tuple[VerdictPart, ...]
    """What each workload's activity shows."""
    plan: PlanPart
    """The plan."""
    proof: ProofPart
    """Whether it holds on history that the planner never saw."""
    unjudged: tuple[UnjudgedPart, ...]
    """Workloads left out of the plan, with cost and reason."""
    pictures: Pictures
    """Series behind the report's charts."""
    owned: tuple[OwnedPart, ...] = ()
    """Active commitments to nodes."""
    owned_spend: tuple[OwnedSpendPart, ...] = ()
    """Active commitments to spend."""
    laws: tuple[LawPart, ...] = ()
    """The assumed capacity of a replica of each service, and its back-test."""
    undeclared: tuple[UndeclaredPart, ...] = ()
    """What owners did not declare, and what the plan would save if they did; alternatives, largest first."""
    broken: tuple[BrokenPart, ...] = ()
    """What was broken over the whole history, most expensive first."""
    hygiene: tuple[HygienePart, ...] = ()
    """What is untidy in the cluster, by offender, most expensive first."""
    robustness: RobustnessPart | None = None
    """The plan under stress: other speeds and demand than it was made for; null in documents made before this was computed."""
    tokens: tuple[TokenCostPart, ...] = ()
    """Token costs of services whose tokens were read, largest share of the bill first."""
    long_tail: tuple[LongTailPart, ...] = ()
    """Costs beside the GPUs, most expensive first; not part of the bill of nodes, except for waiting GPUs."""
    committed_rates: CommittedRatesPart | None = None
    """How much of the use on demand could not be judged for lack of a committed rate; null in documents made before this was
    computed."""
    what_if: WhatIfPart | None = None
    """A scenario beside the baseline; null if none was requested."""

    def action(self, name: str) -> ActionPart | None:
        """Return an action by its id, or None."""
        return next((action for action in self.plan.actions if action.id == name), None)


def render_json(document: AuditDocument, *, indent: int | None = 2) -> str:
    """Return the document as JSON text, on one line if no indent is given."""
    end = "" if indent is None else "\n"
    return json.dumps(document.model_dump(mode="json"), indent=indent, ensure_ascii=False, allow_nan=False) + end


def parse_document(text: str | bytes, *, where: str) -> AuditDocument:
    """Read a document from JSON. Raises InputError if it does not belong to this version."""
    try:
        return AuditDocument.model_validate_json(text)
    except ValidationError as error:
        raise InputError(
            f"{where} is not an audit of this version of trimtab ({faults(error)}); run `trimtab audit` again"
        ) from error


def published_schema() -> str:
    """Return the JSON Schema of the document, as published."""
    return (files("trimtab.emit") / "schemas" / f"audit-{SCHEMA_VERSION}.json").read_text(encoding="utf-8")


def schema_text() -> str:
    """Generate the JSON Schema from the document's types. `published_schema` must equal it."""
    schema = AuditDocument.model_json_schema(mode="serialization")
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


_WIDTH = 120


def render_yaml(document: AuditDocument) -> str:
    """Return the document as YAML text."""
    return yaml.safe_dump(document.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=_WIDTH)
