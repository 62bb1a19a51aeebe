"""Total cost of serving or training a model: the nodes, their idle and stranded part, and additional costs.

Node-hours are billed whole; the first lines split that one bill, the others come on top. Every line says how it was
reckoned, with the assumption it rests on (`ownership`, `assumptions`, `planning` of the settings); a line of 0 says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trimtab.catalog import BuyingOption
from trimtab.fleet.settings import Settings
from trimtab.physics.footprint import weight_bytes
from trimtab.physics.found_ways import ServingOption
from trimtab.physics.search_training import TrainingOption
from trimtab.physics.serving_query import adapter_params
from trimtab.units import BYTES_PER_GIB, HR_PER_DAY, HR_PER_MO, S_PER_HR, TOKENS_PER_MTOK, W_PER_KW

CHECKPOINT_BYTES_PER_PARAM = 14
"""16-bit weights, their fp32 copy and two fp32 moments (2 + 4 + 8): what a full mixed-precision checkpoint holds."""


class CostItem(Enum):
    """The kinds of cost."""

    WORK = "busy GPUs"
    IDLE = "headroom and idle time"
    STRANDED = "stranded GPUs"
    SETUP = "set-up and roll-outs"
    POWER = "electricity"
    STORAGE = "storage"
    EGRESS = "network egress"
    OPERATIONS = "operations"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """One part of the total, and how it was computed."""

    item: CostItem
    usd: float
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalCost:
    """All parts, over a month of serving or over a training run."""

    lines: tuple[CostLine, ...]
    per: str

    @property
    def usd(self) -> float:
        """Return the sum of the parts."""
        return sum(line.usd for line in self.lines)


def serving_cost(way: ServingOption, settings: Settings, *, output_tokens: float, hours_per_day: float) -> TotalCost:
    """Return a month's cost of a way of serving `hours_per_day`, its answers of `output_tokens` each."""
    hours = HR_PER_MO * hours_per_day / HR_PER_DAY
    bill = way.usd_hr * hours
    stranded = way.stranded_gpus / (way.gpus + way.stranded_gpus)
    busy = min(1.0, way.served_req_s / (way.replicas * way.replica_req_s))
    answered = way.served_req_s * hours * S_PER_HR * output_tokens
    lines = (
        CostLine(
            item=CostItem.WORK,
            usd=bill * (1 - stranded) * busy,
            how=f"{way.nodes} nodes x ${way.usd_hr / way.nodes:,.2f}/h {way.option.value} x {hours:,.0f} h, {busy:.0%} busy",
        ),
        CostLine(
            item=CostItem.IDLE,
            usd=bill * (1 - stranded) * (1 - busy),
            how=f"{way.replicas} replicas carry {way.replicas * way.replica_req_s:,.3g} requests/s, "
            f"{way.served_req_s:,.3g} come",
        ),
        _stranded(way, bill * stranded),
        _rollouts(way, settings, hours_per_day),
        _power(way, hours, settings),
        _storage(
            settings,
            way.nodes * (weight_bytes(way.model, way.stored) / BYTES_PER_GIB + settings.ownership.image_gib),
            1.0,
            "weights and image on each node",
        ),
        _egress(
            settings,
            answered * settings.ownership.egress_bytes_per_token,
            f"{answered / TOKENS_PER_MTOK:,.0f}M tokens out",
        ),
        _operations(settings, way.nodes, 1.0),
    )  # fmt: skip
    return TotalCost(lines=lines, per="month")


def _rollouts(way: ServingOption, settings: Settings, hours_per_day: float) -> CostLine:
    """Return what starting nodes and replicas costs: each roll-out, and each day's start where nodes do not run all day."""
    starts = settings.ownership.rollouts_mo
    why = f"{starts:g} roll-outs a month"
    if hours_per_day < HR_PER_DAY:
        starts += HR_PER_MO / HR_PER_DAY
        why += " and a start each day"
    waits_s = settings.assumptions.node_startup_s + settings.assumptions.service_cold_start_s
    return CostLine(
        item=CostItem.SETUP,
        usd=way.usd_hr * starts * waits_s / S_PER_HR,
        how=f"{why}, {waits_s:,.0f} s of all nodes each (node start and model load)",
    )


