"""What a server refuses in pods, Jobs and CronJobs though their schemas allow it: rules that live in Kubernetes' code.

Sources: k8s.io/kubernetes pkg/apis/core/validation/validation.go and pkg/apis/batch/validation/validation.go (v1.34).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trimtab.check.cluster import TEMPLATES
from trimtab.check.faults import FieldFault, join, nearest
from trimtab.check.names import amount, dns_label, dns_subdomain, label_key, label_value, time_zone
from trimtab.check.resource_claims import pod_claim_faults
from trimtab.review.timetables import timetable
from trimtab.sources.kubernetes.objects import Object, at, listed, mapping, number, quantity, text
from trimtab.units import BYTES_PER_MIB

RESTARTS = {"Job": ("Never", "OnFailure"), "CronJob": ("Never", "OnFailure"), "Pod": ("Always", "OnFailure", "Never")}
_ENUMS: Mapping[str, tuple[str, ...]] = {
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "dnsPolicy": ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    "preemptionPolicy": ("PreemptLowerPriority", "Never"),
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "completionMode": ("NonIndexed", "Indexed"),
    "podReplacementPolicy": ("TerminatingOrFailed", "Failed"),
    "concurrencyPolicy": ("Allow", "Forbid", "Replace"),
}
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_GPUS = ("nvidia.com/gpu", "nvidia.com/gpu.shared")
_OWN_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_IMAGE = re.compile(
    r"[a-z0-9]+([._-]+[a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[\w][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
_MOST_SECONDS = 2**31 - 1


def one_of(body: object, name: str, allowed: tuple[str, ...], path: str) -> Iterator[FieldFault]:
    """Yield a fault where a field is stated and none of the words that are allowed."""
    value = at(body, name)
    if value is not None and value not in allowed:
        near = nearest(str(value), allowed)
        cure = f"write {near}" if near else f"write one of {', '.join(allowed)}"
        yield FieldFault(field=join(path, name), value=value, what="is none of the values that are allowed", cure=cure)


def at_least(body: object, name: str, least: float, path: str, most: float = _MOST_SECONDS) -> Iterator[FieldFault]:
    """Yield a fault where a stated number lies outside its bounds."""
    value = number(body, name)
    if value is not None and not least <= value <= most:
        bound = f"at least {least:g}" if most == _MOST_SECONDS else f"{least:g} to {most:g}"
        yield FieldFault(
            field=join(path, name), value=value, what="is out of its bounds", cure=f"write a number of {bound}"
        )


def pod_faults(kind: str, body: Object, *, partial: bool = False) -> Iterator[FieldFault]:
    """Yield the faults of an object's pods, and of the Job or timetable around them."""
    if kind == "CronJob":
        yield from _cron_job(body, partial)
    if kind in ("Job", "CronJob"):
        path = "spec.jobTemplate.spec" if kind == "CronJob" else "spec"
        yield from _job(at(body, *path.split(".")), path, partial)
    if kind in ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet"):
        yield from at_least(at(body, "spec"), "replicas", 0, "spec")
        yield from _selects_its_pods(body, partial)
        yield from _rollout(body)
    where = TEMPLATES[kind]
    template = at(body, *where)
    path = join("", *where)
    yield from label_faults(at(template, "metadata"), join(path, "metadata"))
    spec = at(template, "spec")
    if spec is not None and not isinstance(spec, Mapping):
        yield FieldFault(
            field=join(path, "spec"), value=spec, what="is no mapping of fields", cure="write a pod's spec"
        )
    if isinstance(spec, Mapping):
        yield from _pod(spec, join(path, "spec"), RESTARTS.get(kind, ("Always",)), partial)


def label_faults(metadata: object, path: str) -> Iterator[FieldFault]:
    """Yield what is wrong with the spelling of labels and annotations."""
    for name in ("labels", "annotations"):
        stated = at(metadata, name)
        for key, value in stated.items() if isinstance(stated, Mapping) else ():
            wrong = label_key(str(key)) or (label_value(value) if name == "labels" and isinstance(value, str) else None)
            if wrong:
                yield FieldFault(field=join(path, name, str(key)), value=value, what=wrong, cure="spell it otherwise")


