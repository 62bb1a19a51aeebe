"""How many of a workload's pods may be gone at once, or be there twice: PodDisruptionBudgets and rollouts.

Shares of a budget are rounded up (kubernetes.io, Specifying a Disruption Budget, "Rounding logic"); of a rollout `maxSurge` is
rounded up and `maxUnavailable` down, and where both come to 0 one pod may be gone (Kubernetes 1.34,
pkg/controller/deployment/util/deployment_util.go, ResolveFenceposts). Rollouts do not keep to budgets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimtab.review.pools import object_at
from trimtab.sources.kubernetes.objects import Object, at, selects, text

Amount = int | str
"""A number of pods, or a share of them such as `25%`."""
_DEFAULT_SHARE = "25%"


def _scaled(amount: Amount, of: int, *, up: bool) -> int:
    """Return an amount of so many pods."""
    if isinstance(amount, int):
        return amount
    share = float(amount.removesuffix("%")) * of / 100
    return math.ceil(share - 1e-9) if up else math.floor(share + 1e-9)


def _amount(body: Object, key: str) -> Amount | None:
    found = at(body, key)
    if isinstance(found, int) and not isinstance(found, bool):
        return found
    if not isinstance(found, str) or not found.removesuffix("%").isdigit():
        return None
    return found if found.endswith("%") else int(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """A PodDisruptionBudget: what it selects, and how many pods must stay or may be gone."""

    name: str
    namespace: str
    file: str
    selector: Object
    least: Amount | None
    most_gone: Amount | None

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether it is for pods with these labels; an empty selector is for all of its namespace."""
        return namespace == self.namespace and selects(self.selector, labels)

    def allowed(self, pods: int) -> int:
        """Return how many of so many pods, all of them healthy, it lets go at once."""
        if self.most_gone is not None:
            return min(pods, _scaled(self.most_gone, pods, up=True))
        return max(0, pods - _scaled(0 if self.least is None else self.least, pods, up=True))


def budget_of(name: str, namespace: str, file: str, body: Object) -> DisruptionBudget:
    """Return a PodDisruptionBudget as what it is for and what it allows."""
    spec = object_at(body, "spec")
    return DisruptionBudget(
        name=name,
        namespace=namespace,
        file=file,
        selector=object_at(spec, "selector"),
        least=_amount(spec, "minAvailable"),
        most_gone=_amount(spec, "maxUnavailable"),
    )


def blocked_up_to(budgets: Sequence[DisruptionBudget], most: int) -> int:
    """Return up to how many pods, of `most` at most, none may be evicted; 0 where always one may.

    A pod of several budgets cannot be evicted at all (Kubernetes 1.34, pkg/registry/core/pod/storage/eviction.go).
    """
    if len(budgets) > 1:
        return most
    return max((pods for budget in budgets for pods in range(1, most + 1) if not budget.allowed(pods)), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """How new pods take the place of old ones."""

    surge: Amount
    unavailable: Amount

    def steps(self, pods: int) -> tuple[int, int]:
        """Return how many pods may be there beyond so many, and how many of them may be gone."""
        surge, gone = _scaled(self.surge, pods, up=True), _scaled(self.unavailable, pods, up=False)
        return (surge, gone) if surge or gone else (0, 1)


_BY_KIND: Mapping[str, Rollout] = {
    "StatefulSet": Rollout(surge=0, unavailable=1),
    "LeaderWorkerSet": Rollout(surge=0, unavailable=1),
    "Notebook": Rollout(surge=0, unavailable=1),
}
"""Kinds that replace one pod after the other (StatefulSet; sigs.k8s.io/lws v1, RollingUpdateConfiguration)."""
USUAL = Rollout(surge=_DEFAULT_SHARE, unavailable=_DEFAULT_SHARE)
"""A Deployment's own, and an Argo Rollout's."""


def rollout_of(kind: str, body: Object) -> Rollout | None:
    """Return how an object rolls out; None where it does not say."""
    strategy = object_at(body, "spec", "rolloutStrategy" if kind == "LeaderWorkerSet" else "strategy")
    if text(strategy, "type") == "Recreate":
        return Rollout(surge=0, unavailable="100%")
    rolling = object_at(
        strategy, {"LeaderWorkerSet": "rollingUpdateConfiguration", "Rollout": "canary"}.get(kind, "rollingUpdate")
    )
    surge, unavailable = _amount(rolling, "maxSurge"), _amount(rolling, "maxUnavailable")
    if surge is None and unavailable is None:
        return None
    usual = _BY_KIND.get(kind, USUAL)
    return Rollout(
        surge=usual.surge if surge is None else surge,
        unavailable=usual.unavailable if unavailable is None else unavailable,
    )


def usual_rollout(kind: str) -> Rollout:
    """Return how a kind rolls out that does not say."""
    return _BY_KIND.get(kind, USUAL)
