"""What servers and controllers refuse in an object though its schema allows it: one function per kind, and all metadata.

Sources: k8s.io/kubernetes pkg/apis/*/validation (v1.34); karpenter v1 pkg/apis/v1/nodepool_validation.go and labels.go;
kueue v0.15 pkg/webhooks/clusterqueue_webhook.go; prometheus-operator pkg/admission and prometheus/rulefmt (names, groups).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import yaml

from trimtab.catalog.registry import Catalog
from trimtab.check.autoscalers import scaler_faults
from trimtab.check.cluster import TEMPLATES
from trimtab.check.documents import strict_yaml
from trimtab.check.faults import FieldFault, Severity, join, nearest
from trimtab.check.names import (
    CRON_JOB_LENGTH,
    LABEL_LENGTH,
    amount,
    dns_label,
    dns_subdomain,
    label_key,
    label_value,
    whole_or_percent,
)
from trimtab.check.pods import (
    EFFECTS,
    is_device,
    label_faults,
    misspelt_device,
    one_of,
    pod_faults,
)
from trimtab.check.promql import LABEL_NAME, METRIC_NAME, read_query
from trimtab.check.resource_claims import claim_faults, class_faults
from trimtab.sources.kubernetes.objects import Object, at, listed, mapping, number, quantity, text

_LABEL_NAMED = frozenset({"Namespace", "Service", "ReplicaSet", "Deployment", "StatefulSet", "Job", "Pod"})
"""Kinds whose names become a label, a host name or the beginning of pods' names: 63 characters."""
_PATHS = frozenset({"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"})
"""Kinds whose names are one part of a path, and need not be DNS names (pkg/apis/rbac/validation, v1.34)."""
_MOST_PRIORITY = 1_000_000_000
WELL_KNOWN = frozenset({
    "node.kubernetes.io/instance-type", "topology.kubernetes.io/region", "topology.kubernetes.io/zone", "kubernetes.io/arch",
    "kubernetes.io/os", "karpenter.sh/capacity-type", "karpenter.sh/nodepool", "kubernetes.io/hostname",
    "node.kubernetes.io/windows-build", "karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-category",
    "karpenter.k8s.aws/instance-generation", "karpenter.k8s.aws/instance-size", "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.k8s.aws/instance-gpu-count", "karpenter.k8s.aws/instance-gpu-memory",
    "karpenter.k8s.aws/instance-gpu-manufacturer",
    "karpenter.azure.com/sku-name", "karpenter.azure.com/sku-family", "karpenter.azure.com/sku-gpu-name",
    "karpenter.azure.com/sku-gpu-count", "karpenter.k8s.gcp/instance-family", "karpenter.k8s.gcp/instance-gpu-count",
    "beta.kubernetes.io/instance-type", "nvidia.com/gpu.product", "nvidia.com/mig.config", "nvidia.com/device-plugin.config",
    "cloud.google.com/gke-accelerator", "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup",
    "eks.amazonaws.com/capacityType", "kubernetes.azure.com/agentpool", "alpha.eksctl.io/nodegroup-name", "agentpool",
})  # fmt: skip
"""Labels of nodes that everybody spells alike."""
_CAPACITY_TYPES = ("spot", "on-demand", "reserved")
_NODE_CLASSES = {
    "EC2NodeClass": "karpenter.k8s.aws", "AKSNodeClass": "karpenter.azure.com", "GCENodeClass": "karpenter.k8s.gcp",
    "NodeClass": "eks.amazonaws.com",
}  # fmt: skip
_VERBS = (
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "use",
    "bind",
    "escalate",
    "impersonate",
    "*",
)


def object_faults(kind: str, body: Object, catalog: Catalog, *, partial: bool = False) -> Iterator[FieldFault]:
    """Yield what is wrong with one object by itself, beyond its schema."""
    yield from _metadata(kind, body, partial)
    if kind in TEMPLATES:
        yield from pod_faults(kind, body, partial=partial)
    elif kind in ("HorizontalPodAutoscaler", "ScaledObject"):
        yield from scaler_faults(kind, body)
    elif kind == "NodePool":
        yield from _node_pool(body, catalog)
    elif kind == "NodeOverlay":
        yield from _requirements(at(body, "spec"), "spec", catalog)
        yield from _overlay(at(body, "spec"))
    elif kind in _BY_KIND:
        yield from _BY_KIND[kind](body)


