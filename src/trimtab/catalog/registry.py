"""The catalog as one value: GPUs, MIG profiles, instance types, the price book; the same under other prices (`spot+30%`)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from trimtab.catalog.gpus import Gpu, GpuTable, InstanceType, load_gpus, load_instance_types
from trimtab.catalog.kinds import BuyingOption
from trimtab.catalog.mig import MigProfile, MigTable, load_mig
from trimtab.catalog.own_rates import questions, read_overrides
from trimtab.catalog.prices import Price, PriceBook, load_prices
from trimtab.errors import InputError, UnknownName


@dataclass(frozen=True, eq=False)
class Catalog:
    """All facts. Tables are plain values; the methods find a row by any of its names."""

    gpu_table: GpuTable
    mig_table: MigTable
    instance_table: Mapping[tuple[str, str], InstanceType]
    prices: PriceBook
    questions: tuple[str, ...] = ()
    """What is doubtful of the user's own rates."""

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Return every board."""
        return self.gpu_table.gpus

    @property
    def instance_types(self) -> tuple[InstanceType, ...]:
        """Return every instance type."""
        return tuple(self.instance_table.values())

    @cached_property
    def providers(self) -> tuple[str, ...]:
        """Return the names of the providers, in order."""
        return tuple(sorted({provider for provider, _ in self.instance_table}))

    @cached_property
    def regions(self) -> Mapping[str, tuple[str, ...]]:
        """Return the regions in which each provider sells nodes on demand, in order; `any` where it names none."""
        found: dict[str, set[str]] = {}
        for provider, _, region, option in self.prices.keys:
            if option is BuyingOption.ON_DEMAND:
                found.setdefault(provider, set()).add(region)
        return {provider: tuple(sorted(regions)) for provider, regions in found.items()}

    def gpu(self, name: str) -> Gpu:
        """Return the board that any of its names means; raises UnknownName with near matches."""
        return self.gpu_table.find(name)

    def gpu_of(self, instance_type: InstanceType) -> Gpu:
        """Return the board that an instance type carries."""
        return self.gpu_table.find(instance_type.gpu)

    def instance_type(self, provider: str, name: str) -> InstanceType:
        """Return an instance type; raises UnknownName with near matches."""
        found = self.instance_table.get((provider, name))
        if found is not None:
            return found
        if provider not in self.providers:
            raise UnknownName("provider", provider, self.providers)
        known = [other for owner, other in self.instance_table if owner == provider]
        raise UnknownName("instance type", name, known, where=provider)

    def mig_profiles(self, gpu: Gpu) -> tuple[MigProfile, ...]:
        """Return a board's MIG profiles; none where it cannot be partitioned."""
        return self.mig_table.of_board(gpu.mig_board)


def load_catalog(overrides: Path | None = None) -> Catalog:
    """Read the packaged facts (once), with the user's own rates from a CSV or YAML file laid over them."""
    packaged = _packaged()
    if overrides is None:
        return packaged
    own = read_overrides(overrides, packaged.gpu_table, packaged.instance_table)
    instances = {
        **packaged.instance_table,
        **{(instance_type.provider, instance_type.name): instance_type for instance_type in own.instance_types},
    }
    book = PriceBook(packaged.prices.prices, instances).overridden(own.prices)
    doubtful = questions(dict(zip(own.places, own.prices, strict=True)), packaged.prices, book)
    return Catalog(packaged.gpu_table, packaged.mig_table, instances, book, doubtful)


@cache
def _packaged() -> Catalog:
    instances = {(instance_type.provider, instance_type.name): instance_type for instance_type in load_instance_types()}
    return Catalog(load_gpus(), load_mig(), instances, PriceBook(load_prices(), instances))


EVERYTHING = "all"
COMMITMENTS = "commitments"
_CHANGE = re.compile(r"(?P<what>.+?)(?P<percent>[+-]\d+(?:\.\d+)?)%")
_FORM = "write WHAT+N% or WHAT-N%, as spot+30%, H100-15%, aws+5%"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChange:
    """A factor on all rates of a buying option, a provider, an instance type or a GPU."""

    what: str
    factor: float

    def __str__(self) -> str:
        return f"{self.what}{100 * (self.factor - 1):+.4g}%"


def price_change(text: str) -> PriceChange:
    """Read a change; raises InputError. Whether the name matches anything is checked by `changed`."""
    found = _CHANGE.fullmatch(text.replace(" ", ""))
    if found is None:
        raise InputError(f"{text!r} is not a price change; {_FORM}")
    factor = 1 + float(found["percent"]) / 100
    if not (math.isfinite(factor) and factor > 0):
        raise InputError(f"{text!r} would leave no price; {_FORM}")
    return PriceChange(what=found["what"], factor=factor)


def require_answers(catalog: Catalog, changes: Iterable[PriceChange]) -> None:
    """Raise UnknownName for a change to whose name nothing answers, as `changed` does."""
    for change in changes:
        _hit(catalog, catalog.prices, change)


def changed(catalog: Catalog, changes: Iterable[PriceChange]) -> Catalog:
    """Return the catalog with changed rates, at every date; raises UnknownName for a name that nothing answers to."""
    book = catalog.prices
    for change in changes:
        book = _changed(catalog, book, change)
    return replace(catalog, prices=book)


def _hit(catalog: Catalog, book: PriceBook, change: PriceChange) -> list[bool]:
    """Return which prices of a book answer to a change."""
    boards = _boards(catalog, change.what)
    hit = [_answers(catalog, price, change.what.lower(), boards) for price in book.prices]
    if not any(hit):
        known = {EVERYTHING, COMMITMENTS, *(option.value for option in BuyingOption), *catalog.providers}
        known |= {name for _, name in catalog.instance_table} | {board.name for board in catalog.gpus}
        raise UnknownName("buying option, provider, instance type or GPU", change.what, known, where=f"price {change}")
    return hit


def _changed(catalog: Catalog, book: PriceBook, change: PriceChange) -> PriceBook:
    hit = _hit(catalog, book, change)
    note = f"changed by {100 * (change.factor - 1):+.4g}% for a scenario"
    return replace(
        book,
        prices=tuple(
            replace(price, usd_hr=price.usd_hr * change.factor, note=note) if is_hit else price
            for price, is_hit in zip(book.prices, hit, strict=True)
        ),
    )


def _boards(catalog: Catalog, name: str) -> frozenset[str]:
    """Return the boards that a name means: one, or all of a family (`A100`)."""
    try:
        return frozenset({catalog.gpu(name).name})
    except UnknownName:
        family = f"{name.lower()}-"
        return frozenset(board.name for board in catalog.gpus if board.name.lower().startswith(family))


def _answers(catalog: Catalog, price: Price, what: str, boards: frozenset[str]) -> bool:
    if what == COMMITMENTS:
        return price.option.term_years > 0
    instance = catalog.instance_table.get((price.provider, price.instance_type))
    return what in (EVERYTHING, price.option.value, price.provider, price.instance_type.lower()) or (
        instance is not None and instance.gpu in boards
    )
