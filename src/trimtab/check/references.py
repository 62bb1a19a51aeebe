"""What objects of a folder say of one another and of the cluster: collisions, and references that select nothing.

A name is missing only where its absence means something: the folder itself, or what was read of the cluster, would have it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from trimtab.catalog.registry import Catalog
from trimtab.check.cluster import TEMPLATES, WORKLOAD_KINDS, Cluster, key_of
from trimtab.check.documents import Document, Folder
from trimtab.check.faults import FieldFault, ObjectFault, Severity, join, nearest, placed
from trimtab.check.kustomizations import Patch
from trimtab.check.resource_claims import DRIVER_CLASSES, request_names
from trimtab.fleet.owner_kinds import pod_spec_path
from trimtab.review.manifests import claim_source
from trimtab.review.pools import NODE_POOL_LABEL
from trimtab.sources.kubernetes.objects import Object, at, listed, mapping, text

CLUSTER_WIDE = frozenset({
    "Namespace", "NodePool", "NodeOverlay", "PriorityClass", "ClusterRole", "ClusterRoleBinding", "ClusterQueue",
    "ResourceFlavor", "EC2NodeClass", "AKSNodeClass", "GCENodeClass", "Node", "StorageClass", "RuntimeClass", "DeviceClass",
    "CustomResourceDefinition", "PersistentVolume", "NodeClass", "ComputeClass", "Topology",
})  # fmt: skip
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_FIRST_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
_BESIDE_WORKLOADS = frozenset({"ResourceClaim", "ResourceClaimTemplate", "DeviceClass"})
"""Kinds of which a folder may hold some while those that it does not change lie beside the workloads' own manifests."""
_CLAIM_SOURCES = {"resourceClaimName": "ResourceClaim", "resourceClaimTemplateName": "ResourceClaimTemplate"}


@dataclass(slots=True, kw_only=True)
class World:
    """The folder's objects and patches beside what is known of the cluster."""

    folder: Folder
    patches: list[Patch]
    cluster: Cluster | None
    catalog: Catalog
    kinds: frozenset[str] = frozenset()
    """Every kind that has a schema, or is Kubernetes' own."""
    names: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    """Kind -> (namespace, name) of the folder's objects."""

    def __post_init__(self) -> None:
        for document in self.folder.objects:
            self.names.setdefault(document.kind, set()).add((document.namespace, document.name))
        for document in self.folder.documents:
            for generator in listed(document.body, "configMapGenerator"):
                self.names.setdefault("ConfigMap", set()).add((text(generator, "namespace"), text(generator, "name")))

    def named(self, kind: str, namespace: str | None = None) -> set[str]:
        """Return the names of a kind, in the folder and in the cluster."""
        own = {name for there, name in self.names.get(kind, ()) if namespace in (None, there)}
        return own | (self.cluster.names(kind, namespace) if self.cluster else set())

    def missing(self, kind: str, name: str, namespace: str | None = None) -> tuple[str, Severity] | None:
        """Return how to correct a reference to nothing and how sure that is; None where the object exists."""
        known = self.named(kind, namespace)
        if not name or name in known:
            return None
        near = nearest(name, known, least_frac=0.7)
        here = bool(self.names.get(kind)) and kind not in _BESIDE_WORKLOADS
        sure = bool(near) or here or (self.cluster is not None and self.cluster.knows_all(kind))
        where = f" in {namespace}" if namespace else ""
        cure = f"write {near}" if near else f"add the {kind} {name}{where}, or give --against with what the cluster has"
        return cure, Severity.ERROR if sure else Severity.WARNING

    def body(self, kind: str, name: str, namespace: str) -> Object | None:
        """Return an object of the folder, else of the cluster; None where neither has it."""
        for document in self.folder.objects:
            if (document.kind, document.name, document.namespace or namespace) == (kind, name, namespace):
                return document.body
        there = self.cluster.objects if self.cluster else {}
        return next((body for key, body in there.items() if key[1:] == (kind, namespace, name)), None)

    def workloads(self) -> dict[str, str]:
        """Return every workload that is known, namespace/name -> kind."""
        own = {
            f"{document.namespace or 'default'}/{document.name}": document.kind
            for document in self.folder.objects
            if document.kind in WORKLOAD_KINDS
        }
        return {**(self.cluster.workloads if self.cluster else {}), **own}


