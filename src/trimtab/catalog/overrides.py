"""The user's own rates: a CSV or YAML file of negotiated prices and owned hardware, laid over the price list.

CSV: one rate a row. YAML: the same fields under `prices:`, and nodes under `owned:`. Every fault of the file is reported
at once, with its row. A discount is never taken from a percentage: the file states rates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from trimtab.catalog.gpus import GpuTable
from trimtab.catalog.instances import InstanceType
from trimtab.catalog.kinds import BuyingOption, InterruptionBucket, PriceBasis
from trimtab.catalog.owned import OwnedHardware, owned_price
from trimtab.catalog.prices import ANY_REGION, Price
from trimtab.errors import Fault, InputError, PriceFileError, UnknownName
from trimtab.inputs.csv_rows import csv_rows
from trimtab.inputs.files import read_text
from trimtab.inputs.yaml_text import load_yaml

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
