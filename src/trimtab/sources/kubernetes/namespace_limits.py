"""What a namespace lets pods ask for: its ResourceQuotas, together, and its LimitRanges, each pod and container.

Sources: kubernetes.io, "Resource Quotas" and "Limit Ranges"; kubernetes pkg/apis/core/validation/validation.go
(validateResourceQuotaScopes), pkg/apis/core/v1/defaults.go (SetDefaults_LimitRangeItem).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from trimtab.sources.kubernetes.objects import Object, Objects, at, listed, quantity, text, texts
from trimtab.tables.arrow import Row
from trimtab.tables.schemas import DEVICES_OF_CLASS, UNKNOWN_SCOPES
from trimtab.units import BYTES_PER_GIB

_MEMORY = frozenset({"memory", "requests.memory", "limits.memory"})
_COUNTED = frozenset({"pods", "count/pods", "cpu", "requests.cpu", "limits.cpu"})
_OF_EXTENDED = "requests."
_NEVER_SCOPED = frozenset(
    {
        "configmaps", "ephemeral-storage", "limits.ephemeral-storage", "persistentvolumeclaims", "replicationcontrollers",
        "requests.ephemeral-storage", "requests.storage", "resourcequotas", "secrets", "services", "services.loadbalancers",
        "services.nodeports",
    }
)  # fmt: skip
"""Resources that an API server lets no quota with a scope limit: one that limits any of them counts all pods."""


def quota_rows(objects: Objects) -> list[Row]:
    """Return the rows of `resource_quotas`: what namespaces are limited to of GPUs, pods, CPU and memory.

    A quota holds as its status says, which is what admission counts by, or as its spec does until there is one.
    """
    rows: list[Row] = []
    for quota in objects.of("ResourceQuota"):
        hard = at(quota, "status", "hard") or at(quota, "spec", "hard")
        used = at(quota, "status", "used")
        for name, stated in sorted(hard.items()) if isinstance(hard, Mapping) else ():
            told = quota_row(
                text(quota, "metadata", "namespace"),
                text(quota, "metadata", "name"),
                str(name),
                hard=quantity(stated),
                used=quantity(used.get(name)) if isinstance(used, Mapping) else None,
            )
            rows += [] if told is None else [told | {"scopes": _scopes(quota)}]
    return rows


def quota_row(namespace: str, name: str, resource: str, *, hard: float | None, used: float | None) -> Row | None:
    """Return a row of `resource_quotas` without its scopes; None for what no plan asks for, or where no limit is reported.

    Of extended resources a quota counts requests alone (kubernetes.io, "Resource Quotas"); GPUs may have any name.
    """
    extended = resource.removeprefix(_OF_EXTENDED)
    counted = resource in _COUNTED | _MEMORY or resource.endswith(DEVICES_OF_CLASS)
    if hard is None or not (counted or (extended != resource and "/" in extended)):
        return None
    unit = BYTES_PER_GIB if resource in _MEMORY else 1
    return {
        "namespace": namespace,
        "name": name,
        "resource": resource,
        "hard": hard / unit,
        "used": None if used is None else used / unit,
    }


def scopes_by_resources(resources: Collection[str]) -> str | None:
    """Return the scopes of a quota of which only its resources are known: none where those allow none, else unknown."""
    return None if _NEVER_SCOPED.intersection(resources) else UNKNOWN_SCOPES


def _scopes(quota: Object) -> str | None:
    """Return the scopes of a quota in words: a pod counts where all of them hold."""
    plain = texts(quota, "spec", "scopes")
    selected = [
        f"{text(need, 'scopeName')} {text(need, 'operator')} {','.join(texts(need, 'values'))}".strip()
        for need in listed(quota, "spec", "scopeSelector", "matchExpressions")
    ]
    return "; ".join([*plain, *selected]) or None


# LimitRanges

BOUNDS = {
    "min": "min",
    "max": "max",
    "default": "default_limit",
    "defaultRequest": "default_request",
    "maxLimitRequestRatio": "max_ratio",
}
"""A LimitRange's constraints, and their columns of `limit_ranges`."""
_JUDGED_TYPES = frozenset({"Container", "Pod"})
"""The others limit volumes."""


def limit_range_rows(objects: Objects) -> list[Row]:
    """Return the rows of `limit_ranges`: a row for each item of a LimitRange and each resource that it bounds."""
    rows: list[Row] = []
    for limits in objects.of("LimitRange"):
        for place, item in enumerate(listed(limits, "spec", "limits")):
            stated = {name: at(item, name) for name in BOUNDS}
            amounts = {name: found for name, found in stated.items() if isinstance(found, Mapping)}
            for resource in sorted({str(resource) for found in amounts.values() for resource in found}):
                told = limit_range_row(
                    text(limits, "metadata", "namespace"),
                    text(limits, "metadata", "name"),
                    text(item, "type"),
                    resource,
                    {name: quantity(found.get(resource)) for name, found in amounts.items()},
                )
                rows += [] if told is None else [told | {"place": place}]
    return rows


def limit_range_row(
    namespace: str, name: str, of_type: str, resource: str, bounds: Mapping[str, float | None]
) -> Row | None:
    """Return a row of `limit_ranges` without its place; None for what no plan asks for. `bounds` are in base units.

    A container's defaults are completed as an API server completes them, so that a manifest says what a cluster would.
    """
    if of_type not in _JUDGED_TYPES or not (resource in ("cpu", "memory") or "/" in resource):
        return None
    unit = BYTES_PER_GIB if resource == "memory" else 1
    told = {column: bounds.get(bound) for bound, column in BOUNDS.items()}
    amounts = {
        column: amount if amount is None or column == "max_ratio" else amount / unit for column, amount in told.items()
    }
    if of_type == "Container":
        amounts["default_limit"] = _first(amounts["default_limit"], amounts["max"])
        amounts["default_request"] = _first(amounts["default_request"], amounts["default_limit"], amounts["min"])
    return {"namespace": namespace, "name": name, "place": None, "type": of_type, "resource": resource, **amounts}


def _first(*amounts: float | None) -> float | None:
    return next((amount for amount in amounts if amount is not None), None)
