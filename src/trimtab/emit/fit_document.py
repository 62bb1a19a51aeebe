"""The answer of `trimtab fit` as values for pages and charts, in one shape for serving and training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from trimtab.catalog import BuyingOption, Gpu
from trimtab.fleet.ownership import TotalCost
from trimtab.physics.footprint import Footprint
from trimtab.physics.found_ways import Rejected, ServingOption
from trimtab.physics.offers import Caveat
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
    option: BuyingOption
    """The way of buying that the cost is of."""
    caveats: tuple[Caveat, ...] = ()
    spot_words: str = ""
    """How often spot nodes of this offering are interrupted, and the day of that figure."""

    @property
    def label(self) -> str:
        """Return the GPU count and name."""
        return f"{self.gpus}x {self.gpu.name}"


class FitScenarioName(Enum):
    """Which of the options that work a reader may look for."""

    CHEAPEST = "cheapest"
    """The least money over all ways of buying, without a caveat."""
    STANDARD = "standard"
    """The first row: the cheapest without a caveat, bought as asked."""
    FASTEST = "fastest"
    """The shortest time without a caveat for at most three times the standard cost."""
    ACCEPTED = "if accepted"
    """The least money of all, where that has a caveat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitScenario:
    """One option under one way of buying."""

    name: FitScenarioName
    way: FitWay
    option: BuyingOption
    cost: float
    """In the unit of the option's own cost."""


SERVED_UNDER = (
    BuyingOption.ON_DEMAND,
    BuyingOption.SPOT,
    BuyingOption.RESERVED_1Y,
    BuyingOption.RESERVED_3Y,
    BuyingOption.SAVINGS_PLAN_1Y,
    BuyingOption.SAVINGS_PLAN_3Y,
    BuyingOption.OWNED,
)
"""Ways of buying a service can be held under; capacity blocks end after at most 182 days."""
TRAINED_UNDER = (BuyingOption.ON_DEMAND, BuyingOption.SPOT, BuyingOption.CAPACITY_BLOCK, BuyingOption.OWNED)
"""Buying options for one run; a one-year commitment makes no sense for nodes used for days."""
FASTEST_COST_RATIO = 3.0


def scenarios(
    ways: Sequence[FitWay], faster: Sequence[FitWay], considered: Sequence[BuyingOption]
) -> tuple[FitScenario, ...]:
    """Return the named scenarios; `ways` are ranked, `faster` are further options with shorter times. Empty without ways."""
    if not ways:
        return ()
    standard = ways[0]
    priced = [
        (way.cost.value * usd / way.bought[way.option], option, way)
        for way in ways
        for option, usd in way.bought.items()
        if option in considered and way.bought.get(way.option)
    ]
    # one's own hardware costs nothing, so it has no ratio of prices
    priced = priced or [(standard.cost.value, standard.option, standard)]
    plain = [found for found in priced if not found[2].caveats] or priced
    (least, bought, cheapest), accepted = (
        min(among, key=lambda found: (found[0], found[2].where)) for among in (plain, priced)
    )
    affordable = [
        way
        for way in (*ways, *faster)
        if way is standard or (not way.caveats and way.cost.value <= FASTEST_COST_RATIO * standard.cost.value)
    ]
    fastest = min(affordable, key=lambda way: (way.time.value, way.cost.value))
    found = (
        FitScenario(name=FitScenarioName.CHEAPEST, way=cheapest, option=bought, cost=least),
        FitScenario(name=FitScenarioName.STANDARD, way=standard, option=standard.option, cost=standard.cost.value),
        FitScenario(name=FitScenarioName.FASTEST, way=fastest, option=fastest.option, cost=fastest.cost.value),
    )
    if accepted[0] >= least:
        return found
    return (*found, FitScenario(name=FitScenarioName.ACCEPTED, way=accepted[2], option=accepted[1], cost=accepted[0]))


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
    scenarios: Sequence[FitScenario] = ()


def serving_ways(found: Sequence[ServingOption]) -> tuple[FitWay, ...]:
    """Return serving options in the common shape. Their time is the duration of a whole request."""
    return tuple(
        FitWay(
            gpu=option.gpu,
            gpus=option.gpus,
            setup=f"{option.stored.value}, {option.concurrency} at once"
            + (f", {option.layout}" if option.replica_gpus > 1 else ""),
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
            option=option.option,
            caveats=option.caveats,
            spot_words=option.offer.spot_words,
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
            option=option.option,
            caveats=option.caveats,
            spot_words=option.offer.spot_words,
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
