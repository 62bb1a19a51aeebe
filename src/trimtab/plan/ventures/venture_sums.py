"""Judge what the plan does not hold, from another cloud to unprotected sharing: each with a sum, none ever silent.

The sums stand on the use and the bill that the plan leaves, so that nothing is counted twice, and on assumptions that are
settings (`fleet.settings.Ventures`). Nothing of it enters the plan: the figures say what it would cost and save.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from trimtab.catalog.gpus import Gpu
from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.owned import OwnedHardware, annuity, owned_usd_hr
from trimtab.catalog.pools import Pool
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, IntArray
from trimtab.fleet.settings import Settings
from trimtab.ledger import Bill
from trimtab.levers import commitments
from trimtab.levers.registry import effort_of_lever
from trimtab.plan.model import NotWorthDoing, Venture, VentureKind
from trimtab.provenance import Basis, Estimate
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import HR_PER_MO, MICRO_PER_USD, MO_PER_YEAR, S_PER_HR, usd

_BASE_QUANTILE = 0.05
"""Nodes that are in use in 95 of 100 hours are the base that owned hardware could carry."""
_RENTED = (CapacityType.ON_DEMAND, CapacityType.SPOT)
_OLDEST_SOLD = 2020
"""Data-centre GPUs of an earlier year are no longer sold new."""


@dataclass(slots=True, kw_only=True, eq=False)
class ResidualBill:
    """What the plan leaves: its use by pool and hour, and the bill of it."""

    bill: Bill
    _usd_hr: dict[Pool, float] = field(init=False)

    def __post_init__(self) -> None:
        paid = self.bill.effective().sum(axis=1) / MICRO_PER_USD
        used_hr = self.bill.node_seconds.sum(axis=1) / S_PER_HR
        found = zip(self.bill.pools, paid.tolist(), used_hr.tolist(), strict=True)
        self._usd_hr = {pool: cost / hours for pool, cost, hours in found if hours > 0}

    @property
    def usage(self) -> dict[Pool, IntArray]:
        """Return node-seconds by pool and hour."""
        return dict(zip(self.bill.pools, self.bill.node_seconds, strict=True))

    def nodes(self, pool: Pool) -> float:
        """Return a pool's mean nodes."""
        return float(self.usage[pool].mean()) / S_PER_HR

    def base(self, pool: Pool) -> int:
        """Return the whole nodes of a pool that nearly every hour uses."""
        return int(np.quantile(self.usage[pool] / S_PER_HR, _BASE_QUANTILE))

    def rate_usd_hr(self, pool: Pool, market: Market) -> float:
        """Return what a node of a pool costs an hour under the plan, what commitments and spend covered of it counted in."""
        return self._usd_hr.get(pool, usd(market.rate(pool)))


def ventures(
    fleet: Fleet, left: ResidualBill, market: Market, settings: Settings, shared: Sequence[NotWorthDoing]
) -> tuple[Venture, ...]:
    """Return the five judgements; `shared` are the pools on which unprotected sharing would give nodes back."""
    return (
        _another_cloud(left, market, settings),
        _own_kernels(fleet, left, market, settings),
        _own_hardware(left, market, settings),
        _savings_plan(left, market, settings),
        _unisolated(shared, settings),
    )


def _judged(
    kind: VentureKind,
    subject: str,
    saving: tuple[float, float, float],
    once_usd: float,
    why: str,
    settings: Settings,
    used: Sequence[str],
) -> Venture:
    """Return the judgement of work that is paid once: worth it where the low end of the saving pays it back in time."""
    low, value, high = saving
    worth = low > 0 and once_usd <= low * settings.planning.max_payback_mo
    return Venture(
        kind=kind,
        subject=subject,
        saving_usd_mo=Estimate(value=value, low=low, high=high, basis=Basis.ASSUMED, because="stated assumptions"),
        once_usd=once_usd,
        worth=worth,
        payback_mo=once_usd / value if value > 0 else None,
        reason=why,
        assumptions=tuple(_stated(name, settings) for name in used),
    )


def _stated(name: str, settings: Settings) -> str:
    group, _, key = name.partition(".")
    return f"{name} = {getattr(getattr(settings, group), key):g}"


def _another_cloud(left: ResidualBill, market: Market, settings: Settings) -> Venture:
    """Hold the plan's use against the cheapest other provider that sells the same GPUs under the same buying option."""
    stated = settings.ventures
    used = ("ventures.migration_weeks", "planning.engineer_week_usd", "ventures.migration_data_gib",
            "ownership.egress_usd_gib", "ventures.price_error_frac")  # fmt: skip
    once = (
        stated.migration_weeks * settings.planning.engineer_week_usd
        + stated.migration_data_gib * settings.ownership.egress_usd_gib
    )
    offers = _offers(left, market)
    if not offers:
        why = "no other provider of the price list sells these GPUs"
        return _judged(VentureKind.ANOTHER_CLOUD, "the whole fleet", (0.0, 0.0, 0.0), once, why, settings, used)
    provider, (saving, spend, moved) = max(offers.items(), key=lambda item: (item[1][0], item[0]))
    spread = stated.price_error_frac * spend
    why = (
        f"list rates of the same GPUs at {provider}, {moved:.0%} of the spend could move; the plan moves only to clouds that "
        "limits.providers asks for (--cloud)"
    )
    sums = (saving - spread, saving, saving + spread)
    return _judged(VentureKind.ANOTHER_CLOUD, f"to {provider}", sums, once, why, settings, used)


