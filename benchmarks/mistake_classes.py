"""The classes of mistakes that the mutator makes, by name; each is one function of `benchmarks.mistake_mutations`' means."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Container
from typing import Any
from zoneinfo import available_timezones

import yaml

from benchmarks.mistake_mutations import (
    Files,
    Mistake,
    Path,
    Place,
    below,
    changed,
    dropped,
    fields,
    in_free_map,
    key_is,
    misspelt,
    places,
    put,
    renamed,
    walk,
)
from trimtab.catalog import load_catalog

Maker = Callable[[Files, random.Random], Mistake | None]
CLASSES: dict[str, Maker] = {}
_TOP = frozenset({"apiVersion", "kind"})
_ENUMS = (
    "operator", "effect", "concurrencyPolicy", "restartPolicy", "completionMode", "selectPolicy", "consolidationPolicy",
    "metricType", "stopPolicy", "preemptionPolicy", "unhealthyPodEvictionPolicy",
)  # fmt: skip
_POD = ("spec", "jobTemplate", "spec", "template", "spec")
_NODES = ("spec", "template", "spec")
_TRIGGER = ("spec", "triggers", 0)
_GROUP = ("spec", "groups", 0)
_REQUIRED: dict[str, list[Path]] = {
    "ScaledObject": [
        ("spec", "scaleTargetRef"),
        ("spec", "triggers"),
        ("spec", "scaleTargetRef", "name"),
        (*_TRIGGER, "type"),
        (*_TRIGGER, "metadata", "serverAddress"),
        (*_TRIGGER, "metadata", "query"),
        (*_TRIGGER, "metadata", "threshold"),
    ],
    "HorizontalPodAutoscaler": [("spec", "scaleTargetRef"), ("spec", "maxReplicas"), ("spec", "metrics", 0, "type")],
    "NodePool": [
        ("spec", "template"),
        (*_NODES, "nodeClassRef"),
        (*_NODES, "requirements"),
        (*_NODES, "requirements", 0, "operator"),
        (*_NODES, "nodeClassRef", "name"),
    ],
    "CronJob": [
        ("spec", "schedule"),
        ("spec", "jobTemplate"),
        (*_POD, "containers"),
        (*_POD, "containers", 0, "name"),
        (*_POD, "restartPolicy"),
    ],
    "PrometheusRule": [(*_GROUP, "name"), (*_GROUP, "rules", 0, "expr"), (*_GROUP, "rules", 0, "record")],
    "PriorityClass": [("value",)],
    "RoleBinding": [("roleRef",), ("roleRef", "name")],
    "PodDisruptionBudget": [("spec", "maxUnavailable"), ("spec", "selector")],
    "ClusterQueue": [("spec", "resourceGroups", 0, "flavors", 0, "name")],
}
"""Fields that each project's reference marks as required, or without which the object does nothing."""


def mistake(name: str) -> Callable[[Maker], Maker]:
    """Enter a maker under the name of its class."""

    def enter(make: Maker) -> Maker:
        CLASSES[name] = make
        return make

    return enter


def _simple(
    name: str, wanted: Callable[[Path, Any], bool], make: Callable[[Any, random.Random], Any], *kinds: str
) -> None:
    CLASSES[name] = lambda files, rng: changed(files, rng, wanted, make, *kinds)


def one_of(*values: Any) -> Callable[[Any, random.Random], Any]:
    """Return a maker that takes one of some values."""
    return lambda value, rng: rng.choice([each for each in values if each != value])


def spelt(value: Any, rng: random.Random) -> str:
    """Return a misspelt text."""
    return misspelt(str(value), rng)


def misspelt_unlike(word: str, real: Container[str], rng: random.Random) -> str:
    """Return a misspelt word that is not another real one by chance: `Etc/UCT` is a time zone as `Etc/UTC` is."""
    while (made := misspelt(word, rng)) in real:
        pass
    return made


@mistake("field misspelt")
def _field_misspelt(files: Files, rng: random.Random) -> Mistake | None:
    found = fields(
        files, lambda path, value: isinstance(path[-1], str) and path[-1] not in _TOP and not in_free_map(path)
    )
    place, path, _ = rng.choice(found)
    key = misspelt(str(path[-1]), rng)
    return place.written(renamed(place.body, path, key), f"{'.'.join(map(str, path))} -> {key}")