def training_cost(way: TrainingOption, settings: Settings, *, setup_hr: float, tokens: float) -> TotalCost:
    """Return the cost of a training run of so many tokens."""
    hours = way.days.value * HR_PER_DAY
    months = hours / HR_PER_MO
    bill = way.usd_hr * hours
    stranded = way.stranded_gpus / (way.gpus + way.stranded_gpus)
    own = settings.ownership
    weights_gib = weight_bytes(way.plan.model, way.plan.stored) / BYTES_PER_GIB
    trained = (
        way.plan.model.params
        if way.plan.trains_all
        else adapter_params(way.plan.model, way.plan.lora_rank, all_layers=way.plan.adapts_all)
    )
    checkpoint_gib = trained * CHECKPOINT_BYTES_PER_PARAM / BYTES_PER_GIB
    kept_gib = (
        way.nodes * (weights_gib + own.image_gib)
        + own.checkpoints_kept * checkpoint_gib
        + tokens * own.data_bytes_per_token / BYTES_PER_GIB
    )
    lines = (
        CostLine(
            item=CostItem.WORK,
            usd=bill * (1 - stranded),
            how=f"{way.nodes} nodes x ${way.usd_hr / way.nodes:,.2f}/h {way.option.value} x {hours:,.1f} h"
            + (" (lost work and restarts included)" if way.option is BuyingOption.SPOT else ""),
        ),
        _stranded(way, bill * stranded),
        CostLine(item=CostItem.SETUP, usd=way.usd_hr * setup_hr, how=f"{setup_hr:g} h of all nodes before the first step"),
        _power(way, hours, settings),
        _storage(settings, kept_gib, months, f"weights, image, {own.checkpoints_kept:g} checkpoints and data"),
        _egress(settings, checkpoint_gib * BYTES_PER_GIB, "the last checkpoint, once"),
        _operations(settings, way.nodes, months),
    )  # fmt: skip
    return TotalCost(lines=lines, per="run")


def _stranded(way: ServingOption | TrainingOption, usd: float) -> CostLine:
    return CostLine(
        item=CostItem.STRANDED, usd=usd, how=f"{way.stranded_gpus} GPUs paid and not needed: nodes are whole"
    )


def _power(way: ServingOption | TrainingOption, hours: float, settings: Settings) -> CostLine:
    """Return the power of one's own card; a rate, of rent or of owned hardware by --prices, holds it already."""
    if way.usd_hr > 0:
        inside = "your own rate" if way.option is BuyingOption.OWNED else "the rent"
        return CostLine(item=CostItem.POWER, usd=0.0, how=f"in {inside}")
    gpus, tdp_w = way.gpus, way.gpu.tdp_w
    rate = settings.ownership.electricity_usd_kwh
    return CostLine(
        item=CostItem.POWER,
        usd=gpus * tdp_w / W_PER_KW * hours * rate,
        how=f"{gpus} x {tdp_w:,.0f} W x {hours:,.0f} h x ${rate:g}/kWh; the card itself is not counted: give --prices",
    )


def _storage(settings: Settings, gib: float, months: float, what: str) -> CostLine:
    rate = settings.ownership.storage_usd_gib_mo
    return CostLine(
        item=CostItem.STORAGE,
        usd=gib * rate * months,
        how=f"{gib:,.0f} GiB ({what}) x ${rate:g}/GiB-month" + ("" if months == 1 else f" x {months:.2g} months"),
    )


def _egress(settings: Settings, sent_bytes: float, what: str) -> CostLine:
    gib, rate = sent_bytes / BYTES_PER_GIB, settings.ownership.egress_usd_gib
    return CostLine(item=CostItem.EGRESS, usd=gib * rate, how=f"{gib:,.1f} GiB ({what}) x ${rate:g}/GiB")


def _operations(settings: Settings, nodes: int, months: float) -> CostLine:
    own = settings.ownership
    hour_usd = settings.planning.engineer_week_usd / own.work_week_hr
    worked = nodes * own.operations_hr_node_mo * months
    return CostLine(
        item=CostItem.OPERATIONS,
        usd=worked * hour_usd,
        how=f"{worked:.3g} engineer-hours ({nodes} nodes) x ${hour_usd:,.0f}",
    )
