"""Turns an audit into its document.

Money is rounded here and nowhere else: parts sum to their totals to the cent in every output format.
"""

from __future__ import annotations

import math
from datetime import datetime

import yaml

from trimtab._version import __version__
from trimtab.emit.comparison import compared
from trimtab.emit.document import (
    SCHEMA_VERSION,
    AuditDocument,
    BillByHour,
    CapacityPart,
    ComparedPart,
    HeatMapPart,
    Pictures,
    UndeclaredPart,
    WhatIfPart,
)
from trimtab.emit.from_audit.bill import (
    broken_part,
    committed_rates_part,
    coverage_part,
    hygiene_part,
    long_tail_part,
    owned_parts,
    owned_spend_parts,
    product_form_part,
    spend_tables,
    token_cost_parts,
    unjudged_part,
    verdict_part,
    waste_parts,
)
from trimtab.emit.from_audit.plan import plan_part, target_part
from trimtab.emit.from_audit.proof import law_part, proof_part, robustness_part
from trimtab.emit.from_audit.shared import to_cents
from trimtab.emit.money import month_usd
from trimtab.ledger.arrays import FloatArray
from trimtab.plan.audit import Audit, HeatMap
from trimtab.plan.model import CapacityPicture
from trimtab.plan.proof.scenario import WhatIf
from trimtab.plan.proof.undeclared import Undeclared


def audit_document(audit: Audit) -> AuditDocument:
    """Build the document of an audit. Parts of the bill and of the joint saving sum to their totals to the cent."""
    window_hr = audit.plan.window.hours
    targets = tuple(target_part(result) for result in audit.proof.targets)
    return AuditDocument(
        schema_version=SCHEMA_VERSION,
        trimtab_version=__version__,
        fleet=audit.fleet,
        coverage=coverage_part(audit),
        degraded=audit.degraded,
        bill_usd_mo=month_usd(audit.bill_micro_usd, window_hr),
        spend=spend_tables(audit),
        product_form=product_form_part(audit.product_form),
        waste=waste_parts(audit.waste, audit),
        verdicts=tuple(verdict_part(verdict) for verdict in audit.verdicts),
        plan=plan_part(audit, targets),
        proof=proof_part(audit.proof, targets, audit.plan.window),
        unjudged=tuple(unjudged_part(row, window_hr) for row in audit.unjudged),
        pictures=pictures_part(audit),
        owned=owned_parts(audit.owned),
        owned_spend=owned_spend_parts(audit.owned),
        laws=tuple(law_part(law) for law in audit.laws),
        undeclared=tuple(undeclared_part(undeclared) for undeclared in audit.undeclared),
        broken=tuple(broken_part(row, audit.untidy.hours) for row in audit.untidy.broken),
        hygiene=tuple(hygiene_part(row, audit.untidy.hours) for row in audit.untidy.offences),
        robustness=None if audit.robustness is None else robustness_part(audit.robustness),
        tokens=token_cost_parts(audit),
        long_tail=tuple(long_tail_part(row, window_hr) for row in audit.long_tail),
        committed_rates=None if audit.committed_rates is None else committed_rates_part(audit.committed_rates),
        what_if=None if audit.what_if is None else what_if_part(audit.what_if),
    )


def what_if_part(found: WhatIf) -> WhatIfPart:
    """Return the comparison of both scenarios, figure by figure."""
    return WhatIfPart(
        scenario=found.scenario.words(),
        refused=found.refused,
        figures=tuple(
            ComparedPart(section=row.section, what=row.what, unit=row.unit.value, base=row.base, scenario=row.scenario)
            for row in compared(found)
        ),
    )


_DIGITS = 4


def pictures_part(audit: Audit) -> Pictures:
    """Return the time series. Missing readings are null."""
    start = audit.proof.window.start
    return Pictures(
        bill_by_hour=BillByHour(
            start=start,
            before_usd=_known_series(audit.proof.hourly_before_usd),
            after_usd=_known_series(audit.proof.hourly_after_usd),
        ),
        heat_map=_heat_map(audit.heat_map),
        capacity=tuple(_capacity(picture, start) for picture in audit.capacity),
    )


def _heat_map(heat_map: HeatMap) -> HeatMapPart:
    return HeatMapPart(rows=heat_map.rows, activity_frac=tuple(_series(row) for row in heat_map.activity_frac))


def _capacity(picture: CapacityPicture, start: datetime) -> CapacityPart:
    return CapacityPart(
        workload=picture.workload,
        start=start,
        demand_gpus=_series(picture.demand_gpus),
        before_gpus=_series(picture.before_gpus),
        after_gpus=_series(picture.after_gpus),
    )


def _series(values: FloatArray) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(value) else round(value, _DIGITS) for value in values.tolist())


def _known_series(values: FloatArray) -> tuple[float, ...]:
    return tuple(round(value, _DIGITS) for value in values.tolist())


_WIDTH = 10_000
"""Lines are not wrapped."""


def undeclared_part(found: Undeclared) -> UndeclaredPart:
    """Describe a missing declaration, with the YAML to paste."""
    return UndeclaredPart(
        workloads=tuple(found.declarations),
        permission=found.permission,
        known=found.known,
        permits=found.permits,
        gives_up=found.gives_up,
        saves_usd_mo=round(found.saves_usd_mo, 2),
        saves_once_bought_usd_mo=to_cents(found.saves_once_bought_usd_mo),
        declaration="\n".join(
            yaml.safe_dump({name: dict(fields)}, default_flow_style=None, sort_keys=False, width=_WIDTH).strip()
            for name, fields in found.declarations.items()
        ),
    )
