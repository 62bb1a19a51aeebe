"""What is in a cluster beside nodes and pods: autoscalers, node pools, images on GPU nodes, volumes, queues.

Shapes: autoscaling/v2 (and the target of v1), keda.sh/v1alpha1, karpenter.sh/v1; kueue.x-k8s.io v1beta1 and v1beta2
(ClusterQueue, LocalQueue, ResourceFlavor, Workload), scheduling.volcano.sh v1beta1 (Queue, PodGroup).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trimtab.errors import InputError
from trimtab.inputs.documents import load_yaml_documents
from trimtab.sources.kubernetes.objects import (
    MANAGER_CONFIG,
    Object,
    Objects,
    at,
    condition,
    listed,
    mapping,
    moment_at,
    number,
    quantity,
    selects,
    text,
    texts,
)
from trimtab.sources.kubernetes.owners import controller_of, name_of_family, owners_of
from trimtab.sources.kubernetes.pods import asked_by, is_gpu_resource, joined, queue_of
from trimtab.sources.kubernetes.resource_claims import ResourceClaims
from trimtab.tables.arrow import Row
from trimtab.units import BYTES_PER_GIB


def scaler_rows(objects: Objects) -> list[Row]:
    """Return the rows of `scalers`: HPAs, ScaledObjects and Karpenter NodePools that are in place."""
    return [
        *(_hpa(autoscaler) for autoscaler in objects.of("HorizontalPodAutoscaler")),
        *(_scaled_object(scaler) for scaler in objects.of("ScaledObject")),
        *(_node_pool(pool) for pool in objects.of("NodePool")),
    ]


def budget_rows(objects: Objects, workloads: Mapping[tuple[str, str], str]) -> list[Row]:
    """Return the rows of `disruption_budgets`; `workloads` maps (namespace, pod) to the pod's workload."""
    pods = [
        (key, mapping(pod, "metadata", "labels"))
        for pod in objects.of("Pod")
        if (key := (text(pod, "metadata", "namespace"), text(pod, "metadata", "name"))) in workloads
    ]
    rows: list[Row] = []
    for budget in objects.of("PodDisruptionBudget"):
        namespace, selector = text(budget, "metadata", "namespace"), at(budget, "spec", "selector")
        selected = {workloads[key] for key, labels in pods if key[0] == namespace and selects(selector, labels)}
        told = {
            "namespace": namespace,
            "name": text(budget, "metadata", "name"),
            "allowed": number(budget, "status", "disruptionsAllowed"),
            "healthy": number(budget, "status", "currentHealthy"),
            "expected": number(budget, "status", "expectedPods"),
        }
        of: list[str | None] = [*sorted(selected)] or [None]
        rows += [{**told, "workload": workload} for workload in of]
    return rows


def _hpa(autoscaler: Object) -> Row:
    least = number(autoscaler, "spec", "minReplicas")
    triggers = [_metric_words(metric) for metric in listed(autoscaler, "spec", "metrics")]
    cpu_percent = number(autoscaler, "spec", "targetCPUUtilizationPercentage")
    if cpu_percent is not None:
        triggers.append(f"cpu {cpu_percent:g} %")
    return _scaler(autoscaler) | {
        "kind": "HorizontalPodAutoscaler",
        "min_replicas": 1.0 if least is None else least,
        "max_replicas": number(autoscaler, "spec", "maxReplicas"),
        "current_replicas": number(autoscaler, "status", "currentReplicas"),
        "triggers": "; ".join(triggers) or None,
    }


def _scaled_object(scaler: Object) -> Row:
    least, most = number(scaler, "spec", "minReplicaCount"), number(scaler, "spec", "maxReplicaCount")
    triggers = [_trigger_words(trigger) for trigger in listed(scaler, "spec", "triggers")]
    return _scaler(scaler) | {
        "kind": "ScaledObject",
        "min_replicas": 0.0 if least is None else least,
        "max_replicas": 100.0 if most is None else most,
        "triggers": "; ".join(triggers) or None,
    }


