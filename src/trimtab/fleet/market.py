"""The market: rates of the pools that a fleet uses, and the nodes it could run on instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from types import MappingProxyType

import numpy as np

from trimtab.catalog import BuyingOption, CapacityType, Catalog, Gpu, Lifecycle, Price
from trimtab.catalog.pools import Pool
from trimtab.catalog.spot_losses import loss_per_hr
from trimtab.errors import MissingPrice, UnknownName
from trimtab.fleet.model import Window
from trimtab.fleet.settings import Assumptions, Limits, Settings
from trimtab.fleet.spot_record import SpotOdds, SpotRecord, spot_odds
from trimtab.ledger.arrays import IntArray
from trimtab.units import micro_usd

_OPTION = {
    CapacityType.ON_DEMAND: BuyingOption.ON_DEMAND,
    CapacityType.SPOT: BuyingOption.SPOT,
    CapacityType.RESERVED: BuyingOption.RESERVED_1Y,
    CapacityType.CAPACITY_BLOCK: BuyingOption.CAPACITY_BLOCK,
    CapacityType.OWNED: BuyingOption.OWNED,
}


def _words(gpu_name: str) -> frozenset[str]:
    """Return the words of a GPU's name, hyphens and underscores between them."""
    return frozenset(re.split(r"[\s_-]+", gpu_name.casefold()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Offering:
    """A node sold on demand in a region: its GPU, its rates, and its other buying options."""

    pool: Pool
    gpu: Gpu
    gpus_per_node: int
    lifecycle: Lifecycle
    cpu_arch: str
    rate_micro_usd_hr: int
    spot: Price | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """The catalog at one date, with the longest commitment term allowed."""

    catalog: Catalog
    at: date | None
    max_term_years: int
    assumptions: Assumptions
    limits: Limits = field(default_factory=Limits)
    """Where a plan may go (`fleet.reach`)."""
    known_micro_usd_hr: Mapping[Pool, int] = field(default_factory=dict)
    """Rates that override the catalog's: those of a saved plan, or those observed in `spot_events`."""
    spot_records: Mapping[Pool, SpotRecord] = field(default_factory=dict)
    """The fleet's own history on spot, by the pool of the same nodes on demand."""
    # answers that every option of a plan asks for again: empty in each market, and no part of its value
    _offerings: dict[tuple[str, str], tuple[Offering, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _committed: dict[Pool, int | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    _rates: dict[Pool, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        at: date | None,
        settings: Settings,
        spot_records: Mapping[Pool, SpotRecord] = MappingProxyType({}),
    ) -> Market:
        """Return the market that a plan under some settings buys on; spot as the fleet's own records have it."""
        return cls(
            catalog=catalog,
            at=at,
            max_term_years=settings.planning.max_term_years if settings.limits.use_commitments else 0,
            assumptions=settings.assumptions,
            limits=settings.limits,
            known_micro_usd_hr={
                pool.held_as(CapacityType.SPOT): micro_usd(record.spot_usd_hr)
                for pool, record in spot_records.items()
                if record.spot_usd_hr is not None
            },
            spot_records=spot_records,
        )

    def regions(self, provider: str) -> tuple[str, ...]:
        """Return the regions in which a provider sells nodes on demand; `any` where it names none."""
        return self.catalog.regions.get(provider, ())

    def rate(self, pool: Pool) -> int:
        """Return a pool's hourly rate in micro-dollars. Raises MissingPrice or UnknownName."""
        known = self._rates.get(pool)
        if known is None:
            known = self._rates[pool] = self._looked_up(pool)
        return known

    def _looked_up(self, pool: Pool) -> int:
        if pool in self.known_micro_usd_hr:
            return self.known_micro_usd_hr[pool]
        option = _OPTION[pool.capacity_type]
        price = self.catalog.prices.price(pool.provider, pool.instance_type, pool.region, option, at=self.at)
        return micro_usd(price.usd_hr)

    def rates(self, pools: Iterable[Pool]) -> dict[Pool, int]:
        """Return the rates of several pools."""
        return {pool: self.rate(pool) for pool in pools}

    def rates_of_days(self, pools: Iterable[Pool], window: Window) -> dict[Pool, int | IntArray]:
        """Return the rates at which a window was billed: one a pool, or one an hour (n_hours,) where it changed meanwhile.

        Days before the first known rate are billed at that one; rates that go over the catalog's are assumed to have held.
        """
        days = [(window.start + timedelta(hours=hour)).date() for hour in range(window.hours)]
        rates: dict[Pool, int | IntArray] = {}
        for pool in pools:
            today = self.rate(pool)
            if pool in self.known_micro_usd_hr:
                rates[pool] = today
                continue
            of_day = {day: self._rate_on(pool, day) for day in dict.fromkeys(days)}
            steady = len(set(of_day.values())) == 1
            rates[pool] = of_day[days[0]] if steady else np.array([of_day[day] for day in days], dtype=np.int64)
        return rates

    def _rate_on(self, pool: Pool, day: date) -> int:
        option = _OPTION[pool.capacity_type]
        rows = self.catalog.prices.history(pool.provider, pool.instance_type, pool.region, option)
        return micro_usd(next((row for row in reversed(rows) if row.as_of <= day), rows[0]).usd_hr)

    def carrying(self, rates_micro_usd_hr: Mapping[Pool, int]) -> Market:
        """Return the market with a rate for nodes of unlisted pools, which are billed but not judged."""
        return replace(self, known_micro_usd_hr={**self.known_micro_usd_hr, **rates_micro_usd_hr})

    def unpriced(self, pools: Iterable[Pool]) -> dict[Pool, str]:
        """Return why a pool has no rate, for those that have none."""
        reasons = {}
        for pool in pools:
            try:
                self.rate(pool)
            except (MissingPrice, UnknownName) as error:
                reasons[pool] = str(error)
        return reasons

    def cpu_arch(self, pool: Pool) -> str | None:
        """Return the host architecture of a pool's nodes, or None where the catalog does not know them."""
        instance = self.catalog.instance_table.get((pool.provider, pool.instance_type))
        return instance.cpu_arch if instance else None

    def gpu(self, name: str | None) -> Gpu | None:
        """Return the GPU that a name means, or None where the catalog knows none."""
        try:
            return None if name is None else self.catalog.gpu(name)
        except UnknownName:
            return None

    def unknown_gpus(self, names: Iterable[str | None]) -> frozenset[str]:
        """Return those names of GPUs that the catalog does not know; None names nothing, "A100" a board that it does."""
        known = {word for gpu in self.catalog.gpus for word in _words(f"{gpu.name} {gpu.nvidia_smi_name}")}
        missing = {name for name in names if name is not None and self.gpu(name) is None}
        return frozenset(name for name in missing if not _words(name) <= known)

    def commitment(self, pool: Pool) -> Price | None:
        """Return the cheapest commitment that covers a pool, of an allowed term; None if none is sold."""
        allowed = [
            price
            for price in self.catalog.prices.options(pool.provider, pool.instance_type, pool.region, at=self.at)
            if price.option.commits_nodes and price.option.term_years <= self.max_term_years
        ]
        return min(allowed, key=lambda price: price.usd_hr, default=None)

    def committed_rate(self, pool: Pool) -> int | None:
        """Return a lower bound of a pool's cost per node-hour under an allowed commitment, to nodes or to spend.

        In micro-dollars, with the commitment used in full; None if none is known.
        """
        if pool not in self._committed:
            self._committed[pool] = self._least_committed(pool)
        return self._committed[pool]

    def _least_committed(self, pool: Pool) -> int | None:
        nodes = self.commitment(pool)
        known: list[int] = [] if nodes is None else [micro_usd(nodes.usd_hr)]
        for option in BuyingOption:
            if option.commits_spend and option.term_years <= self.max_term_years:
                known += self.plan_rates([pool], option).values()
        return min(known, default=None)

    def block_price(self, pool: Pool) -> Price | None:
        """Return the price of a pool's nodes in capacity blocks; None if none is known."""
        rows = self.catalog.prices.options(pool.provider, pool.instance_type, pool.region, at=self.at)
        return next((price for price in rows if price.option is BuyingOption.CAPACITY_BLOCK), None)

    def plan_rates(self, pools: Iterable[Pool], option: BuyingOption) -> dict[Pool, int]:
        """Return what an hour of each on-demand pool costs under a spend plan, for pools with a known rate."""
        rates: dict[Pool, int] = {}
        for pool in pools:
            rows = self.catalog.prices.options(pool.provider, pool.instance_type, pool.region, at=self.at)
            known = [price for price in rows if price.option is option]
            if known and pool.capacity_type is CapacityType.ON_DEMAND:
                rates[pool] = micro_usd(known[0].usd_hr)
        return rates

    def offerings(self, provider: str, region: str) -> tuple[Offering, ...]:
        """Return the whole-GPU nodes that can be bought on demand in a region, cheapest first."""
        place = (provider, region)
        if place not in self._offerings:
            self._offerings[place] = self._offered(provider, region)
        return self._offerings[place]

    def _offered(self, provider: str, region: str) -> tuple[Offering, ...]:
        found = []
        for price in self.catalog.prices.offerings(
            provider=provider, region=region, option=BuyingOption.ON_DEMAND, at=self.at
        ):
            instance = self.catalog.instance_type(price.provider, price.instance_type)
            if instance.gpu_frac < 1 or instance.lifecycle is Lifecycle.RETIRED:
                continue
            pool = Pool(price.provider, price.instance_type, region)
            spot = [
                other
                for other in self.catalog.prices.options(price.provider, price.instance_type, region, at=self.at)
                if other.option is BuyingOption.SPOT
            ]
            found.append(
                Offering(
                    pool=pool,
                    gpu=self.catalog.gpu_of(instance),
                    gpus_per_node=instance.gpu_count,
                    lifecycle=instance.lifecycle,
                    cpu_arch=instance.cpu_arch,
                    rate_micro_usd_hr=micro_usd(price.usd_hr),
                    spot=spot[0] if spot else None,
                )
            )
        return tuple(sorted(found, key=lambda offering: (offering.rate_micro_usd_hr, offering.pool)))

    def spot_odds(self, offering: Offering) -> SpotOdds:
        """Return the odds of an offering's spot nodes: the fleet's own record, as far as it reaches, and the stated ones."""
        band = offering.spot.interruption if offering.spot else None
        stated = loss_per_hr(band, self.assumptions.spot_loss_per_hr)
        return spot_odds(self.spot_records.get(offering.pool), self.assumptions, stated)

    def zone_odds(self, offering: Offering) -> SpotOdds:
        """Return the odds of a zone that takes all its spot nodes back at once: every recorded loss is one of its own."""
        apart = replace(self, assumptions=replace(self.assumptions, spot_droughts_take=False))
        return apart.spot_odds(offering)

    def held_odds(self, held: Pool, *, by_zone: bool) -> SpotOdds | None:
        """Return the odds of a pool of spot nodes; None where such nodes are no longer sold."""
        sold = (offering for offering in self.offerings(held.provider, held.region) if offering.pool == held.nodes)
        return next(((self.zone_odds if by_zone else self.spot_odds)(offering) for offering in sold), None)
