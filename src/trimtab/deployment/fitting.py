"""Whether a workload fits on another GPU, whole or a slice, and how fast it would be there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trimtab.catalog import Gpu, Lifecycle
from trimtab.deployment.effects import UseOffering
from trimtab.deployment.placement import Home
from trimtab.errors import Unpredictable
from trimtab.fleet.activity import activity_in_work
from trimtab.fleet.declared_models import ServedModel, need_on, served_model
from trimtab.fleet.market import Market, Offering
from trimtab.fleet.model import Workload
from trimtab.fleet.settings import Assumptions
from trimtab.physics.formats import WeightFormat, why_not
from trimtab.physics.transfer import (
    SAME_SPEED,
    DeviceActivity as DeviceActivity,
    fits_memory,
    speed_ratio,
    work_ratio,
)
from trimtab.provenance import Basis, Estimate

NO_LAW = "programs are compiled for one or the other (NeuronCores, TPUs), and no measured law compares their speeds"
"""The reason why nothing moves between GPUs and other accelerators."""


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
        return SAME_SPEED
    if offering.cpu_arch != (market.cpu_arch(workload.pool) or offering.cpu_arch):
        return "another CPU architecture: images would have to be rebuilt"
    if offering.lifecycle is not Lifecycle.CURRENT:
        return "previous generation"
    return speed(offering.gpu)


def as_offering(home: Home) -> UseOffering | None:
    """Return the nodes that a workload is on, as they would be offered to it; None where their GPU is not known."""
    if home.gpu is None:
        return None
    return UseOffering(pool=home.pool, gpu=home.gpu, gpus_per_node=home.gpus_per_node, speed=SAME_SPEED)


def may_be_compared(source: Gpu, board: Gpu) -> bool:
    """Return whether programs for one board run on the other, at a speed that measured runs stand behind."""
    return board == source or (source.has_speed_law and board.has_speed_law)


def speed_on(
    workload: Workload, source: Gpu, board: Gpu, assumptions: Assumptions, stored: WeightFormat | None = None
) -> Estimate | str:
    """Return the speed on a board relative to the present one, or why it cannot run there or cannot be predicted.

    A named model is predicted request by request; anything else is carried over by what its GPU did while it worked. `stored`
    is another format for its weights.
    """
    if not may_be_compared(source, board):
        return NO_LAW
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

    It ran there, so it is known to fit.
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


def home_speed(workload: Workload, market: Market | None) -> Estimate:
    """Return how fast replicas on a service's usual type of GPU are beside all those that its readings are of.

    Requests and their times are known of a service, not of a replica: where it was on several types at once, its law is that of
    their mean, and a slow type alone serves less and later. A type that is faster than the mean is given no credit for it, and
    a type that cannot be compared with it counts as the usual one.
    """
    source = None if market is None else market.gpu(workload.gpu)
    if market is None or source is None or workload.service is None or len(workload.held_gpu_seconds) < 2:
        return SAME_SPEED
    total = sum(workload.held_gpu_seconds.values())
    mean = most = least = 0.0
    for name, gpu_seconds in workload.held_gpu_seconds.items():
        speed, share = _where_it_ran(workload, source, market.gpu(name)), gpu_seconds / total
        mean, most, least = mean + share * speed.value, most + share * speed.high, least + share * speed.low
    if most <= 1.0:
        return SAME_SPEED
    return Estimate(
        value=min(1.0, 1 / mean),
        low=1 / most,
        high=min(1.0, 1 / least),
        basis=Basis.CALIBRATED,
        because=f"measured on {' and '.join(sorted(workload.held_gpu_seconds))} together",
    )


def _where_it_ran(workload: Workload, source: Gpu, board: Gpu | None) -> Estimate:
    """Return the speed on a board that a workload was on: what its readings or, without any, the data sheets say."""
    if board is None or board == source:
        return SAME_SPEED
    speed = _by_activity(workload, source, board)
    try:
        return work_ratio(source, board) if isinstance(speed, str) else speed
    except Unpredictable:
        return SAME_SPEED


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