def _cron_job(body: Object, partial: bool) -> Iterator[FieldFault]:
    spec = at(body, "spec")
    schedule = at(spec, "schedule")
    if schedule is not None and (wrong := timetable(str(schedule))):
        yield FieldFault(
            field="spec.schedule", value=schedule, what=wrong, cure="write five fields, such as 55 23 * * 5"
        )
    elif "TZ=" in str(schedule):
        yield FieldFault(field="spec.schedule", value=schedule, what="names a time zone", cure="use spec.timeZone")
    zone = at(spec, "timeZone")
    if zone is not None and (wrong := time_zone(str(zone))):
        yield FieldFault(field="spec.timeZone", value=zone, what=wrong, cure="write one such as Etc/UTC")
    yield from one_of(spec, "concurrencyPolicy", _ENUMS["concurrencyPolicy"], "spec")
    for name in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        yield from at_least(spec, name, 0, "spec")
    deadline = number(spec, "startingDeadlineSeconds")
    if deadline is not None and 0 <= deadline < 10:
        yield FieldFault(
            field="spec.startingDeadlineSeconds", value=deadline, cure="write 10 or more",
            what="is less than the 10 s between two looks of the controller: it may never start",
        )  # fmt: skip


def _job(spec: object, path: str, partial: bool) -> Iterator[FieldFault]:
    for name in ("parallelism", "completions", "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes"):
        yield from at_least(spec, name, 0, path)
    yield from at_least(spec, "ttlSecondsAfterFinished", 0, path)
    yield from at_least(spec, "activeDeadlineSeconds", 1, path)
    for name in ("completionMode", "podReplacementPolicy"):
        yield from one_of(spec, name, _ENUMS[name], path)
    completions, failed = number(spec, "completions"), number(spec, "maxFailedIndexes")
    indexed = text(spec, "completionMode") == "Indexed"
    if not partial:
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if at(spec, name) is not None and not indexed:
                yield FieldFault(
                    field=join(path, name), value=at(spec, name), what="is for indexed Jobs only",
                    cure="write completionMode: Indexed",
                )  # fmt: skip
        if indexed and completions is None:
            yield FieldFault(field=path, value=None, what="is Indexed and lacks completions", cure="add completions")
        if failed is not None and at(spec, "backoffLimitPerIndex") is None:
            yield FieldFault(
                field=join(path, "maxFailedIndexes"), value=failed, what="needs backoffLimitPerIndex", cure="add it"
            )
    if completions is not None and failed is not None and failed > completions:
        yield FieldFault(
            field=join(path, "maxFailedIndexes"), value=failed, what=f"is more than the {completions:g} completions",
            cure=f"write {completions:g} or less",
        )  # fmt: skip
    policy, restart = at(spec, "podFailurePolicy"), text(spec, "template", "spec", "restartPolicy")
    if policy is not None and restart != "Never" and not (partial and not restart):
        yield FieldFault(
            field=join(path, "template", "spec", "restartPolicy"), value=restart, what="has a podFailurePolicy beside it",
            cure="write Never",
        )  # fmt: skip


def _selects_its_pods(body: Object, partial: bool) -> Iterator[FieldFault]:
    wanted = mapping(body, "spec", "selector", "matchLabels")
    labels = mapping(body, "spec", "template", "metadata", "labels")
    if partial:
        return
    for key, value in wanted.items():
        if labels.get(key) != value:
            yield FieldFault(
                field=join("spec.selector.matchLabels", key), value=value, what="is not among the labels of its own pods",
                cure=f"give spec.template.metadata.labels {key}: {value}",
            )  # fmt: skip


def _rollout(body: Object) -> Iterator[FieldFault]:
    rolling = at(body, "spec", "strategy", "rollingUpdate")
    surge, unavailable = at(rolling, "maxSurge"), at(rolling, "maxUnavailable")
    if str(surge) in ("0", "0%") and str(unavailable) in ("0", "0%"):
        yield FieldFault(
            field="spec.strategy.rollingUpdate",
            value="0 and 0",
            what="allows no pod to be added or removed",
            cure="let one be 1",
        )


