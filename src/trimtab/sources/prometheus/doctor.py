"""What is missing for a good answer, what each absence costs in certainty, and what corrects it.

`probe` asks a server; `server_findings` judges what it reported, and is pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum

from trimtab.catalog.model_servers import PROXIES, SERVERS
from trimtab.catalog.prices import STALE_DAYS, PriceBook
from trimtab.sources.hour_grid import HourGrid, kube_watch
from trimtab.sources.kubernetes.nodes import UNKNOWN, collect_nodes
from trimtab.sources.kubernetes.owners import TEAM_LABELS
from trimtab.sources.kubernetes.shared_holds import hami_nodes, nodes_with_parts, with_boards
from trimtab.sources.prometheus.client import Prometheus
from trimtab.sources.prometheus.dcgm import OTHER_MAKERS, OWNER_LABELS, WATCHED_METRICS, read_labels
from trimtab.sources.prometheus.gpu_series import Tally, selector
from trimtab.sources.prometheus.gpu_usage import find_gpu_metrics
from trimtab.units import MS_PER_S, S_PER_DAY, S_PER_HR, S_PER_MIN, floor_hour

ENOUGH_DAYS = 14
"""Days of history for a plan with its proof: a week to plan on and a week to prove on."""
_LOOK_HR = 6
_HISTORY_DAYS = 60


class FindingStatus(Enum):
    """How a thing stands."""

    OK = "ok"
    WEAK = "weak"
    """The answer is weaker than it could be."""
    MISSING = "missing"
    """A part of the answer cannot be given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """One thing looked at: how it stands, what that costs, and what to paste to correct it."""

    what: str
    status: FindingStatus
    detail: str
    cost: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server tells about itself."""

    gpus: int
    readings: frozenset[str]
    """Canonical readings that are exported."""
    scrape_s: float
    history_days: int
    """Days back to the oldest GPU readings, up to 60."""
    pods_named: bool
    """GPU series say which pod held the GPU."""
    nodes: int
    nodes_typed: int
    teams: bool
    servers: tuple[str, ...]
    """Kinds of model servers whose request metrics are there."""
    proxies: tuple[str, ...] = ()
    """Routers, meshes and gateways that count requests."""
    watched: frozenset[str] = frozenset()
    """Readings that alerts watch beside those of a bundle, and that are there."""
    sharing_nodes: int = 0
    """Nodes that advertise each of their boards several times (time-slicing, MPS)."""
    pods_apart: bool = False
    """The exporter tells the pods on one board apart."""
    nvidia: bool = True
    """Readings of NVIDIA's boards are there."""
    others: tuple[str, ...] = ()
    """Exporters of other makers' boards whose readings are there (`OTHER_MAKERS`)."""


def probe(server: Prometheus, now: datetime) -> ServerFacts:
    """Ask a server what it has: the last hours in detail, and how far back it goes. Raises SourceError."""
    server.check()
    end_s = int(floor_hour(now).timestamp())
    grid = HourGrid(start_s=end_s - _LOOK_HR * S_PER_HR, hours=_LOOK_HR)
    tally = Tally()
    metrics = find_gpu_metrics(server, grid, tally)
    nodes = collect_nodes(server, kube_watch(server, grid))
    in_parts = nodes_with_parts(server, grid) | hami_nodes(server, grid)
    boards = Counter(node for _, node in {(labels.uuid, labels.node) for labels in tally.devices.values()})
    sharing = [with_boards(node, boards[node.name], node.name in in_parts, Tally())[1] for node in nodes]
    window = (grid.start_s, grid.end_s)
    present, foreign = set(metrics.present), {metric for theirs in OTHER_MAKERS.values() for metric in theirs}
    series = server.series([selector(server, metric) for metric in metrics.counted], *window) if metrics.counted else []
    labelled = server.series(
        [name + server.matching() for name in ("kube_pod_labels", "kube_namespace_labels")], *window
    )
    return ServerFacts(
        gpus=len({labels.uuid for labels in tally.devices.values()}),
        readings=frozenset(metric.canonical for metric in metrics.present),
        scrape_s=metrics.step_s,
        history_days=_history_days(server, [metric.name for metric in metrics.counted], end_s),
        pods_named=any(labels.get(name) for labels in series for name in OWNER_LABELS if "pod" in name),
        nodes=len(nodes),
        nodes_typed=sum(node.instance_type != UNKNOWN for node in nodes),
        teams=any(labels.get(name) for labels in labelled for name in TEAM_LABELS),
        servers=tuple(
            metrics.title
            for metrics in SERVERS
            if server.series([name + server.matching(*metrics.only) for name in metrics.names], *window)
        ),
        proxies=_proxies(server, *window),
        watched=frozenset(
            canonical
            for canonical, names in _watched_names().items()
            if server.series([name + server.matching() for name in names], *window)
        ),
        sharing_nodes=sum(how.replicas > 1 for how in sharing),
        pods_apart=_pods_apart(series),
        nvidia=not present.issubset(foreign) or not present,
        others=tuple(name for name, theirs in OTHER_MAKERS.items() if present.intersection(theirs)),
    )