@mistake("unknown field")
def _unknown_field(files: Files, rng: random.Random) -> Mistake | None:
    found = fields(
        files,
        lambda path, value: isinstance(value, dict) and not in_free_map((*path, "")) and path[-1] not in ("metadata",),
    )
    place, path, _ = rng.choice(found)
    key = rng.choice(["enabled", "priority", "notes", "owner", "mode", "timeout"])
    return place.written(
        put(place.body, (*path, key), rng.choice([True, 3, "x"])), f"{'.'.join(map(str, path))}: {key} added"
    )


@mistake("wrong type")
def _wrong_type(files: Files, rng: random.Random) -> Mistake | None:
    place, path, value = rng.choice(
        fields(files, lambda path, value: path[-1] not in _TOP and value is not None and not in_free_map(path))
    )
    after: Any = {"a": "b"} if isinstance(value, str | int) else "none" if isinstance(value, list) else [1]
    return place.written(
        put(place.body, path, after), f"{'.'.join(map(str, path))}: {type(value).__name__} -> {after!r}"
    )


@mistake("number in quotes")
def _quoted(files: Files, rng: random.Random) -> Mistake | None:
    loose = {"maxUnavailable", "minAvailable", "nodes", "cpu", "memory", "nvidia.com/gpu", "averageValue", "value"}

    def wanted(path: Path, value: Any) -> bool:
        is_count = isinstance(value, int) and not isinstance(value, bool)
        return is_count and path[-1] not in loose and not in_free_map(path)

    return changed(files, rng, wanted, lambda value, _: str(value))


_simple(
    "value of an enumeration",
    key_is(*_ENUMS),
    lambda value, rng: rng.choice([misspelt(value, rng), value.lower() + "x", value.upper()]),
)


@mistake("required field left out")
def _left_out(files: Files, rng: random.Random) -> Mistake | None:
    found: list[tuple[Place, Path]] = []
    for place in places(files, *_REQUIRED):
        body = place.body
        there = {path for path, _ in walk(body)}
        found += [(place, path) for path in _REQUIRED[body["kind"]] if path in there]
    place, path = rng.choice(found)
    return place.written(dropped(place.body, path), f"{'.'.join(map(str, path))} left out")


@mistake("API version")
def _version(files: Files, rng: random.Random) -> Mistake | None:
    place = rng.choice(places(files, patches=True))
    body = place.body
    group, _, version = body["apiVersion"].rpartition("/")
    after = rng.choice([
        f"{group}/v9" if group else "v2", f"{group}/{version}beta7" if group else "v1beta1", misspelt(body["apiVersion"], rng),
        "extensions/v1beta1", version if group else "core/v1",
    ])  # fmt: skip
    return place.written(put(body, ("apiVersion",), after), f"apiVersion {body['apiVersion']} -> {after}")


@mistake("kind")
def _kind(files: Files, rng: random.Random) -> Mistake | None:
    place = rng.choice(places(files))
    body = place.body
    after = misspelt(body["kind"], rng)
    return place.written(put(body, ("kind",), after), f"kind {body['kind']} -> {after}")


@mistake("name of an object")
def _name(files: Files, rng: random.Random) -> Mistake | None:
    """Not inside patches: of one with a target kustomize does not read the name.

    Of roles and their bindings a server takes any name that is one part of a path (pkg/apis/rbac/validation, v1.34).
    """
    place = rng.choice([place for place in places(files) if place.body["metadata"].get("name")])
    value = place.body["metadata"]["name"]
    bad = [value.upper(), f"{value}_x", f"-{value}", f"{value}.", value + "x" * 254, f"{value} a", "Ärger"]
    if place.body["apiVersion"].startswith("rbac."):
        bad = [f"{value}/x", f"{value}%", ".", ".."]
    after = rng.choice(bad)
    return place.written(put(place.body, ("metadata", "name"), after), f"metadata.name: {value!r} -> {after!r}")


@mistake("namespace misspelt")
def _namespace(files: Files, rng: random.Random) -> Mistake | None:
    return changed(files, rng, lambda path, value: path == ("metadata", "namespace"), spelt, patches=False)


@mistake("namespace left out")
def _no_namespace(files: Files, rng: random.Random) -> Mistake | None:
    place = rng.choice([one for one in places(files) if "namespace" in one.body["metadata"]])
    return place.written(dropped(place.body, ("metadata", "namespace")), "metadata.namespace left out")


