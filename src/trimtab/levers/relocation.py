"""Move to another region, or on request to another cloud, where the same work costs less than moving and the traffic do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import Effect, Relocate, UseOffering
from trimtab.deployment.fitting import fitting_offerings
from trimtab.fleet.market import Market
from trimtab.fleet.model import Workload
from trimtab.fleet.reach import Region, home_of, is_near, offerings_elsewhere, reach_of
from trimtab.fleet.settings import Effort, Settings
from trimtab.levers.lever import (
    AppliedLever,
    CompositionStage,
    EffortStep,
    Fact,
    JudgedWays,
    KeptWay,
    Lever,
    LeverRequest,
    Risk,
    is_candidate,
    software_fact,
    speed_fact,
    usual_reason,
)
from trimtab.physics.formats import WeightFormat
from trimtab.replay.outcomes.outcome import Case, alone_cost, entry_micro_usd, entry_usd, held_usage
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import S_PER_HR, per_month, usd

NAME = "relocation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocations:
    """The places that a workload could move to, and how many were refused for which reason."""

    fitting: tuple[Relocate, ...]
    refused: Counter[str]


def propose(
    workload: Workload, market: Market, settings: Settings, *, stored: WeightFormat | None = None
) -> Relocations:
    """Judge every whole-GPU node on demand wherever else the workload may run (`fleet.reach`), its own type among them."""
    offerings = offerings_elsewhere(workload, market)
    judged = fitting_offerings(workload, offerings, market, settings.assumptions, stored)
    return Relocations(
        fitting=tuple(relocated(workload, size, market, settings) for size in judged.fitting), refused=judged.refused
    )


def relocated(workload: Workload, size: UseOffering, market: Market, settings: Settings) -> Relocate:
    """Return a move with what it costs: data copied and both places up once, traffic across the border each month.

    Traffic between two regions of one cloud is paid at `ownership.region_traffic_usd_gib`, out of the cloud at
    `ownership.egress_usd_gib`.
    """
    home, there = home_of(workload), Region(size.pool.provider, size.pool.region)
    prices, assumed = settings.ownership, settings.assumptions
    usd_gib = prices.region_traffic_usd_gib if home.provider == there.provider else prices.egress_usd_gib
    rtt_s = assumed.region_rtt_s if is_near(home, there) else assumed.continent_rtt_s
    data_gib, traffic_gib_mo = workload.spec.data_gib or 0.0, workload.spec.traffic_gib_mo or 0.0
    home_usd_hr = usd(market.rate(workload.pool)) * float(workload.held_node_seconds.mean()) / S_PER_HR
    return Relocate(
        to=size,
        home=workload.pool,
        rtt_s=rtt_s if workload.kind is WorkloadKind.SERVING else 0.0,
        data_gib=data_gib,
        traffic_gib_mo=traffic_gib_mo,
        copy_usd=data_gib * usd_gib,
        overlap_usd=0.0 if workload.pool.capacity_type.paid_anyway else assumed.move_overlap_hr * home_usd_hr,
        traffic_usd_mo=traffic_gib_mo * usd_gib,
    )


def moves(ask: LeverRequest) -> Relocations:
    """Return the places elsewhere that hold a workload as it is."""
    return propose(ask.workload, ask.market, ask.settings)


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    if not base.changes:
        for move in ask.once(moves).fitting:
            yield base.plus((NAME, move))


def _refused(ask: LeverRequest) -> Counter[str]:
    return ask.once(moves).refused


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str | None:
    """Say why a workload stays where it is; None where no move was asked for."""
    own = _what_moving_would_do(ask, judged)
    return usual_reason(NAME, ask, judged, own=own) if own is not None or is_candidate(NAME, judged) else None


def _what_moving_would_do(ask: LeverRequest, judged: JudgedWays) -> str | None:
    """Say what the best move would save on nodes and cost in addition, each alone, or the rule that holds the workload.

    Slots of shared nodes are left out: what they cost depends on who else is there.
    """
    case, market = ask.case, ask.market
    reach = reach_of(case.workload, market)
    if isinstance(reach, str):
        return reach
    if not reach:
        return None
    whole = [way for way in judged.kept if not way.slots]
    away = [way for way in whole if NAME in way.deployment.levers]
    if not away:
        where = ", ".join(str(region) for region in reach)
        missed = judged.missed.get(NAME, 0) > 0
        return f"every variant in {where} misses a target" if missed else f"no node on offer in {where} fits it"
    home = {case.workload.pool: held_usage(case.workload, ask.evaluator.place(AS_IT_IS))}
    stay = min([alone_cost(home, market), *(_nodes(way, market) for way in whole if way not in away)])
    best = min(away, key=lambda way: _nodes(way, market) + _besides(way, case))
    return _in_words(best, stay - _nodes(best, market), _besides(best, case), case)


def _nodes(way: KeptWay, market: Market) -> int:
    return alone_cost(way.usage, market)


def _besides(way: KeptWay, case: Case) -> int:
    return way.own_micro_usd + len(way.needs) * entry_micro_usd(case.settings, case.window.hours)


def _in_words(way: KeptWay, saved_micro_usd: int, besides_micro_usd: int, case: Case) -> str:
    move = way.deployment.relocation
    assert move is not None
    saved, besides = (per_month(usd(micro), case.window.hours) for micro in (saved_micro_usd, besides_micro_usd))
    once = move.once_usd + len(way.needs) * entry_usd(case.settings)
    less = f"${saved:,.0f} less" if saved >= 0 else f"${-saved:,.0f} more"
    outweighed = ", which the work of moving or the rest of the plan outweighs" if saved > besides else ""
    return (
        f"in {move.place} its nodes would cost {less} a month than here, moving and traffic ${besides:,.0f} "
        f"(${move.traffic_usd_mo:,.0f} a month of traffic; ${once:,.0f} once, over "
        f"{case.settings.planning.change_horizon_mo:g} months){outweighed}"
    )


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    for move in applied.effects:
        if isinstance(move, Relocate):
            yield from _facts(move)
            yield from software_fact(applied.market.gpu(applied.workload.gpu), applied.market.gpu(move.to.gpu))


def _facts(move: Relocate) -> Iterator[Fact]:
    once = f"${move.copy_usd:,.2f} for {move.data_gib:g} GiB, ${move.overlap_usd:,.2f} for both places"
    traffic = f"${move.traffic_usd_mo:,.2f} a month for {move.traffic_gib_mo:g} GiB"
    yield speed_fact(f"speed on {move.to.gpu}", move.speed)
    yield Fact("what moving costs once", "workloads.yaml: data_gib; assumptions.move_overlap_hr", once)
    yield Fact("what crosses the border", "workloads.yaml: traffic_gib_mo", traffic)
    if move.rtt_s:
        yield Fact("a request's longer way", "assumptions.region_rtt_s, continent_rtt_s", f"{move.rtt_s:g} s")


def _canary(effect: Effect) -> tuple[str, ...]:
    place = effect.place if isinstance(effect, Relocate) else "the new place"
    return (
        f"Run one replica or one run in {place} beside the present ones for a day, on a copy of the data.",
        "Compare its speed, what crosses the border and, for a service, the p95 that callers see; go on if they are "
        "within the plan's.",
        "Send over a tenth of the requests or runs, then half, then all; keep the former place for a week.",
    )


LEVER = Lever(
    name=NAME,
    title="Move elsewhere",
    meaning="Moves work to another region, or on request to another cloud",
    page="how-to/move-elsewhere.md",
    stage=CompositionStage.PLACE,
    kinds=frozenset(WorkloadKind),
    effort=Effort(weeks=4.0, per="class"),
    steps=(
        EffortStep("network, rights, registry and secrets in the new place", 5.0),
        EffortStep("the data's copy, and how it stays current", 5.0),
        EffortStep("a day beside the present ones, then a tenth, half, all", 6.0),
        EffortStep("the old place kept a week, then given up", 4.0),
    ),
    risk=Risk.MEDIUM,
    rollback="send callers and new runs back to the place before, where nodes and data stay until nothing asks "
    "for them; copy back what was written since",
    canary=_canary,
    ways=_ways,
    refused=_refused,
    evidence=_evidence,
    why_not=_why_not,
)
