"""Which pools make one workload's use another's concern: those with a commitment, a quota, or all where spot is limited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.fleet.limits import Quota, quotas_of
from trimtab.fleet.market import Market
from trimtab.fleet.model import IntArray
from trimtab.fleet.settings import Limits
from trimtab.ledger import Commitment


@dataclass(frozen=True, slots=True, kw_only=True)
class Coupling:
    """A market's commitments and a plan's limits, as far as pruning one workload's options must know them."""

    market: Market
    quotas: tuple[Quota, ...]
    spot_max_frac: float
    owned: frozenset[Pool]
    """Pools that a commitment which is held already may cover."""

    @classmethod
    def of(cls, limits: Limits, market: Market, owned: Iterable[Commitment]) -> Coupling:
        """Return the coupling under some limits and what is held already."""
        return cls(
            market=market,
            quotas=quotas_of(limits.quotas),
            spot_max_frac=limits.spot_max_frac,
            owned=frozenset(pool for one in owned for pool in one.offer.rates_micro_usd_hr),
        )

    @property
    def limits_spot(self) -> bool:
        """Tell whether the share of spot is limited."""
        return self.spot_max_frac < 1

    def couples(self, pool: Pool) -> bool:
        """Tell whether use of a pool touches other workloads: then its cost in one hour is not a fixed sum."""
        return (
            self.limits_spot
            or pool in self.owned
            or self.market.committed_rate(pool) is not None
            or any(quota.holds_for(pool) for quota in self.quotas)
        )

    def spot_excess_s(self, usage: Mapping[Pool, IntArray]) -> float:
        """Return a use's node-seconds on spot beyond the allowed share of it; 0 where spot is not limited."""
        if not self.limits_spot:
            return 0.0
        spot = sum(int(use.sum()) for pool, use in usage.items() if pool.capacity_type is CapacityType.SPOT)
        return spot - self.spot_max_frac * sum(int(use.sum()) for use in usage.values())
