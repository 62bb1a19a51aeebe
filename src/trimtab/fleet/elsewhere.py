"""How a workload would fare on another board, whole or a slice: whether its memory fits, and how fast it would be."""

from __future__ import annotations

from trimtab.catalog import Gpu
from trimtab.errors import Unpredictable
from trimtab.fleet.model import Workload
from trimtab.fleet.served_model import ServedModel, need_on, served_model
from trimtab.fleet.settings import Assumptions
from trimtab.fleet.working import activity_in_work
from trimtab.physics.formats import WeightFormat
from trimtab.physics.support import why_not
from trimtab.physics.transfer import Activity as DeviceActivity
from trimtab.physics.transfer import fits_memory, speed_ratio
from trimtab.provenance import Estimate


def speed_on(
    workload: Workload, source: Gpu, board: Gpu, assumptions: Assumptions, stored: WeightFormat | None = None
) -> Estimate | str:
    """Return the speed on a board relative to the present one, or why it cannot run there or cannot be predicted.

    A named model is predicted request by request; anything else is carried over by what its GPU did while it worked. `stored`
    is another format for its weights.
    """
    known = served_model(workload)
    need_gib = need_on(workload, known, board, stored)
    if need_gib is None:
        return "memory use was not measured"
    if not fits_memory(need_gib, board, margin_frac=assumptions.memory_headroom_frac).fits:
        return "not enough memory"
    if isinstance(known, ServedModel):
        return why_not(board, known.stored) or known.speed(source, board, known.stored)
    activity = activity_in_work(workload)
    observed = DeviceActivity(
        sm_active=activity.sm_frac,
        tensor_active=activity.tensor_frac,
        dram_active=activity.dram_frac,
        gpu_util=activity.gpu_util_frac,
    )
    try:
        return speed_ratio(observed=observed, source=source, target=board)
    except Unpredictable:
        return "speed there cannot be predicted from what was measured"
