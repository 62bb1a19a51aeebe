"""The user's own rates: negotiated prices and owned hardware from a file, laid over the list; those that can hardly be meant.

Owned hardware costs

    usd_hr = (capital_usd * annuity(capital_rate_frac, years) + operations_usd_year) / HR_PER_YEAR
                 + power_w / W_PER_KW * pue * electricity_usd_kwh

The rate is for every hour of the year, used or not: idle owned hardware costs as much as busy hardware, but for power,
which is taken at the average draw that the owner states. Prices of capital and power are the owner's; none is assumed.

CSV: one rate a row. YAML: the same fields under `prices:`, and nodes under `owned:`. Every fault of the file is reported
at once, with its row. A discount is never taken from a percentage: the file states rates.

Own rates are used as they stand, since a person wrote them, and questioned wherever they decide something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from trimtab.catalog.gpus import GpuTable, InstanceType
from trimtab.catalog.kinds import BuyingOption, InterruptionBucket, PriceBasis
from trimtab.catalog.prices import ANY_REGION, Price, PriceBook
from trimtab.errors import Fault, InputError, PriceFileError, UnknownName, near_matches
from trimtab.inputs.documents import load_yaml
from trimtab.inputs.files import csv_rows, read_text
from trimtab.units import HR_PER_YEAR, W_PER_KW


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedHardware:
    """What one node costs its owner. Raises ValueError where a figure cannot be."""

    instance_type: str
    capital_usd: float
    """The price of the node and its share of racks and network, less what it can be sold for at the end."""
    years: float
    """The life over which it is written off."""
    power_w: float
    """The average draw of the node at the plug."""
    pue: float
    """Power of the site over power of the machines, 1 or more."""
    electricity_usd_kwh: float
    operations_usd_year: float = 0.0
    """People, space, support and spares."""
    capital_rate_frac: float = 0.0
    """Yearly cost of capital; 0 writes the price off in equal parts."""
    provider: str = "owned"
    region: str = ANY_REGION

    def __post_init__(self) -> None:
        wrong = [
            text
            for text, fine in (
                ("capital_usd must be above 0", self.capital_usd > 0),
                ("years must be above 0", self.years > 0),
                ("power_w must not be negative", self.power_w >= 0),
                ("pue must be 1 or more", self.pue >= 1),
                ("electricity_usd_kwh must not be negative", self.electricity_usd_kwh >= 0),
                ("operations_usd_year must not be negative", self.operations_usd_year >= 0),
                ("capital_rate_frac must not be negative", self.capital_rate_frac >= 0),
            )
            if not fine
        ]
        if wrong:
            raise ValueError(f"{self.instance_type}: {'; '.join(wrong)}")


def annuity(rate_frac: float, years: float) -> float:
    """Return the yearly share of a sum that pays it off, with interest, over `years`.

    rate / (1 - (1 + rate) ** -years), which tends to 1 / years as the rate goes to 0.

    >>> annuity(0.0, 4)
    0.25
    >>> round(annuity(0.07, 20), 4)
    0.0944
    """
    return 1 / years if rate_frac == 0 else rate_frac / (1 - (1 + rate_frac) ** -years)


def owned_usd_hr(node: OwnedHardware) -> float:
    """Return the hourly rate of an owned node by the formula of this module."""
    yearly_usd = node.capital_usd * annuity(node.capital_rate_frac, node.years) + node.operations_usd_year
    power_usd_hr = node.power_w / W_PER_KW * node.pue * node.electricity_usd_kwh
    return yearly_usd / HR_PER_YEAR + power_usd_hr


def owned_price(node: OwnedHardware, as_of: date) -> Price:
    """Return the rate of an owned node as a row of the price book."""
    return Price(
        provider=node.provider,
        instance_type=node.instance_type,
        region=node.region,
        option=BuyingOption.OWNED,
        usd_hr=owned_usd_hr(node),
        as_of=as_of,
        source="owner's figures",
        basis=PriceBasis.OWNED,
        note=f"{node.capital_usd:,.0f} USD over {node.years:g} years, {node.power_w:g} W at PUE {node.pue:g}",
    )


Entry = Mapping[str, str]

ALWAYS = date(1970, 1, 1)
"""The date of a rate whose row states none: it held from the start."""

_INSTANCE_FIELDS = frozenset({"gpu", "gpu_count", "vcpus", "memory_gib"})
_COLUMNS = ("provider", "instance_type", "region", "option", "usd_hr", "as_of", "note")
_REFRESHED_FIELDS = frozenset({"source", "basis", "purchasable", "interruption"})
"""What `trimtab prices refresh` adds to a rate that it read from a list."""
_PRICE_FIELDS = frozenset(_COLUMNS) | _REFRESHED_FIELDS | _INSTANCE_FIELDS
_OWNED_FIELDS = frozenset(
    {
        "provider", "instance_type", "region", "capital_usd", "years", "power_w", "pue",
        "electricity_usd_kwh", "operations_usd_year", "capital_rate_frac", "as_of",
    }
) | _INSTANCE_FIELDS  # fmt: skip


_MOST_GPUS, _MOST_VCPUS, _MOST_MEMORY_GIB = 1024, 100_000, 1_000_000
"""Of one node; the largest sold have 72 GPUs (one NVL72 rack), 896 vCPUs and 32,768 GiB."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a file adds: rates, and the types that the catalog did not know."""

    prices: tuple[Price, ...]
    instance_types: tuple[InstanceType, ...]
    places: tuple[str, ...]
    """Where each rate stands: file and row."""