def reference_faults(world: World) -> Iterator[ObjectFault]:
    """Yield what collides, and what names or selects nothing."""
    yield from _collisions(world)
    workloads = world.workloads()
    for document in world.folder.objects:
        for found in (*_namespace(document, world), *_named(document, world), *_scaled(document, world, workloads)):
            yield placed(document.file, document.called, found)
    for patch in world.patches:
        if patch.is_applied:
            for found in _patched(patch, world, workloads):
                yield placed(patch.document.file, patch.document.called, found)


def _collisions(world: World) -> Iterator[ObjectFault]:
    first: dict[tuple[str, ...], Document] = {}
    for document in world.folder.objects:
        key = key_of(document.body)
        if document.name and key in first:
            what = f"is in {first[key].file} too: one of them is lost"
            yield placed(
                document.file,
                document.called,
                FieldFault(
                    field="metadata.name", value=document.name, what=what, cure="keep one, or name it otherwise"
                ),
            )
        first.setdefault(key, document)
    yield from _rivals(world)
    yield from _same_horizontal(world)
    yield from _same_pods(world)


def _rivals(world: World) -> Iterator[ObjectFault]:
    """Yield two autoscalers of one workload; of one that is in the cluster already only a warning, for it may go first."""
    by_target: dict[tuple[str, str, str], Document] = {}
    for document in world.folder.objects:
        if document.kind in ("HorizontalPodAutoscaler", "ScaledObject"):
            target = _target(document.body)
            if target in by_target:
                what = (
                    f"scales what {by_target[target].called} in {by_target[target].file} scales: they fight each other"
                )
                yield placed(
                    document.file,
                    document.called,
                    FieldFault(field="spec.scaleTargetRef.name", value=target[2], what=what, cure="keep one of them"),
                )
            by_target.setdefault(target, document)
    for key, body in (world.cluster.objects if world.cluster else {}).items():
        if key[1] not in ("HorizontalPodAutoscaler", "ScaledObject"):
            continue
        rival = by_target.get(_target(body))
        made_by_keda = any(
            text(owner, "kind") == "ScaledObject" for owner in listed(body, "metadata", "ownerReferences")
        )
        if rival is not None and not made_by_keda and (key[1], key[3]) != (rival.kind, rival.name):
            what = f"scales what {key[1]} {key[2]}/{key[3]} of the cluster scales"
            yield placed(
                rival.file,
                rival.called,
                FieldFault(
                    field="spec.scaleTargetRef.name",
                    value=_target(body)[2],
                    what=what,
                    cure=f"first: kubectl delete {key[1].lower()} -n {key[2]} {key[3]}",
                    severity=Severity.WARNING,
                ),
            )


def _target(body: Object) -> tuple[str, str, str]:
    target = at(body, "spec", "scaleTargetRef")
    return text(body, "metadata", "namespace"), text(target, "kind") or "Deployment", text(target, "name")


def _same_horizontal(world: World) -> Iterator[ObjectFault]:
    """Yield ScaledObjects whose HPA another object has, or makes."""
    taken: dict[tuple[str, str], Document] = {}
    for document in world.folder.objects:
        if document.kind not in ("HorizontalPodAutoscaler", "ScaledObject"):
            continue
        own = text(document.body, "spec", "advanced", "horizontalPodAutoscalerConfig", "name")
        name = document.name if document.kind == "HorizontalPodAutoscaler" else own or f"keda-hpa-{document.name}"
        key = (document.namespace, name)
        if key in taken:
            found = FieldFault(
                field="spec.advanced.horizontalPodAutoscalerConfig.name",
                value=name,
                what=f"is the HPA of {taken[key].called} too",
                cure="name it otherwise",
            )
            yield placed(document.file, document.called, found)
        taken.setdefault(key, document)


def _same_pods(world: World) -> Iterator[ObjectFault]:
    """Yield disruption budgets that select the same labels: the eviction API refuses to choose."""
    seen: dict[tuple[str, str], Document] = {}
    for document in world.folder.objects:
        if document.kind == "PodDisruptionBudget":
            key = document.namespace, repr(sorted(mapping(document.body, "spec", "selector", "matchLabels").items()))
            if key in seen:
                found = FieldFault(
                    field="spec.selector",
                    value=None,
                    what=f"selects the pods of {seen[key].called} too: none of them can be evicted",
                    cure="keep one of them",
                )
                yield placed(document.file, document.called, found)
            seen.setdefault(key, document)


