"""The catalog as one value: GPUs, MIG profiles, instance types and the price book."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from trimtab.catalog.gpus import Gpu, GpuTable, load_gpus
from trimtab.catalog.instances import InstanceType, load_instance_types
from trimtab.catalog.kinds import BuyingOption
from trimtab.catalog.mig import MigProfile, MigTable, load_mig
from trimtab.catalog.overrides import read_overrides
from trimtab.catalog.prices import PriceBook, load_prices
from trimtab.catalog.questions import questions
from trimtab.errors import UnknownName


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