def _metadata(kind: str, body: Object, partial: bool) -> Iterator[FieldFault]:
    metadata = at(body, "metadata")
    name = at(metadata, "name")
    if not partial and not name and not at(metadata, "generateName"):
        yield FieldFault(field="metadata.name", value=name, what="is not stated", cure="name the object")
    elif isinstance(name, str) and (wrong := _name(kind, name)):
        yield FieldFault(field="metadata.name", value=name, what=wrong, cure="give it another name")
    namespace = at(metadata, "namespace")
    if isinstance(namespace, str) and (wrong := dns_label(namespace)):
        yield FieldFault(field="metadata.namespace", value=namespace, what=wrong, cure="write the name of a namespace")
    yield from label_faults(metadata, "metadata")


def _name(kind: str, name: str) -> str | None:
    if kind in _PATHS:
        bad = name in (".", "..") or "/" in name or "%" in name
        return "is no part of a path: . and .. and names with / or % are refused" if bad else None
    if kind == "CronJob":
        return dns_subdomain(name, CRON_JOB_LENGTH)
    if kind in ("Namespace", "Service"):
        return dns_label(name)
    return dns_subdomain(name, LABEL_LENGTH) if kind in _LABEL_NAMED else dns_subdomain(name)


def _node_pool(body: Object, catalog: Catalog) -> Iterator[FieldFault]:
    path = "spec.template.spec"
    spec = at(body, *path.split("."))
    yield from _requirements(spec, path, catalog)
    yield from label_faults(at(body, "spec", "template", "metadata"), "spec.template.metadata")
    for place, taint in enumerate([*listed(spec, "taints"), *listed(spec, "startupTaints")]):
        yield from _taint(taint, join(path, "taints", place))
    for name, value in _stated(at(body, "spec", "limits")):
        if fault := _limit(name, value):
            what, cure = fault
            yield FieldFault(field=join("spec.limits", name), value=value, what=what, cure=cure)
    yield from _node_class(at(spec, "nodeClassRef"), join(path, "nodeClassRef"))
    for place, budget in enumerate(listed(body, "spec", "disruption", "budgets")):
        if at(budget, "nodes") is not None and (wrong := whole_or_percent(at(budget, "nodes"))):
            yield FieldFault(
                field=join("spec.disruption.budgets", place, "nodes"),
                value=at(budget, "nodes"),
                what=wrong,
                cure="write one such as 10% or '1'",
            )


def _requirements(spec: object, path: str, catalog: Catalog) -> Iterator[FieldFault]:
    seen = set[str]()
    for place, need in enumerate(listed(spec, "requirements")):
        where, key = join(path, "requirements", place), text(need, "key")
        if key in seen:
            yield FieldFault(
                field=join(where, "key"),
                value=key,
                what="stands twice",
                cure="state one requirement of each label",
                severity=Severity.WARNING,
            )
        seen.add(key)
        yield from _requirement(need, where, catalog)


def _taint(taint: Object, path: str) -> Iterator[FieldFault]:
    key = text(taint, "key")
    yield from one_of(taint, "effect", EFFECTS, path)
    if near := misspelt_device(key):
        what = "is no taint of GPU nodes, and the device plugin tolerates no other"
        yield FieldFault(field=join(path, "key"), value=key, what=what, cure=f"write {near}")
    if wrong := label_key(key) or label_value(text(taint, "value")):
        yield FieldFault(field=path, value=key, what=wrong, cure="spell key and value as labels are")