def _namespace(document: Document, world: World) -> Iterator[FieldFault]:
    if document.kind in CLUSTER_WIDE or not document.kind:
        return
    namespace = document.namespace
    stated = [other.namespace for other in world.folder.objects if other.namespace]
    if not namespace:
        given = any(text(other.body, "namespace") for other in world.folder.documents if other.is_of_kustomize)
        if stated and not given:
            cure = f"add metadata.namespace, such as {max(set(stated), key=stated.count)}"
            yield FieldFault(
                field="metadata.namespace",
                value=None,
                what="is not stated, and others here state theirs: it goes wherever the caller stands",
                cure=cure,
            )
        return
    if world.cluster is None:
        return
    known = world.cluster.namespaces | world.named("Namespace") | {"default", "kube-system"}
    near = nearest(namespace, known, least_frac=0.7)
    if namespace not in known and (near or world.cluster.knows_all("Namespace")):
        yield FieldFault(
            field="metadata.namespace",
            value=namespace,
            what="is no namespace of the cluster",
            cure=f"write {near}" if near else "create it first",
        )


class _Reference(NamedTuple):
    """A field that names an object."""

    path: str
    kind: str
    name: str
    namespace: str | None = None
    """None for kinds of the whole cluster."""


def _named(document: Document, world: World) -> Iterator[FieldFault]:
    """Yield references by name to objects that are not there."""
    for reference in _references(document):
        yield from _missing(reference, world)
    if document.kind == "Role":
        yield from _verbs(document, world)
    yield from _used_requests(document, world)
    yield from _server(document, world)
    yield from _selected_rules(document, world)
    yield from _budgeted(document, world)


def _missing(reference: _Reference, world: World) -> Iterator[FieldFault]:
    lost = world.missing(reference.kind, reference.name, reference.namespace)
    if lost is not None and reference.kind:
        cure, severity = lost
        yield FieldFault(
            field=reference.path,
            value=reference.name,
            what=f"is no {reference.kind} that is known",
            cure=cure,
            severity=severity if reference.kind != "ConfigMap" else Severity.WARNING,
        )


def _references(document: Document) -> Iterator[_Reference]:
    """Yield what an object names by its kind, by its requirements of nodes and in its pods."""
    body, namespace = document.body, document.namespace
    match document.kind:
        case "RoleBinding" | "ClusterRoleBinding":
            yield from _of_binding(body, namespace)
        case "LocalQueue":
            yield _Reference("spec.clusterQueue", "ClusterQueue", text(body, "spec", "clusterQueue"))
        case "ClusterQueue":
            for place, group in enumerate(listed(body, "spec", "resourceGroups")):
                for number, flavor in enumerate(listed(group, "flavors")):
                    path = join("spec.resourceGroups", place, "flavors", number, "name")
                    yield _Reference(path, "ResourceFlavor", text(flavor, "name"))
        case "Role":
            for place, rule in enumerate(listed(body, "rules")):
                names, resources = at(rule, "resourceNames"), at(rule, "resources")
                if isinstance(names, list) and resources == ["localqueues"]:
                    path = join("rules", place, "resourceNames")
                    yield from (_Reference(path, "LocalQueue", str(name), namespace) for name in names)
        case "NodePool":
            ref = at(body, "spec", "template", "spec", "nodeClassRef")
            yield _Reference("spec.template.spec.nodeClassRef.name", text(ref, "kind"), text(ref, "name"))
            yield from _required_pools(body, "spec.template.spec.requirements")
        case "NodeOverlay":
            yield from _required_pools(body, "spec.requirements")
        case "ScaledObject":
            for place, trigger in enumerate(listed(body, "spec", "triggers")):
                ref = at(trigger, "authenticationRef")
                kind = text(ref, "kind") or "TriggerAuthentication"
                path = join("spec.triggers", place, "authenticationRef", "name")
                there = namespace if kind == "TriggerAuthentication" else None
                yield _Reference(path, kind, text(ref, "name"), there)
        case "ResourceClaim" | "ResourceClaimTemplate":
            yield from _device_classes(body)
    if document.kind in TEMPLATES:
        template = TEMPLATES[document.kind]
        yield from _of_pods(at(body, *template, "spec"), join("", *template, "spec"), namespace)


