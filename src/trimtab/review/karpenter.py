"""Karpenter's NodePool and NodeOverlay, read as what its controllers make of them (kubernetes-sigs/karpenter v1.9.1).

Requirements, limits, weight, consolidation, budgets and expiry: pkg/apis/v1/nodepool.go. Of several pools the scheduler takes
the first that fits, heavier ones first and of equal weight the one whose name comes later in the alphabet
(pkg/utils/nodepool/nodepool.go, OrderByWeight; scheduling/scheduler.go, addToNewNodeClaim), and never the cheaper one. A limit
is compared with what whole nodes have (scheduler.go, filterByRemainingResources). Prices of overlays decide which instance
type is started, and are not what is billed (pkg/apis/v1alpha1/nodeoverlay.go; pkg/cloudprovider/types.go, AdjustedPrice).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from trimtab.fleet.market import Offering
from trimtab.review.pools import (
    CAPACITY_TYPE_LABEL,
    GPU,
    INSTANCE_TYPE_LABELS,
    NODE_POOL_LABEL,
    Need,
    NodePool,
    Taint,
    fewer_on_demand,
    object_at,
    whole_number,
)
from trimtab.review.timetables import minutes_of_week, moments, never_comes, timetable
from trimtab.sources.kubernetes.objects import Object, at, listed, mapping, number, text
from trimtab.units import HR_PER_WEEK, S_PER_HR, S_PER_MIN

NODE_POOL = "node pool"
_AWS = "karpenter.k8s.aws/instance-"
_FAMILY, _CATEGORY, _GENERATION, _SIZE = (f"{_AWS}{part}" for part in ("family", "category", "generation", "size"))
_GPU_COUNT, _GPU_NAME, _GPU_MAKER = (f"{_AWS}gpu-{part}" for part in ("count", "name", "manufacturer"))
_OF_INSTANCES = frozenset(
    {*INSTANCE_TYPE_LABELS, _FAMILY, _CATEGORY, _GENERATION, _SIZE, _GPU_COUNT, _GPU_NAME, _GPU_MAKER}
)
"""Labels that tell instances apart and that the catalog knows."""
_OF_PROVIDERS = ("karpenter.k8s.aws/", "karpenter.azure.com/", "karpenter.k8s.gcp/")
_REGION = "topology.kubernetes.io/region"
_NODES = "nodes"
_NEVER = "Never"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
"""Annotation of a pod, or of nodes by their pool: nothing disrupts them by choice; they still expire."""
_EXPIRES_S = 720 * S_PER_HR
"""What `expireAfter` is where a pool does not say."""
_DURATION = re.compile(r"(\d+)(h|m|s)")
_DURATION_S = {"h": S_PER_HR, "m": S_PER_MIN, "s": 1}
_USUAL_BUDGET = "10%"
"""How many nodes may go at once where a budget does not say."""
_CHEAPER_SPOT_TYPES = 15
"""How many types must be cheaper than a spot node's for another spot node to take its place."""
_WHOLE_WEEK = frozenset(range(HR_PER_WEEK))
_READ_LIMITS = frozenset({GPU, _NODES})


