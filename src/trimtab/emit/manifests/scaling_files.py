"""The files of one service that scales: rules first, then one autoscaler, then its disruption budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.emit.manifests.emission import ManifestFile, Stage, Withheld
from trimtab.emit.manifests.facts import SCALABLE, Autoscaler, EmitFacts, WorkloadFacts
from trimtab.emit.manifests.keda import scaled_object
from trimtab.emit.manifests.kubernetes import horizontal_pod_autoscaler, pod_disruption_budget
from trimtab.emit.manifests.objects import dns_name, yaml_text
from trimtab.emit.manifests.prometheus import prometheus_rule
from trimtab.emit.plain import Plain
from trimtab.plan.model import Action
from trimtab.policies.forecast import ForecastPolicy
from trimtab.policies.scaling import NO_LIMIT, Metric


def scaling_files(
    action: Action, effect: SetReplicaPolicy, known: WorkloadFacts, facts: EmitFacts
) -> Iterator[ManifestFile | Withheld]:
    """Yield what enacts a replica policy, or why no autoscaler can."""
    reason = _refusal(effect, known, facts)
    if reason is not None:
        yield Withheld(action=action.id, subject=known.name, reason=reason)
        return
    yield object_file(
        action, known, "monitoring", "rules", Stage.MEASURE, prometheus_rule(action, effect, known, facts)
    )
    if facts.autoscaler is Autoscaler.KEDA:
        one = scaled_object(action, effect, known, facts)
        yield object_file(action, known, "scaling", "scaledobject", Stage.SCALE, one)
    else:
        one = horizontal_pod_autoscaler(action, effect, known, facts)
        yield object_file(action, known, "scaling", "hpa", Stage.SCALE, one)
    if known.service is not None and not known.service.server_is_known:
        reason = (
            f"its metrics are taken to be those of {known.service.signals.server}: name its server in --cluster if not"
        )
        yield Withheld(action=action.id, subject=known.name, reason=reason)
    if known.pod_labels:
        yield object_file(action, known, "scaling", "pdb", Stage.SCALE, pod_disruption_budget(action, known))
    else:
        yield Withheld(
            action=action.id,
            subject=known.name,
            reason="no disruption budget: give the labels of its pods (pod_labels in --cluster)",
        )


def _refusal(effect: SetReplicaPolicy, known: WorkloadFacts, facts: EmitFacts) -> str | None:
    policy = effect.hpa
    if known.owner_kind not in SCALABLE:
        return f"an autoscaler cannot scale a {known.owner_kind}: set its replicas by hand as demand goes"
    if policy.max_replicas >= NO_LIMIT:
        return "the policy has no ceiling: set max_replicas in workloads.yaml, then audit again"
    if policy.metric is Metric.SIGNAL and not isinstance(effect.policy, ForecastPolicy):
        return "the policy follows a recorded signal that nothing here records"
    if policy.min_replicas == 0 and facts.autoscaler is Autoscaler.HPA:
        return "an HPA does not scale to zero: emit with --autoscaler keda"
    return None


def object_file(
    action: Action, known: WorkloadFacts, folder: str, suffix: str, stage: Stage, *objects: Mapping[str, Plain]
) -> ManifestFile:
    """Return objects of a workload as one file, in a folder of its namespace."""
    return ManifestFile(
        path=f"{folder}/{dns_name(known.namespace)}/{dns_name(known.short_name)}.{suffix}.yaml",
        text=yaml_text(*objects, comment=f"trimtab {action.id}: {action.lever}, {known.name}"),
        kind=", ".join(str(one["kind"]) for one in objects),
        actions=(action.id,),
        stage=stage,
    )
