"""LimitRanges of namespaces that would refuse a plan's pods, or have them ask for what the plan does not.

A LimitRange judges each new container or pod alone: its least request, its most of a limit, the ratio of both; and it gives a
container what that does not state. A container that goes from a GPU to a slice of one no longer states GPUs, so that a default
of GPUs gives it a whole one beside its slice. What is not known of a pod (its CPU and memory, where none was read) is not
judged.

Source: kubernetes plugin/pkg/admission/limitranger/admission.go (PodMutateLimitFunc, PodValidateLimitFunc, podRequests).
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from trimtab.diagnose.cluster_records import number
from trimtab.emit.manifests.asked_resources import (
    SLACK,
    Amounts,
    AskedResources,
    Needed,
    kubectl_patch,
    quantity_words,
)
from trimtab.emit.manifests.facts import namespace_of
from trimtab.emit.manifests.karpenter import GPU_RESOURCE
from trimtab.emit.manifests.scope import Scope
from trimtab.emit.manifests.workload_files import gpu_ask
from trimtab.emit.manifests.workload_patch import GpuAsk
from trimtab.errors import InputError
from trimtab.tables.arrow import RecordedRow


class Container(BaseModel):
    """What a container asks for and may use at most, by resource: cores, GiB and pieces."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    requests: Mapping[str, float] = {}
    limits: Mapping[str, float] = {}
    role: str = ""
    """Empty, `init`, or `sidecar`: an init container that runs beside the others."""


_CONTAINERS = TypeAdapter(tuple[Container, ...])


def containers_of(cell: str) -> tuple[Container, ...]:
    """Return the containers of a cell of `pods`, a JSON list; raises InputError where it is none."""
    try:
        return _CONTAINERS.validate_json(cell)
    except ValidationError as error:
        raise InputError(
            f"pods: containers holds {cell[:60]!r}, which no collect writes; collect the history again"
        ) from error