def _of_binding(body: Object, namespace: str) -> Iterator[_Reference]:
    role = text(body, "roleRef", "kind")
    there = namespace if role == "Role" else None
    yield _Reference("roleRef.name", role, text(body, "roleRef", "name"), there)
    for place, subject in enumerate(listed(body, "subjects")):
        if text(subject, "kind") == "ServiceAccount":
            path, there = join("subjects", place, "name"), text(subject, "namespace") or namespace
            yield _Reference(path, "ServiceAccount", text(subject, "name"), there)


def _required_pools(body: Object, path: str) -> Iterator[_Reference]:
    """Yield the node pools that requirements of nodes name."""
    for place, need in enumerate(listed(body, *path.split("."))):
        values = _texts(at(need, "values")) if text(need, "key") == NODE_POOL_LABEL else []
        yield from (_Reference(join(path, place, "values"), "NodePool", value) for value in values)


def _of_pods(spec: object, path: str, namespace: str | None = None) -> Iterator[_Reference]:
    account, priority = text(spec, "serviceAccountName"), text(spec, "priorityClassName")
    if account and account != "default":
        yield _Reference(join(path, "serviceAccountName"), "ServiceAccount", account, namespace)
    if priority and priority not in _FIRST_CLASSES:
        yield _Reference(join(path, "priorityClassName"), "PriorityClass", priority)
    for place, entry in enumerate(listed(spec, "resourceClaims")):
        for key, kind in _CLAIM_SOURCES.items():
            yield _Reference(join(path, "resourceClaims", place, key), kind, text(entry, key), namespace)


def _device_classes(claim: Object) -> Iterator[_Reference]:
    """Yield the classes of a claim's requests, but for those that drivers bring themselves."""
    path = "spec.spec" if text(claim, "kind") == "ResourceClaimTemplate" else "spec"
    for place, request in enumerate(listed(claim, *path.split("."), "devices", "requests")):
        where = join(path, "devices", "requests", place)
        parts = [(where, request), (join(where, "exactly"), at(request, "exactly"))]
        choices = enumerate(listed(request, "firstAvailable"))
        parts += [(join(where, "firstAvailable", number), choice) for number, choice in choices]
        for at_path, part in parts:
            name = text(part, "deviceClassName")
            if name and name not in DRIVER_CLASSES:
                yield _Reference(join(at_path, "deviceClassName"), "DeviceClass", name)


def _used_requests(document: Document, world: World) -> Iterator[FieldFault]:
    """Yield requests that containers name and that the claim of their pod does not have."""
    if document.kind not in TEMPLATES:
        return
    spec = at(document.body, *TEMPLATES[document.kind], "spec")
    names = {
        text(entry, "name"): request_names(claimed)
        for entry in listed(spec, "resourceClaims")
        if (claimed := _claimed_devices(entry, document.namespace, world)) is not None
    }
    for group in ("initContainers", "containers"):
        for place, container in enumerate(listed(spec, group)):
            for number_, used in enumerate(listed(container, "resources", "claims")):
                known, request = names.get(text(used, "name")), text(used, "request")
                if request and known is not None and request not in known:
                    path = join("", *TEMPLATES[document.kind], "spec", group, place, "resources", "claims", number_)
                    yield FieldFault(
                        field=join(path, "request"),
                        value=request,
                        what=f"is no request of the claim {text(used, 'name')}",
                        cure=f"write {nearest(request, known) or ' or '.join(sorted(known))}",
                    )


def _claimed_devices(entry: Object, namespace: str, world: World) -> object:
    """Return the devices that a pod's claim asks for; None where what it is made from is not known."""
    template = text(entry, "resourceClaimTemplateName")
    if template:
        return at(world.body("ResourceClaimTemplate", template, namespace), "spec", "spec", "devices")
    return at(world.body("ResourceClaim", text(entry, "resourceClaimName"), namespace), "spec", "devices")


def _verbs(document: Document, world: World) -> Iterator[FieldFault]:
    """Yield a call of kubectl in a CronJob of the namespace that its own Role does not let it make."""
    bound = {
        text(subject, "name")
        for binding in world.folder.objects
        if binding.kind == "RoleBinding"
        and binding.namespace == document.namespace
        and text(binding.body, "roleRef", "name") == document.name
        for subject in listed(binding.body, "subjects")
    }
    for job in world.folder.objects:
        spec = (
            at(job.body, *TEMPLATES["CronJob"], "spec")
            if job.kind == "CronJob" and job.namespace == document.namespace
            else None
        )
        for container in listed(spec, "containers") if text(spec, "serviceAccountName") in bound else ():
            words = _texts(at(container, "args")) or _texts(at(container, "command"))[1:]
            if "kubectl" in text(container, "image") and words and words[0] in ("get", "patch", "delete", "create"):
                yield from _call(words, job.called, listed(document.body, "rules"))


