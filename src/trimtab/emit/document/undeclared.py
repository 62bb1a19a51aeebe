"""The price of what was not declared."""

from __future__ import annotations

from trimtab.emit.document.part import Part


class UndeclaredPart(Part):
    """What was not declared in workloads.yaml, and what the plan would save if it were."""

    workloads: tuple[str, ...]
    """Whom it concerns: one, or several that it takes together."""
    permission: str
    """interruptible, latency, min_replicas, quantize, open_hours or isolation."""
    known: str
    """What history says about it."""
    permits: str
    """What would be declared, in words."""
    gives_up: str
    """What the owner accepts with it."""
    saves_usd_mo: float
    """Dollars a month beside the plan, the rest of it as it is; alternatives, which do not add up."""
    declaration: str
    """YAML to put under `workloads:` in workloads.yaml, or into the entry that is there."""
