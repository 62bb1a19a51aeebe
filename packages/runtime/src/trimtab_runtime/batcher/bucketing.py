"""Shape buckets: a key function that puts items of similar length into one batch, for padding to a common shape."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from trimtab_runtime.errors import ItemTooLarge, UsageError


def buckets(*edges: int, of: Callable[..., int] = len) -> Callable[..., int]:
    """Return a key function that gives the smallest edge which is at least `of(item)`, to pad the item to.

    An item above the largest edge is refused with `ItemTooLarge`.

    >>> key = buckets(64, 128, 512)
    >>> key("a" * 100)
    128
    """
    ordered = sorted(set(edges))
    if not ordered or ordered[0] <= 0:
        raise UsageError(f"buckets: give at least one positive edge (saw {edges!r})")

    def bucket(item: object) -> int:
        length = of(item)
        place = bisect_left(ordered, length)
        if place == len(ordered):
            raise ItemTooLarge(
                f"an item of length {length} exceeds the largest bucket {ordered[-1]}; add a larger edge"
            )
        return ordered[place]

    return bucket
