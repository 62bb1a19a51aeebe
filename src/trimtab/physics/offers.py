"""What GPUs cost where: for each board the shapes that are sold, with a rate per buying option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from trimtab.catalog import BuyingOption, Catalog, Gpu, InstanceType, InterruptionBucket, Price, PriceBasis


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOffer:
    """A node shape in a region: so many GPUs, and what an hour costs under each way of buying it."""

    provider: str
    instance_type: str
    region: str
    gpus: int
    usd_hr: Mapping[BuyingOption, float]
    interruption: InterruptionBucket | None = None
    """The published interruption rate of its spot nodes; None where none is known."""
    spot_derived: bool = False
    """The spot rate is on demand less an advised saving, not an observed price."""

    def gpu_usd_hr(self, option: BuyingOption) -> float | None:
        """Return the rate of one GPU, None where the option is not sold."""
        rate = self.usd_hr.get(option)
        return None if rate is None else rate / self.gpus

    @property
    def where(self) -> str:
        """Return the shape and its place, for people."""
        return f"{self.provider} {self.instance_type} ({self.region})"


def offers_for(
    catalog: Catalog, gpu: Gpu, *, provider: str | None = None, region: str | None = None, at: date | None = None
) -> tuple[NodeOffer, ...]:
    """Return the whole-board shapes that carry a GPU, priced at a date; empty where nobody sells it there."""
    found: dict[tuple[str, str, str], dict[BuyingOption, Price]] = {}
    for price in catalog.prices.offerings(gpu=gpu.name, provider=provider, region=region, at=at):
        found.setdefault((price.provider, price.instance_type, price.region), {})[price.option] = price
    return tuple(
        _offer(instance, place, rates)
        for (seller, name, place), rates in found.items()
        if (instance := catalog.instance_table.get((seller, name))) is not None
        and instance.gpu_frac == 1
        and instance.gpu_count >= 1
    )


def _offer(instance: InstanceType, region: str, rates: Mapping[BuyingOption, Price]) -> NodeOffer:
    spot = rates.get(BuyingOption.SPOT)
    return NodeOffer(
        provider=instance.provider,
        instance_type=instance.name,
        region=region,
        gpus=instance.gpu_count,
        usd_hr={option: price.usd_hr for option, price in rates.items()},
        interruption=spot.interruption if spot else None,
        spot_derived=spot is not None and spot.basis is not PriceBasis.LISTED,
    )


def owned_offer(gpu: Gpu, gpus: int) -> NodeOffer:
    """Return the user's own card: nothing to buy, power and depreciation are not counted here."""
    return NodeOffer(
        provider="yours", instance_type=gpu.name, region="here", gpus=gpus, usd_hr={BuyingOption.OWNED: 0.0}
    )
