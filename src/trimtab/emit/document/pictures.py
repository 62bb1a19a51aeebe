"""The series behind the pictures of the HTML report."""

from __future__ import annotations

from datetime import datetime

from trimtab.emit.document.part import Part


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
