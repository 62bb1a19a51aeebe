"""What is judged for every fleet and never planned, from another cloud to sharing without isolation: each with its sums.

Several small services fit one GPU by memory and by time, but nothing keeps them apart: a request waits while another service's
runs, one service's fault or full memory stops all of them, and no request or limit of Kubernetes says how much each may take.
So it is an option where somebody admits it only (`levers.sharing`); for the others this says what it would save.

The sums stand on the use and the bill that the plan leaves, so that nothing is counted twice, and on assumptions that are
settings (`fleet.settings.Alternatives`). Nothing of it enters the plan: the figures say what it would cost and save.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from trimtab.catalog.gpus import Gpu
from trimtab.catalog.kinds import BuyingOption, CapacityType, Isolation
from trimtab.catalog.own_rates import OwnedHardware, annuity, owned_usd_hr
from trimtab.catalog.pools import Pool
from trimtab.fleet.activity import working_frac
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, Target, Workload
from trimtab.fleet.reach import asked_isolation
from trimtab.fleet.settings import Settings
from trimtab.fleet.targets import share_within
from trimtab.ledger import Bill
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.levers import commitments, sharing
from trimtab.levers.registry import effort_of_lever
from trimtab.plan.model import Alternative, AlternativeKind, NotWorthDoing
from trimtab.provenance import Basis, Estimate
from trimtab.replay.outcomes.outcome import Case
from trimtab.replay.outcomes.service_model import demand_of
from trimtab.replay.outcomes.service_outcome import judging_histogram
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import HR_PER_MO, MICRO_PER_USD, MO_PER_YEAR, S_PER_HR, usd

_SLOWED = 2.0
"""How much longer a request takes while another service's is in work: two take turns."""
_MEET_BOTH_WAYS = 2.0
"""A request finds another's in work, or is joined by one: each as likely as the other service is busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tenant:
    workload: Workload
    case: Case
    replicas: int
    need_gib: float
    busy: float


def unisolated(
    fleet: Fleet, cases: Mapping[str, Case], market: Market, settings: Settings
) -> tuple[NotWorthDoing, ...]:
    """Return what packing each pool's small services onto whole GPUs would save, and what it would cost their latency."""
    pools: dict[Pool, list[_Tenant]] = defaultdict(list)
    for workload in fleet.workloads:
        tenant = _tenant(workload, cases, settings)
        if tenant is not None and not workload.pool.capacity_type.paid_anyway:
            pools[workload.pool].append(tenant)
    judged = [_judged_sharing(pool, tenants, market, settings) for pool, tenants in sorted(pools.items())]
    return tuple(answer for answer in judged if answer is not None)


def _tenant(workload: Workload, cases: Mapping[str, Case], settings: Settings) -> _Tenant | None:
    peak_gib = workload.spec.need_gib or workload.activity.memory_peak_gib
    small = workload.kind is WorkloadKind.SERVING and workload.gpus_per_pod == 1
    admitted = asked_isolation(workload.spec, settings.limits.isolation) is not Isolation.HARDWARE
    if not small or admitted or peak_gib is None or workload.name not in cases:
        return None
    return _Tenant(
        workload=workload,
        case=cases[workload.name],
        replicas=demand_of(cases[workload.name]).most_replicas,
        need_gib=peak_gib * (1 + settings.assumptions.memory_headroom_frac),
        busy=working_frac(workload),
    )


def _judged_sharing(pool: Pool, tenants: Sequence[_Tenant], market: Market, settings: Settings) -> NotWorthDoing | None:
    gpu = market.gpu(tenants[0].workload.gpu)
    if gpu is None or len(tenants) < 2:
        return None
    packed = _packed(tenants, gpu.memory_gib, settings.bands.find_cause_frac)
    per_node = tenants[0].workload.gpus_per_node
    before = sum(math.ceil(tenant.replicas / per_node) for tenant in tenants)
    after = math.ceil(len(packed) / per_node)
    if after >= before:
        return None
    sharers = [tenant for together in packed if len(together) > 1 for tenant in together]
    names = sorted({tenant.workload.name for tenant in sharers})
    felt = _worst(packed)
    return NotWorthDoing(
        lever=sharing.NAME,
        subject=", ".join(names) if len(names) <= 3 else f"{len(names)} services on {pool.instance_type}",
        saving_usd_mo=usd(market.rate(pool)) * HR_PER_MO * (before - after),
        reason=(
            f"alone, without isolation (time slicing or MPS): {after} x {pool.instance_type} in place of {before}, but "
            f"requests wait for other services'{felt}, and a fault of one stops all; admit it with isolation: in "
            "workloads.yaml, and what keeps every target is planned"
        ),
    )


