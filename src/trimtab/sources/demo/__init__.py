"""Demonstration fleets: generated bundles whose truth is known. Nothing here knows how plans are made.

A fleet's parameters stand at the head of its module, set once, before planning code was tuned on it.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from trimtab.errors import UnknownName
from trimtab.sources.demo import two_hundred_k

Fleet = tuple[dict[str, pa.Table], dict[str, object], dict[str, object]]
"""Tables of the bundle, content of workloads.yaml, content of bundle.yaml."""

DEMO_FLEETS: dict[str, str] = {
    two_hundred_k.NAME: "about $200k a month on AWS, all on demand: three services, experiments, training, batch, notebooks",
}
_BUILDERS: dict[str, Callable[[int], Fleet]] = {
    two_hundred_k.NAME: two_hundred_k.build,
}


def demo_fleet(name: str, *, seed: int = 7) -> Fleet:
    """Generate a demonstration fleet; the same seed gives the same bytes. Raises UnknownName with near matches.

    The second and third value validate as `tables.workloads.Workloads` and `tables.bundle.BundleMeta`.
    """
    if name not in _BUILDERS:
        raise UnknownName("demo fleet", name, _BUILDERS)
    return _BUILDERS[name](seed)