def _proxies(server: Prometheus, start_s: float, end_s: float) -> tuple[str, ...]:
    """Return the titles of proxies whose counters are there; by name alone, for a mesh has very many series."""
    there = server.names(start_s, end_s, "|".join(name for metrics in PROXIES for name in metrics.completed))
    return tuple(metrics.title for metrics in PROXIES if not there.isdisjoint(metrics.completed))


def _pods_apart(series: Iterable[Mapping[str, str]]) -> bool:
    """Return whether any board has a series of its own beside those of its pods' shares (`vgpu`), as per-pod readings come."""
    of_pods: set[str] = set()
    of_boards: set[str] = set()
    for labels in series:
        found = read_labels(labels)
        if found is not None and labels.get("vgpu"):
            of_pods.add(found.uuid)
        elif found is not None and not found.pod:
            of_boards.add(found.uuid)
    return not of_pods.isdisjoint(of_boards)


def _watched_names() -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for metric in WATCHED_METRICS:
        names.setdefault(metric.canonical, []).append(metric.name)
    return names


def _history_days(server: Prometheus, names: Sequence[str], end_s: int) -> int:
    """Return how many days back there are GPU readings, by an hour's samples a day."""
    oldest_s = float(end_s)
    for name in names:
        query = f"count(count_over_time({name}{server.matching()}[1h]))"
        for series in server.range(query, end_s - _HISTORY_DAYS * S_PER_DAY, end_s, S_PER_DAY):
            oldest_s = min(oldest_s, float(series.times_ms.min()) / MS_PER_S)
    return round((end_s - oldest_s) / S_PER_DAY)


def server_findings(facts: ServerFacts, *, bills: int, prices: PriceBook, day: date) -> list[DoctorFinding]:
    """Judge what a server reported; `bills` is how many bill files were given, `prices` what an audit of that day would use."""
    found = [_gpu_metrics(facts)]
    if facts.gpus:
        told = (*activity(facts.readings), _links(facts), _pods(facts), *_shared(facts), _alerts(facts))
        of_nvidia = list(told) if facts.nvidia else []
        found += [*_other_makers(facts), *of_nvidia, history(facts.history_days), _scrapes(facts)]
    return [*found, *_kubernetes(facts), _requests(facts), bill(bills), price_book(prices, day)]


def _gpu_metrics(facts: ServerFacts) -> DoctorFinding:
    if facts.gpus:
        return DoctorFinding(what="GPU metrics", status=FindingStatus.OK, detail=f"{facts.gpus} GPUs")
    return DoctorFinding(
        what="GPU metrics",
        status=FindingStatus.MISSING,
        detail=f"none in the last {_LOOK_HR} hours",
        cost="nothing can be judged",
        fix="helm install dcgm-exporter gpu-helm-charts/dcgm-exporter --set serviceMonitor.enabled=true; for other makers' "
        f"boards, scrape one of: {', '.join(OTHER_MAKERS)}",
    )


_COUNTERS = {
    "sm_active": "DCGM_FI_PROF_SM_ACTIVE, gauge, The ratio of cycles an SM has at least 1 warp assigned.",
    "tensor_active": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, gauge, Ratio of cycles the tensor (HMMA) pipe is active.",
    "dram_active": "DCGM_FI_PROF_DRAM_ACTIVE, gauge, Ratio of cycles the device memory interface is active.",
}
_COSTS = {
    "sm_active": "GPU_UTIL is used instead, which is high whenever any kernel runs: over-provisioning is understated",
    "tensor_active": "any SM activity may be tensor work: predicted speeds elsewhere are wide, fewer smaller GPUs are offered",
    "dram_active": "all busy time may wait for memory: predicted speeds elsewhere are wide, fewer smaller GPUs are offered",
}


def activity(readings: Collection[str]) -> Iterator[DoctorFinding]:
    """Judge which readings of activity are exported."""
    for name, line in _COUNTERS.items():
        if name in readings:
            yield DoctorFinding(what=name, status=FindingStatus.OK, detail="exported")
        else:
            fix = f"add to dcgm-exporter's counters file (-f counters.csv): {line}"
            yield DoctorFinding(what=name, status=FindingStatus.WEAK, detail="not exported", cost=_COSTS[name], fix=fix)


