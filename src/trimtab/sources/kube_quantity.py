"""Kubernetes quantities: `250m`, `64Gi`, `1e3`, as numbers.

Source: kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity (the suffixes and their meaning).
"""

from __future__ import annotations

import math
import re

_QUANTITY = re.compile(r"^\s*(?P<number>[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?)(?P<suffix>[A-Za-z]{0,2})\s*$")
_SUFFIXES = {
    "": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 10.0**9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip


def quantity(value: object) -> float | None:
    """Return a quantity as a number in its base unit (cores, bytes, pieces); None where it is none.

    >>> quantity("250m"), quantity("1Ki"), quantity(8), quantity("lots")
    (0.25, 1024.0, 8.0, None)
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    matched = _QUANTITY.match(str(value))
    if matched is None or matched["suffix"] not in _SUFFIXES:
        return None
    number = float(matched["number"]) * _SUFFIXES[matched["suffix"]]
    return number if math.isfinite(number) and number >= 0 else None
