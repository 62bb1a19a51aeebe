"""Places that no plan of a fleet needs: shared nodes that others replace, and nodes that cost more for the same GPUs.

*Shared nodes.* Services in time slices and under MPS are offered every number of shares, and each class of busy neighbours.
Replaying each rule of each of them is most of an audit's work, and nearly all of it is unnecessary: where every service has a
standing way among busier neighbours, no service needs quieter ones. A *standing* way holds as many replicas as history had at
most and keeps the targets; where no way of its workload may ever hold fewer, it holds the least. So the site `s` is dominated
by `t`, of the same pool, if all who could use `s` have a standing way in `t`, and

- take no more of a node of `t` than the lower bound of what they take of one of `s`; or
- all who could use `s` or `t` use `t`, on one node together.

Nothing is lost: in any plan that uses `s`, its users (in the second case those of `t` too) can use `t`, in each hour on no
more nodes of that pool, and with no more work asked of the team. Sites leave one by one, each dominated by one that stays, so
that no two leave for each other.

*Nodes that cost more.* A cloud sells the same GPUs in nodes of several types, which differ in what else they hold; nothing that
trimtab replays depends on that. So the pool `p` is dominated by `q` if both have the same GPUs on a node and `q` costs no more
under every buying option that `p` is sold under, spot aside, whose odds differ. A workload does without its place in `p` where
the same place in `q` is on offer to it, asks for no more work, and is replayed as the same; not where it may buy `p` otherwise
than on demand. Nothing is lost: all who would use `p` can use `q` together. That takes that nothing else holds nodes of `p`,
whose idle hours would be free: no workload is on them today, no commitment that is owned may cover them, and no service may
keep a floor of them beside spot; and that no quota is stated for `q`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trimtab.catalog.kinds import BuyingOption, Isolation
from trimtab.catalog.pools import Pool, SharedPool, Site
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.placement import Placement
from trimtab.fleet.market import Market, Offering
from trimtab.fleet.reach import offerings_for, quotas_of
from trimtab.ledger import Commitment
from trimtab.levers import autoscaling, replica_count, sharing
from trimtab.levers.lever import CompositionStage, LeverRequest
from trimtab.levers.registry import serving
from trimtab.plan.effort import effort_of_deployment
from trimtab.plan.options.composition import Veto, bought, places
from trimtab.replay.outcomes.outcome import own_micro_usd
from trimtab.replay.outcomes.service_model import demand_of, floor_replicas
from trimtab.tables.workloads import WorkloadKind

DOMINATED = "all who could share such nodes share the same ones another way, for no more"
COSTS_MORE = "nodes with the same GPUs cost no more"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnneededPlaces:
    """What no plan of a fleet needs."""

    sites: frozenset[Site] = frozenset()
    """Shared nodes."""
    nodes: Mapping[Pool, Pool] = field(default_factory=dict)
    """Nodes on demand, with those that cost no more for the same GPUs."""

    def outdated(self, later: UnneededPlaces) -> frozenset[str]:
        """Return the reasons for which something was left out that may be needed by what is known later."""
        gone = {DOMINATED: self.sites - later.sites, COSTS_MORE: self.nodes.items() - later.nodes.items()}
        return frozenset(reason for reason, places_needed in gone.items() if places_needed)

    def reasons(self, ask: LeverRequest) -> Iterator[tuple[Deployment, str | None]]:
        """Yield each place on offer to a workload, with why no plan needs it; None where one may."""
        found = places(ask)
        alike = _alike(found, ask) if self.nodes else {}
        for place in found:
            if place.sharing is not None and place.sharing.shared.site in self.sites:
                yield place, DOMINATED
            else:
                yield place, COSTS_MORE if self._costs_more(place, alike, ask) else None

    def _costs_more(self, place: Deployment, alike: Mapping[_Alike, Sequence[Deployment]], ask: LeverRequest) -> bool:
        there = ask.evaluator.place(place)
        other = self.nodes.get(there.pool)
        if other is None:
            return False
        cheaper = alike.get(_as_alike(there, other), ())
        return any(_asks_no_more(twin, place, ask) for twin in cheaper) and not any(True for _ in bought(place, ask))


_Alike = tuple[Pool, Placement, SharedPool | None]
"""Nodes, a place on them as replays see it, and the slots it takes of them: the same wherever places differ in nodes alone."""


def _as_alike(there: Placement, pool: Pool) -> _Alike:
    # other formats' speeds count where a workload leaves its nodes, and are part of the speed
    seen = replace(there.as_replayed(), leaves=False)
    return pool, seen, None if there.shared is None else replace(there.shared.shared, pool=pool)


def _alike(found: Iterable[Deployment], ask: LeverRequest) -> Mapping[_Alike, Sequence[Deployment]]:
    by_place: dict[_Alike, list[Deployment]] = defaultdict(list)
    for place in found:
        there = ask.evaluator.place(place)
        by_place[_as_alike(there, there.pool)].append(place)
    return by_place


def _asks_no_more(twin: Deployment, place: Deployment, ask: LeverRequest) -> bool:
    """Return whether a place asks for no work and no payments besides nodes that another does not, at the same format."""
    case = ask.case

    def besides_micro_usd(way: Deployment) -> int:
        return own_micro_usd(case.workload, way, ask.market, case.settings, case.window.hours)

    efforts = [effort_of_deployment(case.workload, way, case.settings).keys() for way in (twin, place)]
    return (
        twin.precision == place.precision
        and efforts[0] <= efforts[1]
        and besides_micro_usd(twin) <= besides_micro_usd(place)
    )


def unneeded_by(
    asks: Sequence[LeverRequest],
    held: Iterable[Pool],
    owned: Iterable[Commitment] = (),
    vetoes: Mapping[str, Veto] | None = None,
) -> UnneededPlaces:
    """Return what no plan of these workloads needs, where a fleet holds nodes and owns commitments."""
    return UnneededPlaces(sites=dominated_sites(asks, vetoes or {}), nodes=more_expensive_nodes(asks, held, owned))


def more_expensive_nodes(
    asks: Sequence[LeverRequest], held: Iterable[Pool], owned: Iterable[Commitment]
) -> dict[Pool, Pool]:
    """Return nodes on demand that cost no less than others with the same GPUs, with those others."""
    if not asks or any(_may_be_hedged(ask) for ask in asks):
        return {}
    market, quotas = asks[0].market, quotas_of(asks[0].settings.limits.quotas)
    kept = {pool.nodes for pool in held}
    kept |= {pool.nodes for commitment in owned for pool in commitment.offer.rates_micro_usd_hr}
    alike: dict[tuple[str, str, str, int, str], list[Offering]] = defaultdict(list)
    sold = {offering.pool: offering for ask in asks for offering in offerings_for(ask.workload, market)}
    for pool, offering in sold.items():
        key = (pool.provider, pool.region, offering.gpu.name, offering.gpus_per_node, offering.cpu_arch)
        alike[key].append(offering)
    replaced: dict[Pool, Pool] = {}
    for offered in alike.values():
        free: list[Pool] = []
        for offering in sorted(offered, key=lambda offering: (offering.rate_micro_usd_hr, offering.pool)):
            pool = offering.pool
            cheaper = None if pool in kept else next((one for one in free if _costs_no_more(one, pool, market)), None)
            if cheaper is not None:
                replaced[pool] = cheaper
            elif not any(quota.holds_for(pool) for quota in quotas):
                free.append(pool)
    return replaced


def _may_be_hedged(ask: LeverRequest) -> bool:
    """Return whether a service may keep a floor on demand beside spot."""
    is_service = ask.workload.kind is WorkloadKind.SERVING
    return is_service and bool(ask.workload.spec.interruptible) and ask.settings.limits.use_spot


def _costs_no_more(one: Pool, other: Pool, market: Market) -> bool:
    """Return whether nodes cost no more than others however these are bought, spot aside."""
    mine, others = (
        {
            price.option: price.usd_hr
            for price in market.catalog.prices.options(pool.provider, pool.instance_type, pool.region, at=market.at)
            if price.option is not BuyingOption.SPOT
        }
        for pool in (one, other)
    )
    no_more = all(option in mine and mine[option] <= usd_hr for option, usd_hr in others.items())
    return no_more and market.rate(one) <= market.rate(other)


_NEVER_FEWER = frozenset({autoscaling.NAME, replica_count.NAME})
"""Levers that never hold fewer replicas than the fewest to plan with."""
_ROUNDING = 1e-9


@dataclass(slots=True, kw_only=True)
class _User:
    """What one workload could take of a site's nodes, in nodes."""

    least: float
    """A lower bound of what any of its ways takes in any hour; 0 where some way may hold fewer replicas than history had."""
    standing: float | None = None
    """What the smallest of its standing ways takes; None where it has none."""


