"""Own rates that can hardly be meant: far from every list, of a region that no list names, spot above on demand.

They are used as they stand, since a person wrote them, and questioned wherever they decide something.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trimtab.catalog.instances import InstanceType
from trimtab.catalog.kinds import BuyingOption, PriceBasis
from trimtab.catalog.prices import ANY_REGION, Price, PriceBook
from trimtab.errors import near_matches

LEAST_FRAC = 0.05
"""Of the lowest rate of a list: discounts of 95 % are not given."""
MOST_TIMES = 5.0
"""Of the highest rate of a list: what is paid beyond is for more than the node."""
SHOWN = 5
_CURE = "a rate is USD for an hour of a whole node: mend the row, or leave it if it is meant"


def questions(own: Mapping[str, Price], listed: PriceBook, book: PriceBook) -> tuple[str, ...]:
    """Return what is doubtful of a person's rates, each with its row, value and cure.

    `own` holds the rates by where they stand, `listed` the packaged book, `book` the one with the own rates laid over it.
    What a refresh read from a list is not questioned.
    """
    return tuple(
        f"{where}: {doubt}"
        for where, price in own.items()
        if price.basis is PriceBasis.NEGOTIATED
        for doubt in _doubts(price, listed, book)
    )


def shown(found: Sequence[str]) -> tuple[str, ...]:
    """Return the questions that a person reads first, and how many more there are."""
    more = len(found) - SHOWN
    rest = (f"{more} more own rates are questioned: trimtab prices --prices FILE lists them all",) if more > 0 else ()
    return (*found[:SHOWN], *rest)


def _doubts(price: Price, listed: PriceBook, book: PriceBook) -> Iterator[str]:
    far = tuple(_far_from_lists(price, listed, book))
    yield from far or _dear_spot(price, book)
    yield from _strange_region(price, listed)


def _far_from_lists(price: Price, listed: PriceBook, book: PriceBook) -> Iterator[str]:
    known, what = _comparable(price, listed, book.instance_types)
    if price.option is BuyingOption.OWNED or not known:
        return
    said = f"${price.usd_hr:,.4f} an hour for {price.offering}"
    if price.usd_hr < LEAST_FRAC * min(known):
        yield f"{said} is under {LEAST_FRAC:.0%} of the lowest listed rate of {what}, ${min(known):,.2f}; {_CURE}"
    elif price.usd_hr > MOST_TIMES * max(known):
        yield f"{said} is over {MOST_TIMES:g}x the highest listed rate of {what}, ${max(known):,.2f}; {_CURE}"


def _comparable(
    price: Price, listed: PriceBook, instances: Mapping[tuple[str, str], InstanceType]
) -> tuple[list[float], str]:
    """Return listed rates to hold an own one against: of its type, else of its GPUs on demand; empty where there are none."""
    of_type = [
        row for row in listed.prices if (row.provider, row.instance_type) == (price.provider, price.instance_type)
    ]
    alike = [row for row in of_type if row.option is price.option] or of_type
    if alike:
        return [row.usd_hr for row in alike], "this type"
    instance = instances[price.provider, price.instance_type]
    per_gpu = [
        row.usd_hr / (other.gpu_count * other.gpu_frac) * instance.gpu_count
        for row in listed.offerings(gpu=instance.gpu, option=BuyingOption.ON_DEMAND)
        if (other := instances[row.provider, row.instance_type]).gpu_count
    ]
    return per_gpu, f"{instance.gpu_count} x {instance.gpu} on demand"


def _strange_region(price: Price, listed: PriceBook) -> Iterator[str]:
    regions = {key[2] for key in listed.keys if key[0] == price.provider}
    if price.region == ANY_REGION or not regions or price.region in regions or ANY_REGION in regions:
        return
    near = near_matches(price.region, regions)
    meant = f"is it {near[0]}?" if near else "spell it as the provider does"
    yield f"no list of {price.provider} names the region {price.region!r}: {meant}; no node elsewhere gets this rate"


def _dear_spot(price: Price, book: PriceBook) -> Iterator[str]:
    if price.option not in (BuyingOption.SPOT, BuyingOption.ON_DEMAND):
        return
    rates = {row.option: row.usd_hr for row in book.options(price.provider, price.instance_type, price.region)}
    spot, on_demand = rates.get(BuyingOption.SPOT), rates.get(BuyingOption.ON_DEMAND)
    if spot is not None and on_demand is not None and spot > on_demand and price.usd_hr in (spot, on_demand):
        yield (
            f"{price.provider} {price.instance_type} in {price.region} is ${spot:,.4f} an hour on spot and ${on_demand:,.4f} "
            "on demand: spot is not sold above on demand; mend the row, or give both rates"
        )
