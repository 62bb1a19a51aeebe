"""Move to a GPU that fits: the memory it needs, no slower than the target allows, for less."""

from __future__ import annotations

from trimtab.fleet.elsewhere import Fitting, fitting_offerings
from trimtab.fleet.market import Market
from trimtab.fleet.model import Workload
from trimtab.fleet.reach import offerings_at_home
from trimtab.fleet.settings import Assumptions, Lever
from trimtab.physics.formats import WeightFormat

LEVER = Lever.RIGHT_SIZE


def propose(
    workload: Workload, market: Market, assumptions: Assumptions, *, stored: WeightFormat | None = None
) -> Fitting:
    """Judge every whole-GPU node on demand in the workload's region; its own GPU in other node sizes is among them.

    With weights `stored` another way it may fit where it does not today; speeds are those of the present format.
    """
    return fitting_offerings(workload, offerings_at_home(workload, market), market, assumptions, stored)
