"""Google's GPU machines as sums of their parts: cores, memory, boards and the disks that come with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from trimtab.catalog import BuyingOption, Catalog, InstanceType, Price
from trimtab.catalog.rows import packaged_rows
from trimtab.sources.price_lists.gcp import LOCAL_SSD, Part, PartPrices, part_prices, skus
from trimtab.sources.price_lists.reading import Reading
from trimtab.sources.web_server import WebServer

SOURCE = "gcp-billing-catalog"
_OPTIONS = (BuyingOption.ON_DEMAND, BuyingOption.SPOT, BuyingOption.RESERVED_1Y, BuyingOption.RESERVED_3Y)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    core: str
    ram: str
    gpu: str
    local_ssd_gib_per_gpu: float


def read_gcp(server: WebServer, catalog: Catalog, regions: Sequence[str], today: date) -> Reading:
    """Read the rates of Google's GPU machines; no regions means all. Raises SourceError, CredentialsError."""
    reading = Reading()
    families = _families()
    wanted = frozenset(name for one in families.values() for name in (one.core, one.ram, one.gpu)) | {LOCAL_SSD}
    parts = part_prices(skus(server), wanted, regions, today, reading)
    places = sorted({part.region for part in parts})
    for machine in catalog.instance_types:
        if machine.provider != "gcp":
            continue
        family = families.get(machine.name.rpartition("-")[0])
        if family is None or machine.vcpus is None or machine.memory_gib is None:
            reading.skip("gcp: machine whose parts the catalog does not know")
            continue
        reading.prices.extend(_machine_prices(machine, _amounts(machine, family), parts, places, today, reading))
    reading.cover("gcp", places, *_OPTIONS)
    return reading


def _families() -> dict[str, _Family]:
    """Read which parts each family of machines is billed by."""
    return {
        row["family"]: _Family(
            core=row["core"],
            ram=row["ram"],
            gpu=row["gpu"],
            local_ssd_gib_per_gpu=float(row["local_ssd_gib_per_gpu"]),
        )
        for row in packaged_rows("gcp_machine_parts.csv")
    }


def _amounts(machine: InstanceType, family: _Family) -> dict[str, float]:
    """Return how much of each part a machine holds."""
    amounts = {
        family.core: float(machine.vcpus or 0),
        family.ram: machine.memory_gib or 0.0,
        family.gpu: machine.board_count,
        LOCAL_SSD: family.local_ssd_gib_per_gpu * machine.gpu_count,
    }
    return {name: amount for name, amount in amounts.items() if amount}


def _machine_prices(
    machine: InstanceType,
    amounts: dict[str, float],
    parts: PartPrices,
    places: Sequence[str],
    today: date,
    reading: Reading,
) -> Iterator[Price]:
    for region in places:
        for option in _OPTIONS:
            found = {name: parts.get(Part(name=name, option=option, region=region)) for name in amounts}
            usd_hr = _sum(amounts, found)
            if usd_hr is None:
                lacking = [name for name, price in found.items() if price is None]
                if len(lacking) < len(amounts) and lacking != [LOCAL_SSD]:
                    reading.skip("gcp: machine of which only some parts are sold there that way")
                elif lacking == [LOCAL_SSD]:
                    reading.skip("gcp: machine whose bundled disks have no price there that way")
                continue
            yield Price(
                provider="gcp",
                instance_type=machine.name,
                region=region,
                option=option,
                usd_hr=round(usd_hr, 6),
                as_of=today,
                source=SOURCE,
                note="resource CUD over all parts; gives no capacity" if option.term_years else "",
            )


def _sum(amounts: dict[str, float], found: dict[str, float | None]) -> float | None:
    """Return the sum of the parts; None where one has no price."""
    total = 0.0
    for name, amount in amounts.items():
        price = found[name]
        if price is None:
            return None
        total += amount * price
    return total
