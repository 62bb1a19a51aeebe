"""Volcano's queues that would keep a plan's pods waiting: what has to be changed before an action, in words.

A queue may use its *real capability*: the least of its `capability`, which limits no resource that it does not name, and of
what the queues beside it leave, each of which keeps its `guarantee` for itself alone, used or not:

    real capability = min(capability, max(above - sum of guarantees, 0) + own guarantee)

`above` is all that the nodes have, and every queue stands beside every other, where queues are flat. In a hierarchy it is the
real capability of the queue above, beside stand the queues of the same parent, and the root may use any amount that its own
capability allows. A run waits for its own queue and for each above it. What a queue deserves limits others only while GPUs are
short, and is not looked at.

Volcano's controller gives every queue without a parent the parent `root`, so that only a queue under another one tells a
hierarchy. Where there is none, the flat rule is assumed, and the words say so.

Sources, volcano-sh/volcano at ed72c7c (2026-08-20, after v1.15): pkg/scheduler/plugins/capacity/capacity.go (buildQueueAttrs,
buildHierarchicalQueueAttrs, checkHierarchicalQueue, jobEnqueueable, checkJobEnqueueableHierarchically),
pkg/scheduler/plugins/proportion/proportion.go (OnSessionOpen), pkg/controllers/queue/queue_controller_action.go
(updateQueueParent).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence

from trimtab.diagnose.cluster_records import number
from trimtab.emit.manifests.asked_resources import (
    SLACK,
    AskedResources,
    Needed,
    StandingQuotas,
    amount_words,
    askers,
    kubectl_patch,
    need,
    quantity_words,
    queue_of,
)
from trimtab.emit.manifests.karpenter import GPU_RESOURCE
from trimtab.tables.arrow import RecordedRow

_KIND, _ROOT = "Queue", "root"


def of_volcano_queues(
    asking: Sequence[AskedResources], standing: StandingQuotas, of_kueue: Container[str]
) -> Iterator[Needed]:
    """Yield each limit of a Volcano queue that the plan would exceed, with those that ask for more.

    `of_kueue`: the workloads that wait in Kueue, whose queues may have the names of Volcano's.
    """
    rows = [row for row in standing.queues if row["kind"] == _KIND]
    above = {str(row["name"]): str(row["parent"] or ("" if row["name"] == _ROOT else _ROOT)) for row in rows}
    asks = [asker for asker in asking if asker.placed.name not in of_kueue]
    for resource in sorted({str(row["resource"]) for row in rows if row["resource"]}):
        stated = {str(row["name"]): row for row in rows if row["resource"] == resource}
        boards = standing.whole_boards.get("") if resource == GPU_RESOURCE else None
        growing: dict[str, list[AskedResources]] = defaultdict(list)
        for asker in asks:
            if asker.grows(resource):
                for name in _with_ancestors(queue_of(asker, standing), above):
                    growing[name].append(asker)
        yield from _of_resource(resource, stated, above, growing, boards)


def _of_resource(
    resource: str,
    stated: Mapping[str, RecordedRow],
    above: Mapping[str, str],
    growing: Mapping[str, Sequence[AskedResources]],
    boards: float | None,
) -> Iterator[Needed]:
    """Yield what a plan needs of one resource: `stated` are the queues' rows of it, `growing` who asks for more, by queue."""
    flat = not any(parent in above and parent != _ROOT for parent in above.values())
    needs = {name: _wanted(stated.get(name), more, resource) for name, more in growing.items()}
    kept: dict[str, Mapping[str, float]] = {}
    # from the leaves up: what a queue needs of the one above it is more than its pods ask for, by what stands beside it
    for name in sorted(growing, key=lambda name: (-len(_with_ancestors(name, above)), name)):
        beside = [other for other in stated if other != name and (flat or above[other] == above[name])]
        guarantees = {other: amount for other in sorted(beside) if (amount := _guarantee(stated.get(other))) > SLACK}
        parent, needed = above[name], needs[name] + sum(guarantees.values())
        who = askers(growing[name], resource, _used(stated.get(name), growing[name], resource), resource)
        if needs[name] > _guarantee(stated.get(name)) + SLACK:
            if flat and guarantees and name != _ROOT:
                yield from _of_cluster(resource, name, who, needed, guarantees, growing[name], boards)
            elif not flat and needed > needs.get(parent, math.inf):
                needs[parent], kept[parent] = needed, {**kept.get(name, {}), **guarantees}
        if kept.get(name):
            who += f", beside what queues below it are guaranteed ({_guarantee_words(resource, kept[name])})"
        yield from _of_capability(resource, name, who, stated.get(name), needs[name], growing[name])


def _of_cluster(
    resource: str,
    name: str,
    who: str,
    needed: float,
    guarantees: Mapping[str, float],
    more: Sequence[AskedResources],
    boards: float | None,
) -> Iterator[Needed]:
    """Yield that a cluster must have as much of a resource as a queue needs and others keep for themselves."""
    if boards is not None and needed <= boards + SLACK:
        return
    has = "how many it has was not read" if boards is None else f"it has {amount_words(resource, boards)}"
    yield Needed(
        what=f"have {amount_words(resource, needed)} {resource} in the cluster ({has}), or lower the guarantees of Volcano's "
        f"queues ({_guarantee_words(resource, guarantees)}), which Queue {name} may not use: "
        f"{who}, and Volcano keeps the rest waiting (its queues seem flat; with enableHierarchy these "
        "guarantees do not limit)",
        askers=tuple(more),
    )


def _of_capability(
    resource: str, name: str, who: str, row: RecordedRow | None, needed: float, more: Sequence[AskedResources]
) -> Iterator[Needed]:
    """Yield that the capability of a queue must be raised."""
    if row is None or row["limit_gpus"] is None or needed <= number(row["limit_gpus"]) + SLACK:
        return
    most = amount_words(resource, number(row["limit_gpus"]))
    patch = {"spec": {"capability": {resource: quantity_words(resource, math.ceil(needed - SLACK))}}}
    yield Needed(
        what=f"raise {resource} in capability of Volcano's Queue {name} from {most} to {amount_words(resource, needed)}: "
        f"{who}, and Volcano keeps the rest waiting",
        askers=tuple(more),
        command=kubectl_patch("queues.scheduling.volcano.sh", name, "", patch),
    )


def _wanted(row: RecordedRow | None, more: Sequence[AskedResources], resource: str) -> float:
    """Return what the pods behind a queue may ask for at once."""
    return need(_used(row, more, resource), more, resource)


def _used(row: RecordedRow | None, more: Sequence[AskedResources], resource: str) -> float:
    """Return what is used of a queue; where it does not tell, at least what those that ask for more hold."""
    own = sum(asker.now.get(resource, 0.0) for asker in more)
    return own if row is None or row["used_gpus"] is None else number(row["used_gpus"])


def _guarantee(row: RecordedRow | None) -> float:
    return 0.0 if row is None or row["guaranteed_gpus"] is None else number(row["guaranteed_gpus"])


def _guarantee_words(resource: str, guarantees: Mapping[str, float]) -> str:
    return ", ".join(f"{amount_words(resource, amount)} for {name}" for name, amount in guarantees.items())


def _with_ancestors(queue: str, above: Mapping[str, str]) -> list[str]:
    """Return a Volcano queue and those above it; none where there is no such queue."""
    found: list[str] = []
    while queue in above and queue not in found:
        found.append(queue)
        queue = above[queue]
    return found
