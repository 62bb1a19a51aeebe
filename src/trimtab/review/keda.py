"""What a ScaledObject says beyond the autoscaler that it makes: what it does without its metrics, pauses, what is not read.

Sources: kedacore/keda v2.20.2, pkg/fallback/fallback.go (doFallback), apis/keda/v1alpha1/scaledobject_types.go (annotations,
scalingModifiers), controllers/keda/hpa.go (pauses of one direction), pkg/scalers/prometheus_scaler.go (`ignoreNullValues`: an
empty answer is 0 unless it is false, and no fault that a fallback would answer).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trimtab.review.manifests import Scaler
from trimtab.sources.kubernetes.objects import at, listed, number, text

_AT = "autoscaling.keda.sh/"
PAUSED, PAUSED_REPLICAS = f"{_AT}paused", f"{_AT}paused-replicas"
PAUSED_IN, PAUSED_OUT = f"{_AT}paused-scale-in", f"{_AT}paused-scale-out"
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
"""What Go's strconv.ParseBool takes for false; KEDA takes what is no such word for true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """How many replicas are held once more than `failures` polls in a row got no metric."""

    failures: int
    replicas: int
    behavior: str

    def held(self, current: int) -> int:
        """Return the replicas that a fallback asks for beside so many that there are."""
        match self.behavior:
            case "currentReplicas":
                return current
            case "currentReplicasIfHigher":
                return max(current, self.replicas)
            case "currentReplicasIfLower":
                return min(current, self.replicas)
            case _:
                return self.replicas


def fallback_of(scaler: Scaler) -> Fallback | None:
    """Return the fallback of a ScaledObject; None where it has none, and for a HorizontalPodAutoscaler."""
    body = at(scaler.spec, "fallback")
    failures, replicas = number(body, "failureThreshold"), number(body, "replicas")
    if scaler.kind != "ScaledObject" or failures is None or replicas is None:
        return None
    return Fallback(failures=int(failures), replicas=int(replicas), behavior=text(body, "behavior") or "static")


def reads_absence_as_zero(scaler: Scaler) -> tuple[str, ...]:
    """Return the names of Prometheus triggers to which an empty answer is 0, and no fault."""
    return tuple(
        text(trigger, "name") or "prometheus"
        for trigger in listed(scaler.spec, "triggers")
        if text(trigger, "type") == "prometheus"
        and (text(trigger, "metadata", "ignoreNullValues") or "true") not in _FALSE
    )


def is_on(scaler: Scaler, annotation: str) -> bool:
    """Tell whether an annotation is there and says no word for false."""
    said = scaler.annotations.get(annotation)
    return said is not None and said not in _FALSE


def paused_at(scaler: Scaler) -> int | None:
    """Return the replicas at which a ScaledObject is paused; None where it is not, or at those that there are."""
    said = scaler.annotations.get(PAUSED_REPLICAS, "")
    return int(said) if said.isdigit() else None


def not_modelled(scaler: Scaler) -> str:
    """Say which part of an autoscaler decides how many replicas there are and is not modelled; empty where none does."""
    if at(scaler.spec, "advanced", "scalingModifiers", "formula"):
        return "a formula over its triggers (scalingModifiers) decides, which is not modelled"
    return ""


def read_roughly(scaler: Scaler) -> Iterator[str]:
    """Yield what of a ScaledObject is passed over."""
    if scaler.kind != "ScaledObject":
        return
    if number(scaler.spec, "idleReplicaCount") is not None:
        yield "idleReplicaCount is passed over: in truth it holds fewer replicas while no trigger is active"
    if number(scaler.spec, "initialCooldownPeriod"):
        yield "initialCooldownPeriod is passed over: it matters only after the object is made"
    for trigger in listed(scaler.spec, "triggers"):
        level = text(trigger, "metadata", "activationThreshold")
        if level not in ("", "0") and not number(scaler.spec, "minReplicaCount"):
            yield f"activationThreshold {level} is passed over: any request wakes it in the replay"