@mistake("label syntax")
def _label(files: Files, rng: random.Random) -> Mistake | None:
    found = fields(
        files,
        lambda path, value: (
            len(path) > 1 and path[-2] in ("labels", "nodeSelector") and "rules" not in path and value is not None
        ),
    )
    place, path, value = rng.choice(found)
    if rng.random() < 0.5:
        after = rng.choice([f"{value} x", f"-{value}", "a" * 64, f"{value}:1", f"{value}/b"])
        return place.written(put(place.body, path, after), f"{path[-1]}: {value} -> {after}")
    key = rng.choice([f"-{path[-1]}", f"{path[-1]}/a/b", "a b", "x" * 64, f"Ö/{path[-1]}"])
    return place.written(renamed(place.body, path, key), f"label {path[-1]} -> {key}")


_simple(
    "unit of a quantity",
    lambda path, value: len(path) > 1 and path[-2] in ("limits", "requests", "capacity") and value is not None,
    lambda value, rng: rng.choice(
        [f"{value}B", f"{value} x", f"-{value}", f"{value}GB", "lots", f"{str(value).rstrip('GMKi')}gi", f"1,{value}"]
    ),
)
_simple(
    "duration",
    key_is("interval", "for", "consolidateAfter", "expireAfter"),
    lambda value, rng: rng.choice([f"{value}inutes", "10 minutes", "5q", "-5m", "ten", "1.5.2s", "5 m"]),
)


@mistake("bounds of replicas")
def _bounds(files: Files, rng: random.Random) -> Mistake | None:
    place = rng.choice(places(files, "ScaledObject", "HorizontalPodAutoscaler"))
    body = place.body
    least, most = (
        ("minReplicaCount", "maxReplicaCount") if body["kind"] == "ScaledObject" else ("minReplicas", "maxReplicas")
    )
    if (
        least in body["spec"]
        and most in body["spec"]
        and body["spec"][most] > body["spec"][least]
        and rng.random() < 0.4
    ):
        made = put(put(body, ("spec", least), body["spec"][most]), ("spec", most), body["spec"][least])
        return place.written(made, "least and most replicas exchanged")
    field, after = rng.choice([(most, 0), (most, -3), (least, -1), (least, 100_000)])
    return place.written(put(body, ("spec", field), after), f"spec.{field} -> {after}")


_simple(
    "range of a scaling behaviour",
    key_is("stabilizationWindowSeconds", "periodSeconds"),
    one_of(-1, 7200, 86_400, 100_000),
    "ScaledObject",
    "HorizontalPodAutoscaler",
)
_simple(
    "timetable",
    key_is("schedule", "start", "end"),
    lambda value, rng: rng.choice(
        [
            f"61 {value.split(' ', 1)[1]}",
            f"{value} *",
            value.rsplit(" ", 1)[0],
            f"{value[:-1]}9",
            "at noon",
            f"x{value}",
            "0 25 * * *",
            "5-1 * * * *",
        ]
    ),
    "CronJob",
    "ScaledObject",
)
_simple(
    "time zone",
    key_is("timeZone", "timezone"),
    lambda value, rng: rng.choice(
        [misspelt_unlike(value, available_timezones(), rng), "Europe/Bonn", "CEST+1", "US/Atlantis", "GMT+25"]
    ),
    "CronJob",
    "ScaledObject",
)
_QUERY = key_is("expr", "query")


_FUNCTIONS = frozenset({"rate", "delta", "min", "avg", "deriv", "count", "group"})
"""What a misspelt function could be by chance that PromQL has too (prometheus.io/docs/prometheus/latest/querying/functions)."""
_AGGREGATIONS = ("sum", "max", "min", "avg", "count")


def ends_in_aggregation(query: str) -> bool:
    """Tell whether a query ends in an aggregation over no labels, as `a / sum(b)` does.

    `by (x)` after it is right, and changes nothing: no series here has a label x, so that all are of one group as before.
    """
    depth = 0
    for place in range(len(query) - 1, -1, -1):
        depth += (query[place] == ")") - (query[place] == "(")
        if not depth:
            return bool(re.search(rf"\b({'|'.join(_AGGREGATIONS)})$", query[:place].rstrip()))
    return False