def _links(facts: ServerFacts) -> DoctorFinding:
    if "pcie_rx_gb_s" in facts.readings:
        return DoctorFinding(what="PCIe", status=FindingStatus.OK, detail="exported")
    return DoctorFinding(
        what="PCIe",
        status=FindingStatus.WEAK,
        detail="not exported",
        cost="whether a workload waits for transfers is unknown",
        fix="add to dcgm-exporter's counters file (-f counters.csv): DCGM_FI_PROF_PCIE_RX_BYTES, gauge, Bytes received a "
        "second.; DCGM_FI_PROF_PCIE_TX_BYTES, gauge, Bytes sent a second.",
    )


_BUSY_ONLY = "how hard a busy board works is not known, so over-provisioning is understated"
_UNMOVED = (
    "programs are compiled for them, so that nothing is moved on or off them: idle boards, copies and hours are judged"
)
_MAKER_COSTS = {
    "AMD's device-metrics-exporter": _BUSY_ONLY,
    "AWS's neuron-monitor": "chips are reported only while a program runs on them, without pod and memory: who holds them is "
    f"known by requests; {_BUSY_ONLY}; {_UNMOVED}",
    "GKE's TPU device plugin": f"busy time and memory are reported while a pod's runtime answers on port 8431; {_UNMOVED}",
    "Intel's exporters": _BUSY_ONLY,
}


def _other_makers(facts: ServerFacts) -> Iterator[DoctorFinding]:
    """Say what the exporters of other makers leave open: no setting of theirs corrects it."""
    for name in facts.others:
        yield DoctorFinding(
            what=name,
            status=FindingStatus.WEAK,
            detail="readings are there",
            cost=_MAKER_COSTS[name],
            fix="scrape kube-state-metrics too: the requests of pods show who holds which boards",
        )


_WATCHED = (
    ("TrimtabGpuHot", ("temperature_c",), "DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C)."),
    (
        "TrimtabGpuThrottled",
        ("clock_reasons", "thermal_violation"),
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS, gauge, Reasons of clock events (bitmask).",
    ),
    (
        "TrimtabTrainingOccupancyLow",
        ("sm_occupancy",),
        "DCGM_FI_PROF_SM_OCCUPANCY, gauge, The ratio of resident warps.",
    ),
)
"""Alert, the readings of which one must be there, and the line of dcgm-exporter's counters file that exports one."""


def _alerts(facts: ServerFacts) -> DoctorFinding:
    lacking = [(alert, line) for alert, readings, line in _WATCHED if not facts.watched.intersection(readings)]
    if not lacking:
        return DoctorFinding(what="alerts", status=FindingStatus.OK, detail="every alert's readings are exported")
    return DoctorFinding(
        what="alerts",
        status=FindingStatus.WEAK,
        detail="readings of some are not exported",
        cost=f"of `trimtab emit --monitoring` these stay silent: {', '.join(alert for alert, _ in lacking)}",
        fix="add to dcgm-exporter's counters file (-f counters.csv): " + "; ".join(line for _, line in lacking),
    )


def _pods(facts: ServerFacts) -> DoctorFinding:
    if facts.pods_named:
        return DoctorFinding(what="pods of GPUs", status=FindingStatus.OK, detail="GPU series name their pod")
    return DoctorFinding(
        what="pods of GPUs",
        status=FindingStatus.WEAK,
        detail="GPU series name no pod",
        cost="use is known by node, not by workload; requests are used instead",
        fix="set DCGM_EXPORTER_KUBERNETES=true on dcgm-exporter and mount /var/lib/kubelet/pod-resources; where pods claim "
        "GPUs (ResourceClaims) KUBERNETES_ENABLE_DRA=true too, or add --context to collect, which reads the claims",
    )


def _shared(facts: ServerFacts) -> Iterator[DoctorFinding]:
    """Judge whether the pods on one board are told apart; nothing where no node shares its boards."""
    if not facts.sharing_nodes:
        return
    what, detail = "shared GPUs", f"{facts.sharing_nodes} node(s) advertise each board several times"
    if facts.pods_apart:
        yield DoctorFinding(what=what, status=FindingStatus.OK, detail=f"{detail}; the use of each pod is known")
        return
    yield DoctorFinding(
        what=what,
        status=FindingStatus.WEAK,
        detail=f"{detail}; the use of their pods cannot be separated",
        cost="every pod on a board is judged by what all of them did: one that does nothing beside a busy one looks busy",
        fix="run dcgm-exporter 4.5.3 or later with --kubernetes-virtual-gpus (KUBERNETES_VIRTUAL_GPUS=true) and hostPID: true, "
        "which gives GPU_UTIL and FB_USED of each pod",
    )