def _limit(name: str, value: object) -> tuple[str, str] | None:
    """Return what is wrong with a limit of a node pool and the cure."""
    if wrong := amount(value):
        return wrong, "write one such as '8'"
    if "/" in name and (quantity(value) or 0) % 1:
        return "is a share of a device", "write a whole number"
    if name != "nodes" and quantity(value) == 0:
        return "lets the pool start no node", "write the most that it may hold"
    if "/" not in name and name not in ("cpu", "memory", "ephemeral-storage", "nodes", "pods"):
        near = nearest(name, ["cpu", "memory", "nodes", "nvidia.com/gpu"])
        return "is no resource of nodes", f"write {near or 'nvidia.com/gpu'}"
    if misspelt_device(name) or (name.startswith("nvidia.com/") and not is_device(name)):
        return "is no device of NVIDIA's plugin", "write nvidia.com/gpu"
    return None


def _stated(limits: object) -> Iterator[tuple[str, object]]:
    for name, value in limits.items() if isinstance(limits, Mapping) else ():
        yield str(name), value


def _requirement(need: Object, path: str, catalog: Catalog) -> Iterator[FieldFault]:
    key, values = text(need, "key"), at(need, "values")
    values = [str(value) for value in values] if isinstance(values, list) else []
    if wrong := label_key(key):
        yield FieldFault(field=join(path, "key"), value=key, what=wrong, cure="spell it as the node's label")
    elif key not in WELL_KNOWN and (near := nearest(key, WELL_KNOWN, least_frac=0.88)):
        yield FieldFault(field=join(path, "key"), value=key, what="is no label that nodes have", cure=f"write {near}")
    for place, value in enumerate(values):
        if wrong := label_value(value):
            yield FieldFault(
                field=join(path, "values", place), value=value, what=wrong, cure="spell it as the label's value"
            )
    if key == "karpenter.sh/capacity-type":
        known, sure = frozenset(_CAPACITY_TYPES), True
    elif key == "node.kubernetes.io/instance-type":
        known, sure = frozenset(row.name for row in catalog.instance_types), False
    elif key == "topology.kubernetes.io/region":
        known, sure = frozenset(region for names in catalog.regions.values() for region in names), False
    else:
        return
    for place, value in enumerate(values):
        near = None if value in known else nearest(value, known, least_frac=0.8)
        if value not in known and (sure or near):
            cure = f"write {near}" if near else f"write one of {', '.join(sorted(known))}"
            yield FieldFault(
                field=join(path, "values", place), value=value, what=f"is no value of {key} that is known", cure=cure
            )


def _node_class(ref: object, path: str) -> Iterator[FieldFault]:
    kind, group = text(ref, "kind"), text(ref, "group")
    wanted = _NODE_CLASSES.get(kind)
    if wanted is not None and group != wanted:
        yield FieldFault(
            field=join(path, "group"), value=group, what=f"is not the group of {kind}", cure=f"write {wanted}"
        )
    elif wanted is None and ref is not None:
        near = nearest(kind, _NODE_CLASSES) or next(
            (class_kind for class_kind, name in _NODE_CLASSES.items() if name == group), None
        )
        severity = Severity.ERROR if near else Severity.WARNING
        yield FieldFault(
            field=join(path, "kind"),
            value=kind,
            what="is no node class that is known",
            cure=f"write {near or ' or '.join(_NODE_CLASSES)}",
            severity=severity,
        )
    name = text(ref, "name")
    if ref is not None and name and (wrong := dns_subdomain(name)):
        yield FieldFault(field=join(path, "name"), value=name, what=wrong, cure="write the name of a node class")


