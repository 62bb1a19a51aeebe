"""The PromQL of a folder against the series that there will be: those its rules record, and those that exporters write.

Read are rules, KEDA's Prometheus triggers, metrics of HPAs, Helm values of prometheus-adapter and panels of dashboards.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from trimtab.check.documents import Document
from trimtab.check.faults import FieldFault, ObjectFault, Severity, join, nearest, one_slip, placed
from trimtab.check.promql import Query, Selector, exported, exported_labels, read_query, unknown_series
from trimtab.check.references import World
from trimtab.sources.kubernetes.objects import Object, at, listed, mapping, text

_USUAL_INTERVAL_S = 15
_TWO = 2
_SHORT = 6
"""Letters of a label up to which another real one is often a letter away, such as node and mode, state and stage."""
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_OWNERS = {"deployment": "Deployment", "statefulset": "StatefulSet", "job_name": "Job"}
_POD_SUFFIXES = {
    "Deployment": ("-7d4b9c6f5-x2x9k", "-6f5b9c7d48-bxk2z"), "StatefulSet": ("-0", "-12"),
    "Job": ("-x2x9k", "-0-x2x9k", "-0412-x2x9k"),
}  # fmt: skip
"""How pods are called after what owns them: letters of k8s.io/apimachinery pkg/util/rand, ordinals, indexes."""
_LONGEST_BASE = 58
"""Of a generated pod name before its last five letters (k8s.io/apiserver pkg/storage/names/generate.go)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundQuery:
    document: Document
    field: str
    text: str
    interval_s: float = _USUAL_INTERVAL_S
    said: bool = False
    """Whether a fault of its grammar is said elsewhere already."""
    offers: bool = False
    """Whether it only offers a series to others: one that is never there costs nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    labels: Mapping[str, str]
    equal: Mapping[str, frozenset[str]]
    """Labels that its own expression holds to one of some values."""


def query_faults(world: World) -> Iterator[ObjectFault]:
    """Yield queries that do not parse, read a series that nothing writes, or select nothing of it."""
    recorded, labels = _recorded(world), _labels(world)
    for asked in _queries(world):
        query = read_query(asked.text)
        if query.wrong and not asked.said:
            found = FieldFault(field=asked.field, value=asked.text, what=query.wrong, cure=query.cure)
            yield placed(asked.document.file, asked.document.called, found)
        seen = set[str]()
        for selector in query.selectors:
            for found in _selected(selector, asked, recorded, world):
                if found.what not in seen:
                    seen.add(found.what)
                    yield placed(asked.document.file, asked.document.called, found)
        for found in _misspelt_labels(query, asked, recorded, labels):
            yield placed(asked.document.file, asked.document.called, found)
    for document in world.folder.objects:
        if document.kind == "HorizontalPodAutoscaler":
            for found in _metrics(document, recorded, world):
                yield placed(document.file, document.called, found)


def _queries(world: World) -> Iterator[_FoundQuery]:
    for document in world.folder.objects:
        if document.kind == "PrometheusRule":
            for place, group in enumerate(listed(document.body, "spec", "groups")):
                interval = _seconds(text(group, "interval")) or _USUAL_INTERVAL_S
                for number, rule in enumerate(listed(group, "rules")):
                    field = join("spec.groups", place, "rules", number, "expr")
                    yield _FoundQuery(
                        document=document, field=field, text=str(at(rule, "expr")), interval_s=interval, said=True
                    )
        elif document.kind == "ScaledObject":
            for place, trigger in enumerate(listed(document.body, "spec", "triggers")):
                if text(trigger, "type") == "prometheus" and text(trigger, "metadata", "query"):
                    field = join("spec.triggers", place, "metadata", "query")
                    yield _FoundQuery(document=document, field=field, text=text(trigger, "metadata", "query"))
    for document in world.folder.dashboards:
        yield from _panels(document, document.body, "")
    for document in world.folder.values:
        for form in ("custom", "external"):
            for place, rule in enumerate(listed(document.body, "rules", form)):
                field = join("rules", form, place, "seriesQuery")
                yield _FoundQuery(document=document, field=field, text=text(rule, "seriesQuery"), offers=True)


def _panels(document: Document, body: object, path: str) -> Iterator[_FoundQuery]:
    for place, panel in enumerate(listed(body, "panels")):
        where = join(path, "panels", place)
        yield from _panels(document, panel, where)
        for number, target in enumerate(listed(panel, "targets")):
            if text(target, "expr"):
                yield _FoundQuery(
                    document=document, field=join(where, "targets", number, "expr"), text=text(target, "expr")
                )


def _seconds(duration: str) -> float:
    return sum(float(count) * _SECONDS[unit] for count, unit in re.findall(r"(\d+)(ms|[smhd])", duration))


def _recorded(world: World) -> Mapping[str, list[_Recorded]]:
    found: dict[str, list[_Recorded]] = defaultdict(list)
    for document in world.folder.objects:
        if document.kind != "PrometheusRule":
            continue
        for group in listed(document.body, "spec", "groups"):
            for rule in listed(group, "rules"):
                if name := text(rule, "record"):
                    found[name].append(_one_recorded(name, rule))
    return found


def _one_recorded(name: str, rule: Object) -> _Recorded:
    """Return what labels a rule gives its series; what it reads of its own former values gives them none."""
    held: dict[str, set[str]] = defaultdict(set)
    others = (selector for selector in read_query(str(at(rule, "expr"))).selectors if selector.name != name)
    for selector in others:
        for label, value in selector.equal.items():
            held[label].add(value)
    return _Recorded(labels=mapping(rule, "labels"), equal={label: frozenset(values) for label, values in held.items()})


def _selected(
    selector: Selector, asked: _FoundQuery, recorded: Mapping[str, list[_Recorded]], world: World
) -> Iterator[FieldFault]:
    scraped = world.cluster.series if world.cluster else None
    lost = unknown_series(selector.name, frozenset(recorded), scraped)
    if lost is not None:
        severity = (
            Severity.ERROR if lost[1] and not (asked.offers and not lost[0].startswith("write")) else Severity.WARNING
        )
        yield FieldFault(
            field=asked.field,
            value=selector.name,
            what=f"reads the series {selector.name}, which nothing is known to write",
            cure=lost[0],
            severity=severity,
        )
    if selector.two_samples and selector.range_s is not None and selector.range_s < _TWO * asked.interval_s:
        yield FieldFault(
            field=asked.field,
            value=f"{selector.name}[{selector.range_s:g}s]",
            what=f"looks back {selector.range_s:g} s, where there is a sample every {asked.interval_s:g} s and two are needed",
            cure=f"look back {4 * asked.interval_s:g} s",
        )
    if selector.name in recorded:
        yield from _of_recorded(selector, recorded[selector.name], asked)
    else:
        yield from _of_cluster(selector, asked, world)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedLabels:
    """How often the queries of a folder name each label, of each series and at all."""

    of_series: Mapping[str, Counter[str]]
    overall: Counter[str]

    def meant(self, label: str, series: Iterable[str], beside: Collection[str]) -> str | None:
        """Return the label named more often of which this one is a slip, and which no exporter's series have.

        Real short labels are a letter apart (`mode`, `node`): one that no exporter has is a slip if the same series has the
        other, or if the folder names it but this once.
        """
        if label in exported_labels():
            return None
        once = self.overall[label] == 1
        series = list(series)
        there = {other for name in series for other in self.of_series[name]}
        # series of an exporter have labels that no query of the folder need name
        real = exported_labels() if any(name in exported() for name in series) else frozenset[str]()
        fits = [
            other
            for other in {*self.overall, *(real if len(label) > _SHORT else ())}
            if (self.overall[other] > self.overall[label] or other in _OWNERS or other in real)
            and label not in _OWNERS
            and other not in beside
            and (len(label) > _SHORT or other in there or once)
            and one_slip(label, other)
        ]
        return max(fits, key=lambda other: (self.overall[other], other), default=None)


def _labels(world: World) -> _NamedLabels:
    of_series, overall = defaultdict[str, Counter[str]](Counter), Counter[str]()
    for asked in _queries(world):
        query = read_query(asked.text)
        overall.update(label for labels in query.grouped for label in labels)
        for selector in query.selectors:
            of_series[selector.name].update([*selector.equal, *selector.matching])
            overall.update([*selector.equal, *selector.matching])
    return _NamedLabels(of_series=of_series, overall=overall)


def _misspelt_labels(
    query: Query, asked: _FoundQuery, recorded: Container[str], labels: _NamedLabels
) -> Iterator[FieldFault]:
    """Yield labels that are nearly one by which the folder's other queries read series: nothing has them."""
    said = dict[str, str | None]()
    for selector in query.selectors:
        stated = [*selector.equal, *selector.matching]
        if selector.name not in recorded:  # those of rules are known, and judged by them
            said |= {label: labels.meant(label, [selector.name], stated) for label in stated}
    read = [selector.name for selector in query.selectors]
    said |= {label: labels.meant(label, read, group) for group in query.grouped for label in group}
    for label, meant in said.items():
        if meant is not None:
            what = "is no label by which anything else here reads series, and nearly one: it selects or groups nothing"
            yield FieldFault(field=asked.field, value=label, what=what, cure=f"write {meant}")