def history(days: int) -> DoctorFinding:
    """Judge how far back readings go."""
    detail = f"{days} days" + (" or more" if days >= _HISTORY_DAYS else "")
    if days >= ENOUGH_DAYS:
        return DoctorFinding(what="history", status=FindingStatus.OK, detail=detail)
    return DoctorFinding(
        what="history",
        status=FindingStatus.WEAK,
        detail=detail,
        cost=f"below {ENOUGH_DAYS} days a plan is not proved on a week it never saw",
        fix="set --storage.tsdb.retention.time=30d, or point --prometheus at the long-term store",
    )


def _scrapes(facts: ServerFacts) -> DoctorFinding:
    detail = f"every {facts.scrape_s:g} s"
    if facts.scrape_s <= S_PER_MIN:
        return DoctorFinding(what="scrape interval", status=FindingStatus.OK, detail=detail)
    return DoctorFinding(
        what="scrape interval",
        status=FindingStatus.WEAK,
        detail=detail,
        cost="peaks shorter than that are not seen",
        fix="set interval: 30s on dcgm-exporter's ServiceMonitor",
    )


_ALLOW = (
    "nodes=[node.kubernetes.io/instance-type,topology.kubernetes.io/region,topology.kubernetes.io/zone,"
    "karpenter.sh/capacity-type,eks.amazonaws.com/capacityType,cloud.google.com/gke-spot,nvidia.com/gpu.product]"
)


def _kubernetes(facts: ServerFacts) -> Iterator[DoctorFinding]:
    if not facts.nodes:
        yield DoctorFinding(
            what="kube-state-metrics",
            status=FindingStatus.MISSING,
            detail="no kube_node_info",
            cost="instance types, node lives and owners unknown: nothing can be priced without a bill",
            fix="helm install kube-state-metrics prometheus-community/kube-state-metrics",
        )
        return
    yield DoctorFinding(what="kube-state-metrics", status=FindingStatus.OK, detail=f"{facts.nodes} nodes")
    typed = DoctorFinding(
        what="instance types", status=FindingStatus.OK, detail=f"{facts.nodes_typed} of {facts.nodes} nodes"
    )
    if facts.nodes_typed < facts.nodes:
        typed = DoctorFinding(
            what="instance types",
            status=FindingStatus.MISSING,
            detail=typed.detail,
            cost="the other nodes have no price and stay unjudged",
            fix=f"run kube-state-metrics with --metric-labels-allowlist={_ALLOW},pods=[team]",
        )
    yield typed
    if facts.teams:
        yield DoctorFinding(what="teams", status=FindingStatus.OK, detail="pods or namespaces carry a team label")
    else:
        yield DoctorFinding(
            what="teams",
            status=FindingStatus.WEAK,
            detail="no team label on pods or namespaces",
            cost="spend by team is 'unassigned'; workloads.yaml can name teams too",
            fix="run kube-state-metrics with --metric-labels-allowlist=pods=[team],namespaces=[team]",
        )


def _requests(facts: ServerFacts) -> DoctorFinding:
    if facts.servers or facts.proxies:
        in_front = (f"in front of others: {', '.join(facts.proxies)}",) if facts.proxies else ()
        return DoctorFinding(
            what="request metrics",
            status=FindingStatus.OK,
            detail="; ".join((", ".join(facts.servers) or "no server", *in_front)),
        )
    known = ", ".join(metrics.title for metrics in (*SERVERS, *PROXIES))
    return DoctorFinding(
        what="request metrics",
        status=FindingStatus.WEAK,
        detail=f"none of {known}",
        cost="services are judged by GPU activity: latency targets cannot be checked",
        fix="scrape the servers' /metrics with a PodMonitor (path: /metrics, interval: 15s), or name their series (--cluster)",
    )


def bill(bills: int) -> DoctorFinding:
    """Judge whether a bill was given."""
    if bills:
        return DoctorFinding(what="bill", status=FindingStatus.OK, detail=f"{bills} file(s)")
    return DoctorFinding(
        what="bill",
        status=FindingStatus.WEAK,
        detail="none given",
        cost="list prices are used instead of what you pay; discounts and commitments that you hold are not known",
        fix="trimtab collect --focus bills/   (a FOCUS export or AWS CUR 2.0)",
    )


def price_book(prices: PriceBook, day: date) -> DoctorFinding:
    """Judge the age of the rates in force on a day: old where most of them are."""
    rates, old = prices.offerings(at=day, purchasable_only=False), prices.stale(day, STALE_DAYS)
    detail = f"{len(old)} of {len(rates)} rates last confirmed more than {STALE_DAYS} days ago"
    if len(old) <= len(rates) / 2:
        return DoctorFinding(what="price book", status=FindingStatus.OK, detail=detail)
    return DoctorFinding(
        what="price book",
        status=FindingStatus.WEAK,
        detail=detail,
        cost="prices may have moved since",
        fix="trimtab prices refresh --to prices.csv, then --prices prices.csv; or your own rates with --prices rates.yaml",
    )
