"""A scenario beside the world as it is, as a part of the audit's document."""

from __future__ import annotations

from trimtab.emit.comparison import compared
from trimtab.emit.document import ComparedPart, WhatIfPart
from trimtab.plan.proof.scenario import WhatIf


def what_if_part(found: WhatIf) -> WhatIfPart:
    """Return the part: both worlds, figure by figure."""
    return WhatIfPart(
        scenario=found.scenario.words(),
        refused=found.refused,
        figures=tuple(
            ComparedPart(section=row.section, what=row.what, unit=row.unit.value, base=row.base, scenario=row.scenario)
            for row in compared(found)
        ),
    )