def _packed(tenants: Sequence[_Tenant], memory_gib: float, most_busy: float) -> list[list[_Tenant]]:
    """Put replicas on GPUs, the largest first: memory and time must hold them, and no service stands beside itself."""
    gpus: list[list[_Tenant]] = []
    for tenant in sorted(tenants, key=lambda tenant: (-tenant.need_gib, tenant.workload.name)):
        for _ in range(tenant.replicas):
            fitting = [
                held
                for held in gpus
                if tenant not in held
                and sum(holder.need_gib for holder in held) + tenant.need_gib <= memory_gib
                and sum(holder.busy for holder in held) + tenant.busy <= most_busy
            ]
            if fitting:
                fitting[0].append(tenant)
            else:
                gpus.append([tenant])
    return gpus


def _worst(packed: Sequence[Sequence[_Tenant]]) -> str:
    """Say which latency target suffers most, and how much of it is left; nothing where no latency was measured."""
    left = [
        (kept - target.required_frac, tenant, target, kept)
        for held in packed
        if len(held) > 1
        for tenant in held
        for target in tenant.workload.targets
        if (kept := _kept(tenant, [neighbour for neighbour in held if neighbour is not tenant], target)) is not None
    ]
    if not left:
        return ""
    _, tenant, target, kept = min(left, key=lambda row: row[0])
    limit = f"within {target.limit_s:.3g} s, not {target.required_frac:.0%}"
    return f" (about {kept:.0%} of {tenant.workload.name}'s would be {limit})"


def _kept(tenant: _Tenant, others: Sequence[_Tenant], target: Target) -> float | None:
    """Return the share of requests within a limit if those that meet others' take twice as long."""
    service = tenant.workload.service
    if service is None or target.limit_s is None:
        return None
    le_s, count = judging_histogram(tenant.case, service, target.metric)
    if not count.size:
        return None
    met = min(1.0, _MEET_BOTH_WAYS * sum(_busy_when(tenant.workload, other) for other in others))
    alone, slowed = (float(share_within(le_s, count.sum(axis=0), limit)) for limit in _limits(target.limit_s))
    return (1 - met) * alone + met * slowed


def _limits(limit_s: float) -> tuple[float, float]:
    return limit_s, limit_s / _SLOWED


def _busy_when(workload: Workload, other: _Tenant) -> float:
    """Return the share of time in which a service is busy when another's requests come: both may peak at the same hours."""
    mine, theirs = _hourly(workload), _hourly(other.workload)
    both = ~np.isnan(mine) & ~np.isnan(theirs)
    if not both.any() or mine[both].sum() <= 0 or theirs[both].mean() <= 0:
        return other.busy
    together = float((mine[both] * theirs[both]).mean() / (mine[both].mean() * theirs[both].mean()))
    return min(1.0, other.busy * together)


