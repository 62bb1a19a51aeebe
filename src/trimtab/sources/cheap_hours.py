"""Hours that are cheap or clean, from a tariff or the grid's carbon by the hour: when runs that may wait should start.

A CSV of `hour` (0 to 23, UTC) or `timestamp` and of `usd_factor` (what an hour's energy or capacity costs beside the others) or
`carbon_g_per_kwh`; several rows of an hour of the day are averaged. A run takes hours, so an hour is as good as itself and the
two after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np

from trimtab.errors import Fault, InputError, PriceFileError
from trimtab.inputs.files import read_csv_rows
from trimtab.tables.bundle import Bundle
from trimtab.tables.workloads import Workloads
from trimtab.units import HR_PER_DAY, as_utc

MEASURES = {"carbon_g_per_kwh": "g CO2 a kWh", "usd_factor": "times the mean price"}
CHOSEN = 3
"""Hours that runs may wait for."""
_RUN_HR = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CheapHours:
    """The best hours of the day to start, and what they mean beside the whole day."""

    hours: tuple[int, ...]
    unit: str
    chosen_mean: float
    day_mean: float

    def __str__(self) -> str:
        listed = ", ".join(f"{hour:02d}" for hour in sorted(self.hours))
        means = f"{self.chosen_mean:.3g} {self.unit} on average, {self.day_mean:.3g} all day"
        return f"best hours to start, UTC: {listed} ({means})"


def read_cheap_hours(path: Path) -> CheapHours:
    """Read the file. Raises InputError or PriceFileError with every row at fault, and where an hour of the day is missing."""
    rows = read_csv_rows(path)
    measure = next((name for name in MEASURES if rows and name in rows[0]), None)
    if measure is None:
        raise InputError(f"{path}: no column {' or '.join(MEASURES)}, beside hour or timestamp")
    values: list[list[float]] = [[] for _ in range(HR_PER_DAY)]
    faults = []
    for number, row in enumerate(rows, start=2):
        try:
            values[_hour(row)].append(_amount(row[measure]))
        except (KeyError, TypeError, ValueError) as error:
            faults.append(
                Fault(what=f"unreadable: {error}", where=f"row {number}", cure=f"give hour,{measure} as 13,0.8")
            )
    faults += [
        Fault(what=f"no row for hour {hour}", where=str(path), cure="give all 24 hours of the day, UTC")
        for hour, found in enumerate(values)
        if not found and not faults
    ]
    if faults:
        raise PriceFileError(str(path), faults)
    return _best(np.array([np.mean(found) for found in values]), MEASURES[measure])


def with_cheap_hours(bundle: Bundle, best: CheapHours) -> Bundle:
    """Return the bundle whose deferrable workloads wait for these hours, where their owners named none."""
    specs = {
        key: spec
        if spec.deferrable is None or spec.deferrable.start_hours is not None
        else spec.model_copy(update={"deferrable": spec.deferrable.model_copy(update={"start_hours": best.hours})})
        for key, spec in bundle.workloads.workloads.items()
    }
    return replace(bundle, workloads=Workloads(version=bundle.workloads.version, workloads=specs))


def _best(by_hour: np.ndarray[tuple[int], np.dtype[np.float64]], unit: str) -> CheapHours:
    ahead = np.mean([np.roll(by_hour, -step) for step in range(_RUN_HR)], axis=0)
    hours = tuple(int(hour) for hour in np.argsort(ahead, kind="stable")[:CHOSEN])
    return CheapHours(
        hours=hours, unit=unit, chosen_mean=float(ahead[list(hours)].mean()), day_mean=float(by_hour.mean())
    )


def _hour(row: Mapping[str, str]) -> int:
    hour = int(row["hour"]) if row.get("hour") else as_utc(datetime.fromisoformat(row["timestamp"])).hour
    if not 0 <= hour < HR_PER_DAY:
        raise ValueError(f"hour {hour} is not within 0 to 23")
    return hour


def _amount(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text!r} is not an amount")
    return value
