"""What is rented: boards, the shapes they are sold in with their rates, whole nodes for a load, and what losing spot costs."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import lru_cache
from importlib.resources import files
from typing import Protocol, TypeVar

from trimtab.catalog import (
    BuyingOption,
    Catalog,
    Gpu,
    InstanceType,
    InterruptionBucket,
    Price,
    PriceBasis,
    load_catalog,
)
from trimtab.catalog.gpus import GpuTable, load_gpus
from trimtab.catalog.spot_losses import loss_per_hr
from trimtab.errors import InputError
from trimtab.units import S_PER_HR
from trimtab_runtime.policies.checkpointing import young_daly_interval_s


@lru_cache(maxsize=1)
def all_boards() -> GpuTable:
    """Return the catalog's boards and those of `data/boards.csv` as one table."""
    text = files("trimtab.physics").joinpath("data/boards.csv").read_text(encoding="utf-8")
    # the catalog's own reader, so that both tables are checked alike
    extra = load_gpus(csv.DictReader(text.splitlines()))
    return GpuTable((*load_catalog().gpus, *extra.gpus))


def board(name: str) -> Gpu:
    """Return a board under any of its names; raises UnknownName with near matches."""
    return all_boards().find(name)


class Caveat(Enum):
    """Why an option is listed but never ranked first, unless the user asks for it."""

    MARKETPLACE = "rented from private hosts"
    """RunPod's Community Cloud: other people's machines, without the guarantees of a data centre."""
    CONSUMER_CARD = "GeForce card, not licensed for data centres"
    """NVIDIA's licence for customer use of GeForce software, section 2.1.3: no data centre deployment."""
    FOUR_BIT = "4-bit weights"
    """They change a model's answers more than 8-bit weights do."""


_MARKETPLACE_SUFFIX = "-community"


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
    spot_as_of: date | None = None
    """The day on which the spot rate and its interruption rate were published; None where none is known."""
    spot_derived: bool = False
    """The spot rate is on demand less an advised saving, not an observed price."""

    def gpu_usd_hr(self, option: BuyingOption) -> float | None:
        """Return the rate of one GPU, None where the option is not sold."""
        rate = self.usd_hr.get(option)
        return None if rate is None else rate / self.gpus

    @property
    def is_marketplace(self) -> bool:
        """Return whether a private host rents the node out, and not the provider."""
        return self.instance_type.endswith(_MARKETPLACE_SUFFIX)

    @property
    def spot_words(self) -> str:
        """Return how often spot nodes are interrupted and the day of that figure, for people."""
        if self.interruption is None:
            return "interruption rate not published"
        return f"{self.interruption.value} interrupted a month, as of {self.spot_as_of}"

    @property
    def where(self) -> str:
        """Return the shape and its place, for people."""
        return f"{self.provider} {self.instance_type} ({self.region})"


def offers_for(
    catalog: Catalog, gpu: Gpu, *, provider: str | None = None, region: str | None = None, at: date | None = None
) -> tuple[NodeOffer, ...]:
    """Return the whole-board shapes that carry a GPU, priced at a date; empty where no provider sells it there."""
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
        spot_as_of=spot.as_of if spot else None,
        spot_derived=spot is not None and spot.basis is not PriceBasis.LISTED,
    )


def caveats_of(
    gpu: Gpu, offer: NodeOffer, accepted: frozenset[Caveat], *, is_four_bit: bool = False
) -> tuple[Caveat, ...]:
    """Return why an option must not come first; empty for owned hardware and for what the user accepted."""
    if BuyingOption.OWNED in offer.usd_hr:
        return ()
    found = {
        Caveat.MARKETPLACE: offer.is_marketplace,
        Caveat.CONSUMER_CARD: "GeForce" in gpu.nvidia_smi_name,
        Caveat.FOUR_BIT: is_four_bit,
    }
    return tuple(caveat for caveat, applies in found.items() if applies and caveat not in accepted)


class RankedOption(Protocol):
    """An option with caveats."""

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """Return why it must not come first."""


R = TypeVar("R", bound=RankedOption)


def plain_and_cheapest(ranked: Sequence[R]) -> list[R]:
    """Return the first option without a caveat, and the first of all where that is another; `ranked` is cheapest first."""
    plain = next((way for way in ranked if not way.caveats), None)
    with_caveat = [way for way in ranked[:1] if way is not plain]
    return [*([] if plain is None else [plain]), *with_caveat]


