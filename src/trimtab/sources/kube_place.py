"""What stands in a cluster beside nodes and pods: autoscalers, node pools, images on GPU nodes, volumes.

Shapes: autoscaling/v2 (and the target of v1), keda.sh/v1alpha1, karpenter.sh/v1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trimtab.sources.kube_objects import Object, Objects, at, listed, mapping, number, text
from trimtab.sources.kube_quantity import quantity
from trimtab.sources.kube_requests import is_gpu_resource, joined
from trimtab.units import BYTES_PER_GIB

Row = dict[str, object]


def scaler_rows(objects: Objects) -> list[Row]:
    """Return the rows of `scalers`: HPAs, ScaledObjects and Karpenter NodePools that are in place."""
    return [
        *(_hpa(one) for one in objects.of("HorizontalPodAutoscaler")),
        *(_scaled_object(one) for one in objects.of("ScaledObject")),
        *(_node_pool(one) for one in objects.of("NodePool")),
    ]


def _hpa(one: Object) -> Row:
    least = number(one, "spec", "minReplicas")
    triggers = [_metric_words(metric) for metric in listed(one, "spec", "metrics")]
    cpu_percent = number(one, "spec", "targetCPUUtilizationPercentage")
    if cpu_percent is not None:
        triggers.append(f"cpu {cpu_percent:g} %")
    return _scaler(one, "scaleTargetRef") | {
        "kind": "HorizontalPodAutoscaler",
        "min_replicas": 1.0 if least is None else least,
        "max_replicas": number(one, "spec", "maxReplicas"),
        "current_replicas": number(one, "status", "currentReplicas"),
        "triggers": "; ".join(triggers) or None,
    }


def _scaled_object(one: Object) -> Row:
    least, most = number(one, "spec", "minReplicaCount"), number(one, "spec", "maxReplicaCount")
    triggers = [_trigger_words(trigger) for trigger in listed(one, "spec", "triggers")]
    return _scaler(one, "scaleTargetRef") | {
        "kind": "ScaledObject",
        "min_replicas": 0.0 if least is None else least,
        "max_replicas": 100.0 if most is None else most,
        "triggers": "; ".join(triggers) or None,
    }


def _scaler(one: Object, target: str) -> Row:
    namespace, name = text(one, "metadata", "namespace"), text(one, "spec", target, "name")
    return {
        "namespace": namespace or None,
        "name": text(one, "metadata", "name"),
        "target": f"{namespace}/{name}" if name else None,
    }


def _metric_words(metric: Object) -> str:
    """Return a metric of an HPA in words, such as `cpu 70 %` or `Pods vllm_queue 5`."""
    kind = text(metric, "type")
    body = at(metric, kind[:1].lower() + kind[1:])
    name = text(body, "name") or text(body, "metric", "name")
    share = number(body, "target", "averageUtilization")
    amount = at(body, "target", "averageValue") or at(body, "target", "value")
    wanted = f"{share:g} %" if share is not None else str(amount or "?")
    return f"{name} {wanted}" if kind in ("Resource", "ContainerResource") else f"{kind} {name} {wanted}"


def _trigger_words(trigger: Object) -> str:
    stated = mapping(trigger, "metadata")
    what = stated.get("query") or stated.get("metricName") or stated.get("queueName") or ""
    limit = stated.get("threshold") or stated.get("value") or stated.get("targetValue") or ""
    return " ".join(part for part in (text(trigger, "type"), what, limit) if part)


def _node_pool(one: Object) -> Row:
    disruption = at(one, "spec", "disruption")
    limits = at(one, "spec", "limits")
    said = (text(disruption, "consolidationPolicy"), text(disruption, "consolidateAfter"))
    needs = [
        f"{text(need, 'key')} {text(need, 'operator')} {','.join(_texts(at(need, 'values')))}".strip()
        for need in listed(one, "spec", "template", "spec", "requirements")
    ]
    return {
        "kind": "NodePool",
        "namespace": None,
        "name": text(one, "metadata", "name"),
        "target": None,
        "current_replicas": number(one, "status", "nodes"),
        "triggers": "; ".join(needs) or None,
        "limits": {str(key): str(value) for key, value in limits.items()} if isinstance(limits, Mapping) else {},
        "consolidation": " after ".join(part for part in said if part) or None,
    }


def _texts(values: object) -> list[str]:
    return [value for value in values if isinstance(value, str) and value] if isinstance(values, list) else []


def image_rows(objects: Objects) -> list[Row]:
    """Return the images that GPU nodes hold, with their sizes (a kubelet tells the fifty largest, unless set otherwise)."""
    rows: list[Row] = []
    for node in objects.of("Node"):
        capacity = at(node, "status", "capacity")
        if not isinstance(capacity, Mapping) or not any(is_gpu_resource(str(name)) for name in capacity):
            continue
        name = text(node, "metadata", "name")
        sizes = dict(_images(node))
        rows += [{"node": name, "image": image, "size_gib": size_gib} for image, size_gib in sizes.items()]
    return rows


def _images(node: Object) -> Iterator[tuple[str, float | None]]:
    for image in listed(node, "status", "images"):
        names = _texts(image.get("names"))
        named = next((name for name in names if "@sha256:" not in name), names[0] if names else "")
        size_bytes = number(image, "sizeBytes")
        if named:
            yield named, None if size_bytes is None else size_bytes / BYTES_PER_GIB


def volume_rows(objects: Objects, workloads: Mapping[tuple[str, str], str]) -> list[Row]:
    """Return the claims to volumes; `workloads` gives the workload of a pod by (namespace, pod)."""
    mounted: dict[tuple[str, str], list[str]] = {}
    for pod in objects.of("Pod"):
        key = (text(pod, "metadata", "namespace"), text(pod, "metadata", "name"))
        for volume in listed(pod, "spec", "volumes"):
            claim = text(volume, "persistentVolumeClaim", "claimName")
            if claim and key in workloads:
                mounted.setdefault((key[0], claim), []).append(workloads[key])
    return [_claim(one, mounted) for one in objects.of("PersistentVolumeClaim")]


def _claim(one: Object, mounted: Mapping[tuple[str, str], list[str]]) -> Row:
    namespace, name = text(one, "metadata", "namespace"), text(one, "metadata", "name")
    asked, has = (
        quantity(at(one, *path, "storage")) for path in (("spec", "resources", "requests"), ("status", "capacity"))
    )
    return {
        "namespace": namespace,
        "name": name,
        "workload": joined(mounted.get((namespace, name), ())),
        "storage_class": text(one, "spec", "storageClassName") or None,
        "requested_gib": None if asked is None else asked / BYTES_PER_GIB,
        "capacity_gib": None if has is None else has / BYTES_PER_GIB,
        "access_modes": joined(_texts(at(one, "spec", "accessModes"))),
        "phase": text(one, "status", "phase") or "Unknown",
    }