def _hourly(workload: Workload) -> FloatArray:
    """Return a service's requests by hour, or its activity where they are not counted in whole hours."""
    service = workload.service
    if service is None:
        return workload.activity.busy_gpus
    steps = round(S_PER_HR / service.step_s)
    return np.asarray(service.arrivals[: len(service.arrivals) // steps * steps].reshape(-1, steps).sum(axis=1))


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


def alternatives(
    fleet: Fleet, left: ResidualBill, market: Market, settings: Settings, shared: Sequence[NotWorthDoing]
) -> tuple[Alternative, ...]:
    """Return the five judgements; `shared` are the pools on which unprotected sharing would give nodes back."""
    return (
        _another_cloud(left, market, settings),
        _own_kernels(fleet, left, market, settings),
        _own_hardware(left, market, settings),
        _savings_plan(left, market, settings),
        _unisolated(shared, settings),
    )


def _alternative(
    kind: AlternativeKind,
    subject: str,
    saving: tuple[float, float, float],
    once_usd: float,
    why: str,
    settings: Settings,
    used: Sequence[str],
) -> Alternative:
    """Return the judgement of work that is paid once: worth it where the low end of the saving pays it back in time."""
    low, value, high = saving
    worth = low > 0 and once_usd <= low * settings.planning.max_payback_mo
    return Alternative(
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


def _another_cloud(left: ResidualBill, market: Market, settings: Settings) -> Alternative:
    """Hold the plan's use against the cheapest other provider that sells the same GPUs under the same buying option."""
    stated = settings.alternatives
    used = ("alternatives.migration_weeks", "planning.engineer_week_usd", "alternatives.migration_data_gib",
            "ownership.egress_usd_gib", "alternatives.price_error_frac")  # fmt: skip
    once = (
        stated.migration_weeks * settings.planning.engineer_week_usd
        + stated.migration_data_gib * settings.ownership.egress_usd_gib
    )
    offers = _offers(left, market)
    if not offers:
        why = "no other provider of the price list sells these GPUs"
        return _alternative(
            AlternativeKind.ANOTHER_CLOUD, "the whole fleet", (0.0, 0.0, 0.0), once, why, settings, used
        )
    provider, (saving, spend, moved) = max(offers.items(), key=lambda item: (item[1][0], item[0]))
    spread = stated.price_error_frac * spend
    why = (
        f"list rates of the same GPUs at {provider}, {moved:.0%} of the spend could move; the plan moves only to clouds that "
        "limits.providers allows (--cloud)"
    )
    sums = (saving - spread, saving, saving + spread)
    return _alternative(AlternativeKind.ANOTHER_CLOUD, f"to {provider}", sums, once, why, settings, used)


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


def _own_kernels(fleet: Fleet, left: ResidualBill, market: Market, settings: Settings) -> Alternative:
    """Take a stated gain on the serving and training that the plan leaves, less upkeep."""
    stated = settings.alternatives
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
    used = tuple(f"alternatives.{setting.name}" for setting in fields(stated) if setting.name.startswith("kernels_"))
    used += ("planning.engineer_week_usd",)
    return _alternative(AlternativeKind.OWN_KERNELS, "serving and training", sums, once, why, settings, used)


def _own_hardware(left: ResidualBill, market: Market, settings: Settings) -> Alternative:
    """Carry the base of each pool on bought nodes: capital over its life, operations and power, against the plan's rate."""
    stated = settings.alternatives
    used = tuple(f"alternatives.{setting.name}" for setting in fields(stated) if setting.name.startswith("hardware_"))
    found = [bought for pool in sorted(left.usage) if (bought := _bought(pool, left, market, settings)) is not None]
    if not found:
        why = (
            "no pool has whole nodes in use at nearly all hours, of a GPU that is still sold new and not owned already"
        )
        return _alternative(AlternativeKind.OWN_HARDWARE, "nothing", (0.0, 0.0, 0.0), 0.0, why, settings, used)
    chosen = [base for base in found if base.sums[1] > 0] or [max(found, key=lambda base: base.sums[1])]
    low, value, high = (sum(base.sums[at] for base in chosen) for at in range(3))
    names = ", ".join(f"{base.nodes} x {base.pool.instance_type}" for base in chosen)
    why = (
        f"like {names}, in use at nearly all hours: capital over {stated.hardware_years:g} years (low end: one year less), "
        "operations and power, against the plan's rate; bought nodes stay when demand goes"
    )
    capital = sum(base.capital_usd for base in chosen)
    judged = _alternative(AlternativeKind.OWN_HARDWARE, names, (low, value, high), capital, why, settings, used)
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
    if not left.rate_usd_hr(pool, market):  # counted at 0 because its price is unknown
        return None
    gpu = market.catalog.gpu_of(instance)
    if gpu.release_year < _OLDEST_SOLD or math.isnan(gpu.tdp_w):  # rented out by their makers alone
        return None
    listed = usd(market.rate(pool.held_as(CapacityType.ON_DEMAND)))
    rent = left.rate_usd_hr(pool, market)
    stated = settings.alternatives
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
    stated = settings.alternatives
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


def _savings_plan(left: ResidualBill, market: Market, settings: Settings) -> Alternative:
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
    return _alternative(AlternativeKind.SAVINGS_PLAN, providers, (0.0, 0.0, 0.0), 0.0, why, settings, used)


def _unisolated(shared: Sequence[NotWorthDoing], settings: Settings) -> Alternative:
    """Sum what packing small services on whole GPUs would give back, of those whose owners did not admit it."""
    used = ("assumptions.memory_headroom_frac", "bands.find_cause_frac")
    saving = sum(refusal.saving_usd_mo or 0.0 for refusal in shared)
    if not shared:
        why = "no pool has two small services that would fit fewer nodes together and whose owners do not already allow it"
        return _alternative(AlternativeKind.UNISOLATED, "nothing", (0.0, 0.0, 0.0), 0.0, why, settings, used)
    once = len(shared) * effort_of_lever(shared[0].lever, settings).weeks * settings.planning.engineer_week_usd
    first = max(shared, key=lambda refusal: refusal.saving_usd_mo or 0.0)
    sums = (0.0, saving, saving)
    return _alternative(AlternativeKind.UNISOLATED, first.subject, sums, once, first.reason, settings, used)
