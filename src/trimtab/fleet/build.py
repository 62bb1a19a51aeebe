"""A fleet from the tables of a bundle, over one window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from trimtab.catalog.pools import Pool
from trimtab.errors import BundleError, near_matches
from trimtab.fleet.activity import USAGE_COLUMNS, DeviceHours, activity_of, by_owner, device_hours, distinct_hours
from trimtab.fleet.arrivals import DEMAND_COLUMNS, job_observations, pods_as_jobs, service_observations
from trimtab.fleet.columns import last_rows, rows_by_workload, text
from trimtab.fleet.model import (
    Coverage,
    Fleet,
    JobsObservation,
    Node,
    ServiceObservation,
    Window,
    Workload,
    workload_kind,
)
from trimtab.fleet.occupancy import (
    HeldNodes,
    Occupancy,
    Pods,
    held_nodes,
    nodes_never_looked_into,
    nodes_with_unknown_holders,
    occupancy,
    pods_of,
)
from trimtab.fleet.settings import Settings
from trimtab.fleet.starts import starts_of, with_starts
from trimtab.fleet.targets import targets_of
from trimtab.ledger import IDLE, Holdings
from trimtab.ledger.arrays import FloatArray
from trimtab.tables.bundle import Bundle
from trimtab.tables.workloads import WORKLOADS_FILE, WorkloadKind, Workloads, contradictions
from trimtab.units import HR_PER_DAY, S_PER_HR, floor_hour, hours_between

_UNKNOWN = "nodes with busy GPUs but no known holder: they stay, and stay billed, whatever is planned"
_UNREAD = (
    "nodes of which neither pods nor GPU activity were read: they stay, and stay billed, whatever is planned; dump the pods of "
    "all namespaces (kubectl get nodes,pods -A -o json), or add --prometheus URL"
)


def bundle_window(bundle: Bundle) -> Window:
    """Return the whole hours of a bundle's window."""
    start = floor_hour(bundle.start)
    return Window(start=start, hours=int(hours_between(start, bundle.end)))


def build_fleet(bundle: Bundle, settings: Settings, window: Window | None = None) -> Fleet:
    """Build the fleet that a bundle describes, over a window within the bundle's (default: all of it)."""
    window = window or bundle_window(bundle)
    allocations = bundle.table("allocations")
    last_row = last_rows(bundle.pieces("demand", ["workload"]))
    jobs = bundle.table("jobs")
    index = {
        name: number
        for number, name in enumerate(
            sorted({*text(allocations["workload"]), *last_row, *text(jobs["workload"])} - {""})
        )
    }
    held = occupancy(bundle.table("nodes"), allocations, index, window)
    rows = device_hours(bundle.pieces("gpu_usage", USAGE_COLUMNS), bundle.table("devices"), index, window)
    on_node = {node.name: node.gpu_count for node in held.nodes}
    type_of = {node.name: node.gpu or "" for node in held.nodes}
    pods = pods_of(allocations, on_node, type_of, index, rows, settings.bands.active_frac, window)
    gpu_seconds = _gpu_seconds(held, len(index), window.hours)
    present = {name: None for name in index if gpu_seconds[index[name]].any()}
    facts = _Facts(
        bundle=bundle,
        settings=settings,
        window=window,
        said=_said(allocations),
        held=held,
        of_owner=held_nodes(held.holdings, len(held.nodes), len(index)),
        pods=pods,
        services=service_observations(rows_by_workload(bundle.pieces("demand", DEMAND_COLUMNS), last_row), window),
        jobs=job_observations(jobs, type_of, index, pods, window),
    )
    unknown = nodes_with_unknown_holders(allocations, bundle.table("devices"), rows, settings.bands.active_frac, window)
    unread = nodes_never_looked_into(
        (node.name for node in held.nodes), bundle.table("pods", ["node"]), allocations, bundle.table("devices"), rows
    )
    _refuse_contradictions(bundle.workloads, present)
    workloads = tuple(
        facts.workload(name, number, gpu_seconds[number], mine)
        for (name, number), mine in zip(index.items(), by_owner(rows, len(index)), strict=True)
        if name in present
    )
    fleet = Fleet(
        window=window,
        nodes=held.nodes,
        usage=held.usage,
        node_seconds=held.node_seconds,
        holdings=_renumbered(held, [index[name] for name in present], len(index)),
        workloads=workloads,
        coverage=_coverage(
            bundle,
            held,
            rows,
            window,
            [*_declared_in_vain(bundle, index), *_guesses(workloads, facts.said)],
            unknown,
            unread - unknown,
        ),
        unknown_holders=unknown | unread,
    )
    return with_starts(fleet, starts_of(bundle))