def owned_offer(gpu: Gpu, gpus: int) -> NodeOffer:
    """Return the user's own card: nothing to buy, power and depreciation are not counted here."""
    return NodeOffer(
        provider="yours", instance_type=gpu.name, region="here", gpus=gpus, usd_hr={BuyingOption.OWNED: 0.0}
    )


def replicas_for(rate: float, per_replica: float, *, headroom_frac: float = 0.0) -> int:
    """Return the replicas that a rate needs, headroom on top of the whole replicas.

    500 requests a second at 200 a replica need 3 (2.5 rounded up), and with 20 % headroom 4 (3.6 rounded up): a replica that
    fails or starts is a whole one, so headroom is counted on replicas and not on the rate. Both rates share a unit; at least 1.
    """
    if not rate >= 0 or not per_replica > 0 or not 0 <= headroom_frac < 10:
        raise InputError(f"a rate of {rate} at {per_replica} a replica with headroom {headroom_frac} cannot be sized")
    # the tolerance keeps rounding errors of the quotient from asking for one more
    needed = max(1, math.ceil(rate / per_replica - 1e-9))
    return math.ceil(needed * (1 + headroom_frac) - 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Whole nodes for GPUs that are needed, and what they strand."""

    nodes: int
    gpus_per_node: int
    gpus_needed: int

    @property
    def stranded_gpus(self) -> int:
        """Return the GPUs that are paid and not needed."""
        return self.nodes * self.gpus_per_node - self.gpus_needed


def nodes_for(replicas: int, gpus_per_replica: int, gpus_per_node: int) -> Nodes:
    """Return the whole nodes that replicas take; a replica that fits a node does not span two.

    Replicas larger than a node take whole nodes each.
    """
    if min(replicas, gpus_per_replica, gpus_per_node) < 1:
        raise InputError("replicas, GPUs a replica and GPUs a node must be at least 1")
    if gpus_per_replica >= gpus_per_node:
        nodes = replicas * math.ceil(gpus_per_replica / gpus_per_node)
    else:
        nodes = math.ceil(replicas / (gpus_per_node // gpus_per_replica))
    return Nodes(nodes=nodes, gpus_per_node=gpus_per_node, gpus_needed=replicas * gpus_per_replica)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruptions:
    """What a lost node takes with it; assumptions of ours, to be overridden (settings, `assumptions`)."""

    startup_s: float = 300.0
    """From asking for a node to a ready pod."""
    cold_start_s: float = 180.0
    """Loading a served model in addition."""
    save_s: float = 60.0
    restore_s: float = 180.0
    notice_s: float = 120.0
    unknown_loss_per_hr: float = 1 / 6
    """Where no interruption rate is published, or only "> 20 % a month"; lower bands in proportion (`catalog.spot_losses`)."""

    def loss_per_hr(self, bucket: InterruptionBucket | None) -> float:
        """Return how often a node is lost per hour of life, from the published band of interruptions."""
        return loss_per_hr(bucket, self.unknown_loss_per_hr)

    def serving_factor(self, bucket: InterruptionBucket | None) -> float:
        """Return node-hours paid per node-hour that serves: a lost node's successor starts and loads before it serves.

        The notice is time in which the successor starts already.
        """
        lost_s = max(0.0, self.startup_s + self.cold_start_s - self.notice_s)
        return 1 + self.loss_per_hr(bucket) * lost_s / S_PER_HR

    def training_factor(self, bucket: InterruptionBucket | None, nodes: int) -> float:
        """Return hours paid per hour of progress of a run that any lost node stops; infinite where it makes none.

        Saves at Young's interval T = sqrt(2 C M): an hour of work costs 1 + C / T, and each of the losses 1 / M costs
        half an interval of lost work, a restart and a restore (Daly 2006, first order).
        """
        # a run stops when any of its nodes is lost, so their rates add up
        per_s = self.loss_per_hr(bucket) * nodes / S_PER_HR
        if per_s == 0:
            return 1.0
        # an interval shorter than a save would leave no time for work
        interval_s = max(young_daly_interval_s(self.save_s, 1 / per_s), self.save_s)
        lost_s = interval_s / 2 + self.startup_s + self.restore_s
        # the share of time that is progress; where losses come faster than restarts there is none
        useful = 1 - per_s * lost_s
        return (1 + self.save_s / interval_s) / useful if useful > 0 else math.inf


USUAL = Interruptions()