def _offers(left: ResidualBill, market: Market) -> dict[str, tuple[float, float, float]]:
    """Return by other provider: what moving saves a month, what it would cost there, and the share of spend that can move."""
    providers = {pool.provider for pool in left.usage}
    total = sum(left.nodes(pool) * left.rate_usd_hr(pool, market) for pool in left.usage)
    found: dict[str, tuple[float, float, float]] = {}
    for pool in sorted(left.usage):
        instance = market.catalog.instance_table.get((pool.provider, pool.instance_type))
        if instance is None or pool.capacity_type.paid_anyway or left.nodes(pool) <= 0 or total <= 0:
            continue
        spend = left.nodes(pool) * left.rate_usd_hr(pool, market)
        gpus = left.nodes(pool) * instance.board_count
        for provider, usd_gpu_hr in _per_gpu(instance.gpu, pool.capacity_type, market).items():
            if provider in providers:
                continue
            saved, cost, moved = found.get(provider, (0.0, 0.0, 0.0))
            there = gpus * usd_gpu_hr
            if there < spend:
                found[provider] = (
                    saved + (spend - there) * HR_PER_MO,
                    cost + there * HR_PER_MO,
                    moved + spend / total,
                )
    return found


def _per_gpu(gpu: str, capacity: CapacityType, market: Market) -> dict[str, float]:
    """Return each provider's cheapest rate for a whole GPU, an hour, in any region."""
    option = BuyingOption.SPOT if capacity is CapacityType.SPOT else BuyingOption.ON_DEMAND
    cheapest: dict[str, float] = {}
    for price in market.catalog.prices.offerings(gpu=gpu, option=option, at=market.at):
        instance = market.catalog.instance_type(price.provider, price.instance_type)
        if instance.gpu_frac == 1:
            rate = price.usd_hr / instance.gpu_count
            cheapest[price.provider] = min(rate, cheapest.get(price.provider, rate))
    return cheapest


def _own_kernels(fleet: Fleet, left: ResidualBill, market: Market, settings: Settings) -> Venture:
    """Take a stated gain on the serving and training that the plan leaves, less upkeep."""
    stated = settings.ventures
    kinds = (WorkloadKind.SERVING, WorkloadKind.TRAINING)
    gpu_hours = {workload.name: workload.gpu_hours for workload in fleet.workloads}
    touched = sum(workload.gpu_hours for workload in fleet.workloads if workload.kind in kinds)
    share = touched / sum(gpu_hours.values()) if sum(gpu_hours.values()) else 0.0
    spend = share * sum(left.nodes(pool) * left.rate_usd_hr(pool, market) for pool in left.usage) * HR_PER_MO
    once = stated.kernels_weeks * settings.planning.engineer_week_usd
    upkeep = once * stated.kernels_upkeep_frac / MO_PER_YEAR
    why = (
        f"engines already carry tuned kernels; a gain of {stated.kernels_gain_frac:.0%} on serving and training "
        f"({share:.0%} of the GPU-hours), less ${upkeep:,.0f} a month of upkeep"
    )
    sums = (-upkeep, spend * stated.kernels_gain_frac - upkeep, spend * stated.kernels_gain_high_frac - upkeep)
    used = tuple(f"ventures.{setting.name}" for setting in fields(stated) if setting.name.startswith("kernels_"))
    used += ("planning.engineer_week_usd",)
    return _judged(VentureKind.OWN_KERNELS, "serving and training", sums, once, why, settings, used)


def _own_hardware(left: ResidualBill, market: Market, settings: Settings) -> Venture:
    """Carry the base of each pool on bought nodes: capital over its life, operations and power, against the plan's rate."""
    stated = settings.ventures
    used = tuple(f"ventures.{setting.name}" for setting in fields(stated) if setting.name.startswith("hardware_"))
    found = [bought for pool in sorted(left.usage) if (bought := _bought(pool, left, market, settings)) is not None]
    if not found:
        why = (
            "no pool has whole nodes in use at nearly all hours, of a GPU that is still sold new and not owned already"
        )
        return _judged(VentureKind.OWN_HARDWARE, "nothing", (0.0, 0.0, 0.0), 0.0, why, settings, used)
    chosen = [base for base in found if base.sums[1] > 0] or [max(found, key=lambda base: base.sums[1])]
    low, value, high = (sum(base.sums[at] for base in chosen) for at in range(3))
    names = ", ".join(f"{base.nodes} x {base.pool.instance_type}" for base in chosen)
    why = (
        f"like {names}, in use at nearly all hours: capital over {stated.hardware_years:g} years (low end: one year less), "
        "operations and power, against the plan's rate; bought nodes stay when demand goes"
    )
    capital = sum(base.capital_usd for base in chosen)
    judged = _judged(VentureKind.OWN_HARDWARE, names, (low, value, high), capital, why, settings, used)
    cash = sum(base.cash_usd_mo for base in chosen)
    payback = capital / cash if cash > 0 else None
    worth = low > 0 and payback is not None and payback <= stated.hardware_payback_mo
    return replace(judged, worth=worth, payback_mo=payback)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bought:
    pool: Pool
    nodes: int
    capital_usd: float
    sums: tuple[float, float, float]
    cash_usd_mo: float
    """Rent that is no longer paid, less power and operations: what pays the price back."""