def _refuse_contradictions(declared: Workloads, names: Iterable[str]) -> None:
    """Raise BundleError with every contradiction in a key and in what keys declare together, of all workloads at once."""
    faults = contradictions(declared, WORKLOADS_FILE)
    for name in names:
        try:
            declared.spec(name)
        except BundleError as error:
            faults += error.faults
    if faults:
        raise BundleError(faults)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Facts:
    """Inputs for building the workloads of one fleet."""

    bundle: Bundle
    settings: Settings
    window: Window
    said: Mapping[str, Mapping[str, str]]
    held: Occupancy
    of_owner: Sequence[HeldNodes]
    """What each workload held."""
    pods: Pods
    services: dict[str, ServiceObservation]
    jobs: dict[str, JobsObservation]

    def workload(self, name: str, index: int, gpu_seconds: FloatArray, rows: DeviceHours) -> Workload:
        """Build one workload of its own device-hours."""
        spec = self.bundle.workloads.spec(name)
        said = self.said.get(name, {})
        service = self.services.get(name)
        jobs = self.jobs.get(name) or (None if service else pods_as_jobs(self.pods, index, self.window))
        kind, because = workload_kind(name, said.get("owner_kind", ""), spec, service, jobs, self.window)
        if kind in {WorkloadKind.SERVING, WorkloadKind.NOTEBOOK}:
            jobs = None
        pool, gpu, gpus_per_node = self._home(index)
        return Workload(
            name=name,
            namespace=said.get("namespace") or name.partition("/")[0],
            team=spec.team or said.get("team") or "unassigned",
            kind=kind,
            kind_because=because,
            pool=pool,
            gpu=gpu,
            gpus_per_node=gpus_per_node,
            gpus_per_pod=self.pods.usual_gpus(index),
            pod_sizes=self.pods.sizes(index),
            gpu_seconds=gpu_seconds,
            held_node_seconds=self._held_node_seconds(index),
            held_gpu_seconds=self._held_gpu_seconds(index),
            activity=activity_of(rows, index, gpu_seconds, self.settings.bands.active_frac, gpu),
            service=service,
            jobs=jobs,
            spec=spec,
            targets=targets_of(spec, kind, service, jobs, self.settings.assumptions),
        )

    def _held_node_seconds(self, index: int) -> FloatArray:
        return self.of_owner[index].by_hour(self.held.node_seconds)

    def _held_gpu_seconds(self, index: int) -> dict[str, float]:
        """Return the GPU-seconds held of each type of GPU that is known."""
        found: dict[str, float] = defaultdict(float)
        for node, seconds in self._nodes(index):
            if node.gpu is not None:
                found[node.gpu] += seconds * node.gpu_count
        return dict(sorted(found.items()))

    def _home(self, index: int) -> tuple[Pool, str | None, int]:
        """Return the pool, GPU and GPUs per node that carried most of a workload's GPU time, of its main pool."""
        by_pool: dict[Pool, float] = defaultdict(float)
        by_kind: dict[tuple[Pool, str | None, int], float] = defaultdict(float)
        for node, seconds in self._nodes(index):
            by_pool[node.pool] += seconds * node.gpu_count
            by_kind[node.pool, node.gpu, node.gpu_count] += seconds * node.gpu_count
        pool = max(sorted(by_pool), key=lambda candidate: by_pool[candidate])
        return max((kind for kind in by_kind if kind[0] == pool), key=lambda kind: by_kind[kind])

    def _nodes(self, index: int) -> Iterator[tuple[Node, float]]:
        """Yield the nodes that a workload held, with the seconds that it held of each."""
        mine = self.of_owner[index]
        yield from (
            (self.held.nodes[at], seconds) for at, seconds in zip(mine.nodes, mine.seconds.tolist(), strict=True)
        )


