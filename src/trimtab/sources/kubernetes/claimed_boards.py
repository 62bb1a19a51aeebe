"""Who holds which claimed board, where the series of its GPU name no pod: not every exporter maps claims to pods.

A snapshot knows the claims of the pods that are there; what pods held that went before is not known. MIG instances are numbered
otherwise by DCGM than by slices, so that of these only how many a pod holds is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.sources.hour_grid import Life
from trimtab.sources.kubernetes.holds import Hold
from trimtab.sources.kubernetes.owners import Owner
from trimtab.sources.kubernetes.pods import PlacedPod
from trimtab.sources.kubernetes.resource_claims import HeldDevice, ResourceClaims
from trimtab.sources.prometheus.fleet_rows import allocation_rows
from trimtab.tables.arrow import table_from_rows
from trimtab.units import S_PER_HR

Named = tuple[str, str]


def claimed_holds(pods: Sequence[PlacedPod], claims: ResourceClaims) -> list[Hold]:
    """Return what is held through claims, device by device: by pods, and by pods that were not read but are in a claim."""
    found = []
    for pod in pods:
        if pod.node is not None and pod.scheduled is not None:
            life = Life(start_s=pod.scheduled.timestamp(), end_s=pod.ended.timestamp() if pod.ended else None)
            found += [_hold((pod.namespace, pod.name), pod.node, held, life) for held in pod.devices]
    return found + unseen_holds(pods, claims)


def unseen_holds(pods: Sequence[PlacedPod], claims: ResourceClaims) -> list[Hold]:
    """Return what is held, device by device, by pods that were not read: their claims tell of it."""
    return [
        _hold((holder.namespace, holder.pod), held.gpu.node, held, Life(start_s=holder.since.timestamp(), end_s=None))
        for holder in claims.unseen((pod.namespace, pod.name) for pod in pods)
        for held in holder.devices
        if held.gpu.node is not None
    ]


def _hold(pod: Named, node: str, held: HeldDevice, life: Life) -> Hold:
    return Hold(namespace=pod[0], pod=pod[1], node=node, device=held.gpu.uuid or None, gpus=held.gpus, life=life)


def together(holds: Iterable[Hold]) -> list[Hold]:
    """Return one hold of what each pod holds on a node, with no device named: rows that repeat a place count once."""
    found: dict[tuple[str, str, str], Hold] = {}
    for hold in holds:
        place = (hold.namespace, hold.pod, hold.node)
        before = found[place].gpus if place in found else 0.0
        found[place] = replace(hold, device=None, gpus=before + hold.gpus)
    return list(found.values())


def with_claimed(
    tables: Mapping[str, pa.Table], holds: Sequence[Hold], owners: Mapping[Named, Owner]
) -> dict[str, pa.Table]:
    """Return `allocations` and `gpu_usage` with what pods hold through claims, of those pods that hold nothing by telemetry.

    Readings that nobody is known to have caused go to the workload that held their board in that hour, where it is one.
    """
    rows = tables["allocations"].to_pylist()
    known = {(row["namespace"], row["pod"]) for row in rows if row["gpus"] > 0}
    nodes = set(tables["nodes"]["node"].to_pylist())
    new = [hold for hold in holds if (hold.namespace, hold.pod) not in known and hold.node in nodes]
    devices = set(tables["devices"]["device"].to_pylist())
    named = [hold for hold in new if hold.device in devices]
    told = allocation_rows([*named, *together(hold for hold in new if hold.device not in devices)], owners)
    pods = {(hold.namespace, hold.pod) for hold in new}
    kept = [row for row in rows if (row["namespace"], row["pod"]) not in pods]
    return {
        "allocations": table_from_rows("allocations", [*kept, *told]),
        "gpu_usage": _owned_usage(tables["gpu_usage"], told),
    }


def _owned_usage(usage: pa.Table, told: Sequence[Mapping[str, object]]) -> pa.Table:
    """Return readings without a workload with that of the one which held their device then."""
    held: dict[object, list[Mapping[str, object]]] = {}
    for row in told:
        if row["device"] is not None:
            held.setdefault(row["device"], []).append(row)
    if not held:
        return usage
    unowned = pc.and_(pc.is_null(usage["workload"]), pc.is_in(usage["device"], pa.array(list(held), pa.string())))
    places = pc.indices_nonzero(unowned).to_pylist()
    part = usage.select(["device", "hour"]).take(pa.array(places, pa.int64())).to_pylist()
    workloads = usage["workload"].to_pylist()
    for place, reading in zip(places, part, strict=True):
        holders = {row["workload"] for row in held[reading["device"]] if _overlaps(row, reading["hour"])}
        workloads[place] = holders.pop() if len(holders) == 1 else None
    column = usage.schema.get_field_index("workload")
    return usage.set_column(column, usage.field(column), pa.array(workloads, usage.field(column).type))


def _overlaps(row: Mapping[str, object], hour: datetime) -> bool:
    """Tell whether a hold covers the middle of an hour: most of it."""
    start, end, middle_s = row["start"], row["end"], hour.timestamp() + S_PER_HR / 2
    assert isinstance(start, datetime)
    return start.timestamp() <= middle_s and not (isinstance(end, datetime) and end.timestamp() < middle_s)