@mistake("PromQL grammar")
def _grammar(files: Files, rng: random.Random) -> Mistake | None:
    def broken(value: str, rng: random.Random) -> str:
        signs = [place for place, letter in enumerate(value) if letter in '(){}[]"']
        place = rng.choice(signs)
        turn = rng.randrange(4)
        if turn == 0:
            return value[:place] + value[place + 1 :]
        if turn == 1:
            end = rng.choice([" +", ")", " by (x)", " >= =", " and"])
            return value + (" by x" if end == " by (x)" and ends_in_aggregation(value) else end)
        if turn == 2:
            names = re.findall(
                r"\b(sum|irate|rate|clamp_min|absent|histogram_quantile|avg_over_time|max|idelta)\b(?= ?[(b])", value
            )
            if names:
                name = rng.choice(names)
                return value.replace(name, misspelt_unlike(name, _FUNCTIONS, rng), 1)
        return value.replace('="', "=", 1) if '="' in value else f"({value}"

    return changed(files, rng, _QUERY, broken, "PrometheusRule", "ScaledObject", patches=False)


_SERIES = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*:[a-zA-Z0-9_:]+|kube_\w+|DCGM_\w+")


@mistake("PromQL series")
def _series(files: Files, rng: random.Random) -> Mistake | None:
    def another(value: str, rng: random.Random) -> str:
        name = rng.choice(_SERIES.findall(value))
        return re.sub(rf"{re.escape(name)}(?![a-zA-Z0-9_:])", misspelt(name, rng), value)

    wanted = lambda path, value: _QUERY(path, value) and bool(_SERIES.search(value))  # noqa: E731
    return changed(files, rng, wanted, another, "PrometheusRule", "ScaledObject", patches=False)


_MATCHER = re.compile(r'(namespace|workload|deployment|statefulset)="([^"]+)"')


@mistake("PromQL selects nothing")
def _matcher(files: Files, rng: random.Random) -> Mistake | None:
    def another(value: str, rng: random.Random) -> str:
        label, name = rng.choice(_MATCHER.findall(value))
        return value.replace(f'{label}="{name}"', f'{label}="{misspelt(name, rng)}"')

    wanted = lambda path, value: _QUERY(path, value) and bool(_MATCHER.search(value))  # noqa: E731
    return changed(files, rng, wanted, another, "PrometheusRule", "ScaledObject", patches=False)


_LABELS = re.compile(r"[a-z_]{2,}(?==~?\")|(?<=by \()[a-z_]+")


@mistake("PromQL label")
def _label_of_series(files: Files, rng: random.Random) -> Mistake | None:
    """The name of a label in one matcher, or the first of one grouping."""

    def another(value: str, rng: random.Random) -> str:
        found = rng.choice(list(_LABELS.finditer(value)))
        return value[: found.start()] + misspelt_unlike(found[0], _REAL_LABELS, rng) + value[found.end() :]

    wanted = lambda path, value: _QUERY(path, value) and bool(_LABELS.search(value))  # noqa: E731
    return changed(files, rng, wanted, another, "PrometheusRule", "ScaledObject", patches=False)


_REAL_LABELS = frozenset({"mode", "node", "code", "le", "pid", "uid"})
"""What a misspelt label could be by chance that series have too."""


@mistake("PromQL window")
def _window(files: Files, rng: random.Random) -> Mistake | None:
    def another(value: str, rng: random.Random) -> str:
        return re.sub(r"\[\w+\]", rng.choice(["", "[5]", "[1mn]", "[m]"]), value, count=1)

    wanted = lambda path, value: _QUERY(path, value) and "[" in re.sub(r'"[^"]*"', "", value)  # noqa: E731
    found = fields(files, wanted, "PrometheusRule", "ScaledObject", patches=False)
    place, path, value = rng.choice(found)
    plain = re.split(r'("[^"]*")', value)
    at = rng.choice([number for number, part in enumerate(plain) if not part.startswith('"') and "[" in part])
    plain[at] = another(plain[at], rng)
    return place.written(
        put(place.body, path, "".join(plain)), f"{'.'.join(map(str, path))}: a window of {value[:40]}..."
    )


_simple(
    "scale target",
    below(("scaleTargetRef", "name"), ("scaleTargetRef", "kind"), ("scaleTargetRef", "apiVersion")),
    spelt,
)
_simple(
    "selector of pods",
    lambda path, value: "matchLabels" in path[:-1] and isinstance(value, str),
    spelt,
    "PodDisruptionBudget",
    "HorizontalPodAutoscaler",
)
_simple(
    "node pool that is selected",
    lambda path, value: path[-1] == "karpenter.sh/nodepool" and isinstance(value, str),
    spelt,
    "CronJob", "Deployment", "StatefulSet", "Job", "PyTorchJob",
)  # fmt: skip


