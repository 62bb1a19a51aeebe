"""Move to a GPU that fits: the memory it needs, no slower than the target allows, for less."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from trimtab.catalog import Gpu, Lifecycle
from trimtab.fleet.effects import UseOffering
from trimtab.fleet.elsewhere import speed_on
from trimtab.fleet.market import Market, Offering
from trimtab.fleet.model import Workload
from trimtab.fleet.settings import Assumptions, Lever
from trimtab.physics.formats import WeightFormat
from trimtab.physics.transfer import work_ratio
from trimtab.provenance import Basis, Estimate

LEVER = Lever.RIGHT_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class RightSizing:
    """The offerings that fit, and how many were refused for which reason."""

    fitting: tuple[UseOffering, ...]
    refused: Counter[str]


def propose(
    workload: Workload, market: Market, assumptions: Assumptions, *, stored: WeightFormat | None = None
) -> RightSizing:
    """Judge every whole-GPU node on demand in the workload's region; its own GPU in other node sizes is among them.

    With weights `stored` another way it may fit where it does not today; speeds are those of the present format.
    """
    fitting, refused = [], Counter[str]()
    source = market.gpu(workload.gpu)
    if source is None:
        return RightSizing(fitting=(), refused=Counter({"the present GPU is not in the catalog": 1}))
    for offering in market.offerings(workload.pool.provider, workload.pool.region):
        verdict = _judge(workload, source, offering, market, assumptions, stored)
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
    return RightSizing(fitting=tuple(fitting), refused=refused)


def _judge(
    workload: Workload,
    source: Gpu,
    offering: Offering,
    market: Market,
    assumptions: Assumptions,
    stored: WeightFormat | None,
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
    return speed_on(workload, source, offering.gpu, assumptions, stored)
