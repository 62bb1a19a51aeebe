"""Which GPU for this model, ranked, with what was rejected: what `trimtab.fit` and the command ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from trimtab.catalog import BuyingOption, Catalog, Gpu
from trimtab.errors import MissingPrice, Unpredictable, near_matches
from trimtab.notebook import ShownInNotebook
from trimtab.physics.boards import board
from trimtab.physics.formats import WeightFormat
from trimtab.physics.found_ways import Rejected, ServingOption, Unmet
from trimtab.physics.interruption import USUAL, Interruptions
from trimtab.physics.models import Architecture
from trimtab.physics.offers import NodeOffer, offers_for, owned_offer
from trimtab.physics.search_serving import search_serving
from trimtab.physics.search_training import TrainingDemand, TrainingOption, search_training
from trimtab.physics.serving_demand import Demand
from trimtab.physics.serving_ways import ServingWay, ways_of
from trimtab.physics.support import too_old

DEFAULT_ENGINE = "vllm"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitMarket:
    """Where to look: named GPUs (all of NVIDIA's when none), one's own card, a provider, a region, a way of buying, a date."""

    catalog: Catalog
    """Facts and prices."""
    gpus: tuple[str, ...] = ()
    own: str | None = None
    provider: str | None = None
    region: str | None = None
    option: BuyingOption = BuyingOption.ON_DEMAND
    at: date | None = None
    driver: str | None = None
    """The driver that nodes have; None: any that a GPU needs."""
    cuda: str | None = None
    losses: Interruptions = USUAL
    """What losing spot nodes costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitAnswer(ShownInNotebook):
    """Ways that work, cheapest first, and those that do not, each with its reason."""

    found: tuple[ServingOption, ...] | tuple[TrainingOption, ...]
    rejected: tuple[Rejected, ...]


def offered(market: FitMarket) -> list[tuple[Gpu, tuple[NodeOffer, ...]]]:
    """Return the GPUs that somebody sells there, or the user's own card; raises MissingPrice when there is none."""
    if market.own is not None:
        # one's own card is judged alone: what is for sale plays no part
        gpu = board(market.own)
        return [(gpu, (owned_offer(gpu, 1),))]
    catalog = market.catalog
    _known_provider(catalog, market.provider)
    # other vendors' boards take part only where they are named
    wanted = [catalog.gpu(name) for name in market.gpus] or [gpu for gpu in catalog.gpus if gpu.vendor == "NVIDIA"]
    sellers = _sellers(catalog, market)
    found = [
        (gpu, offers)
        for gpu in wanted
        if (
            offers := _there(
                offers_for(catalog, gpu, provider=market.provider, region=market.region, at=market.at), sellers
            )
        )
    ]
    if not found:
        place = ", ".join(word for word in (market.provider, market.region) if word) or "any region"
        names = ", ".join(gpu.name for gpu in wanted[:3])
        raise MissingPrice(f"no price for {names} in {place}; drop --provider or --region, or see `trimtab prices`")
    return found


def _known_provider(catalog: Catalog, provider: str | None) -> None:
    """Raise MissingPrice, with near matches, for a provider that no price list has."""
    known = {price.provider for price in catalog.prices.prices}
    if provider is not None and provider not in known:
        near = near_matches(provider, known)
        cure = f"did you mean {', '.join(near)}?" if near else "`trimtab prices` lists all"
        raise MissingPrice(f"no price of provider {provider!r}: no list has it; {cure}")


def _sellers(catalog: Catalog, market: FitMarket) -> frozenset[str]:
    """Return who sells in the named region: a rate that holds anywhere holds where its seller is.

    Raises MissingPrice, with near matches, for a region that no price list has.
    """
    if market.region is None:
        return frozenset(price.provider for price in catalog.prices.prices)
    places = {(price.provider, price.region) for price in catalog.prices.prices}
    # a seller that was named is there in any region: some state one rate for all of theirs
    named = {market.provider} if market.provider else set()
    there = frozenset(seller for seller, region in places if region == market.region or seller in named)
    if not there:
        near = near_matches(market.region, {region for _, region in places})
        cure = f"did you mean {', '.join(near)}?" if near else "`trimtab prices` lists all"
        raise MissingPrice(f"no price for region {market.region!r}: no list has it; {cure}")
    return there


def _there(offers: tuple[NodeOffer, ...], sellers: frozenset[str]) -> tuple[NodeOffer, ...]:
    """Keep the offers of those sellers, and hardware that is owned."""
    return tuple(offer for offer in offers if offer.provider in sellers or BuyingOption.OWNED in offer.usd_hr)


def runnable(market: FitMarket) -> tuple[list[tuple[Gpu, tuple[NodeOffer, ...]]], list[Rejected]]:
    """Return the GPUs on offer that the named driver and CUDA run, and the others with their reason."""
    fine, rejected = [], []
    for gpu, offers in offered(market):
        # a driver rules a GPU out for every format alike: one reason, not one a format
        if reason := too_old(gpu, driver=market.driver, cuda=market.cuda):
            rejected.append(Rejected(gpu=gpu.name, what="all formats", reason=Unmet.DRIVER, because=reason))
        else:
            fine.append((gpu, offers))
    return fine, rejected


def serving_answer(
    model: Architecture,
    demand: Demand,
    market: FitMarket,
    *,
    engine: str = DEFAULT_ENGINE,
    formats: Sequence[WeightFormat] = (),
    scale: float = 1.0,
) -> FitAnswer:
    """Search all ways of serving a demand, in the named formats or in all that a GPU runs.

    `scale` is measured over predicted time of one's own point. Raises Unpredictable for encoders.
    """
    if model.encoder:
        raise Unpredictable(
            f"{model.name} is an encoder: it generates no tokens. `trimtab fit` tells the speed of those that were measured in "
            "public (--list-models); of others it is unknown: measure it on one GPU and carry it over with "
            "trimtab.physics.transfer.speed_ratio"
        )
    ways: list[ServingWay] = []
    candidates, rejected = runnable(market)
    for gpu, offers in candidates:
        fitting, refused = ways_of(model, gpu, offers, demand, engine, formats)
        ways += fitting
        rejected += refused
    # all GPUs in one search, because the sweep over concurrencies is one pass of array arithmetic
    found, missed = search_serving(ways, demand, option=market.option, scale=scale, losses=market.losses)
    return FitAnswer(found=tuple(found), rejected=(*rejected, *missed))


def training_answer(model: Architecture, demand: TrainingDemand, market: FitMarket, *, scale: float = 1.0) -> FitAnswer:
    """Search all ways of training; `scale` is measured over predicted speed of one's own run."""
    candidates, rejected = runnable(market)
    found, missed = search_training(model, candidates, demand, option=market.option, scale=scale, losses=market.losses)
    return FitAnswer(found=tuple(found), rejected=(*rejected, *missed))
