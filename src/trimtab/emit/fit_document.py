"""The answer of `trimtab fit` as values for pages and charts, in one shape for serving and training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimtab.catalog import BuyingOption, Gpu
from trimtab.fleet.ownership import TotalCost
from trimtab.physics.footprint import Footprint
from trimtab.physics.found_ways import Rejected, ServingOption
from trimtab.physics.roofline import Roofline
from trimtab.physics.search_training import TrainingOption
from trimtab.provenance import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class FitWay:
    """One option that works: what it takes, its cost in `unit`, how long it takes, its performance per dollar."""

    gpu: Gpu
    gpus: int
    setup: str
    cost: Estimate
    unit: str
    time: Estimate
    time_unit: str
    tok_s: float
    tok_s_per_usd_hr: float | None
    usd_hr: float
    bought: Mapping[BuyingOption, float]
    """Cost under each buying option: of an hour of serving, or of the whole run. Spot includes expected losses."""
    where: str
    binding: str
    footprint: Footprint

    @property
    def label(self) -> str:
        """Return the GPU count and name."""
        return f"{self.gpus}x {self.gpu.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitDocument:
    """A question and its answer: the ranked options, all that work, the full cost of the first, and the rejected ones."""

    title: str
    question: str
    ways: Sequence[FitWay]
    field: Sequence[FitWay]
    """All options that work, including those only useful for faster answers: the points of the cost-time chart."""
    total: TotalCost
    rooflines: Sequence[Roofline]
    rejected: Sequence[Rejected]
    remarks: Sequence[str]
    paste: str


def serving_ways(found: Sequence[ServingOption]) -> tuple[FitWay, ...]:
    """Return serving options in the common shape. Their time is the duration of a whole request."""
    return tuple(
        FitWay(
            gpu=option.gpu,
            gpus=option.gpus,
            setup=f"{option.stored.value}, {option.concurrency} at once"
            + (f", TP {option.tensor}" if option.tensor > 1 else ""),
            cost=option.usd_per_mtok,
            unit="$/M tokens",
            time=_latency(option),
            time_unit="s a request",
            tok_s=option.tok_s.value * option.replicas,
            tok_s_per_usd_hr=option.tok_s_per_usd_hr,
            usd_hr=option.usd_hr,
            bought=option.usd_hr_by_option,
            where=option.offer.where,
            binding=option.binding.value,
            footprint=option.footprint,
        )
        for option in found
    )


def _latency(option: ServingOption) -> Estimate:
    """Return the duration of a request. Its relative interval is that of the time per token."""
    per_token = option.tpot_s
    return Estimate(
        value=option.latency_s,
        low=option.latency_s * per_token.low / per_token.value,
        high=option.latency_s * per_token.high / per_token.value,
        basis=per_token.basis,
        because=per_token.because,
    )


def training_ways(found: Sequence[TrainingOption]) -> tuple[FitWay, ...]:
    """Return training options in the common shape. Their time is the duration of the run."""
    return tuple(
        FitWay(
            gpu=option.gpu,
            gpus=option.gpus,
            setup=f"micro-batch {option.plan.micro_batch}, recompute {option.plan.recompute.value}, "
            f"{option.plan.optimizer.value}",
            cost=option.usd,
            unit="$",
            time=option.days,
            time_unit="days",
            tok_s=option.tok_s.value,
            tok_s_per_usd_hr=option.tok_s_per_usd_hr,
            usd_hr=option.usd_hr,
            bought=option.usd_by_option,
            where=option.offer.where,
            binding="",
            footprint=option.footprint,
        )
        for option in found
    )


def frontier(ways: Sequence[FitWay]) -> tuple[FitWay, ...]:
    """Return the Pareto front of cost and time, fastest first."""
    best: list[FitWay] = []
    for way in sorted(ways, key=lambda way: (way.time.value, way.cost.value)):
        if not best or way.cost.value < best[-1].cost.value:
            best.append(way)
    return tuple(best)