@mistake("taint and toleration")
def _taint(files: Files, rng: random.Random) -> Mistake | None:
    def wanted(path: Path, value: Any) -> bool:
        there = "tolerations" in path or "taints" in path
        return there and path[-1] in ("key", "value") and isinstance(value, str)

    return changed(files, rng, wanted, spelt, "CronJob", "NodePool", "Deployment", "StatefulSet", "Job", "PyTorchJob")


_simple(
    "node class",
    below(("nodeClassRef", "name"), ("nodeClassRef", "kind"), ("nodeClassRef", "group")),
    spelt,
    "NodePool",
)


@mistake("object twice")
def _twice(files: Files, rng: random.Random) -> Mistake | None:
    place = rng.choice([one for one in places(files) if one.file.split("/")[0] in ("scaling", "nodes", "monitoring")])
    name = place.file.replace(".yaml", "-copy.yaml")
    return _beside(files, place.file, name, yaml.safe_dump(place.body, sort_keys=False), f"{place.file} is there twice")


def _beside(files: Files, file: str, name: str, text: str, said: str) -> Mistake:
    """Return a folder with another file that its root lists."""
    root = f"{file.split('/')[0]}/kustomization.yaml"
    body = yaml.safe_load(files[root])
    body["resources"].append(name.partition("/")[2])
    return Mistake(said=said, files={**files, name: text, root: yaml.safe_dump(body, sort_keys=False)})