def _pod(spec: Object, path: str, restarts: tuple[str, ...], partial: bool) -> Iterator[FieldFault]:
    yield from one_of(spec, "restartPolicy", restarts, path)
    if not partial and "Always" not in restarts and at(spec, "restartPolicy") is None:
        cure = f"write {' or '.join(restarts)}"
        yield FieldFault(
            field=join(path, "restartPolicy"), value=None, what="is not stated, and a Job asks for it", cure=cure
        )
    for name in ("dnsPolicy", "preemptionPolicy"):
        yield from one_of(spec, name, _ENUMS[name], path)
    for name in ("terminationGracePeriodSeconds",):
        yield from at_least(spec, name, 0, path)
    yield from at_least(spec, "activeDeadlineSeconds", 1, path)
    for name in ("priorityClassName", "serviceAccountName", "runtimeClassName"):
        value = at(spec, name)
        if isinstance(value, str) and value and (wrong := dns_subdomain(value)):
            yield FieldFault(field=join(path, name), value=value, what=wrong, cure="write the name of an object")
    selector = at(spec, "nodeSelector")
    for key, value in selector.items() if isinstance(selector, Mapping) else ():
        wrong = label_key(str(key)) or (label_value(value) if isinstance(value, str) else None)
        if wrong:
            yield FieldFault(
                field=join(path, "nodeSelector", str(key)), value=value, what=wrong, cure="spell it as the node's label"
            )
    for place, toleration in enumerate(listed(spec, "tolerations")):
        yield from toleration_faults(toleration, join(path, "tolerations", place))
    yield from _containers(spec, path, partial)
    yield from pod_claim_faults(spec, path, partial=partial)


def toleration_faults(toleration: Object, path: str) -> Iterator[FieldFault]:
    """Yield what is wrong with a toleration."""
    operator, key = text(toleration, "operator") or "Equal", text(toleration, "key")
    yield from one_of(toleration, "operator", ("Equal", "Exists"), path)
    yield from one_of(toleration, "effect", EFFECTS, path)
    if key and (wrong := label_key(key)):
        yield FieldFault(field=join(path, "key"), value=key, what=wrong, cure="spell it as the taint's key")
    if not key and operator != "Exists":
        yield FieldFault(field=path, value=None, what="tolerates no key", cure="state key, or operator: Exists")
    if operator == "Exists" and text(toleration, "value"):
        yield FieldFault(
            field=join(path, "value"),
            value=at(toleration, "value"),
            what="stands beside operator Exists",
            cure="take it out",
        )
    if at(toleration, "tolerationSeconds") is not None and text(toleration, "effect") != "NoExecute":
        yield FieldFault(
            field=join(path, "tolerationSeconds"), value=at(toleration, "tolerationSeconds"), what="is for NoExecute only",
            cure="take it out, or write effect: NoExecute",
        )  # fmt: skip


def _containers(spec: Object, path: str, partial: bool) -> Iterator[FieldFault]:
    names = set[str]()
    volumes = {text(volume, "name") for volume in listed(spec, "volumes")}
    for group in ("initContainers", "containers"):
        for place, container in enumerate(listed(spec, group)):
            where, name = join(path, group, place), text(container, "name")
            if name in names:
                yield FieldFault(field=join(where, "name"), value=name, what="stands twice", cure="name each once")
            names.add(name)
            if name and (wrong := dns_label(name)):
                yield FieldFault(field=join(where, "name"), value=name, what=wrong, cure="write a DNS label")
            yield from _container(container, where, partial)
            for at_place, mount in enumerate(listed(container, "volumeMounts")):
                if not partial and text(mount, "name") not in volumes:
                    yield FieldFault(
                        field=join(where, "volumeMounts", at_place, "name"), value=text(mount, "name"),
                        what="is no volume of the pod", cure=f"write one of {', '.join(sorted(volumes)) or 'spec.volumes'}",
                    )  # fmt: skip


