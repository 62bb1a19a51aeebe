"""What was not declared, as parts of the audit's document."""

from __future__ import annotations

import yaml

from trimtab.emit.document import UndeclaredPart
from trimtab.plan.proof.undeclared import Undeclared

_WIDTH = 10_000
"""No line is folded."""


def undeclared_part(found: Undeclared) -> UndeclaredPart:
    """Return the part of a declaration that is missing, with the YAML to paste."""
    return UndeclaredPart(
        workloads=tuple(found.declarations),
        permission=found.permission,
        known=found.known,
        permits=found.permits,
        gives_up=found.gives_up,
        saves_usd_mo=round(found.saves_usd_mo, 2),
        declaration="\n".join(
            yaml.safe_dump({name: dict(fields)}, default_flow_style=None, sort_keys=False, width=_WIDTH).strip()
            for name, fields in found.declarations.items()
        ),
    )