def _overlay(spec: object) -> Iterator[FieldFault]:
    price, change = at(spec, "price"), at(spec, "priceAdjustment")
    if price is not None and (not re.fullmatch(r"\d+(\.\d+)?", str(price)) or float(str(price)) == 0):
        yield FieldFault(
            field="spec.price",
            value=price,
            what="is not a price an hour above 0",
            cure="write US dollars an hour, such as '13.92'",
        )
    if price is not None and change is not None:
        yield FieldFault(
            field="spec.price", value=price, what="stands beside priceAdjustment", cure="state one of them"
        )
    for name, value in _stated(at(spec, "capacity")):
        if wrong := amount(value):
            yield FieldFault(field=join("spec.capacity", name), value=value, what=wrong, cure="write one such as '7'")
        if near := misspelt_device(name):
            yield FieldFault(
                field=join("spec.capacity", name),
                value=value,
                what="is no device of NVIDIA's plugin",
                cure=f"write {near}",
            )
        # kubernetes 1.34, pkg/apis/core/validation, of a pod: "must be a standard resource type or fully qualified"
        elif "/" not in name and not name.startswith("hugepages-"):
            yield FieldFault(
                field=join("spec.capacity", name),
                value=value,
                what="is no resource that a pod may ask for",
                cure="write a device with its domain, such as nvidia.com/gpu",
            )


def _disruption_budget(body: Object) -> Iterator[FieldFault]:
    spec = at(body, "spec")
    stated = [name for name in ("minAvailable", "maxUnavailable") if at(spec, name) is not None]
    if len(stated) != 1:
        yield FieldFault(
            field="spec",
            value=", ".join(stated),
            what="states both or none of minAvailable and maxUnavailable",
            cure="state one of them",
        )
    for name in stated:
        if wrong := whole_or_percent(at(spec, name)):
            yield FieldFault(field=f"spec.{name}", value=at(spec, name), what=wrong, cure="write one such as 1 or 10%")
    if at(spec, "selector") is None:
        yield FieldFault(field="spec.selector", value=None, what="selects no pods", cure="state matchLabels")
    elif not mapping(spec, "selector", "matchLabels") and not listed(spec, "selector", "matchExpressions"):
        yield FieldFault(
            field="spec.selector", value="{}", what="selects every pod of the namespace", cure="state matchLabels"
        )
    yield from one_of(spec, "unhealthyPodEvictionPolicy", ("IfHealthyBudget", "AlwaysAllow"), "spec")
    for key, value in mapping(spec, "selector", "matchLabels").items():
        if wrong := label_key(key) or label_value(value):
            yield FieldFault(
                field=join("spec.selector.matchLabels", key),
                value=value,
                what=wrong,
                cure="spell it as the pods' label",
            )


def _priority_class(body: Object) -> Iterator[FieldFault]:
    name, value = text(body, "metadata", "name"), number(body, "value")
    if value is None:
        yield FieldFault(field="value", value=at(body, "value"), what="is not stated", cure="write a whole number")
    elif value > _MOST_PRIORITY and not name.startswith("system-"):
        yield FieldFault(
            field="value", value=value, what="is for the system's own classes", cure=f"write {_MOST_PRIORITY} or less"
        )
    if name.startswith("system-"):
        yield FieldFault(
            field="metadata.name", value=name, what="begins as the system's own classes do", cure="name it otherwise"
        )
    yield from one_of(body, "preemptionPolicy", ("PreemptLowerPriority", "Never"), "")


def _rule(body: Object) -> Iterator[FieldFault]:
    groups, recorded = set[str](), set[tuple[str, str]]()
    for place, group in enumerate(listed(body, "spec", "groups")):
        path, name = join("spec.groups", place), text(group, "name")
        if name in groups:
            yield FieldFault(field=join(path, "name"), value=name, what="stands twice", cure="name each group once")
        groups.add(name)
        for number_, rule in enumerate(listed(group, "rules")):
            yield from _one_rule(rule, join(path, "rules", number_), recorded)