def _container(container: Object, path: str, partial: bool) -> Iterator[FieldFault]:
    image = at(container, "image")
    if not partial and not image:
        yield FieldFault(field=join(path, "image"), value=image, what="is not stated", cure="write an image")
    elif isinstance(image, str) and not _IMAGE.fullmatch(image):
        yield FieldFault(
            field=join(path, "image"),
            value=image,
            what="is no reference to an image",
            cure="write host/name:tag, in lower case",
        )
    yield from one_of(container, "imagePullPolicy", _ENUMS["imagePullPolicy"], path)
    for place, variable in enumerate(listed(container, "env")):
        if not re.fullmatch(r"[-._a-zA-Z][-._a-zA-Z0-9]*", text(variable, "name")):
            yield FieldFault(
                field=join(path, "env", place, "name"), value=at(variable, "name"), what="is no name of a variable",
                cure="write letters, digits, _, - and . only",
            )  # fmt: skip
    for place, port in enumerate(listed(container, "ports")):
        yield from at_least(port, "containerPort", 1, join(path, "ports", place), 65_535)
    context = at(container, "securityContext")
    yield from at_least(context, "runAsUser", 0, join(path, "securityContext"))
    if at(context, "runAsNonRoot") is True and number(context, "runAsUser") == 0:
        yield FieldFault(
            field=join(path, "securityContext", "runAsUser"), value=0, what="is root beside runAsNonRoot",
            cure="write a number above 0",
        )  # fmt: skip
    yield from _resources(at(container, "resources"), join(path, "resources"), partial)


def _resources(resources: object, path: str, partial: bool) -> Iterator[FieldFault]:
    requests, limits = at(resources, "requests"), at(resources, "limits")
    requests = requests if isinstance(requests, Mapping) else {}
    limits = limits if isinstance(limits, Mapping) else {}
    for part, stated in (("requests", requests), ("limits", limits)):
        for key, value in stated.items():
            yield from _resource(str(key), value, join(path, part, str(key)))
    for key in requests:
        asked, most = quantity(requests[key]), quantity(limits.get(key))
        if asked is not None and most is not None and asked > most:
            yield FieldFault(
                field=join(path, "requests", str(key)), value=requests[key], what=f"is more than its limit {limits[key]}",
                cure=f"write {limits[key]} or less",
            )  # fmt: skip
        extended = "/" in str(key)
        if extended and not partial and (most is None or asked != most):
            yield FieldFault(
                field=join(path, "limits", str(key)), value=limits.get(key),
                what=f"is not the {requests[key]} that is requested: devices cannot be overcommitted",
                cure=f"write {requests[key]} under both",
            )  # fmt: skip


def _resource(key: str, value: object, path: str) -> Iterator[FieldFault]:
    if value is None:
        return
    if wrong := amount(value):
        yield FieldFault(field=path, value=value, what=wrong, cure="write one such as 500m, 16Gi or 8")
        return
    count = quantity(value) or 0.0
    if "/" not in key and key not in _OWN_RESOURCES and not key.startswith("hugepages-"):
        near = nearest(key, [*_OWN_RESOURCES, *_GPUS])
        yield FieldFault(
            field=path,
            value=value,
            what="is no resource",
            cure=f"write {near or 'cpu, memory or a device such as nvidia.com/gpu'}",
        )
    elif "/" in key and count != int(count):
        yield FieldFault(field=path, value=value, what="is a share of a device", cure="write a whole number")
    elif misspelt_device(key) or (key.startswith("nvidia.com/") and not is_device(key)):
        yield FieldFault(
            field=path,
            value=value,
            what="is no device of NVIDIA's plugin",
            cure=f"write {nearest(key, _GPUS) or _GPUS[0]}",
        )
    elif key == "memory" and 0 < count < BYTES_PER_MIB:
        yield FieldFault(
            field=path, value=value, what="is less than 1 MiB: no container starts", cure="write its unit, such as 16Mi"
        )
    elif key == "cpu" and count > 1024:
        yield FieldFault(
            field=path,
            value=value,
            what="is more cores than any node has",
            cure="write thousandths with m, such as 10m",
        )


def misspelt_device(key: str) -> str | None:
    """Return the device that a name of a resource is nearly, letters of either case alike; None where it is one, or like none.

    >>> misspelt_device("nvidia.com/GPU"), misspelt_device("nvidia.com/gpu"), misspelt_device("vpc.amazonaws.com/efa")
    ('nvidia.com/gpu', None, None)
    """
    return nearest(key.lower(), _GPUS, least_frac=0.8) if "/" in key and not is_device(key) else None


def is_device(key: str) -> bool:
    """Return whether a resource is one that NVIDIA's device plugin offers: GPUs, shares of them, MIG profiles."""
    return key in _GPUS or bool(re.fullmatch(r"nvidia\.com/mig-\d+g\.\d+gb(\.me|\.me\.all)?(\.shared)?", key))