def _of_recorded(selector: Selector, rules: list[_Recorded], asked: _FoundQuery) -> Iterator[FieldFault]:
    """Yield a label that no rule which records this series gives it."""
    for label, value in selector.equal.items():
        fits = [
            rule
            for rule in rules
            if rule.labels.get(label, value) == value
            and (label in rule.labels or value in rule.equal.get(label, {value}))
        ]
        if not fits:
            known = {rule.labels[label] for rule in rules if label in rule.labels} | {
                word for rule in rules for word in rule.equal.get(label, ())
            }
            near = nearest(value, known, least_frac=0.0)
            yield FieldFault(
                field=asked.field,
                value=f'{selector.name}{{{label}="{value}"}}',
                what="selects nothing of what is recorded",
                cure=f'write {label}="{near}"',
            )
    stated = {label for rule in rules for label in (*rule.labels, *rule.equal)}
    for label in selector.equal:
        slips = (other for other in sorted(stated) if one_slip(label, other))
        if label not in stated and (near := nearest(label, stated) or next(slips, None)):
            yield FieldFault(
                field=asked.field,
                value=label,
                what=f"is no label that {selector.name} is recorded with",
                cure=f"write {near}",
            )


def _of_cluster(selector: Selector, asked: _FoundQuery, world: World) -> Iterator[FieldFault]:
    """Yield selectors of pods, workloads and namespaces that the cluster does not have."""
    if world.cluster is None:
        return
    namespace = selector.equal.get("namespace")
    known = world.cluster.namespaces | {document.namespace for document in world.folder.objects}
    if namespace is not None and namespace not in known and world.cluster.workloads:
        near = nearest(namespace, known, least_frac=0.7)
        yield FieldFault(
            field=asked.field,
            value=f'namespace="{namespace}"',
            what="is no namespace that is known: it selects nothing",
            cure=f"write {near}" if near else "see kubectl get namespaces",
        )
        return
    workloads = {
        full.partition("/")[2]: kind
        for full, kind in world.workloads().items()
        if namespace in (None, full.partition("/")[0])
    }
    for label, kind in _OWNERS.items():
        value = selector.equal.get(label)
        if (
            value is not None
            and workloads
            and value not in {name for name, there in workloads.items() if there in (kind, "")}
        ):
            near = nearest(value, workloads, least_frac=0.6)
            yield FieldFault(
                field=asked.field,
                value=f'{label}="{value}"',
                what=f"is no {kind} that is known: it selects nothing",
                cure=f"write {near}" if near else "see kubectl get deployments -A",
            )
    for label in ("pod", "exported_pod"):
        pattern = selector.matching.get(label)
        if (
            pattern is not None
            and workloads
            and not any(re.fullmatch(pattern, pod) for name, kind in workloads.items() for pod in pods_of(name, kind))
        ):
            near = nearest(pattern.partition("[")[0].rstrip("-"), workloads, least_frac=0.5)
            yield FieldFault(
                field=asked.field,
                value=f'{label}=~"{pattern}"',
                what="matches the pods of no workload that is known",
                cure=f"write {near}-..." if near else "see kubectl get pods -A",
            )


