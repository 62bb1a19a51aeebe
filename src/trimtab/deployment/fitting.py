"""How a workload would fare on another board, whole or a slice: whether its memory fits, and how fast it would be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trimtab.catalog import Gpu, Lifecycle
from trimtab.deployment.effects import UseOffering
from trimtab.deployment.placement import SAME_SPEED
from trimtab.errors import Unpredictable
from trimtab.fleet.market import Market, Offering
from trimtab.fleet.model import Workload
from trimtab.fleet.served_model import ServedModel, need_on, served_model
from trimtab.fleet.settings import Assumptions
from trimtab.fleet.working import activity_in_work
from trimtab.physics.formats import WeightFormat
from trimtab.physics.support import why_not
from trimtab.physics.transfer import DeviceActivity as DeviceActivity, fits_memory, speed_ratio, work_ratio
from trimtab.provenance import Basis, Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """The offerings that fit a workload, and how many were refused for which reason."""

    fitting: tuple[UseOffering, ...]
    refused: Counter[str]


def fitting_offerings(
    workload: Workload,
    offerings: Iterable[Offering],
    market: Market,
    assumptions: Assumptions,
    stored: WeightFormat | None = None,
) -> Fitting:
    """Judge nodes for a workload: those that hold it at a speed that can be predicted, on a CPU that its images run on.

    With weights `stored` another way it may fit where it does not today; speeds are those of the present format.
    """
    fitting, refused = [], Counter[str]()
    source = market.gpu(workload.gpu)
    if source is None:
        return Fitting(fitting=(), refused=Counter({"the present GPU is not in the catalog": 1}))
    speeds: dict[str, Estimate | str] = {}  # a board is as fast in nodes of every size

    def speed(board: Gpu) -> Estimate | str:
        if board.name not in speeds:
            speeds[board.name] = speed_on(workload, source, board, assumptions, stored)
        return speeds[board.name]

    for offering in offerings:
        verdict = _judge(workload, source, offering, market, speed)
        if isinstance(verdict, str):
            refused[verdict] += 1
        elif verdict is not None:
            fitting.append(
                UseOffering(
                    pool=offering.pool,
                    gpu=offering.gpu.name,
                    gpus_per_node=offering.gpus_per_node,
                    speed=verdict,
                    work_speed=work_ratio(source, offering.gpu),
                )
            )
    return Fitting(fitting=tuple(fitting), refused=refused)


def _judge(
    workload: Workload,
    source: Gpu,
    offering: Offering,
    market: Market,
    speed: Callable[[Gpu], Estimate | str],
) -> Estimate | str | None:
    """Return the speed there, why not, or None for the offering it runs on."""
    if offering.pool == workload.pool:
        return None
    if offering.gpu == source:
        return Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.MEASURED, because="the same GPU")
    if offering.cpu_arch != (market.cpu_arch(workload.pool) or offering.cpu_arch):
        return "another CPU architecture: images would have to be rebuilt"
    if offering.lifecycle is not Lifecycle.CURRENT:
        return "previous generation"
    return speed(offering.gpu)


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
    return _by_activity(workload, source, board)


def speeds_of_types(workload: Workload, market: Market | None) -> dict[str, Estimate] | str:
    """Return how fast other types of GPU that runs of a workload were on are beside its usual one, or why that is not known.

    It ran there, so that whether it fits is no question.
    """
    jobs, source = workload.jobs, None if market is None else market.gpu(workload.gpu)
    others = sorted({name for name in jobs.gpu if name and name != workload.gpu}) if jobs is not None else []
    found = {}
    for name in others:
        board = None if market is None else market.gpu(name)
        if source is None or board is None:
            return f"some of its runs were on {name}, others on {workload.gpu}, and how these compare is not known"
        speed = SAME_SPEED if board == source else _by_activity(workload, source, board)
        if isinstance(speed, str):
            return f"some of its runs were on {name}, others on {workload.gpu}: {speed}"
        found[name] = speed
    return found


def _by_activity(workload: Workload, source: Gpu, board: Gpu) -> Estimate | str:
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
