"""The files of one service that scales: rules first, then one autoscaler, then its disruption budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.emit.manifests.emission import ApplyStage, ManifestFile, Plain, Withheld, dns_name, yaml_text
from trimtab.emit.manifests.facts import SCALABLE, SERVING, Autoscaler, EmitFacts, WorkloadFacts, own_bounds
from trimtab.emit.manifests.keda import scaled_object
from trimtab.emit.manifests.kubernetes import horizontal_pod_autoscaler, pod_disruption_budget
from trimtab.emit.manifests.latency_guards import latency_guards
from trimtab.emit.manifests.prometheus import prometheus_rule
from trimtab.emit.manifests.workload_patch import autoscaled_component, patchable
from trimtab.fleet.model import Target
from trimtab.plan.model import Action
from trimtab.policies.forecast import ForecastPolicy
from trimtab.policies.scaling import NO_LIMIT, Metric
from trimtab.units import S_PER_HR

_MOST_STABILIZATION_S = S_PER_HR
_MOST_PERIOD_S = 1800
"""Of HPA behaviours (Kubernetes, pkg/apis/autoscaling/validation)."""
_AUTOSCALED = (
    "Only once its autoscaler is applied and `replicas` is out of the last applied manifest (APPLY.md): before, a plain\n"
    "`kubectl apply` of a manifest without `replicas` sets the workload to 1."
)


def scaling_files(
    action: Action, effect: SetReplicaPolicy, known: WorkloadFacts, facts: EmitFacts
) -> Iterator[ManifestFile | Withheld]:
    """Yield what enacts a replica policy, or why no autoscaler can."""
    reason = _refusal(effect, known, facts)
    if reason is not None:
        yield Withheld(action=action.id, subject=known.name, reason=reason)
        return
    yield object_file(
        action, known, "monitoring", "rules", ApplyStage.MEASURE, prometheus_rule(action, effect, known, facts)
    )
    if facts.autoscaler is Autoscaler.KEDA:
        scaler = scaled_object(action, effect, known, facts)
        yield object_file(action, known, "scaling", "scaledobject", ApplyStage.SCALE, scaler)
    else:
        scaler = horizontal_pod_autoscaler(action, effect, known, facts)
        yield object_file(action, known, "scaling", "hpa", ApplyStage.SCALE, scaler)
    if effect.wake is not None:
        reason = (
            f"what holds the first requests for {effect.wake.hold_s:.0f} s is yours: check that it counts them where "
            f"`{effect.wake.query.strip()}` reads them with no replica up, and that its time-outs allow a start"
        )
        yield Withheld(action=action.id, subject=known.name, reason=reason)
    if known.assumes:
        reason = f"its autoscaler relies on {known.assumes}: apply it once that is so: before, its replicas are too few"
        yield Withheld(action=action.id, subject=known.name, reason=reason)
    if known.service is not None and not known.service.server_is_known:
        reason = f"its metrics are assumed to be those of {known.service.signals.server}: name its server in --cluster if not"
        yield Withheld(action=action.id, subject=known.name, reason=reason)
    if known.service is not None and not facts.knows_scrape(known):
        reason = (
            f"its server is assumed to be scraped every {facts.scrape_interval_s} s: state scrape_interval_s in --cluster "
            "if not (an alert says so)"
        )
        yield Withheld(action=action.id, subject=known.name, reason=reason)
    if known.scalers:
        reason = f"{', '.join(known.scalers)} scales it today: delete that as you apply the new one (two would fight)"
        yield Withheld(action=action.id, subject=known.name, reason=reason)
    if patchable(known):
        yield ManifestFile(
            path=f"workloads/{dns_name(known.namespace)}/{dns_name(known.short_name)}.autoscaled/kustomization.yaml",
            text=yaml_text(autoscaled_component(known, [action]), comment=_AUTOSCALED),
            kind="Component",
            actions=(action.id,),
            stage=ApplyStage.SCALE,
        )
    if known.pod_labels:
        yield object_file(action, known, "scaling", "pdb", ApplyStage.SCALE, pod_disruption_budget(action, known))
    else:
        yield Withheld(
            action=action.id,
            subject=known.name,
            reason="no disruption budget: give the labels of its pods (pod_labels in --cluster)",
        )


def guarded_by(effect: SetReplicaPolicy, known: WorkloadFacts | None, facts: EmitFacts) -> tuple[Target, ...] | str:
    """Return the targets whose latency the autoscaler that enacts a policy watches besides demand; or why it watches none."""
    if known is None:
        return "nothing is known of its manifest"
    refused = _refusal(effect, known, facts)
    if refused is not None:
        return f"no autoscaler is emitted: {refused}"
    if known.service is None:
        return "its demand is GPU activity, and no request is measured"
    return (
        tuple(guard.target for guard in latency_guards(known))
        or "it has no latency target that its server exports a histogram for"
    )


def _refusal(effect: SetReplicaPolicy, known: WorkloadFacts, facts: EmitFacts) -> str | None:
    policy = effect.hpa
    if known.owner_kind in SERVING - SCALABLE:
        return own_bounds(known, policy.min_replicas, policy.max_replicas)
    if known.owner_kind not in SCALABLE:
        return f"an autoscaler cannot scale a {known.owner_kind}: set its replicas by hand as demand goes"
    if effect.tokens is not None and (known.service is None or not known.service.signals.counts_tokens):
        server = "its server" if known.service is None else known.service.signals.server
        return f"the policy counts tokens, and {server} exports no counters of them: name its server in --cluster"
    if policy.max_replicas >= NO_LIMIT:
        return "the policy has no ceiling: set max_replicas in workloads.yaml, then audit again"
    if policy.metric is Metric.SIGNAL and not isinstance(effect.policy, ForecastPolicy):
        return "the policy follows a recorded signal that nothing here records"
    if policy.min_replicas == 0 and effect.wake is None:
        return (
            "at 0 replicas nothing exports the demand that would wake it: declare wakes_on in workloads.yaml, a query of what "
            "stands before its replicas (a gateway that holds requests, a queue), or keep one"
        )
    if effect.goes_to_none and facts.autoscaler is Autoscaler.HPA:
        return (
            "a HorizontalPodAutoscaler keeps one replica unless the cluster has HPAScaleToZero (alpha before Kubernetes 1.37): "
            "say autoscaler: keda in --cluster"
        )
    if max(policy.up_stabilization_s, policy.down_stabilization_s) > _MOST_STABILIZATION_S:
        return f"Kubernetes takes stabilization windows up to {_MOST_STABILIZATION_S} s"
    if policy.period_s > _MOST_PERIOD_S:
        return f"Kubernetes takes periods of scaling policies up to {_MOST_PERIOD_S} s"
    return None


def object_file(
    action: Action, known: WorkloadFacts, folder: str, suffix: str, stage: ApplyStage, *objects: Mapping[str, Plain]
) -> ManifestFile:
    """Return objects of a workload as one file, in a folder of its namespace."""
    return ManifestFile(
        path=f"{folder}/{dns_name(known.namespace)}/{dns_name(known.short_name)}.{suffix}.yaml",
        text=yaml_text(*objects, comment=f"trimtab {action.id}: {action.lever}, {known.name}"),
        kind=", ".join(str(body["kind"]) for body in objects),
        actions=(action.id,),
        stage=stage,
    )