def _bought(pool: Pool, left: ResidualBill, market: Market, settings: Settings) -> _Bought | None:
    instance = market.catalog.instance_table.get((pool.provider, pool.instance_type))
    nodes = left.base(pool)
    if instance is None or nodes < 1 or instance.gpu_frac != 1 or pool.capacity_type not in _RENTED:
        return None
    if not left.rate_usd_hr(pool, market):  # carried at nothing: nobody knows what it costs
        return None
    gpu = market.catalog.gpu_of(instance)
    if gpu.release_year < _OLDEST_SOLD:
        return None
    listed = usd(market.rate(pool.held_as(CapacityType.ON_DEMAND)))
    rent = left.rate_usd_hr(pool, market)
    stated = settings.ventures
    off, years = stated.hardware_error_frac, stated.hardware_years
    cases = ((1 + off, max(years - 1, 1.0)), (1.0, years), (1 - off, years))
    low, value, high = (
        nodes * HR_PER_MO * (rent - owned_usd_hr(_node(pool, instance.gpu_count, gpu, listed * factor, life, settings)))
        for factor, life in cases
    )
    capital = nodes * listed * stated.hardware_price_hr
    yearly = capital * annuity(stated.hardware_capital_rate_frac, years)
    return _Bought(
        pool=pool,
        nodes=nodes,
        capital_usd=capital,
        sums=(low, value, high),
        cash_usd_mo=value + yearly / MO_PER_YEAR,
    )


def _node(pool: Pool, gpus: int, gpu: Gpu, listed_usd_hr: float, years: float, settings: Settings) -> OwnedHardware:
    stated = settings.ventures
    capital = listed_usd_hr * stated.hardware_price_hr
    return OwnedHardware(
        instance_type=pool.instance_type,
        capital_usd=capital,
        years=years,
        power_w=gpus * gpu.tdp_w * stated.hardware_power_factor,
        pue=stated.hardware_pue,
        electricity_usd_kwh=stated.hardware_electricity_usd_kwh,
        operations_usd_year=capital * stated.hardware_operations_frac,
        capital_rate_frac=stated.hardware_capital_rate_frac,
    )


def _savings_plan(left: ResidualBill, market: Market, settings: Settings) -> Venture:
    """Say what became of the spend plans whose rates are known: the plan weighs them, so that none has a sum beside it."""
    used = ("planning.max_term_years",)
    offers = commitments.propose_spend(left.usage, market)
    providers = ", ".join(sorted({offer.provider for offer in offers})) or "nothing"
    why = "no savings plan rate is known for the nodes it could cover: ask, and give it with --prices"
    if offers:
        why = "weighed in the plan with the reservations: on what the plan leaves, none saves more"
    bought = [commitment for commitment in left.bill.commitments if commitment.offer.is_spend]
    if bought:
        spend = sum(usd(commitment.micro_usd_hr) for commitment in bought)
        why = f"in the plan: ${spend:,.2f} an hour with what is held, weighed with the reservations; no more would pay"
    return _judged(VentureKind.SAVINGS_PLAN, providers, (0.0, 0.0, 0.0), 0.0, why, settings, used)


def _unisolated(shared: Sequence[NotWorthDoing], settings: Settings) -> Venture:
    """Sum what packing small services on whole GPUs would give back, of those whose owners did not admit it."""
    used = ("assumptions.memory_headroom_frac", "bands.find_cause_frac")
    saving = sum(refusal.saving_usd_mo or 0.0 for refusal in shared)
    if not shared:
        why = "no pool has two small services that would fit fewer nodes together and whose owners do not admit it already"
        return _judged(VentureKind.UNISOLATED, "nothing", (0.0, 0.0, 0.0), 0.0, why, settings, used)
    once = len(shared) * effort_of_lever(shared[0].lever, settings).weeks * settings.planning.engineer_week_usd
    first = max(shared, key=lambda refusal: refusal.saving_usd_mo or 0.0)
    sums = (0.0, saving, saving)
    return _judged(VentureKind.UNISOLATED, first.subject, sums, once, first.reason, settings, used)