def node_pool(name: str, file: str, body: Object) -> NodePool:
    """Return a NodePool object as a pool of nodes."""
    template = object_at(body, "spec", "template", "spec")
    needs = tuple(_needs(template))
    limits = {
        resource: whole_number(value, f"{file}: NodePool {name}, limit of {resource}")
        for resource, value in object_at(body, "spec", "limits").items()
        if str(resource).startswith("nvidia.com/") or resource == _NODES
    }
    disruption = object_at(body, "spec", "disruption")
    static = number(body, "spec", "replicas")
    after = text(disruption, "consolidateAfter")
    if text(body, "spec", "template", "metadata", "annotations", DO_NOT_DISRUPT) == "true":
        after = _NEVER
    # a node that is empty goes for either reason, whichever its budget allows (disruption/emptiness.go)
    held = _WHOLE_WEEK if after == _NEVER or static is not None else _blocked_hours(disruption, "Empty")
    moves = after != _NEVER and _blocked_hours(disruption, "Underutilized") != _WHOLE_WEEK
    return NodePool(
        name=name,
        file=file,
        requirements={need.key: need.values for need in needs if need.operator == "In"},
        labels=mapping(body, "spec", "template", "metadata", "labels"),
        taints=tuple(
            Taint(key=text(taint, "key"), value=text(taint, "value"), effect=text(taint, "effect"))
            for taint in listed(template, "taints")
        ),
        gpu_limit=limits.pop(GPU, None),
        node_limit=limits.pop(_NODES, None if static is None else int(static)),
        consolidates=text(disruption, "consolidationPolicy") != "WhenEmpty" and moves,
        elastic=held != _WHOLE_WEEK,
        least_nodes=int(static or 0),
        part_limits=limits,
        weight=int(number(body, "spec", "weight") or 0),
        needs=tuple(need for need in needs if need.key in _OF_INSTANCES),
        open_labels=frozenset(need.key for need in needs if need.operator != "In" and need.key not in _OF_INSTANCES),
        kept_s=duration_s(after),
        held_hours=held,
        expires_s=_EXPIRES_S if not text(template, "expireAfter") else duration_s(text(template, "expireAfter")),
        drains_s=duration_s(text(template, "terminationGracePeriod")),
    )


def _needs(template: Object) -> Iterator[Need]:
    for need in listed(template, "requirements"):
        values = at(need, "values")
        yield Need(
            key=text(need, "key"),
            operator=text(need, "operator"),
            values=tuple(str(value) for value in values) if isinstance(values, list) else (),
        )


def duration_s(spelling: str) -> float | None:
    """Return a duration in seconds; None where there is none, or it is `Never`.

    >>> duration_s("1h30m"), duration_s("90s"), duration_s("Never")
    (5400.0, 90.0, None)
    """
    parts = _DURATION.findall(spelling)
    return float(sum(int(count) * _DURATION_S[unit] for count, unit in parts)) if parts else None


def _blocked_hours(disruption: Object, reason: str) -> frozenset[int]:
    """Return the hours of the week in which the budgets allow no removal for a reason; those not on the hour are rounded up.

    Of several budgets that are active the least counts, and one without reasons is for all of them. A share is rounded up, so
    that only 0 allows none; a budget that cannot be read allows none for any reason, whatever its own are (nodepool.go,
    GetAllowedDisruptionsByReason and MustGetAllowedDisruptions).
    """
    blocked = frozenset[int]()
    for budget in listed(disruption, "budgets"):
        if budget_fault(budget):
            return _WHOLE_WEEK
        reasons = at(budget, "reasons")
        if isinstance(reasons, list) and reason not in reasons:
            continue
        if _lets_none_go(budget):
            blocked |= _active_hours(budget) or frozenset()
    return blocked


def _lets_none_go(budget: Object) -> bool:
    return bool(re.fullmatch(r"0+%?", text(budget, "nodes") or _USUAL_BUDGET))


def budget_fault(budget: Object) -> str:
    """Say why Karpenter cannot read a disruption budget; empty where it can."""
    nodes, schedule = text(budget, "nodes") or _USUAL_BUDGET, at(budget, "schedule")
    if not re.fullmatch(r"[0-9]+%?", nodes):
        return f"nodes: {nodes} is neither a whole number nor a percentage"
    if schedule is None:
        return "it has a duration and no schedule" if at(budget, "duration") is not None else ""
    return "" if never_comes(str(schedule)) else timetable(str(schedule)) or ""