def _gpu_seconds(held: Occupancy, owners: int, hours: int) -> FloatArray:
    """Return GPU-seconds held per workload and hour (owners, hours)."""
    cells = held.holdings
    mine = cells.owner != IDLE
    gpus = np.array([node.gpu_count for node in held.nodes], dtype=np.float64)
    seconds = np.zeros((owners, hours))
    np.add.at(seconds, (cells.owner[mine], cells.hour[mine]), cells.node_seconds[mine] * gpus[cells.node[mine]])
    return seconds


def _said(allocations: pa.Table) -> dict[str, dict[str, str]]:
    """Return namespace, owner kind and team by workload, as its first allocation that says so has them."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for row in allocations.select(["workload", "namespace", "owner_kind", "team"]).to_pylist():
        for key in ("namespace", "owner_kind", "team"):
            if row[key]:
                found[row["workload"]].setdefault(key, row[key])
    return dict(found)


def _renumbered(held: Occupancy, present: list[int], owners: int) -> Holdings:
    new = np.full(owners + 1, IDLE, dtype=np.int64)
    new[present] = np.arange(len(present))
    return replace(held.holdings, owner=new[held.holdings.owner])


def _coverage(
    bundle: Bundle,
    held: Occupancy,
    rows: DeviceHours,
    window: Window,
    notes: Iterable[str],
    unknown: frozenset[str],
    unread: frozenset[str],
) -> Coverage:
    gpus = np.array([node.gpu_count for node in held.nodes], dtype=np.float64)
    expected = float((held.node_seconds.sum(axis=1) * gpus).sum()) / S_PER_HR
    seen = distinct_hours(rows, ~np.isnan(rows.best))
    with_sm = distinct_hours(rows, ~np.isnan(rows.means["sm_active"]))
    return Coverage(
        window=window,
        asked_days=hours_between(bundle.start, bundle.end) / HR_PER_DAY,
        device_hours_seen_frac=min(seen / expected, 1.0) if expected else 0.0,
        sm_active_frac=with_sm / seen if seen else 0.0,
        gpus=int(gpus.sum()),
        nodes=len({node.name for node in held.nodes}),
        notes=(*bundle.meta.notes, *notes),
        counts={
            **dict(bundle.meta.counts),
            **held.counts,
            **({_UNKNOWN: len(unknown)} if unknown else {}),
            **({_UNREAD: len(unread)} if unread else {}),
        },
    )


def _declared_in_vain(bundle: Bundle, names: Iterable[str]) -> list[str]:
    """Report the keys of workloads.yaml that match no workload of the history and therefore have no effect."""
    known = list(names)
    notes = []
    for key in bundle.workloads.unmatched(known):
        near = near_matches(key, known)
        hint = f"; did you mean {near[0]}?" if near else ""
        notes.append(f"workloads.yaml declares {key}, which this history does not hold{hint}")
    return notes


def _guesses(workloads: Iterable[Workload], said: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Name the StatefulSets without request metrics: most serve, but some train, and nothing but a declaration tells."""
    names = [
        workload.name
        for workload in workloads
        if workload.kind is WorkloadKind.SERVING
        and workload.service is None
        and workload.spec.kind is None
        and said.get(workload.name, {}).get("owner_kind", "").casefold() == "statefulset"
    ]
    if names:
        yield (
            f"taken as serving, because a StatefulSet runs forever and no request metrics were found: {', '.join(names)}; "
            "declare `kind` in workloads.yaml where one trains or works through a queue"
        )