_Users = dict[int, _User]
"""By workload."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Sites:
    """Who could use which site."""

    users: dict[Site, _Users] = field(default_factory=dict)

    def is_dominated(self, site: Site, other: Site) -> bool:
        """Return whether another site takes a site's place in any plan."""
        mine, others = self.users[site], self.users[other]
        if site.pool != other.pool or not mine.keys() <= others.keys():
            return False
        there = {name: others[name].standing for name in mine}
        if all(stands is not None and 0 < stands <= mine[name].least + _ROUNDING for name, stands in there.items()):
            return True
        everybody = [user.standing for user in others.values()]
        steady = all(user.least > 0 for users in (mine, others) for user in users.values())
        return steady and None not in everybody and sum(standing or 0.0 for standing in everybody) <= 1 + _ROUNDING


def dominated_sites(asks: Sequence[LeverRequest], vetoes: Mapping[str, Veto]) -> frozenset[Site]:
    """Return the sites that no plan of these workloads needs; standing ways are replayed.

    A way that a veto refuses does not stand. None is dominated where the share of spot is limited: fewer nodes on demand make
    it larger.
    """
    if any(ask.settings.limits.spot_max_frac < 1 for ask in asks):
        return frozenset()
    sites = _Sites()
    for number, ask in enumerate(asks):
        for site, user in _uses(ask, vetoes.get(ask.workload.name)):
            known = sites.users.setdefault(site, {}).setdefault(number, user)
            known.least = min(known.least, user.least)
            standing = [standing_frac for standing_frac in (known.standing, user.standing) if standing_frac is not None]
            known.standing = min(standing, default=None)
    dominated: set[Site] = set()
    # many shares and busy classes first: of sites that could replace each other the one with fewest neighbours is left
    for site in sorted(sites.users, reverse=True):
        if any(
            other != site and other not in dominated and sites.is_dominated(site, other)
            for other in sorted(sites.users)
        ):
            dominated.add(site)
    return frozenset(dominated)