def _one_rule(rule: Object, path: str, recorded: set[tuple[str, str]]) -> Iterator[FieldFault]:
    record, alert = text(rule, "record"), text(rule, "alert")
    if bool(record) == bool(alert):
        yield FieldFault(
            field=path,
            value=record or None,
            what="is neither a record nor an alert, or both",
            cure="state record or alert",
        )
    if record and not METRIC_NAME.fullmatch(record):
        yield FieldFault(
            field=join(path, "record"),
            value=record,
            what="is no name of a series",
            cure="write letters, digits, _ and :",
        )
    if record and (at(rule, "for") is not None or at(rule, "annotations") is not None):
        yield FieldFault(
            field=path,
            value=record,
            what="records and states for or annotations, which alerts do",
            cure="take them out",
        )
    labels = at(rule, "labels")
    for key, value in labels.items() if isinstance(labels, Mapping) else ():
        if not LABEL_NAME.fullmatch(str(key)) or key == "__name__":
            yield FieldFault(
                field=join(path, "labels", str(key)),
                value=value,
                what="is no name of a label of Prometheus",
                cure="write letters, digits and _",
            )
    identity = (record or alert, repr(sorted(labels.items(), key=str)) if isinstance(labels, Mapping) else "")
    if record and identity in recorded:
        yield FieldFault(
            field=join(path, "record"),
            value=record,
            what="is recorded twice with the same labels",
            cure="keep one of them",
        )
    recorded.add(identity)
    query = read_query(str(at(rule, "expr") if at(rule, "expr") is not None else ""))
    if query.wrong:
        yield FieldFault(field=join(path, "expr"), value=at(rule, "expr"), what=query.wrong, cure=query.cure)


def _roles(body: Object) -> Iterator[FieldFault]:
    for place, rule in enumerate(listed(body, "rules")):
        verbs = at(rule, "verbs")
        for number_, verb in enumerate(verbs if isinstance(verbs, list) else []):
            if verb not in _VERBS:
                near = nearest(str(verb), _VERBS, least_frac=0.6)
                yield FieldFault(
                    field=join("rules", place, "verbs", number_),
                    value=verb,
                    what="is no verb of the API",
                    cure=f"write {near or 'one of ' + ', '.join(_VERBS)}",
                )
        groups, resources = at(rule, "apiGroups"), at(rule, "resources")
        for number_, resource in enumerate(resources if isinstance(resources, list) else []):
            group = str(groups[0]) if isinstance(groups, list) and groups else None
            known = None if group is None else _RESOURCES.get(group)
            if known and str(resource).partition("/")[0] not in known:
                yield FieldFault(
                    field=join("rules", place, "resources", number_),
                    value=resource,
                    what=f"is no resource of {group or 'the core'}",
                    cure=f"write {nearest(str(resource), known) or ' or '.join(sorted(known))}",
                )
            elif (
                isinstance(groups, list) and groups and known is None and (near := nearest(str(groups[0]), _RESOURCES))
            ):
                yield FieldFault(
                    field=join("rules", place, "apiGroups"),
                    value=groups[0],
                    what="is no API group that is known",
                    cure=f"write {near}",
                )


_RESOURCES = {
    group: frozenset(names.split())
    for group, names in {
        "kueue.x-k8s.io": "localqueues clusterqueues workloads resourceflavors workloadpriorityclasses topologies cohorts "
        "admissionchecks",
        "batch": "jobs cronjobs",
        "apps": "deployments statefulsets daemonsets replicasets controllerrevisions",
        "keda.sh": "scaledobjects scaledjobs triggerauthentications clustertriggerauthentications",
        "karpenter.sh": "nodepools nodeclaims nodeoverlays",
    }.items()
}


def _config_map(body: Object) -> Iterator[FieldFault]:
    for name in ("data", "binaryData"):
        stated = at(body, name)
        for key, value in stated.items() if isinstance(stated, Mapping) else ():
            if not re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", str(key)):
                yield FieldFault(
                    field=join(name, str(key)),
                    value=key,
                    what="is no key of a ConfigMap",
                    cure="write letters, digits, -, _ and . only",
                )
            elif str(key).endswith((".yaml", ".yml")) and isinstance(value, str):
                yield from _config(value, join(name, str(key)))


def _config(content: str, path: str) -> Iterator[FieldFault]:
    """Yield what is wrong with a configuration of the MIG manager or of the device plugin, or any that is no YAML."""
    try:
        configs = strict_yaml(content)
    except yaml.YAMLError as error:
        yield FieldFault(field=path, value=str(error).splitlines()[0], what="holds no YAML", cure="correct the text")
        return
    for config in configs:
        yield from _device_config(config, path)