@mistake("two autoscalers")
def _two(files: Files, rng: random.Random) -> Mistake | None:
    place = rng.choice(places(files, "ScaledObject", "HorizontalPodAutoscaler"))
    body = place.body
    metadata = {"name": f"{body['metadata']['name']}-too", "namespace": body["metadata"]["namespace"]}
    made = {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata,
        "spec": {"scaleTargetRef": body["spec"]["scaleTargetRef"], "minReplicas": 1, "maxReplicas": 4, "metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}]},
    }  # fmt: skip
    name = place.file.replace(".yaml", "-too.yaml")
    return _beside(files, place.file, name, yaml.safe_dump(made, sort_keys=False), "a second autoscaler")


@mistake("resource that is not there")
def _resource(files: Files, rng: random.Random) -> Mistake | None:
    root = rng.choice(
        [
            file
            for file in sorted(files)
            if file.endswith("/kustomization.yaml") and "resources" in yaml.safe_load(files[file])
        ]
    )
    body = yaml.safe_load(files[root])
    place = rng.randrange(len(body["resources"]))
    before = body["resources"][place]
    body["resources"][place] = misspelt(before, rng)
    return Mistake(said=f"{root}: {before} misspelt", files={**files, root: yaml.safe_dump(body, sort_keys=False)})


@mistake("object that is never applied")
def _never(files: Files, rng: random.Random) -> Mistake | None:
    root = rng.choice(
        [
            file
            for file in sorted(files)
            if file.endswith("/kustomization.yaml") and "resources" in yaml.safe_load(files[file])
        ]
    )
    body = yaml.safe_load(files[root])
    before = body["resources"].pop(rng.randrange(len(body["resources"])))
    return Mistake(said=f"{root}: {before} not listed", files={**files, root: yaml.safe_dump(body, sort_keys=False)})


@mistake("target of a patch")
def _target(files: Files, rng: random.Random) -> Mistake | None:
    file = rng.choice([one for one in sorted(files) if one.startswith("workloads/")])
    body = yaml.safe_load(files[file])
    target = rng.choice(body["patches"])["target"]
    field = rng.choice(["name", "kind"])
    before = target[field]
    target[field] = misspelt(before, rng)
    return Mistake(
        said=f"{file}: target.{field} {before} -> {target[field]}",
        files={**files, file: yaml.safe_dump(body, sort_keys=False)},
    )


_simple(
    "reference by name",
    below(
        ("roleRef", "name"), ("subjects", "name"), ("serviceAccountName",), ("priorityClassName",), ("spec", "clusterQueue"),
        ("flavors", "name"), ("resourceNames",),
    ),
    lambda value, rng: [misspelt(value[0], rng)] if isinstance(value, list) else misspelt(value, rng),
)  # fmt: skip


@mistake("YAML")
def _yaml(files: Files, rng: random.Random) -> Mistake | None:
    file = rng.choice([one for one in sorted(files) if one.endswith(".yaml") and not one.startswith("rollback/")])
    lines = files[file].splitlines()
    inner = [number for number, line in enumerate(lines) if re.match(r"\s+[a-z]\w*: \S", line)]
    if not inner:
        return None
    number = rng.choice(inner)
    line = lines[number]
    turn = rng.randrange(4)
    if turn == 0:
        lines[number] = f"\t{line.lstrip()}"
    elif turn == 1:
        lines[number] = (
            f"{line} 'x: y" if line.rstrip().endswith("'") else line.replace(": ", ": '", 1).rstrip("'") + "x"
        )
    elif turn == 2:
        lines.insert(number, line)
    else:
        lines[number] = line.replace(": ", ": [", 1)
    return Mistake(
        said=f"{file} line {number + 1}: {lines[number][:60]!r}", files={**files, file: "\n".join(lines) + "\n"}
    )


@mistake("instance type, region, capacity type")
def _offering(files: Files, rng: random.Random) -> Mistake | None:
    def wanted(path: Path, value: Any) -> bool:
        return "requirements" in path and (path[-1] == "key" or ("values" in path and isinstance(value, str)))

    catalog = load_catalog()
    real = {row.name for row in catalog.instance_types} | {name for names in catalog.regions.values() for name in names}
    wrong = lambda value, rng: misspelt_unlike(value, real, rng)  # noqa: E731
    return changed(files, rng, wanted, wrong, "NodePool", "NodeOverlay", patches=False)


_simple(
    "counts of a Job",
    key_is(
        "completions",
        "parallelism",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
        "startingDeadlineSeconds",
    ),
    one_of(-1, -60),
    "CronJob",
    "Job",
)


@mistake("requests and limits")
def _over(files: Files, rng: random.Random) -> Mistake | None:
    wanted = lambda path, value: len(path) > 1 and path[-2] == "requests" and value is not None  # noqa: E731
    bigger = {"cpu": "64", "memory": "4Ti", "nvidia.com/gpu": "64"}
    found = fields(files, wanted, "CronJob", "Job", "Deployment")
    if not found:
        return None
    place, path, value = rng.choice(found)
    after = bigger.get(str(path[-1]), "64")
    return place.written(put(place.body, path, after), f"requests {path[-1]} {value} -> {after}")


_simple(
    "address of a server",
    key_is("serverAddress"),
    lambda value, rng: rng.choice(
        [
            value.replace("http://", ""),
            value.replace("://", ":/"),
            value.replace(":9090", ":port"),
            value.replace("prometheus", misspelt("prometheus", rng)),
            "http://",
        ]
    ),
    "ScaledObject",
)
_simple(
    "label by which rules are selected",
    lambda path, value: path[:2] == ("metadata", "labels") and path[-1] == "release",
    spelt,
    "PrometheusRule",
)
_simple(
    "limit of a pool",
    lambda path, value: path[:2] == ("spec", "limits"),
    lambda value, rng: rng.choice(["0", 0, "-8", "eight"]),
    "NodePool",
)


@mistake("metric of an HPA")
def _metric(files: Files, rng: random.Random) -> Mistake | None:
    found = fields(
        files,
        lambda path, value: (
            "metrics" in path and path[-1] in ("type", "name", "averageValue") and isinstance(value, str)
        ),
        "HorizontalPodAutoscaler",
    )
    if not found:
        return None
    place, path, value = rng.choice(found)
    after = misspelt(value, rng) if path[-1] != "averageValue" else rng.choice(["0", "-1", "much", "70%"])
    return place.written(put(place.body, path, after), f"{'.'.join(map(str, path))}: {value} -> {after}")


_simple("threshold of a trigger", key_is("threshold"), one_of("0", "-1", "0,8", "80%", ""), "ScaledObject")
_simple("device", lambda path, value: path[-1] == "nvidia.com/gpu", one_of("1.5", "0.25", "two"), "CronJob", "NodePool")


@mistake("device misspelt")
def _device(files: Files, rng: random.Random) -> Mistake | None:
    found = fields(
        files,
        lambda path, value: path[-1] == "nvidia.com/gpu",
        "CronJob",
        "NodePool",
        "NodeOverlay",
        "Deployment",
        "Job",
    )
    if not found:
        return None
    place, path, _ = rng.choice(found)
    key = rng.choice(["nvidia.com/gpus", "nvidia/gpu", "nvidia.com/GPU", "nvida.com/gpu", "gpu"])
    return place.written(renamed(place.body, path, key), f"{'.'.join(map(str, path))} -> {key}")
