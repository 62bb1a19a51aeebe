"""Who holds which board, where a snapshot knows better than telemetry: claims, and parts of boards.

Not every exporter maps claims to pods, none knows how much of a board each pod has, and of a board that KAI or Run:ai shares
the series name the pod that reserves it. A snapshot knows the pods that are there; what those held that went before is unknown.
MIG instances are numbered otherwise by DCGM than by slices, so that of these only how many a pod holds is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.sources.hour_grid import Life
from trimtab.sources.kubernetes.holds import DeviceShare, Hold
from trimtab.sources.kubernetes.owners import Owner
from trimtab.sources.kubernetes.pods import PlacedPod
from trimtab.sources.kubernetes.resource_claims import ResourceClaims
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
    """Return what is held, device by device, by pods that were not read: their claims show it."""
    return [
        _hold(
            (holder.namespace, holder.pod),
            held.gpu.node,
            DeviceShare(device=held.gpu.uuid or None, gpus=held.gpus),
            Life(start_s=holder.since.timestamp(), end_s=None),
        )
        for holder in claims.unseen((pod.namespace, pod.name) for pod in pods)
        for held in holder.devices
        if held.gpu.node is not None
    ]


def _hold(pod: Named, node: str, held: DeviceShare, life: Life) -> Hold:
    return Hold(namespace=pod[0], pod=pod[1], node=node, device=held.device, gpus=held.gpus, life=life)


def together(holds: Iterable[Hold]) -> list[Hold]:
    """Return one hold of what each pod holds on a node, with no device named: rows that repeat a place count once."""
    found: dict[tuple[str, str, str], Hold] = {}
    for hold in holds:
        place = (hold.namespace, hold.pod, hold.node)
        before = found[place].gpus if place in found else 0.0
        found[place] = replace(hold, device=None, gpus=before + hold.gpus)
    return list(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHolds:
    """What a snapshot knows of holdings."""

    holds: tuple[Hold, ...]
    """Device by device through claims and by parts of boards; of no device what else pods hold."""
    owners: Mapping[Named, Owner]
    stated: frozenset[Named] = frozenset()
    """Pods of which the snapshot knows what they hold, whatever telemetry tells."""
    reserved_until: Mapping[Named, datetime] = field(default_factory=dict)
    """Pods that only reserve boards -> from when on others hold these."""


def with_known(tables: Mapping[str, pa.Table], known: KnownHolds) -> dict[str, pa.Table]:
    """Return `allocations` and `gpu_usage` with what is held by parts, and by claims of pods that hold nothing by telemetry.

    What telemetry reported of a pod's earlier life under the same name stays. Readings of which no workload is known, or a
    pod that only reserves the board, go to every workload that held their board in that hour.
    """
    rows = tables["allocations"].to_pylist()
    told_of = {(row["namespace"], row["pod"]) for row in rows if row["gpus"] > 0} - known.stated
    nodes = set(tables["nodes"]["node"].to_pylist())
    new = [hold for hold in known.holds if (hold.namespace, hold.pod) not in told_of and hold.node in nodes]
    devices = set(tables["devices"]["device"].to_pylist())
    named = [hold for hold in new if hold.device in devices]
    told = allocation_rows([*named, *together(hold for hold in new if hold.device not in devices)], known.owners)
    until = dict(known.reserved_until)
    for row in told:
        pod, start = (str(row["namespace"]), str(row["pod"])), row["start"]
        assert isinstance(start, datetime)
        until[pod] = min(start, until.get(pod, start))
    kept = [cut for row in rows if (cut := _before(row, until.get((row["namespace"], row["pod"])))) is not None]
    reservations = {row["workload"] for row in rows if (row["namespace"], row["pod"]) in known.reserved_until}
    return {
        "allocations": table_from_rows("allocations", [*kept, *told]),
        "gpu_usage": _owned_usage(tables["gpu_usage"], told, reservations),
    }


def _before(row: Mapping[str, object], until: datetime | None) -> Mapping[str, object] | None:
    """Return the part of a holding before a moment; None where there is none, or none of any GPU."""
    start, end = row["start"], row["end"]
    assert isinstance(start, datetime)
    if until is None or (isinstance(end, datetime) and end <= until):
        return row
    return None if start >= until or not row["gpus"] else {**row, "end": until}


def _owned_usage(usage: pa.Table, told: Sequence[Mapping[str, object]], reservations: Collection[str]) -> pa.Table:
    """Return readings without a workload, or with that of a reservation, with those that held their device then.

    Where several did, each has the readings of the whole board, as an exporter has them that tells pods apart by name only, and
    an equal part of its energy: a busy board makes no holder idle.
    """
    held: dict[object, list[Mapping[str, object]]] = {}
    for row in told:
        if row["device"] is not None:
            held.setdefault(row["device"], []).append(row)
    if not held:
        return usage
    nobody = pc.or_(
        pc.is_null(usage["workload"]), pc.is_in(usage["workload"], pa.array(sorted(reservations), pa.string()))
    )
    unowned = pc.and_(nobody, pc.is_in(usage["device"], pa.array(list(held), pa.string())))
    places = pc.indices_nonzero(unowned).to_pylist()
    part = usage.select(["device", "hour"]).take(pa.array(places, pa.int64())).to_pylist()
    holders_at = {
        place: sorted({str(row["workload"]) for row in held[reading["device"]] if _overlaps(row, reading["hour"])})
        for place, reading in zip(places, part, strict=True)
    }
    take: list[int] = []
    owners: list[str | None] = []
    parts: list[int] = []
    for place, workload in enumerate(usage["workload"].to_pylist()):
        holders = holders_at.get(place) or [workload]
        take += [place] * len(holders)
        owners += holders
        parts += [len(holders)] * len(holders)
    return _shared(usage.take(pa.array(take, pa.int64())), owners, parts)


def _shared(usage: pa.Table, owners: Sequence[str | None], parts: Sequence[int]) -> pa.Table:
    """Return readings with their workloads; energy is divided by how many have the same reading."""
    energy = pc.divide(usage["energy_kwh"], pa.array(parts, pa.float64()))
    for name, column in (("workload", pa.array(owners, pa.string())), ("energy_kwh", energy)):
        place = usage.schema.get_field_index(name)
        usage = usage.set_column(place, usage.field(place), column.cast(usage.field(place).type))
    return usage


def _overlaps(row: Mapping[str, object], hour: datetime) -> bool:
    """Return whether a hold covers the middle of an hour: most of it."""
    start, end, middle_s = row["start"], row["end"], hour.timestamp() + S_PER_HR / 2
    assert isinstance(start, datetime)
    return start.timestamp() <= middle_s and not (isinstance(end, datetime) and end.timestamp() < middle_s)