def _uses(ask: LeverRequest, veto: Veto | None) -> Iterator[tuple[Site, _User]]:
    """Yield each place of a workload in slots that no hardware keeps apart; owners of others would have to admit them first."""
    if sharing.asked(ask) is Isolation.HARDWARE or ask.workload.kind is not WorkloadKind.SERVING:
        return
    replicas = demand_of(ask.case).most_replicas
    is_least = replicas <= floor_replicas(ask.case)
    for place in places(ask):
        slot = place.sharing
        if slot is None or slot.shared.is_isolated or ask.evaluator.hopeless(place) is not None:
            continue
        taken = replicas * slot.slots / slot.shared.slots_per_node
        steady = is_least and place.relocation is None and not _may_hold_fewer(place, ask)
        stands = steady and place.levers == {sharing.NAME} and _stands(place, ask, veto)
        yield slot.shared.site, _User(least=taken if steady else 0.0, standing=taken if stands else None)
    ask.evaluator.forget_replays()


def _may_hold_fewer(place: Deployment, ask: LeverRequest) -> bool:
    """Return whether some way at a place may hold fewer replicas than the fewest to plan with, at some hour."""
    levers = [
        lever
        for lever in serving(ask.workload.kind, CompositionStage.HOLD, CompositionStage.FORM)
        if lever.name not in _NEVER_FEWER
    ]
    return any(True for lever in levers for _ in lever.ways(place, ask))


def _stands(place: Deployment, ask: LeverRequest, veto: Veto | None) -> bool:
    """Return whether the replicas that history had keep the targets at a place, as slots beside others'."""
    if not ask.evaluator.keeps_targets(place):
        return False
    outcome = ask.evaluator.outcome(place)
    return bool(outcome.slots(ask.evaluator.place(place))) and (veto is None or not veto.refuses(place, outcome))
