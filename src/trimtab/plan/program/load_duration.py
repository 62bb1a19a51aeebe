"""The load-duration curve of a pool, and which layer of supply carries each part of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.fleet.model import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """The load at one share of the hours, busiest first; the parts sum to `load` and `unused` comes on top of it."""

    hours_frac: float
    load: float
    owned: float
    first_layer: float
    later_layers: float
    on_demand: float
    unused: float
    """Nodes paid for and not used at this load, once all layers are held."""


def load_duration(nodes: FloatArray, *, owned: float, first: float, later: float, points: int) -> tuple[LoadPoint, ...]:
    """Return the curve of hourly nodes (n_hours,) at evenly spread shares of the hours.

    `owned`, `first` and `later` are the nodes of each layer, stacked from the bottom in that order.
    """
    # the middle of each of the equal parts
    shares = (np.arange(points) + 0.5) / points
    order = np.sort(nodes)[::-1]
    loads = order[np.minimum((shares * len(order)).astype(int), len(order) - 1)]
    held = owned + first + later
    return tuple(
        LoadPoint(
            hours_frac=float(share),
            load=float(load),
            owned=float(min(load, owned)),
            first_layer=float(np.clip(load - owned, 0, first)),
            later_layers=float(np.clip(load - owned - first, 0, later)),
            on_demand=float(max(load - held, 0.0)),
            unused=float(max(held - load, 0.0)),
        )
        for share, load in zip(shares, loads, strict=True)
    )
