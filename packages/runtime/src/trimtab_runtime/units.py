"""Units that the runtimes need, and the only conversions between them; `trimtab.units` has these and all others.

Every float that has a unit carries it as a suffix (`_s`, `_hr`, `_gib`, `_frac`, ...). A literal 3600, 1024 or 1e9 outside
these modules is a fault.
"""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:  # dates take long to import, and few of those who need a unit need one
    from datetime import datetime, timedelta, tzinfo

S_PER_MIN = 60
S_PER_HR = 3600
HR_PER_DAY = 24
S_PER_DAY = S_PER_HR * HR_PER_DAY
DAYS_PER_WEEK = 7
BYTES_PER_KIB = 1024
BYTES_PER_MIB = 1024**2
BYTES_PER_GIB = 1024**3
MIB_PER_GIB = 1024
BYTES_PER_GB = 10**9
PCIE_LANE_GB_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""PCIe, GB/s a lane and direction after line coding, by generation (PCI-SIG base specifications)."""
MJ_PER_KWH = 3.6e9
"""Millijoules (DCGM's energy counter) in a kilowatt-hour."""
MW_PER_W = 1000
"""Milliwatts (NVML's power) in a watt."""
MS_PER_S = 1000
NS_PER_S = 10**9


def as_utc(moment: datetime, zone: tzinfo | None = None) -> datetime:
    """Return a moment in UTC; one that names no zone is of `zone`, or in UTC already."""
    from datetime import UTC

    return (moment.replace(tzinfo=zone or UTC) if moment.tzinfo is None else moment).astimezone(UTC)


def parse_span(text: str) -> timedelta:
    """Read a length of time such as `15s`, `5m`, `24h`, `14d`, `2w`."""
    from datetime import timedelta

    units = {"s": 1, "m": S_PER_MIN, "h": S_PER_HR, "d": S_PER_DAY, "w": S_PER_DAY * DAYS_PER_WEEK}
    number, unit = text[:-1], text[-1:]
    try:
        amount = float(number)
    except ValueError:
        amount = -1.0
    if unit not in units or not amount > 0:
        raise ValueError(f"{text!r} is not a length of time; write 15s, 5m, 24h, 14d or 2w")
    return timedelta(seconds=amount * units[unit])
