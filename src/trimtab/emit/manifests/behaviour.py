"""The behaviours of a replayed HPA as Kubernetes spells them (autoscaling/v2 HPAScalingRules)."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.emit.manifests.emission import Plain
from trimtab.policies.scaling import HpaPolicy

DEFAULT_TOLERANCE_FRAC = 0.1
"""Of the controller (--horizontal-pod-autoscaler-tolerance); other values need the field, which Kubernetes has from 1.33."""


def behaviour(policy: HpaPolicy, *, add_only: bool) -> dict[str, Plain]:
    """Return both directions: at most the larger of a share and a number of pods per period, after stabilization.

    `add_only` switches scale-down off: the canary of an autoscaler.
    """
    if add_only:
        policy = policy._replace(down_frac=0.0, down_pods=0)
    return {
        "scaleUp": _direction(
            policy.up_frac, policy.up_pods, policy.period_s, policy.up_stabilization_s, policy.tolerance_up_frac
        ),
        "scaleDown": _direction(
            policy.down_frac, policy.down_pods, policy.period_s, policy.down_stabilization_s, policy.tolerance_down_frac
        ),
    }


def _direction(
    frac: float, pods: int, period_s: int, stabilization_s: int, tolerance_frac: float
) -> Mapping[str, Plain]:
    limits: list[Plain] = [
        {"type": kind, "value": value, "periodSeconds": period_s}
        for kind, value in (("Percent", round(frac * 100)), ("Pods", pods))
        if value > 0
    ]
    rules: dict[str, Plain] = {"stabilizationWindowSeconds": stabilization_s}
    if not limits:
        return {**rules, "selectPolicy": "Disabled"}
    if tolerance_frac != DEFAULT_TOLERANCE_FRAC:
        rules["tolerance"] = f"{tolerance_frac:g}"
    return {**rules, "selectPolicy": "Max", "policies": limits}