def _call(words: list[str], caller: str, rules: list[Object]) -> Iterator[FieldFault]:
    """Yield why a call of kubectl (verb, resource, name) is not allowed by any rule of a role."""
    verb, resource, name = (*words, "", "")[:3]
    plural = resource.partition(".")[0]
    allowed = {item for rule in rules for item in _texts(at(rule, "verbs"))}
    if not allowed & {verb, "*"}:
        yield FieldFault(
            field="rules[0].verbs", value=", ".join(sorted(allowed)), what=f"does not let {caller} {verb}",
            cure=f"add the verb {verb}",
        )  # fmt: skip
        return
    # other spellings of a resource (singular, short) are left alone: which rule is theirs is not known here
    of_it = [(place, rule) for place, rule in enumerate(rules) if plural in _texts(at(rule, "resources"))]
    names = {item for _, rule in of_it for item in _texts(at(rule, "resourceNames"))}
    is_bound = bool(of_it) and all(at(rule, "resourceNames") for _, rule in of_it)
    if is_bound and name and not name.startswith("-") and name not in names:
        yield FieldFault(
            field=f"rules[{of_it[0][0]}].resourceNames", value=", ".join(sorted(names)),
            what=f"does not let {caller} {verb} {plural} {name}", cure=f"add the name {name}",
        )  # fmt: skip


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _server(document: Document, world: World) -> Iterator[FieldFault]:
    """Yield servers of triggers whose Service the cluster does not have."""
    if document.kind != "ScaledObject" or world.cluster is None or not world.cluster.knows_all("Service"):
        return
    for place, trigger in enumerate(listed(document.body, "spec", "triggers")):
        address = text(trigger, "metadata", "serverAddress")
        found = re.match(r"https?://([a-z0-9-]+)\.([a-z0-9-]+)\.svc(\.|:|/|$)", address)
        if found and found[1] not in world.cluster.names("Service", found[2]):
            known = {f"{key[3]}.{key[2]}.svc" for key in world.cluster.objects if key[1] == "Service"}
            near = nearest(f"{found[1]}.{found[2]}.svc", known, least_frac=0.6)
            yield FieldFault(
                field=join("spec.triggers", place, "metadata", "serverAddress"),
                value=address,
                what="is no Service of the cluster",
                cure=f"write {near}" if near else "see kubectl get services -A",
            )


def _selected_rules(document: Document, world: World) -> Iterator[FieldFault]:
    """Yield rules that no Prometheus of the cluster selects by its `ruleSelector`."""
    if document.kind != "PrometheusRule" or world.cluster is None:
        return
    wanted = [
        mapping(body, "spec", "ruleSelector", "matchLabels")
        for key, body in world.cluster.objects.items()
        if key[:2] == ("monitoring.coreos.com", "Prometheus")
    ]
    labels = mapping(document.body, "metadata", "labels")
    if wanted and not any(all(labels.get(key) == value for key, value in each.items()) for each in wanted):
        said = " or ".join(", ".join(f"{key}: {value}" for key, value in each.items()) for each in wanted)
        yield FieldFault(
            field="metadata.labels",
            value=labels,
            what="are not those by which Prometheus selects rules: they are never loaded",
            cure=f"add {said}",
        )


def _budgeted(document: Document, world: World) -> Iterator[FieldFault]:
    """Yield a disruption budget whose labels no pods have, where the pods of its namespace are known."""
    if document.kind != "PodDisruptionBudget":
        return
    wanted = mapping(document.body, "spec", "selector", "matchLabels")
    known = {
        name: labels
        for name, labels in (world.cluster.pod_labels if world.cluster else {}).items()
        if name.startswith(f"{document.namespace}/")
    }
    if (
        known
        and wanted
        and not any(all(labels.get(key) == value for key, value in wanted.items()) for labels in known.values())
    ):
        near = nearest(document.name, known, least_frac=0.3)
        said = ", ".join(f"{key}: {value}" for key, value in known[near or next(iter(known))].items())
        yield FieldFault(
            field="spec.selector.matchLabels",
            value=wanted,
            what="selects no pods",
            cure=f"write the labels of its pods, such as {said}",
        )