class LimitBound(Enum):
    """What a LimitRange says of a resource, as its item spells it."""

    MIN = "min"
    MAX = "max"
    RATIO = "maxLimitRequestRatio"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A bound that a pod breaks; `asked` is what it asks for, or the ratio, None where it asks for none."""

    bound: LimitBound
    asked: float | None


def with_defaults(containers: Sequence[Container], ranges: Sequence[RecordedRow]) -> tuple[Container, ...]:
    """Return containers with what the LimitRanges of their namespace give those that state none of a resource."""
    found = tuple(containers)
    for row in ranges:
        if row["type"] == "Container":
            found = tuple(_with_default(container, row) for container in found)
    return found


def _with_default(container: Container, row: RecordedRow) -> Container:
    resource = str(row["resource"])
    limits, requests = dict(container.limits), dict(container.requests)
    for amounts, default in ((limits, row["default_limit"]), (requests, row["default_request"])):
        if default is not None:
            amounts.setdefault(resource, number(default))
    return container.model_copy(update={"limits": limits, "requests": requests})


def refusals(containers: Sequence[Container], row: RecordedRow) -> Iterator[Refusal]:
    """Yield the bounds of a row of `limit_ranges` that a pod with such containers breaks, defaults included."""
    resource = str(row["resource"])
    if row["type"] == "Pod":
        together = (
            [(container.role, container.requests) for container in containers],
            [(container.role, container.limits) for container in containers],
        )
        judged: list[tuple[Amounts, Amounts]] = [(_of_pod(together[0]), _of_pod(together[1]))]
    else:
        judged = [(container.requests, container.limits) for container in containers]
    for requests, limits in judged:
        yield from _broken(requests.get(resource), limits.get(resource), row)


def _broken(request: float | None, limit: float | None, row: RecordedRow) -> Iterator[Refusal]:
    stated = [amount for amount in (request, limit) if amount is not None]
    lowest, highest = min(stated, default=None), max(stated, default=None)
    least, most, ratio = row["min"], row["max"], row["max_ratio"]
    if least is not None and (request is None or lowest is None or lowest < number(least) - SLACK):
        yield Refusal(bound=LimitBound.MIN, asked=None if request is None else lowest)
    if most is not None and (limit is None or highest is None or highest > number(most) + SLACK):
        yield Refusal(bound=LimitBound.MAX, asked=None if limit is None else highest)
    if ratio is not None and (not request or not limit or limit / request > number(ratio) + SLACK):
        yield Refusal(bound=LimitBound.RATIO, asked=limit / request if request and limit else None)


def _of_pod(containers: Iterable[tuple[str, Amounts]]) -> dict[str, float]:
    """Return what a pod asks for, given its containers' roles and amounts.

    It is what all ask for that run together, or any one init container with the sidecars before it, whichever is more.
    """
    together: dict[str, float] = defaultdict(float)
    sidecars: dict[str, float] = defaultdict(float)
    most_alone: dict[str, float] = {}
    for role, amounts in containers:
        if role != "init":
            _add(together, amounts)
        if role == "sidecar":
            _add(sidecars, amounts)
        if role:
            own = amounts if role == "init" else {}
            alone = {name: sidecars.get(name, 0.0) + own.get(name, 0.0) for name in {**sidecars, **own}}
            most_alone = {
                name: max(most_alone.get(name, 0.0), alone.get(name, 0.0)) for name in {**most_alone, **alone}
            }
    return {name: max(together.get(name, 0.0), most_alone.get(name, 0.0)) for name in {**together, **most_alone}}


def _add(total: dict[str, float], amounts: Amounts) -> None:
    for name, amount in amounts.items():
        total[name] += amount


# What they make of a plan's pods


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewPod:
    """A pod that a workload would make under the plan; without what LimitRanges give it."""

    asking: AskedResources
    containers: tuple[Container, ...]
    judged: frozenset[str] | None
    """The resources of which it is known what it asks for; None for all."""

    def judges(self, resource: str) -> bool:
        """Return whether it is known what it asks for of a resource."""
        return self.judged is None or resource in self.judged


def of_limit_ranges(asking: Sequence[AskedResources], ranges: Sequence[RecordedRow], scope: Scope) -> Iterator[Needed]:
    """Yield what must be changed in LimitRanges before new pods of the plan are let in as the plan wants them."""
    by_namespace: dict[str, list[RecordedRow]] = defaultdict(list)
    for row in ranges:
        by_namespace[str(row["namespace"])].append(row)
    pods = [_new_pod(asker, scope) for asker in asking if namespace_of(asker.placed.name) in by_namespace]
    for namespace, rows in sorted(by_namespace.items()):
        mine = [pod for pod in pods if namespace_of(pod.asking.placed.name) == namespace]
        judged = {str(row["resource"]): [pod for pod in mine if pod.judges(str(row["resource"]))] for row in rows}
        # minima are lowered before defaults, which an API server lets be no less
        without = [_giving_none(row) for row in rows]
        for row in rows:
            yield from _refused(judged[str(row["resource"])], row, without)
        for at, row in enumerate(rows):
            # what an item gives of a resource counts where no item before it gave some
            yield from _given(judged[str(row["resource"])], row, rows[:at])


def _new_pod(asking: AskedResources, scope: Scope) -> _NewPod:
    """Return a pod as a workload makes it under the plan."""
    placed = asking.placed
    ask = None if placed.known.gpu_claims else gpu_ask(placed, scope.spec(placed.name))
    cell = asking.pod.get("containers")
    read = containers_of(str(cell)) if cell else None
    resource = str(asking.pod.get("gpu_resource") or GPU_RESOURCE)
    pieces = number(asking.pod.get("gpu_pieces") or placed.known.gpus_per_pod)
    # by what name a pod asks for part of a board is not known where none was read
    held = {resource: pieces} if pieces.is_integer() else {}
    containers = read or (Container(requests=held, limits=held),)
    judged = None if read else frozenset({*held, *([] if ask is None else [ask.resource, GPU_RESOURCE])})
    changed = containers if ask is None else _changed(containers, resource, ask)
    return _NewPod(asking=asking, containers=changed, judged=judged)


def _changed(containers: Sequence[Container], resource: str, ask: GpuAsk) -> tuple[Container, ...]:
    """Return containers of which the first that asks for GPUs asks for what the plan has it ask for instead."""
    first = next((at for at, container in enumerate(containers) if resource in container.limits), 0)

    def asks(amounts: Amounts) -> dict[str, float]:
        left = {name: amount for name, amount in amounts.items() if name not in (resource, GPU_RESOURCE)}
        return left | {ask.resource: float(ask.count)}

    return tuple(
        container.model_copy(update={"requests": asks(container.requests), "limits": asks(container.limits)})
        if at == first
        else container
        for at, container in enumerate(containers)
    )


def _given(pods: Sequence[_NewPod], row: RecordedRow, before: Sequence[RecordedRow]) -> Iterator[Needed]:
    """Yield what an item gives containers that the plan does not want: GPUs, or a limit of CPU or memory."""
    resource, amount = str(row["resource"]), row["default_limit"]
    if "/" in resource and amount is None:
        amount = row["default_request"]
    if row["type"] != "Container" or amount is None or not number(amount):
        return
    pods = [pod for pod in pods if _lacks(with_defaults(pod.containers, before), resource)]
    if not pods:
        return
    given = f"{_said(resource, number(amount))} {resource}" if "/" in resource else _said(resource, number(amount))
    names = ", ".join(pod.asking.placed.name for pod in pods)
    askers = tuple(pod.asking for pod in pods)
    if "/" in resource:
        words = (
            f"set default and defaultRequest of {resource} {_where(row)} to 0: it would give containers of {names}, which "
            f"ask for none of it, {given}"
        )
        yield Needed(what=words, askers=askers, command=_command(row, _without_default(row)))
    else:
        words = (
            f"state a limit of {resource} in the containers of {names} which have none: the default {_where(row)}, made after "
            f"their pods, would hold each new one to {given}"
        )
        yield Needed(what=words, askers=askers)


def _lacks(containers: Sequence[Container], resource: str) -> bool:
    return any(resource not in container.limits for container in containers)


def _giving_none(row: RecordedRow) -> RecordedRow:
    """Return an item as it is once it gives no GPUs to containers that ask for none."""
    given = [name for name in ("default_limit", "default_request") if row[name] is not None]
    return {**row, **dict.fromkeys(given, 0.0)} if "/" in str(row["resource"]) else row


def _refused(pods: Sequence[_NewPod], row: RecordedRow, rows: Sequence[RecordedRow]) -> Iterator[Needed]:
    """Yield each bound of an item that new pods break, with the change that lets all of them in."""
    broken: dict[LimitBound, list[tuple[_NewPod, float | None]]] = defaultdict(list)
    for pod in pods:
        for bound, asked in _worst(refusals(with_defaults(pod.containers, rows), row)).items():
            broken[bound].append((pod, asked))
    for bound, found in broken.items():
        resource = str(row["resource"])
        column = {LimitBound.MIN: "min", LimitBound.MAX: "max", LimitBound.RATIO: "max_ratio"}[bound]
        told = [asked for _, asked in found if asked is not None]
        names = ", ".join(f"{pod.asking.placed.name} {_asks(resource, bound, asked)}" for pod, asked in found)
        if len(told) < len(found):
            head = f"take {bound.value} of {resource} out {_where(row)}"
            change: list[Mapping[str, object]] = [{"op": "remove", "path": _path(row, bound.value)}]
        else:
            wanted = min(told) if bound is LimitBound.MIN else max(told)
            verb = "lower" if bound is LimitBound.MIN else "raise"
            present, later = (_bound_words(resource, bound, amount) for amount in (number(row[column]), wanted))
            head = f"{verb} {bound.value} of {resource} {_where(row)} from {present} to {later}"
            value = f"{wanted:g}" if bound is LimitBound.RATIO else quantity_words(resource, wanted)
            change = [{"op": "add", "path": _path(row, bound.value), "value": value}]
        yield Needed(
            what=f"{head}: each new {_judged(row)} of {names}, and is refused",
            askers=tuple(pod.asking for pod, _ in found),
            command=_command(row, change),
        )


def _worst(found: Iterable[Refusal]) -> dict[LimitBound, float | None]:
    """Return the farthest that containers of a pod are beyond each bound; None where one asks for nothing at all."""
    worst: dict[LimitBound, float | None] = {}
    for refusal in found:
        known = worst.get(refusal.bound, refusal.asked)
        farther = min if refusal.bound is LimitBound.MIN else max
        worst[refusal.bound] = None if known is None or refusal.asked is None else farther(known, refusal.asked)
    return worst


def _asks(resource: str, bound: LimitBound, asked: float | None) -> str:
    if not asked and bound is LimitBound.MIN and "/" in resource:
        return "asks for none of it"
    if asked is None:
        return f"states no {'limit' if bound is LimitBound.MAX else 'request'} of it"
    if bound is LimitBound.RATIO:
        return f"has a limit of {asked:g} times its request"
    return f"asks for {_said(resource, asked)}"


def _bound_words(resource: str, bound: LimitBound, amount: float) -> str:
    return f"{amount:g}" if bound is LimitBound.RATIO else _said(resource, amount)


def _judged(row: RecordedRow) -> str:
    return "pod" if row["type"] == "Pod" else "container"


def _where(row: RecordedRow) -> str:
    return f"of a {_judged(row)} in LimitRange {row['name']} of namespace {row['namespace']}"


def _said(resource: str, amount: float) -> str:
    return f"{amount:,.6g} GiB" if resource == "memory" else f"{amount:,.6g}" + (" cores" if resource == "cpu" else "")


def _path(row: RecordedRow, name: str) -> str:
    return f"/spec/limits/{row['place']}/{name}/{str(row['resource']).replace('~', '~0').replace('/', '~1')}"


def _without_default(row: RecordedRow) -> list[Mapping[str, object]]:
    """Return the operations by which an item gives none of its resource: 0, since without a default its maximum is one."""
    return [{"op": "add", "path": _path(row, name), "value": "0"} for name in ("default", "defaultRequest")]


def _command(row: RecordedRow, change: Sequence[Mapping[str, object]]) -> str:
    """Return the command that changes an item if it still stands where it stood; one that edits where that is unknown."""
    if row["place"] is None:
        return f"kubectl edit limitrange {shlex.quote(str(row['name']))} -n {shlex.quote(str(row['namespace']))}"
    known = {"op": "test", "path": f"/spec/limits/{row['place']}/type", "value": row["type"]}
    return kubectl_patch("limitrange", str(row["name"]), str(row["namespace"]), [known, *change])
