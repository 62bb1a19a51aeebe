"""Pods and the node pools that they select: taints that keep them off, labels that no node has, GPUs that no node could give.

Checked as `trimtab review` does, from the same reading of pods and node pools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trimtab.check.cluster import TEMPLATES, WORKLOAD_KINDS
from trimtab.check.faults import FieldFault, ObjectFault, join, nearest, placed
from trimtab.check.references import World
from trimtab.errors import InputError
from trimtab.fleet.owner_kinds import pod_spec_path
from trimtab.review.manifests import DeclaredPods, Manifests, read_objects
from trimtab.review.pools import NODE_POOL_LABEL, NodePool
from trimtab.sources.kubernetes.objects import Object, listed, text

_KEPT_OFF = frozenset({"NoSchedule", "NoExecute"})


def scheduling_faults(world: World) -> Iterator[ObjectFault]:
    """Yield pods that no node of the pool which they select would take, and taints that look misspelt."""
    yield from _scheduled(world)
    yield from _odd_taints(world)


def _odd_taints(world: World) -> Iterator[ObjectFault]:
    """Yield a taint whose value is nearly that of other pools: what tolerates those would not tolerate it."""
    pools = [document for document in world.folder.objects if document.kind == "NodePool"]
    values: dict[str, list[str]] = {}
    for document in pools:
        for taint in listed(document.body, "spec", "template", "spec", "taints"):
            values.setdefault(text(taint, "key"), []).append(text(taint, "value"))
    for document in pools:
        for place, taint in enumerate(listed(document.body, "spec", "template", "spec", "taints")):
            value, others = text(taint, "value"), values[text(taint, "key")]
            near = nearest(
                value, {other for other in others if other != value and others.count(other) > others.count(value)}
            )
            if near:
                path = join("spec.template.spec.taints", place, "value")
                what = "is nearly the value of other pools' taints: what tolerates those does not tolerate this one"
                yield placed(
                    document.file, document.called, FieldFault(field=path, value=value, what=what, cure=f"write {near}")
                )


def _scheduled(world: World) -> Iterator[ObjectFault]:
    """Yield pods that no node of the pool which they select would take."""
    pools = {
        name: pool
        for document in world.folder.objects
        if document.kind == "NodePool"
        for name, pool in _manifests(document.file, document.body).pools.items()
    }
    for document in world.folder.objects:
        if document.kind in TEMPLATES and document.kind != "Pod":
            path = ".".join((*TEMPLATES[document.kind], "spec"))
            for pods in _manifests(document.file, document.body).pods.values():
                for found in _placed_pods(pods, pools, world, path, whole=True):
                    yield placed(document.file, document.called, found)
    for patch in world.patches:
        if patch.is_applied and patch.body is not None and patch.kind in WORKLOAD_KINDS:
            name = text(patch.body, "metadata", "name") or "patched"
            body = {**patch.body, "kind": patch.kind, "metadata": {"name": name}}
            path = f"{patch.path}:{'.'.join(pod_spec_path(patch.kind))}"
            for pods in _manifests(patch.document.file, body).pods.values():
                for found in _placed_pods(pods, pools, world, path, whole=False):
                    yield placed(patch.document.file, patch.document.called, found)


def _manifests(file: str, body: Object) -> Manifests:
    """Return what an object asks for; nothing where it cannot be read, which its own faults say."""
    try:
        return read_objects([(file, body)])
    except InputError:
        return Manifests()


def _placed_pods(
    pods: DeclaredPods, pools: Mapping[str, NodePool], world: World, path: str, *, whole: bool
) -> Iterator[FieldFault]:
    named = pods.selected(NODE_POOL_LABEL)
    where = join(path, "nodeSelector", NODE_POOL_LABEL)
    if named is None:
        yield from _unspelled(pods, path)
        return
    pool = pools.get(named)
    if pool is None:
        if lost := world.missing("NodePool", named):
            yield FieldFault(
                field=where,
                value=named,
                what="is no NodePool that is known: its pods stay pending",
                cure=lost[0],
                severity=lost[1],
            )
        return
    for taint in pool.taints if whole or pods.tolerations is not None else ():
        if taint.effect in _KEPT_OFF and not any(toleration.tolerates(taint) for toleration in pods.tolerations or ()):
            said = f"{taint.key}={taint.value}:{taint.effect}"
            yield FieldFault(
                field=join(path, "tolerations"),
                value=[
                    f"{toleration.key}={toleration.value}:{toleration.effect}" for toleration in pods.tolerations or ()
                ],
                what=f"does not tolerate {said} of NodePool {named}: its pods stay pending",
                cure=f"tolerate {said}",
            )
    for key, value in pods.node_selector:
        given = pool.requirements.get(key, (pool.labels[key],) if key in pool.labels else ())
        if given and value not in given:
            yield FieldFault(
                field=join(path, "nodeSelector", key),
                value=value,
                what=f"is not what nodes of NodePool {named} have",
                cure=f"write {' or '.join(given)}",
            )
    yield from _room(pods, pool, world, path)


def _unspelled(pods: DeclaredPods, path: str) -> Iterator[FieldFault]:
    """Yield a selector whose key is nearly that of a node pool."""
    for key, _ in pods.node_selector:
        if key != NODE_POOL_LABEL and nearest(key, [NODE_POOL_LABEL], least_frac=0.85):
            yield FieldFault(
                field=join(path, "nodeSelector", key),
                value=key,
                what="is no label that nodes have",
                cure=f"write {NODE_POOL_LABEL}",
            )


def _room(pods: DeclaredPods, pool: NodePool, world: World, path: str) -> Iterator[FieldFault]:
    """Yield pods that ask for more GPUs than any node of their pool has, or than the pool may hold."""
    asked = pods.gpus or 0
    sizes = [
        instance_type.gpu_count
        for instance_type in world.catalog.instance_types
        if instance_type.name in pool.instance_types
    ]
    if sizes and asked > max(sizes):
        yield FieldFault(
            field=join(path, "containers"),
            value=asked,
            what=f"asks for more GPUs than the {max(sizes)} of a node of NodePool {pool.name}",
            cure=f"ask for {max(sizes)} or less",
        )
    elif pool.gpu_limit is not None and asked > pool.gpu_limit:
        yield FieldFault(
            field=join(path, "containers"),
            value=asked,
            what=f"asks for more GPUs than NodePool {pool.name} may hold ({pool.gpu_limit})",
            cure="raise spec.limits of the pool",
        )