def _active_hours(budget: Object) -> frozenset[int] | None:
    """Return the hours of the week in which a budget is active for a while; None where not every week is alike.

    It is active while the next time after that of its duration ago is not still to come (nodepool.go, IsActive). One without
    any such time has the zero time of Go, which is long past.
    """
    schedule = text(budget, "schedule")
    if not schedule or never_comes(schedule):
        return _WHOLE_WEEK
    starts, length_s = minutes_of_week(schedule), duration_s(text(budget, "duration")) or 0.0
    if starts is None:
        return None
    if length_s >= HR_PER_WEEK * S_PER_HR:
        return _WHOLE_WEEK
    hours: set[int] = set()
    for start_s in (minute * S_PER_MIN for minute in starts):
        hours |= set(range(start_s // S_PER_HR, math.ceil((start_s + length_s) / S_PER_HR)))
    return frozenset(hour % HR_PER_WEEK for hour in hours)


def _replaces_spot(spec: Object, name: str) -> Iterator[tuple[str, str]]:
    """Yield that a pool's spot nodes may be replaced by cheaper spot ones, where so many types may be that cheap.

    Karpenter does so for one node where at least 15 types are cheaper than its own, and only with its feature gate
    SpotToSpotConsolidation, which is off unless it is set (pkg/controllers/disruption/consolidation.go,
    computeSpotToSpotConsolidation; pkg/operator/options/options.go). Here a node stays what it was started as.
    """
    needs = {need.key: need for need in _needs(object_at(spec, "template", "spec"))}
    types = next(
        (needs[key].values for key in INSTANCE_TYPE_LABELS if key in needs and needs[key].operator == "In"), None
    )
    ways = needs.get(CAPACITY_TYPE_LABEL)
    # the type that a node has is one of them, and is not cheaper than itself
    many = types is None or len(types) > _CHEAPER_SPOT_TYPES
    moves = text(spec, "disruption", "consolidationPolicy") != "WhenEmpty"
    if many and moves and ways is not None and ways.operator == "In" and "spot" in ways.values:
        count = "any number of" if types is None else f"{len(types)}"
        yield (
            f"NodePool {name}: spot nodes replaced by cheaper spot nodes",
            f"not modelled: with the feature gate SpotToSpotConsolidation a node goes where {_CHEAPER_SPOT_TYPES} types are "
            f"cheaper, and this pool may start {count} types",
        )


def unread_parts(name: str, body: Object) -> Iterator[tuple[str, str]]:
    """Yield what of a NodePool is not read, and why."""
    spec, template = object_at(body, "spec"), object_at(body, "spec", "template", "spec")
    for need in _needs(template):
        what = f"NodePool {name}: {need.key} {need.operator}"
        if need.key.startswith(_OF_PROVIDERS) and need.key not in _OF_INSTANCES:
            yield what, "this label of instances is not modelled"
        elif need.operator != "In" and need.key not in _OF_INSTANCES:
            yield what, "only requirements with In are modelled"
    for stated in listed(template, "requirements"):
        if at(stated, "minValues") is not None:
            yield (
                f"NodePool {name}: minValues of {text(stated, 'key')}",
                "the cheapest type is taken, whatever else is asked",
            )
    for resource in object_at(spec, "limits"):
        if str(resource) not in _READ_LIMITS and not str(resource).startswith("nvidia.com/"):
            yield f"NodePool {name}: limit of {resource}", "only limits of GPUs and of nodes are modelled"
    if text(spec, "disruption", "consolidationPolicy") == "Balanced":
        yield f"NodePool {name}: consolidationPolicy Balanced", "taken as WhenEmptyOrUnderutilized, which moves more"
    yield from _replaces_spot(spec, name)
    for budget in listed(spec, "disruption", "budgets"):
        yield from _unread_of_budget(name, budget)


def _unread_of_budget(name: str, budget: Object) -> Iterator[tuple[str, str]]:
    """Yield what of a disruption budget is not replayed as it is."""
    nodes, schedule = text(budget, "nodes") or _USUAL_BUDGET, text(budget, "schedule")
    what = f"NodePool {name}: budget at {schedule}" if schedule else f"NodePool {name}: budget of {nodes}"
    if why := budget_fault(budget):
        yield what, f"{why}. Karpenter then removes no node of the pool by choice, and it is replayed so"
    elif not _lets_none_go(budget):
        if nodes != "100%":
            yield what, f"how many nodes go at once ({nodes}) is not modelled: each goes as soon as any may"
    elif (hours := _active_hours(budget)) is None:
        yield what, "only times that are the same in every week are read: taken as if it never were"
    elif hours != _WHOLE_WEEK and (moments(schedule) is None or (duration_s(text(budget, "duration")) or 0) % S_PER_HR):
        yield what, "replayed over the whole hours that it touches"


def by_weight(pools: Sequence[NodePool]) -> list[NodePool]:
    """Return pools in the order in which Karpenter tries them."""
    return sorted(pools, key=lambda pool: (pool.weight, pool.name), reverse=True)


def names_instances(pool: NodePool) -> bool:
    """Return whether a pool says which instances it starts."""
    return bool(pool.instance_types or pool.needs)


def admits(pool: NodePool, offering: Offering) -> bool:
    """Return whether a pool may start an instance type."""
    if pool.instance_types and offering.pool.instance_type not in pool.instance_types:
        return False
    known = _labels_of(offering)
    return all(need.holds(known[need.key]) for need in pool.needs if need.key in known)


def _labels_of(offering: Offering) -> dict[str, str]:
    """Return the labels of an instance type that requirements may name (karpenter.sh/docs/reference/instance-types)."""
    name = offering.pool.instance_type
    family, _, size = name.partition(".")
    letters = re.match(r"[a-z]+", family)
    generation = re.search(r"\d+", family)
    known = dict.fromkeys(INSTANCE_TYPE_LABELS, name)
    if offering.pool.provider != "aws":
        return known
    return known | {
        _FAMILY: family,
        _SIZE: size,
        _CATEGORY: letters[0][0] if letters else "",
        _GENERATION: generation[0] if generation else "0",
        _GPU_COUNT: str(offering.gpus_per_node),
        _GPU_NAME: re.split(r"[ -]", offering.gpu.name)[0].lower(),
        _GPU_MAKER: "nvidia",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceOverlay:
    """What Karpenter takes for the price of some instances when it chooses between them."""

    name: str
    file: str
    weight: int
    needs: Mapping[str, tuple[str, ...]]
    change: str
    """A price, or a change of one: `12.5`, `+10%`, `-0.5`."""


def price_overlay(name: str, file: str, body: Object) -> PriceOverlay | None:
    """Return a NodeOverlay's price; None where it states none."""
    change = text(body, "spec", "price") or text(body, "spec", "priceAdjustment")
    if not change:
        return None
    needs = {need.key: need.values for need in _needs(object_at(body, "spec")) if need.operator == "In"}
    return PriceOverlay(
        name=name, file=file, weight=int(number(body, "spec", "weight") or 0), needs=needs, change=change
    )


def unread_overlay_parts(name: str, body: Object) -> Iterator[tuple[str, str]]:
    """Yield what of a NodeOverlay is not read, and why."""
    for need in _needs(object_at(body, "spec")):
        if need.operator != "In":
            yield f"NodeOverlay {name}: {need.key} {need.operator}", "only requirements with In are modelled"


def adjusted_price(price: float, change: str) -> float:
    """Return a price under an overlay's change, in the same unit.

    >>> adjusted_price(10.0, "-10%"), adjusted_price(10.0, "+5"), adjusted_price(10.0, "80.0"), adjusted_price(10.0, "-15")
    (9.0, 15.0, 80.0, 0.0)
    """
    if not change.startswith(("+", "-")):
        return float(change)
    by = float(change.removesuffix("%"))
    return max(0.0, price * (1 + by / 100) if change.endswith("%") else price + by)


def shown_price(
    price_usd_hr: float, offering: Offering, capacity_type: str, pool: NodePool, overlays: Sequence[PriceOverlay]
) -> float:
    """Return what Karpenter takes a node to cost ($/h): under the heaviest overlay that is for it, else its price."""
    has = {
        **{label: (value,) for label, value in pool.labels.items()},
        **dict.fromkeys(INSTANCE_TYPE_LABELS, (offering.pool.instance_type,)),
        CAPACITY_TYPE_LABEL: (capacity_type,),
        NODE_POOL_LABEL: (pool.name,),
        _REGION: (offering.pool.region,),
    }
    for overlay in sorted(overlays, key=lambda overlay: (overlay.weight, overlay.name), reverse=True):
        if all(set(values) & set(has.get(key, ())) for key, values in overlay.needs.items()):
            return adjusted_price(price_usd_hr, overlay.change)
    return price_usd_hr


def joined(pools: Sequence[NodePool], spread: Sequence[str]) -> NodePool | None:
    """Return several NodePools as the one that they amount to for a pod that may run on each; None where they do not.

    The first in order takes every pod while it has room; one that is spot alone leaves to those behind it what spot does not
    give. Pods that must be spread evenly over the values of a label keep on demand what pools without spot take of them
    (karpenter.sh/docs/concepts/scheduling, "On-Demand/Spot Ratio Split").
    """
    order = by_weight(pools)
    first = order[0]
    alike = all((pool.instance_types, pool.needs) == (first.instance_types, first.needs) for pool in order)
    on_spot, without = ([pool for pool in order if ("spot" in pool.capacity_types) is spot] for spot in (True, False))
    fewer = fewer_on_demand(on_spot, without) if len({pool.instance_types for pool in on_spot}) == 1 else None
    floor = next((share for key in spread if (share := on_demand_share(order, key))), 0)
    if floor and (alike or fewer):
        limits = [pool.gpu_limit for pool in order]
        limit = None if None in limits else sum(limit or 0 for limit in limits)
        return replace(_of_all(order, one_in=floor, gpu_limit=limit), on_demand_types=fewer or ())
    if not is_limited(first) and not any(shares_over(order, key) for key in spread):
        behind = [pool for pool in order[1:] if "spot" not in pool.capacity_types]
        return _of_all([first, *behind[:1]], one_in=0, gpu_limit=None) if first.capacity_types == ("spot",) else first
    return None


def _of_all(order: Sequence[NodePool], *, one_in: int, gpu_limit: int | None) -> NodePool:
    ways = {way for pool in order for way in pool.capacity_types}
    spot_first = max(order, key=lambda pool: "spot" in pool.capacity_types)
    return replace(
        spot_first,
        name=", ".join(pool.name for pool in order),
        held_as=tuple(way for way in ("reserved", "spot", "on-demand") if way in ways),
        taints=tuple(dict.fromkeys(taint for pool in order for taint in pool.taints)),
        gpu_limit=gpu_limit,
        elastic=all(pool.elastic for pool in order),
        consolidates=all(pool.consolidates for pool in order),
        held_hours=frozenset().union(*(pool.held_hours for pool in order)),
        one_in=one_in,
    )


def most_gpus(pool: NodePool, gpus_per_node: int) -> int | None:
    """Return the most GPUs that a pool of whole nodes may hold; None where no limit says.

    Karpenter starts no node of which all GPUs together would exceed the limit, needed or not (kubernetes-sigs/karpenter v1.9.1,
    scheduling/scheduler.go, filterByRemainingResources).
    """
    rooms = [] if pool.node_limit is None else [pool.node_limit]
    if pool.gpu_limit is not None:
        rooms.append(pool.gpu_limit // gpus_per_node)
    return min(rooms) * gpus_per_node if rooms else None


def is_limited(pool: NodePool) -> bool:
    """Return whether a pool may run out of room."""
    return pool.gpu_limit is not None or pool.node_limit is not None or bool(pool.part_limits)


def on_demand_share(pools: Sequence[NodePool], key: str) -> int:
    """Return how many values a label has for each one that only pools without spot give; 0 where that splits nothing."""
    values = {value for pool in pools for value in pool.gives(key)}
    spot = {value for pool in pools if "spot" in pool.capacity_types for value in pool.gives(key)}
    if not all(pool.gives(key) for pool in pools) or not spot or spot == values:
        return 0
    return round(len(values) / len(values - spot))


def shares_over(pools: Sequence[NodePool], key: str) -> tuple[float, ...]:
    """Return which share of evenly spread pods each pool takes, by the values that it gives a label; empty where all are alike.

    A value that several pools give goes to the first of them.
    """
    values = list(dict.fromkeys(value for pool in pools for value in pool.gives(key)))
    if not all(pool.gives(key) for pool in pools) or len(values) < 2:
        return ()
    taken = [next(place for place, pool in enumerate(pools) if value in pool.gives(key)) for value in values]
    return tuple(taken.count(place) / len(values) for place in range(len(pools)))