@dataclass(slots=True)
class _Reading:
    """The rows read so far, and the faults found on the way."""

    gpus: GpuTable
    known: Mapping[tuple[str, str], InstanceType]
    prices: list[Price] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    added: dict[tuple[str, str], InstanceType] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def take(self, entry: Entry, where: str, fields: frozenset[str], price_of: Callable[[Entry], Price]) -> None:
        """Read one row, or note what is wrong with it."""
        try:
            _check_fields(entry, fields)
            price = price_of(entry)
            self._need_type(price, entry)
        except (KeyError, ValueError, InputError) as error:
            what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
            self.faults.append(Fault(what=what, where=where))
        else:
            self.prices.append(price)
            self.places.append(where)

    def _need_type(self, price: Price, entry: Entry) -> None:
        """Make sure that the rate's instance type is known, or that the row describes it."""
        pair = (price.provider, price.instance_type)
        if pair in self.known or pair in self.added:
            return
        if not entry.get("gpu"):
            known = [name for provider, name in self.known if provider == price.provider]
            unknown = UnknownName("instance type", price.instance_type, known, where=price.provider)
            raise InputError(f"{unknown}; for a type of your own, state gpu and gpu_count")
        self.added[pair] = InstanceType(
            provider=price.provider,
            name=price.instance_type,
            gpu=self.gpus.find(entry["gpu"]).name,
            gpu_count=int(_amount(entry, "gpu_count", _MOST_GPUS)),
            vcpus=int(_amount(entry, "vcpus", _MOST_VCPUS)) if entry.get("vcpus") else None,
            memory_gib=_amount(entry, "memory_gib", _MOST_MEMORY_GIB) if entry.get("memory_gib") else None,
            source="own",
        )


def _amount(entry: Entry, name: str, most: float) -> float:
    """Return how much a node has of something; raises KeyError, and ValueError where no node has so much."""
    amount = float(entry[name])
    if not 0 < amount <= most or (name != "memory_gib" and not amount.is_integer()):
        whole = "" if name == "memory_gib" else ", a whole number"
        raise ValueError(f"{name} {entry[name][:20]!r} is not above 0 and at most {most:,.0f}{whole}")
    return amount


def read_overrides(path: Path, gpus: GpuTable, known: Mapping[tuple[str, str], InstanceType]) -> Overrides:
    """Read a file of own rates.

    Fields of a rate: provider, instance_type, option, usd_hr; optional region (any), as_of (always), note; for a type that
    the catalog does not know gpu and gpu_count, optionally vcpus and memory_gib; for a rate of a list source, basis,
    purchasable and interruption. Raises PriceFileError with every fault.
    """
    prices, owned = _entries(path)
    if not prices and not owned:
        raise InputError(f"the price file {path} holds no rates; its columns are {', '.join(_COLUMNS)}")
    reading = _Reading(gpus, known)
    for where, entry in prices:
        reading.take(entry, where, _PRICE_FIELDS, lambda row: _negotiated(row, path))
    for where, entry in owned:
        reading.take(entry, where, _OWNED_FIELDS, _owned)
    if reading.faults:
        raise PriceFileError(path.name, reading.faults)
    return Overrides(tuple(reading.prices), tuple(reading.added.values()), tuple(reading.places))