def pods_of(name: str, kind: str) -> list[str]:
    """Return names that pods of a workload could have.

    >>> pods_of("chat", "StatefulSet")
    ['chat-0', 'chat-12']
    """
    suffixes = _POD_SUFFIXES.get(kind) or tuple(suffix for each in _POD_SUFFIXES.values() for suffix in each)
    cut = [f"{name}{suffix[:-5]}"[:_LONGEST_BASE] + suffix[-5:] for suffix in suffixes if len(suffix) > len("-12")]
    return [*cut, *(f"{name}{suffix}" for suffix in suffixes if len(suffix) <= len("-12"))]


def _metrics(document: Document, recorded: Mapping[str, list[_Recorded]], world: World) -> Iterator[FieldFault]:
    """Yield metrics of an HPA that no adapter of the folder offers, where it has one or its names are like the rules'."""
    offered = {
        text(rule, "name", "as")
        for values in world.folder.values
        for form in ("custom", "external")
        for rule in listed(values.body, "rules", form)
    }
    known = (offered - {""}) or {name.replace(":", "_") for name in recorded}
    for place, metric in enumerate(listed(document.body, "spec", "metrics")):
        kind = text(metric, "type").lower()
        name = text(metric, kind, "metric", "name")
        path = join("spec.metrics", place, kind, "metric")
        if name and name not in known | exported():
            near = nearest(name, known | exported())
            severity = Severity.ERROR if near or offered else Severity.WARNING
            yield FieldFault(
                field=f"{path}.name",
                value=name,
                what="is no metric that the adapter offers",
                cure=f"write {near}" if near else "give the adapter a rule for it",
                severity=severity,
            )
        rules = next((rules for series, rules in recorded.items() if series.replace(":", "_") == name), [])
        wanted = mapping(metric, kind, "metric", "selector", "matchLabels")
        for label, value in wanted.items():
            if rules and not any(
                rule.labels.get(label, value) == value
                and (label in rule.labels or value in rule.equal.get(label, {value}))
                for rule in rules
            ):
                yield FieldFault(
                    field=f"{path}.selector.matchLabels.{label}",
                    value=value,
                    what="selects nothing of what is recorded",
                    cure=f"write {nearest(value, {rule.labels.get(label, '') for rule in rules}, least_frac=0.0)}",
                )
