"""A short trace repeated until there is enough history for a plan and its proof, and said so.

What is repeated is known twice: the proof then confirms the repetition, not the future. It is never done unasked.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import InputError
from trimtab.sources.collected import Collected
from trimtab.units import HR_PER_DAY, S_PER_HR, hours_between

_REPEATED = {"gpu_usage": "hour", "demand": "start"}
_NEAR_A_DAY_HR = 20


def repeated(collected: Collected, days: int) -> Collected:
    """Return the fleet with its readings and demand repeated to so many days; raises InputError where runs come and go.

    A trace of nearly a day (20 h and more) is repeated once a day, so that hours of the day stay what they were.
    """
    length_hr = math.ceil(hours_between(collected.meta.start, collected.meta.end))
    if length_hr >= days * HR_PER_DAY:
        return collected
    if (
        "jobs" in collected.tables
        or collected.tables["allocations"]["end"].null_count < collected.tables["allocations"].num_rows
    ):
        raise InputError("--repeat is for traces of readings and requests; this one has runs that come and go")
    period_hr = (
        math.ceil(length_hr / HR_PER_DAY) * HR_PER_DAY if length_hr % HR_PER_DAY >= _NEAR_A_DAY_HR else length_hr
    )
    times = math.ceil(days * HR_PER_DAY / period_hr)
    end = collected.meta.start + timedelta(hours=days * HR_PER_DAY)
    tables = {
        name: _again(table, _REPEATED[name], period_hr, times, pa.scalar(end, pa.timestamp("us", tz="UTC")))
        if name in _REPEATED
        else table
        for name, table in collected.tables.items()
    }
    note = f"assumed: {length_hr} h of trace repeated to {days} days: the proof shows the repetition, not the future"
    meta = collected.meta.model_copy(update={"end": end, "notes": (note, *collected.meta.notes)})
    return replace(collected, tables=tables, meta=meta)


def _again(table: pa.Table, column: str, period_hr: int, times: int, end: pa.Scalar) -> pa.Table:
    at = table.column_names.index(column)
    shifted = [
        table.set_column(
            at,
            table.schema.field(at),
            pc.add(table[column], pa.scalar(timedelta(seconds=number * period_hr * S_PER_HR), pa.duration("us"))),
        )
        for number in range(times)
    ]
    whole = pa.concat_tables(shifted)
    return whole.filter(pc.less(whole[column], end))