def _device_config(config: object, path: str) -> Iterator[FieldFault]:
    layouts = at(config, "mig-configs")
    if layouts is not None or text(config, "version") == "v1":
        known = {"version", "mig-configs", "flags", "sharing", "resources", "imex"}
        for key in config if isinstance(config, Mapping) else ():
            if key not in known:
                yield FieldFault(
                    field=path,
                    value=key,
                    what="is no part of this configuration",
                    cure=f"write {nearest(str(key), known) or ' or '.join(sorted(known))}",
                )
    if at(config, "version") not in (None, "v1"):
        yield FieldFault(
            field=path, value=at(config, "version"), what="is not a version of this configuration", cure="write v1"
        )
    for name, devices in layouts.items() if isinstance(layouts, Mapping) else ():
        for layout in devices if isinstance(devices, list) else []:
            yield from _layout(layout, join(path, str(name)))
    sharing = at(config, "sharing")
    for form in sharing if isinstance(sharing, Mapping) else ():
        if form not in ("timeSlicing", "mps"):
            yield FieldFault(field=path, value=form, what="is no way to share a GPU", cure="write timeSlicing or mps")
        for resource in listed(sharing, str(form), "resources"):
            count = number(resource, "replicas")
            if not text(resource, "name") or count is None or count < 2:
                yield FieldFault(
                    field=path, value=resource, what="shares nothing", cure="state name and replicas of 2 or more"
                )


def _layout(layout: object, path: str) -> Iterator[FieldFault]:
    cut = at(layout, "mig-enabled")
    devices = at(layout, "mig-devices")
    if not isinstance(cut, bool):
        yield FieldFault(field=path, value=cut, what="lacks mig-enabled: true or false", cure="state it")
    if cut is True and not devices:
        yield FieldFault(field=path, value=devices, what="is cut and names no mig-devices", cure="state profile: count")
    for profile, count in devices.items() if isinstance(devices, Mapping) else ():
        if not re.fullmatch(r"[1-7]g\.\d+gb(\+me(\.all)?|\+gfx|-me)?", str(profile)):
            yield FieldFault(field=path, value=profile, what="is no profile of MIG", cure="write one such as 1g.10gb")
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 7:
            yield FieldFault(field=path, value=count, what="is not a count of slices of one GPU", cure="write 1 to 7")


def _cluster_queue(body: Object) -> Iterator[FieldFault]:
    for place, group in enumerate(listed(body, "spec", "resourceGroups")):
        path = join("spec.resourceGroups", place)
        stated = at(group, "coveredResources")
        covered = [str(resource) for resource in stated] if isinstance(stated, list) else []
        for number_, flavor in enumerate(listed(group, "flavors")):
            names = [text(resource, "name") for resource in listed(flavor, "resources")]
            if names != covered:
                yield FieldFault(
                    field=join(path, "flavors", number_, "resources"), value=", ".join(names),
                    what="are not the coveredResources in their order", cure=f"write {', '.join(covered)}",
                )  # fmt: skip
            for at_place, resource in enumerate(listed(flavor, "resources")):
                quota = at(resource, "nominalQuota")
                if quota is not None and (wrong := amount(quota)):
                    yield FieldFault(
                        field=join(path, "flavors", number_, "resources", at_place, "nominalQuota"),
                        value=quota,
                        what=wrong,
                        cure="write one such as '8' or 64Gi",
                    )


_BY_KIND: Mapping[str, Callable[[Object], Iterator[FieldFault]]] = {
    "PodDisruptionBudget": _disruption_budget,
    "PriorityClass": _priority_class,
    "PrometheusRule": _rule,
    "Role": _roles,
    "ClusterRole": _roles,
    "ConfigMap": _config_map,
    "ClusterQueue": _cluster_queue,
    "ResourceClaim": claim_faults,
    "ResourceClaimTemplate": claim_faults,
    "DeviceClass": class_faults,
}
