"""The series behind the report's pictures, as parts of the audit's document."""

from __future__ import annotations

import math
from datetime import datetime

from trimtab.emit.document import BillByHour, CapacityPart, HeatMapPart, Pictures
from trimtab.fleet.model import FloatArray
from trimtab.plan.audit import Audit, HeatMap
from trimtab.plan.model import CapacityPicture

_DIGITS = 4


def pictures_part(audit: Audit) -> Pictures:
    """Return the series; what was not measured is null."""
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