def _scaler(scaler: Object) -> Row:
    namespace, name = text(scaler, "metadata", "namespace"), text(scaler, "spec", "scaleTargetRef", "name")
    return {
        "namespace": namespace or None,
        "name": text(scaler, "metadata", "name"),
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


def _node_pool(pool: Object) -> Row:
    disruption = at(pool, "spec", "disruption")
    limits = at(pool, "spec", "limits")
    said = (text(disruption, "consolidationPolicy"), text(disruption, "consolidateAfter"))
    needs = [
        f"{text(need, 'key')} {text(need, 'operator')} {','.join(texts(need, 'values'))}".strip()
        for need in listed(pool, "spec", "template", "spec", "requirements")
    ]
    return {
        "kind": "NodePool",
        "namespace": None,
        "name": text(pool, "metadata", "name"),
        "target": None,
        "current_replicas": number(pool, "status", "nodes"),
        "triggers": "; ".join(needs) or None,
        "limits": {str(key): str(value) for key, value in limits.items()} if isinstance(limits, Mapping) else {},
        "consolidation": " after ".join(part for part in said if part) or None,
    }


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
        names = texts(image, "names")
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
            if at(volume, "ephemeral"):  # its claim is made with the pod (Kubernetes, "Ephemeral Volumes")
                claim = f"{key[1]}-{text(volume, 'name')}"
            if claim and key in workloads:
                mounted.setdefault((key[0], claim), []).append(workloads[key])
    return [_claim(volume, mounted) for volume in objects.of("PersistentVolumeClaim")]


def _claim(claim: Object, mounted: Mapping[tuple[str, str], list[str]]) -> Row:
    namespace, name = text(claim, "metadata", "namespace"), text(claim, "metadata", "name")
    asked, has = (
        quantity(at(claim, *path, "storage")) for path in (("spec", "resources", "requests"), ("status", "capacity"))
    )
    return {
        "namespace": namespace,
        "name": name,
        "workload": joined(mounted.get((namespace, name), ())),
        "storage_class": text(claim, "spec", "storageClassName") or None,
        "requested_gib": None if asked is None else asked / BYTES_PER_GIB,
        "capacity_gib": None if has is None else has / BYTES_PER_GIB,
        "access_modes": joined(texts(claim, "spec", "accessModes")),
        "phase": text(claim, "status", "phase") or "Unknown",
        "created": moment_at(claim, "metadata", "creationTimestamp"),
    }


_MOST = 10**12
_WAITING_PHASES = frozenset({"Pending", "Inqueue"})


def queue_names(objects: Objects) -> dict[str, str]:
    """Return the queue of each run, by namespace/name of the run."""
    found = {}
    for kind in ("Job", "PodGroup", "Workload"):
        for item in objects.of(kind):
            queue = text(item, "spec", "queueName") or queue_of(item)
            if queue:
                found[_run(item) if kind != "Job" else _name(item)] = queue
    return found


def queued_rows(objects: Objects, claims: ResourceClaims) -> list[Row]:
    """Return a `jobs` row for each run with GPUs that still waits in a queue."""
    waiting = [*_waiting_in_kueue(objects, claims), *_waiting_in_volcano(objects)]
    parents = owners_of(objects).parents
    rows: list[Row] = []
    for run, gpus, queue in waiting:
        created = moment_at(run, "metadata", "creationTimestamp")
        if gpus <= 0 or created is None:
            continue
        rows.append(
            {
                "job": _run(run),
                "workload": _workload(run, parents),
                "submit": created,
                "start": None,
                "end": None,
                "gpus": gpus,
                "state": "queued",
                "node": None,
                "queue": queue or None,
            }
        )
    return rows


_PODS_OF_A_SET = 1.0
"""Of a pod set of Kueue that does not say (kueue.x-k8s.io, PodSet.count: `+kubebuilder:default=1`)."""


def _waiting_in_kueue(objects: Objects, claims: ResourceClaims) -> Iterator[tuple[Object, float, str]]:
    for workload in objects.of("Workload"):
        if condition(workload, "Admitted") is None and condition(workload, "Finished") is None:
            namespace, gpus = text(workload, "metadata", "namespace"), 0.0
            for part in listed(workload, "spec", "podSets"):
                spec = at(part, "template", "spec")
                each = asked_by(spec, claims.extended).gpu_pieces + claims.asked_by(namespace, spec)
                count = number(part, "count")
                gpus += (_PODS_OF_A_SET if count is None else count) * each
            yield workload, gpus, text(workload, "spec", "queueName")


def _waiting_in_volcano(objects: Objects) -> Iterator[tuple[Object, float, str]]:
    for group in objects.of("PodGroup"):
        if text(group, "status", "phase") in _WAITING_PHASES and not number(group, "status", "running"):
            asked = at(group, "spec", "minResources")
            yield group, sum(_gpu_amounts(asked).values()), text(group, "spec", "queue")


def _workload(waiting: Object, parents: Mapping[tuple[str, str, str], tuple[str, str]]) -> str:
    namespace = text(waiting, "metadata", "namespace")
    kind, name = controller_of(waiting) or ("", text(waiting, "metadata", "name"))
    kind, name = parents.get((namespace, kind, name), (kind, name))
    return f"{namespace}/{name_of_family(name)}"


def _run(group: Object) -> str:
    """Return namespace/name of the run that a Kueue Workload or a PodGroup stands for: its controller, else itself."""
    owner = controller_of(group)
    return f"{text(group, 'metadata', 'namespace')}/{owner[1]}" if owner else _name(group)


def _name(item: Object) -> str:
    return f"{text(item, 'metadata', 'namespace')}/{text(item, 'metadata', 'name')}"


_KUEUE_CONFIG_GROUP = "config.kueue.x-k8s.io/"


def device_class_mappings(objects: Objects) -> Mapping[str, tuple[str, ...]]:
    """Return the classes of devices by the resource whose quota in Kueue counts them; what cannot be read is counted.

    They are the `deviceClassMappings` of Kueue's configuration: a ConfigMap's text (charts/kueue/templates/manager/
    manager-config.yaml), found by its key and API group. A mapping with `sources` counts memory or another amount of devices
    in place of their number; such a resource is left out.

    Source: kubernetes-sigs/kueue at ff69552 (2026-08-22), apis/config/v1beta2/configuration_types.go (DeviceClassMapping),
    pkg/dra/mapper.go, "Dynamic Resource Allocation".
    """
    found: dict[str, tuple[str, ...]] = {}
    for config in objects.of("ConfigMap"):
        where = f"ConfigMap {text(config, 'metadata', 'namespace')}/{text(config, 'metadata', 'name')}"
        try:
            documents = load_yaml_documents(text(config, "data", MANAGER_CONFIG), where=where)
        except InputError:
            objects.count("ConfigMaps of a controller whose configuration is no YAML")
            continue
        for document in documents:
            if not text(document, "apiVersion").startswith(_KUEUE_CONFIG_GROUP):
                continue
            for counted in listed(document, "resources", "deviceClassMappings"):
                name, classes = text(counted, "name"), texts(counted, "deviceClassNames")
                if listed(counted, "sources"):
                    objects.count("resources of Kueue that count an amount of devices, not their number: not judged")
                elif name and classes:
                    found[name] = (*found.get(name, ()), *classes)
    return found


def queue_rows(objects: Objects) -> list[Row]:
    """Return the rows of `queues`."""
    labels = {
        text(flavor, "metadata", "name"): mapping(flavor, "spec", "nodeLabels")
        for flavor in objects.of("ResourceFlavor")
    }
    classes = device_class_mappings(objects)
    return [
        *(row for queue in objects.of("ClusterQueue") for row in _cluster_queue(queue, labels, classes)),
        *(_local_queue(queue) for queue in objects.of("LocalQueue")),
        *(row for queue in objects.of("Queue") for row in _volcano_queue(queue)),
    ]


def _cluster_queue(
    queue: Object, labels: Mapping[str, Mapping[str, str]], classes: Mapping[str, Sequence[str]]
) -> Iterator[Row]:
    used = {
        (text(flavor, "name"), text(resource, "name")): quantity(at(resource, "total"))
        for flavor in listed(queue, "status", "flavorsUsage")
        for resource in listed(flavor, "resources")
    }
    base = _base(queue, "ClusterQueue", text(queue, "spec", "cohortName") or text(queue, "spec", "cohort"))
    none = True
    for group in listed(queue, "spec", "resourceGroups"):
        for flavor in listed(group, "flavors"):
            for resource in listed(flavor, "resources"):
                name = text(resource, "name")
                if is_gpu_resource(name) or name in classes:
                    none = False
                    yield base | {
                        "resource": name,
                        "device_classes": ", ".join(classes.get(name, ())) or None,
                        "flavor": text(flavor, "name") or None,
                        "flavor_labels": dict(labels.get(text(flavor, "name"), {})),
                        "quota_gpus": quantity(at(resource, "nominalQuota")),
                        "borrowing_gpus": quantity(at(resource, "borrowingLimit")),
                        "used_gpus": used.get((text(flavor, "name"), name)),
                    }
    if none:
        yield base


def _base(queue: Object, kind: str, parent: str) -> Row:
    return {
        "kind": kind,
        "namespace": text(queue, "metadata", "namespace") or None,
        "name": text(queue, "metadata", "name"),
        "parent": parent or None,
        "pending": _count(queue, "status", "pendingWorkloads"),
        "admitted": _count(queue, "status", "admittedWorkloads"),
    }


def _count(item: Object, *path: str) -> int | None:
    """Return a count, or None where there is none that can be."""
    found = number(item, *path)
    return int(found) if found is not None and 0 <= found <= _MOST else None


def _local_queue(queue: Object) -> Row:
    return _base(queue, "LocalQueue", text(queue, "spec", "clusterQueue"))


def _volcano_queue(queue: Object) -> Iterator[Row]:
    """Yield a row for each GPU resource that a Volcano queue names, or one without.

    What its capability does not name it may use without limit (pkg/scheduler/plugins/capacity: MinDimensionResource with
    Infinity).
    """
    weight, reclaimable = number(queue, "spec", "weight"), at(queue, "spec", "reclaimable")
    base = _base(queue, "Queue", text(queue, "spec", "parent")) | {
        "pending": _count(queue, "status", "pending"),
        "admitted": _count(queue, "status", "running"),
        "weight": weight,
        "reclaimable": reclaimable if isinstance(reclaimable, bool) else None,
    }
    amounts = {
        column: _gpu_amounts(at(queue, *path))
        for column, path in {
            "quota_gpus": ("spec", "deserved"),
            "limit_gpus": ("spec", "capability"),
            "guaranteed_gpus": ("spec", "guarantee", "resource"),
            "used_gpus": ("status", "allocated"),
        }.items()
    }
    named = sorted({name for found in amounts.values() for name in found})
    # a queue whose use is reported uses none of what it does not name
    told = isinstance(at(queue, "status", "allocated"), Mapping)
    for resource in named:
        used = amounts["used_gpus"].get(resource, 0.0 if told else None)
        stated = {column: found.get(resource) for column, found in amounts.items()}
        yield base | {"resource": resource} | stated | {"used_gpus": used}
    if not named:
        yield base


def _gpu_amounts(resources: object) -> dict[str, float]:
    if not isinstance(resources, Mapping):
        return {}
    amounts = {str(name): quantity(value) for name, value in resources.items() if is_gpu_resource(str(name))}
    return {name: amount for name, amount in amounts.items() if amount is not None}