def _scaled(document: Document, world: World, workloads: Mapping[str, str]) -> Iterator[FieldFault]:
    if document.kind not in ("HorizontalPodAutoscaler", "ScaledObject"):
        return
    namespace, kind, name = _target(document.body)
    full = f"{namespace or 'default'}/{name}"
    there = workloads.get(full)
    if there is not None:
        if there and there != kind:
            yield FieldFault(
                field="spec.scaleTargetRef.kind",
                value=kind,
                what=f"is not what {full} is, a {there}",
                cure=f"write {there}",
            )
        return
    hinted = {patch.name for patch in world.patches if patch.kind == kind}
    near = nearest(full, workloads, least_frac=0.7) or nearest(name, hinted, least_frac=0.8)
    if world.cluster is None and (name in hinted or any(patch.fits(kind, name) for patch in world.patches)):
        return
    sure = world.cluster is not None or bool(near)
    cure = f"write {near}" if near else "give --against, or write the name of a workload there"
    yield FieldFault(
        field="spec.scaleTargetRef.name",
        value=full,
        what="is no workload that is known: it scales nothing",
        cure=cure,
        severity=Severity.ERROR if sure else Severity.WARNING,
    )


def _patched(patch: Patch, world: World, workloads: Mapping[str, str]) -> Iterator[FieldFault]:
    """Yield a patch that is for nothing, and references out of it."""
    known = [(full.partition("/")[2], kind) for full, kind in workloads.items()]
    fits = [name for name, kind in known if patch.fits(kind or patch.kind, name)]
    if world.cluster is not None and known and not fits and patch.kind in WORKLOAD_KINDS:
        near = nearest(re.sub(r"\W+$", "", patch.name.partition("(")[0]), [name for name, _ in known], least_frac=0.7)
        cure = (
            f"target {' or '.join(sorted({kind or patch.kind for name, kind in known if name == near}))} {near}"
            if near
            else "see kubectl get deployments,statefulsets,jobs -A"
        )
        yield FieldFault(
            field=patch.path.removesuffix("patch") + "target.name",
            value=f"{patch.kind} {patch.name}",
            what="matches no workload of the cluster: kustomize passes it over without a word",
            cure=cure,
        )
    yield from _of_no_kind(patch, world, known)
    body = patch.body or {}
    for path, labels in (
        ("metadata.labels", mapping(body, "metadata", "labels")),
        ("spec.template.metadata.labels", mapping(body, "spec", "template", "metadata", "labels")),
    ):
        queue = labels.get(_QUEUE_LABEL, "")
        yield from _missing(_Reference(join(f"{patch.path}:{path}", _QUEUE_LABEL), "LocalQueue", queue), world)
    pods = pod_spec_path(patch.kind)
    for reference in _of_pods(at(body, *pods), f"{patch.path}:{'.'.join(pods)}"):
        yield from _missing(reference, world)
    for place, step in enumerate(patch.operations):
        if source := claim_source(text(step, "path")):
            yield from _missing(_Reference(join(patch.path, place, "value"), source, text(step, "value")), world)


def _of_no_kind(patch: Patch, world: World, workloads: Iterable[tuple[str, str]]) -> Iterator[FieldFault]:
    """Yield a patch whose target is of no kind that there is; sure where its name or spelling tells which one is meant."""
    known = world.kinds | WORKLOAD_KINDS | {document.kind for document in world.folder.objects}
    known |= {key[1] for key in (world.cluster.objects if world.cluster else ())}
    if not patch.kind or any(patch.is_of(kind) for kind in known):
        return
    meant = sorted({kind for name, kind in workloads if kind and patch.names(name)})
    near = nearest(patch.kind, meant or known, least_frac=0.3 if meant else 0.7)
    cure = near or " or ".join(meant)
    yield FieldFault(
        field=patch.path.removesuffix("patch") + "target.kind",
        value=patch.kind,
        what="is no kind that is known: kustomize passes it over without a word",
        cure=f"write {cure}" if cure else "see kubectl api-resources, or give --context or --schemas",
        severity=Severity.ERROR if cure else Severity.WARNING,
    )
