"""Spot events of a fleet: what its own nodes and its cluster's events tell of spot that was had, lost, or not to be had.

Four kinds of evidence, none of which asks a cloud:

- a spot node that appears in the window was `launched`;
- a spot node that goes while a pod still holds its GPUs, or has for less than a minute not, was `interrupted`: an empty node is
  kept for longer than that before it is given back. A node drained by hand counts as well;
- an on-demand node that appears under a spot pool (trimtab's taint, or a Karpenter NodePool that also launched spot nodes of
  that type) says that spot was `unavailable`: both are allowed there, and the cheaper one is asked for first;
- a Kubernetes event that names a spot interruption of a node: `interrupted`, at the moment of the event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from trimtab.catalog import CapacityType
from trimtab.sources.kube_objects import Objects, moment_at, text

Row = Mapping[str, object]

SPOT_TAINT = "trimtab.dev/spot"
NODE_POOL_LABELS = ("karpenter.sh/nodepool", "karpenter_sh_nodepool")
"""As Kubernetes spells it, and as kube-state-metrics does."""
DRAINED = timedelta(seconds=60)
"""An emitted pool of runs keeps an empty node that long (`fleet.settings.RUN_NODES_KEPT_S`)."""
INTERRUPTIONS = frozenset({"SpotInterrupted", "SpotInterruption", "PreemptScheduled"})
"""Reasons of events on nodes: Karpenter; aws-node-termination-handler; Azure's node-problem-detector."""


def spot_event_rows(
    nodes: Iterable[Row], allocations: Iterable[Row], start: datetime, objects: Objects | None = None
) -> list[dict[str, object]]:
    """Return the rows of `spot_events` over a window that begins at `start`, in order of time; the module says what counts."""
    nodes = [node for node in nodes if node["gpu_count"]]
    by_name = {str(node["node"]): node for node in nodes}
    last_held = _last_held(allocations)
    told = {} if objects is None else _interruptions(objects, by_name)
    pools = {_pool(node) for node in nodes if _is_spot(node)}
    rows = []
    for node in nodes:
        name, begins, ends = str(node["node"]), node["start"], node.get("end")
        assert isinstance(begins, datetime)
        if _is_spot(node):
            if begins > start:
                rows.append(_row(node, begins, "launched"))
            lost = told.get(name)
            if lost is None and isinstance(ends, datetime) and _held_to_the_end(last_held.get(name, ()), begins, ends):
                lost = ends
            if lost is not None:
                rows.append(_row(node, lost, "interrupted"))
        elif begins > start and _stands_in_for_spot(node, pools):
            rows.append(_row(node, begins, "unavailable"))
    return sorted(rows, key=lambda row: (row["at"], str(row["instance_type"]), str(row["event"])))


def _row(node: Row, at: datetime, event: str) -> dict[str, object]:
    # on demand was taken after every zone had refused, so that this says nothing of one zone
    zone = None if event == "unavailable" else node.get("zone")
    place = {name: node[name] for name in ("provider", "instance_type", "region")}
    return {**place, "zone": zone, "at": at, "event": event, "notice_s": None, "spot_usd_hr": None}


def _is_spot(node: Row) -> bool:
    return node["capacity_type"] == CapacityType.SPOT.value


def _pool(node: Row) -> tuple[object, ...]:
    """Return a node's NodePool, type and region."""
    labels = _labels(node, "labels")
    node_pool = next((labels[name] for name in NODE_POOL_LABELS if labels.get(name)), None)
    return (node_pool, node["instance_type"], node["region"])


def _labels(node: Row, name: str) -> Mapping[str, str]:
    found = node.get(name)
    return found if isinstance(found, Mapping) else dict(found) if isinstance(found, list) else {}


def _stands_in_for_spot(node: Row, pools: set[tuple[object, ...]]) -> bool:
    if node["capacity_type"] != CapacityType.ON_DEMAND.value:
        return False
    return SPOT_TAINT in _labels(node, "taints") or (bool(_pool(node)[0]) and _pool(node) in pools)


def _last_held(allocations: Iterable[Row]) -> dict[str, list[datetime | None]]:
    """Return the ends of all holdings of each node; None is one that nobody saw end."""
    found: dict[str, list[datetime | None]] = defaultdict(list)
    for row in allocations:
        end = row.get("end")
        found[str(row["node"])].append(end if isinstance(end, datetime) else None)
    return found


def _held_to_the_end(ends: Sequence[datetime | None], begins: datetime, gone: datetime) -> bool:
    """Tell whether GPUs were held when a life ended; holdings that end outside that life are another's."""
    return any(end is None or (begins < end and abs(gone - end) < DRAINED) for end in ends)


def _interruptions(objects: Objects, nodes: Mapping[str, Row]) -> dict[str, datetime]:
    """Return when a Kubernetes event said that a node was interrupted: the first such event of each node that is known."""
    found: dict[str, datetime] = {}
    for event in objects.of("Event"):
        name, at = text(event, "involvedObject", "name"), _moment(event)
        if text(event, "reason") not in INTERRUPTIONS or text(event, "involvedObject", "kind") != "Node":
            continue
        if name in nodes and at is not None:
            found[name] = min(at, found.get(name, at))
    return found


def _moment(event: Mapping[str, object]) -> datetime | None:
    for path in (("firstTimestamp",), ("eventTime",), ("lastTimestamp",), ("metadata", "creationTimestamp")):
        at = moment_at(event, *path)
        if at is not None:
            return at
    return None
