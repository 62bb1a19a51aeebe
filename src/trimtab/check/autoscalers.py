"""What HorizontalPodAutoscalers and KEDA's ScaledObjects must keep though their schemas allow more.

Sources: k8s.io/kubernetes pkg/apis/autoscaling/validation/validation.go (v1.34); kedacore/keda v2.18
apis/keda/v1alpha1/scaledobject_types.go and scaledobject_webhook.go (names, counts, fallback, cron), pkg/scalers (triggers).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trimtab.check.faults import FieldFault, Severity, join, nearest
from trimtab.check.names import LABEL_LENGTH, amount, time_zone
from trimtab.check.pods import at_least, one_of
from trimtab.review.timetables import timetable
from trimtab.sources.kubernetes.objects import Object, at, listed, mapping, number, quantity, text

SCALED_APIS = {
    "Deployment": "apps/v1", "StatefulSet": "apps/v1", "ReplicaSet": "apps/v1", "Rollout": "argoproj.io/v1alpha1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1", "ReplicationController": "v1",
}  # fmt: skip
_SOURCES = {
    "Resource": "resource", "Pods": "pods", "Object": "object", "External": "external",
    "ContainerResource": "containerResource",
}  # fmt: skip
_TARGETS = {"Utilization": "averageUtilization", "Value": "value", "AverageValue": "averageValue"}
_MOST_STABLE_S = 3600
_MOST_PERIOD_S = 1800
_TRIGGERS = frozenset(
    [
        "activemq",
        "apache-kafka",
        "arangodb",
        "artemis-queue",
        "aws-cloudwatch",
        "aws-dynamodb",
        "aws-dynamodb-streams",
        "aws-kinesis-stream",
        "aws-sqs-queue",
        "azure-app-insights",
        "azure-blob",
        "azure-data-explorer",
        "azure-eventhub",
        "azure-log-analytics",
        "azure-monitor",
        "azure-pipelines",
        "azure-queue",
        "azure-servicebus",
        "beanstalkd",
        "cassandra",
        "couchdb",
        "cpu",
        "cron",
        "datadog",
        "dynatrace",
        "elasticsearch",
        "etcd",
        "external",
        "external-push",
        "gcp-cloudtasks",
        "gcp-pubsub",
        "gcp-stackdriver",
        "gcp-storage",
        "github-runner",
        "graphite",
        "huawei-cloudeye",
        "ibmmq",
        "influxdb",
        "kafka",
        "kubernetes-workload",
        "liiklus",
        "loki",
        "memory",
        "metrics-api",
        "mongodb",
        "mssql",
        "mysql",
        "nats-jetstream",
        "new-relic",
        "nsq",
        "openstack-metric",
        "openstack-swift",
        "postgresql",
        "predictkube",
        "prometheus",
        "pulsar",
        "rabbitmq",
        "redis",
        "redis-cluster",
        "redis-cluster-streams",
        "redis-sentinel",
        "redis-sentinel-streams",
        "redis-streams",
        "selenium-grid",
        "solace-event-queue",
        "solr",
        "splunk",
        "splunk-observability",
        "stan",
        "sumologic",
        "temporal",
    ]
)
_METADATA = {
    "prometheus": frozenset(
        [
            "serverAddress",
            "query",
            "queryParameters",
            "threshold",
            "activationThreshold",
            "namespace",
            "customHeaders",
            "ignoreNullValues",
            "unsafeSsl",
            "timeout",
            "authModes",
            "awsRegion",
            "cortexOrgID",
            "metricName",
        ]
    ),
    "cron": frozenset(["timezone", "start", "end", "desiredReplicas", "metricName"]),
}
_NEEDED = {
    "prometheus": ("serverAddress", "query", "threshold"),
    "cron": ("timezone", "start", "end", "desiredReplicas"),
}
_PREFIX = "keda-hpa-"


def scaler_faults(kind: str, body: Object) -> Iterator[FieldFault]:
    """Yield the faults of an autoscaler."""
    yield from _target(at(body, "spec", "scaleTargetRef"), kind)
    if kind == "HorizontalPodAutoscaler":
        yield from _horizontal(at(body, "spec"))
    else:
        yield from _scaled_object(body)


def _target(target: object, kind: str) -> Iterator[FieldFault]:
    path = "spec.scaleTargetRef"
    wanted, version = text(target, "kind") or "Deployment", at(target, "apiVersion")
    known = SCALED_APIS.get(wanted)
    if known is None:
        near = nearest(wanted, SCALED_APIS, least_frac=0.8)
        severity = Severity.ERROR if near or wanted in _UNSCALED else Severity.WARNING
        cure = f"write {near}" if near else f"name one of {', '.join(SCALED_APIS)}"
        yield FieldFault(
            field=f"{path}.kind", value=wanted, what="is not known to have replicas", cure=cure, severity=severity
        )
    elif version is None and kind == "HorizontalPodAutoscaler":
        yield FieldFault(field=path, value=None, what="lacks apiVersion", cure=f"add apiVersion: {known}")
    elif version is not None and version != known:
        yield FieldFault(
            field=f"{path}.apiVersion", value=version, what=f"is not that of a {wanted}", cure=f"write {known}"
        )


_UNSCALED = frozenset({"Job", "CronJob", "DaemonSet", "Pod", "Service", "ConfigMap", "Node", "Namespace", "Notebook"})


def _horizontal(spec: object) -> Iterator[FieldFault]:
    least, most = number(spec, "minReplicas"), number(spec, "maxReplicas")
    yield from at_least(spec, "minReplicas", 1, "spec")
    yield from at_least(spec, "maxReplicas", 1, "spec")
    if least is not None and most is not None and least > most:
        yield FieldFault(
            field="spec.minReplicas",
            value=least,
            what=f"is more than maxReplicas {most:g}",
            cure=f"write {most:g} or less",
        )
    if isinstance(at(spec, "metrics"), list) and not listed(spec, "metrics"):
        yield FieldFault(field="spec.metrics", value="[]", what="is empty", cure="add a metric, or take the object out")
    for place, metric in enumerate(listed(spec, "metrics")):
        yield from _metric(metric, join("spec.metrics", place))
    yield from _behaviour(at(spec, "behavior"), "spec.behavior")


def _metric(metric: Object, path: str) -> Iterator[FieldFault]:
    kind = text(metric, "type")
    yield from one_of(metric, "type", tuple(_SOURCES), path)
    source = _SOURCES.get(kind)
    stated = [name for name in _SOURCES.values() if at(metric, name) is not None]
    if source is not None and stated != [source]:
        yield FieldFault(
            field=path,
            value=", ".join(stated),
            what=f"is of type {kind} and states another source",
            cure=f"state {source} and nothing else",
        )
        return
    target = at(metric, source, "target") if source else None
    if target is None:
        return
    form = text(target, "type")
    yield from one_of(target, "type", tuple(_TARGETS), join(path, source or "", "target"))
    value = at(target, _TARGETS[form]) if form in _TARGETS else 1
    where = join(path, source or "", "target", _TARGETS.get(form, ""))
    others = [name for name in _TARGETS.values() if at(target, name) is not None and name != _TARGETS.get(form)]
    if form in _TARGETS and (value is None or others):
        yield FieldFault(
            field=where,
            value=value,
            what=f"is not what a target of type {form} states",
            cure=f"state {_TARGETS[form]} and nothing else",
        )
    elif form in ("Value", "AverageValue") and (wrong := amount(value) or (None if quantity(value) else "is 0")):
        yield FieldFault(field=where, value=value, what=wrong, cure="write a quantity above 0, such as 800m")
    elif form == "Utilization" and isinstance(value, int) and value < 1:
        yield FieldFault(field=where, value=value, what="is no percentage above 0", cure="write one such as 70")
    if source in ("pods",) and form in ("Utilization", "Value"):
        yield FieldFault(
            field=where, value=form, what=f"is not a target of {source} metrics", cure="write AverageValue"
        )


def _behaviour(behaviour: object, path: str) -> Iterator[FieldFault]:
    for direction in ("scaleUp", "scaleDown"):
        rules, where = at(behaviour, direction), join(path, direction)
        yield from at_least(rules, "stabilizationWindowSeconds", 0, where, _MOST_STABLE_S)
        yield from one_of(rules, "selectPolicy", ("Max", "Min", "Disabled"), where)
        tolerance = at(rules, "tolerance")
        if tolerance is not None and (wrong := amount(tolerance)):
            yield FieldFault(field=join(where, "tolerance"), value=tolerance, what=wrong, cure="write one such as 0.1")
        if isinstance(at(rules, "policies"), list) and not listed(rules, "policies"):
            yield FieldFault(
                field=join(where, "policies"),
                value="[]",
                what="is empty",
                cure="state a policy, or leave the field out",
            )
        for place, policy in enumerate(listed(rules, "policies")):
            yield from one_of(policy, "type", ("Pods", "Percent"), join(where, "policies", place))
            yield from at_least(policy, "value", 1, join(where, "policies", place))
            yield from at_least(policy, "periodSeconds", 1, join(where, "policies", place), _MOST_PERIOD_S)


def _scaled_object(body: Object) -> Iterator[FieldFault]:
    spec = at(body, "spec")
    horizontal = at(spec, "advanced", "horizontalPodAutoscalerConfig")
    own = text(horizontal, "name")
    name = own or f"{_PREFIX}{text(body, 'metadata', 'name')}"
    if len(name) > LABEL_LENGTH:
        field = "spec.advanced.horizontalPodAutoscalerConfig.name" if own else "metadata.name"
        yield FieldFault(
            field=field,
            value=name,
            what=f"makes an HPA's name of {len(name)} characters, and {LABEL_LENGTH} are allowed",
            cure="state a shorter spec.advanced.horizontalPodAutoscalerConfig.name",
        )
    yield from _counts(spec)
    yield from _fallback(spec)
    yield from _behaviour(at(horizontal, "behavior"), "spec.advanced.horizontalPodAutoscalerConfig.behavior")
    if isinstance(at(spec, "triggers"), list) and not listed(spec, "triggers"):
        yield FieldFault(
            field="spec.triggers", value="[]", what="is empty", cure="add a trigger, or take the object out"
        )
    names = set[str]()
    for place, trigger in enumerate(listed(spec, "triggers")):
        where, called = join("spec.triggers", place), text(trigger, "name")
        if called and called in names:
            yield FieldFault(
                field=join(where, "name"), value=called, what="stands twice", cure="name each trigger once"
            )
        names.add(called)
        yield from _trigger(trigger, where)


def _counts(spec: object) -> Iterator[FieldFault]:
    for name in ("minReplicaCount", "idleReplicaCount", "cooldownPeriod", "initialCooldownPeriod"):
        yield from at_least(spec, name, 0, "spec")
    for name in ("maxReplicaCount", "pollingInterval"):
        yield from at_least(spec, name, 1, "spec")
    least, most, idle = (number(spec, name) for name in ("minReplicaCount", "maxReplicaCount", "idleReplicaCount"))
    most = 100.0 if most is None else most
    if least is not None and least > most:
        yield FieldFault(
            field="spec.minReplicaCount",
            value=least,
            what=f"is more than maxReplicaCount {most:g}",
            cure=f"write {most:g} or less",
        )
    if idle is not None and idle >= (least or 0):
        yield FieldFault(
            field="spec.idleReplicaCount",
            value=idle,
            what=f"is not less than minReplicaCount {least or 0:g}",
            cure="write 0, or raise minReplicaCount",
        )


def _fallback(spec: object) -> Iterator[FieldFault]:
    fallback = at(spec, "fallback")
    if fallback is None:
        return
    yield from at_least(fallback, "failureThreshold", 1, "spec.fallback")
    yield from at_least(fallback, "replicas", 0, "spec.fallback")
    yield from one_of(
        fallback,
        "behavior",
        ("static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"),
        "spec.fallback",
    )
    replicas, most = number(fallback, "replicas"), number(spec, "maxReplicaCount")
    if replicas is not None and most is not None and replicas > most:
        yield FieldFault(
            field="spec.fallback.replicas",
            value=replicas,
            what=f"is more than maxReplicaCount {most:g}",
            cure=f"write {most:g} or less",
        )
    kinds = {
        text(trigger, "metricType") or "AverageValue"
        for trigger in listed(spec, "triggers")
        if text(trigger, "type") not in ("cpu", "memory", "cron")
    }
    if kinds and "AverageValue" not in kinds:
        yield FieldFault(
            field="spec.fallback",
            value=", ".join(sorted(kinds)),
            what="works with metricType AverageValue only",
            cure="write AverageValue, or take fallback out",
        )


def _trigger(trigger: Object, path: str) -> Iterator[FieldFault]:
    kind, metadata = text(trigger, "type"), mapping(trigger, "metadata")
    where = join(path, "metadata")
    if kind not in _TRIGGERS:
        near = nearest(kind, _TRIGGERS)
        yield FieldFault(
            field=join(path, "type"),
            value=kind,
            what="is no trigger of KEDA",
            cure=f"write {near}" if near else "see keda.sh/docs/scalers",
        )
        return
    yield from one_of(trigger, "metricType", ("AverageValue", "Value", "Utilization"), path)
    if text(trigger, "metricType") == "Utilization" and kind not in ("cpu", "memory"):
        yield FieldFault(
            field=join(path, "metricType"),
            value="Utilization",
            what="is for cpu and memory only",
            cure="write AverageValue",
        )
    for name in metadata if kind in _METADATA else ():
        if name not in _METADATA[kind]:
            near = nearest(name, _METADATA[kind])
            yield FieldFault(
                field=join(where, name),
                value=metadata[name],
                what=f"is nothing that a {kind} trigger reads",
                cure=f"write {near}" if near else "take it out",
            )
    for name in _NEEDED.get(kind, ()):
        if not metadata.get(name, "").strip():
            yield FieldFault(field=where, value=None, what=f"lacks {name}", cure=f"state {name}")
    if kind == "prometheus":
        yield from _prometheus(metadata, where)
    if kind == "cron":
        yield from _cron(metadata, where)


def _prometheus(metadata: Mapping[str, str], path: str) -> Iterator[FieldFault]:
    address = metadata.get("serverAddress", "")
    if address and not re.fullmatch(r"https?://[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:\d{1,5})?(/\S*)?", address):
        yield FieldFault(
            field=join(path, "serverAddress"),
            value=address,
            what="is not an address of a server",
            cure="write http://HOST:PORT",
        )
    for name in ("threshold", "activationThreshold"):
        value = metadata.get(name)
        if value is not None and (not _number(value) or (name == "threshold" and float(value) <= 0)):
            yield FieldFault(
                field=join(path, name),
                value=value,
                what="is not a number above 0" if name == "threshold" else "is not a number",
                cure="write one such as '0.8'",
            )
    for name in ("ignoreNullValues", "unsafeSsl"):
        value = metadata.get(name)
        if value is not None and value not in ("true", "false"):
            yield FieldFault(
                field=join(path, name),
                value=value,
                what="is neither 'true' nor 'false'",
                cure="write 'true' or 'false'",
            )


def _number(text: str) -> bool:
    return bool(re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text))


def _cron(metadata: Mapping[str, str], path: str) -> Iterator[FieldFault]:
    zone = metadata.get("timezone")
    if zone and (wrong := time_zone(zone)):
        yield FieldFault(field=join(path, "timezone"), value=zone, what=wrong, cure="write one such as Etc/UTC")
    for name in ("start", "end"):
        value = metadata.get(name)
        if value and (wrong := timetable(value)):
            yield FieldFault(
                field=join(path, name), value=value, what=wrong, cure="write five fields, such as 0 8 * * 1-5"
            )
    if metadata.get("start") and metadata.get("start") == metadata.get("end"):
        yield FieldFault(field=join(path, "end"), value=metadata["end"], what="is its start", cure="write another time")
    count = metadata.get("desiredReplicas")
    if count is not None and not re.fullmatch(r"\d+", count):
        yield FieldFault(
            field=join(path, "desiredReplicas"), value=count, what="is not a whole number", cure="write one such as '1'"
        )
    elif count is not None and int(count) == 0:
        yield FieldFault(
            field=join(path, "desiredReplicas"), value=count, what="holds nothing in its hours", cure="write 1 or more"
        )