def _entries(path: Path) -> tuple[list[tuple[str, Entry]], list[tuple[str, Entry]]]:
    """Return the rates and the owned nodes of a file, each with where it stands."""
    text = read_text(path)
    if path.suffix in {".yaml", ".yml"}:
        return _yaml_entries(path, text)
    rows = csv_rows(text, str(path))
    return [(f"{path.name} row {number}", _texts(row)) for number, row in enumerate(rows, start=2)], []


def _yaml_entries(path: Path, text: str) -> tuple[list[tuple[str, Entry]], list[tuple[str, Entry]]]:
    parsed = load_yaml(text, f"the price file {path}")
    sections: list[list[tuple[str, Entry]]] = []
    for name in ("prices", "owned"):
        entries = (parsed.get(name) or []) if isinstance(parsed, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise InputError(f"the price file {path} must hold lists of mappings under 'prices' and 'owned'")
        sections.append([(f"{path.name} {name}[{i}]", _texts(entry)) for i, entry in enumerate(entries)])
    return sections[0], sections[1]


def _texts(entry: Mapping[str, object]) -> Entry:
    return {str(key): str(value).strip() for key, value in entry.items() if value not in (None, "")}


def _check_fields(entry: Entry, fields: frozenset[str]) -> None:
    strange = sorted(set(entry) - fields)
    if strange:
        raise UnknownName("field", strange[0], sorted(fields))


def _negotiated(entry: Entry, path: Path) -> Price:
    return Price(
        provider=entry["provider"],
        instance_type=entry["instance_type"],
        region=entry.get("region", ANY_REGION),
        option=_option(entry["option"]),
        usd_hr=float(entry["usd_hr"]),
        as_of=date.fromisoformat(entry["as_of"]) if "as_of" in entry else ALWAYS,
        source=entry.get("source", path.name),
        basis=_BASES[_known("basis", entry.get("basis", PriceBasis.NEGOTIATED.value), _BASES)],
        purchasable=_YES[_known("answer to purchasable", entry.get("purchasable", "yes"), _YES)],
        interruption=_BUCKETS[_known("band of interruptions", entry["interruption"], _BUCKETS)]
        if "interruption" in entry
        else None,
        note=entry.get("note", ""),
    )


_BASES = {basis.value: basis for basis in PriceBasis}
_BUCKETS = {bucket.value: bucket for bucket in InterruptionBucket}
_YES = {"yes": True, "no": False, "True": True, "False": False}
"""YAML reads yes and no as booleans."""


def _known(what: str, text: str, names: Mapping[str, object]) -> str:
    if text not in names:
        raise UnknownName(what, text, list(names))
    return text


def _option(text: str) -> BuyingOption:
    names = [option.value for option in BuyingOption]
    if text not in names:
        raise UnknownName("buying option", text, names)
    return BuyingOption(text)


def _owned(entry: Entry) -> Price:
    node = OwnedHardware(
        instance_type=entry["instance_type"],
        capital_usd=float(entry["capital_usd"]),
        years=float(entry["years"]),
        power_w=float(entry["power_w"]),
        pue=float(entry["pue"]),
        electricity_usd_kwh=float(entry["electricity_usd_kwh"]),
        operations_usd_year=float(entry.get("operations_usd_year", "0")),
        capital_rate_frac=float(entry.get("capital_rate_frac", "0")),
        provider=entry.get("provider", "owned"),
        region=entry.get("region", ANY_REGION),
    )
    return owned_price(node, date.fromisoformat(entry["as_of"]) if "as_of" in entry else ALWAYS)


LEAST_FRAC = 0.05
"""Of the lowest rate of a list: discounts of 95 % are not given."""
MOST_TIMES = 5.0
"""Of the highest rate of a list: what is paid beyond is for more than the node."""
SHOWN = 5
_CURE = "a rate is USD for an hour of a whole node: correct the row, or leave it if it is meant"


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
            "on demand: spot is not sold above on demand; correct the row, or give both rates"
        )
