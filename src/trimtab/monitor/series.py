"""The series that alerts and boards read, recorded once from whatever the exporters call them.

Every spelling of `prometheus.gpu_series` (old and new names, `pod` and `exported_pod`, host names, MIG instances) becomes
`trimtab:gpu_reading` with one set of labels; everything else is made of that. Money is a GPU's rate: of its node where
kube-state-metrics shows the node's labels, else that of its model in the bundle's own bill.

A board that several pods or MIG instances share is split by memory, which each of them reports: instances in proportion to
theirs, pods that see the same memory evenly. So the shares of a board add up to 1 and the workloads' dollars to the fleet's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from trimtab.catalog import model_servers
from trimtab.catalog.kinds import CapacityType
from trimtab.emit.manifests.emission import Plain
from trimtab.emit.verify_document import VerifiedPart
from trimtab.monitor.watched import NodeRate, Thresholds, Watched
from trimtab.sources.kubernetes.owners import HASHED_POD, NUMBERED_POD, REPLICA_SET_POD, RUN_KINDS
from trimtab.sources.prometheus.dcgm import (
    INTEL_METRICS,
    LINK_METRICS,
    METRICS,
    NEURON_METRICS,
    TPU_METRICS,
    WATCHED_METRICS,
    ExportedMetric,
    MetricUnit,
)

_UNWATCHED = frozenset({*LINK_METRICS, *NEURON_METRICS, *TPU_METRICS, *INTEL_METRICS})
"""No alert or board was made for these; some have names that others use too (`memory_used`)."""
_READ = tuple(metric for metric in (*METRICS, *WATCHED_METRICS) if metric not in _UNWATCHED)

READING = "trimtab:gpu_reading"
ACTIVITY = "trimtab:gpu_activity_frac"
TENSOR = "trimtab:gpu_tensor_active_frac"
DRAM = "trimtab:gpu_dram_active_frac"
OCCUPANCY = "trimtab:gpu_sm_occupancy_frac"
MEMORY_TOTAL = "trimtab:gpu_memory_gib"
MEMORY_USED = "trimtab:gpu_memory_used_gib"
MEMORY = "trimtab:gpu_memory_used_frac"
POWER = "trimtab:gpu_power_w"
POWER_LIMIT = "trimtab:gpu_power_limit_w"
TEMPERATURE = "trimtab:gpu_temperature_c"
THROTTLED = "trimtab:gpu_throttled"
HELD = "trimtab:gpu_held"
NODE_RATE = "trimtab:node_gpu_usd_hr"
COST = "trimtab:gpu_usd_hr"
WORKLOAD_COST = "trimtab:workload_usd_hr"
WORKLOAD_DAY = "trimtab:workload_day_usd_hr"
FLEET_COST = "trimtab:fleet_usd_hr"
DAY_COST = "trimtab:fleet_day_usd_hr"
WEEK_COST = "trimtab:fleet_week_usd_hr"
EXPECTED = "trimtab:fleet_day_expected_usd_hr"
SURPRISE = "trimtab:fleet_day_surprise_frac"
WASTE = "trimtab:waste_usd_hr"
RUN = "trimtab:run"
KV_CACHE = "trimtab:kv_cache_used_frac"
PLANNED = "trimtab:saving_planned_usd_mo"
REALISED = "trimtab:saving_realised_usd_mo"

DEVICE = ("node", "gpu", "mig", "model", "namespace", "pod", "workload")
"""Labels of every series of a GPU; `namespace`, `pod` and `workload` are empty where no pod holds it."""
BOARD = ("node", "gpu")
WORKLOAD = ("namespace", "workload")

INSTANCE_TYPE_LABEL = "label_node_kubernetes_io_instance_type"
REGION_LABEL = "label_topology_kubernetes_io_region"
CAPACITY_LABELS = (
    "label_karpenter_sh_capacity_type",
    "label_eks_amazonaws_com_capacityType",
    "label_cloud_google_com_gke_spot",
)
_SPOT_VALUES = "spot|SPOT|true"

_EXPORTER_POD = ".*(dcgm|nvidia.*exporter|gpu-operator).*"
_RATIO_LIMIT = 1.5
"""Where a share is above this all of its kind are percent, whatever their name says."""
_BLANK = "1e15"
"""DCGM writes numbers above this where it has no reading (dcgm_structs.h, DCGM_FP64_BLANK and its kin)."""
_SLOWDOWN_BITS = (0x08, 0x20, 0x40, 0x80)
"""Hardware slowdown, software thermal, hardware thermal, power brake (NVML, nvmlClocksEventReasons). A software power cap is
not among them: a board at its limit is what training wants."""

FORMER_WEEKS_DAYS = (7, 14, 21, 28)
"""Days back to the same day of former weeks."""

Rule = tuple[str, str]


def recording_rules(watched: Watched, thresholds: Thresholds) -> Iterator[Rule]:
    """Yield (name, expression) of all recorded series, each after those that it reads."""
    yield READING, _readings()
    yield ACTIVITY, _activity()
    for name, canonical in ((TENSOR, "tensor_active"), (DRAM, "dram_active"), (OCCUPANCY, "sm_occupancy")):
        yield name, _of(canonical)
    yield MEMORY_USED, _of("memory_used_gib")
    yield MEMORY_TOTAL, f"{_of('memory_total_gib')} or ({MEMORY_USED} + {_of('memory_free_gib')})"
    yield MEMORY, f"{MEMORY_USED} / {MEMORY_TOTAL}"
    board = ", ".join(BOARD)
    yield HELD, f"{MEMORY_TOTAL} / on ({board}) group_left () sum by ({board}) ({MEMORY_TOTAL})"
    yield POWER, _of("power_w")
    yield POWER_LIMIT, _power_limit(watched)
    yield TEMPERATURE, _of("temperature_c")
    yield THROTTLED, _throttled()
    yield NODE_RATE, _node_rates(watched)
    yield COST, f"{HELD} * on (node) group_left () {NODE_RATE}"
    yield WORKLOAD_COST, f"sum by ({', '.join(WORKLOAD)}) ({COST})"
    yield FLEET_COST, f"sum ({COST})"
    yield DAY_COST, f"avg_over_time({FLEET_COST}[1d])"
    yield WEEK_COST, f"avg_over_time({DAY_COST}[7d])"
    # over the day's evaluations, whether the workload was there or not
    yield WORKLOAD_DAY, f"sum_over_time({WORKLOAD_COST}[1d]) / on () group_left () count_over_time({FLEET_COST}[1d])"
    yield EXPECTED, expected_day_usd_hr()
    yield SURPRISE, f"{DAY_COST} / {EXPECTED} - 1"
    yield RUN, _runs(watched)
    yield KV_CACHE, _kv_cache()
    yield WASTE, _waste(thresholds.idle_frac)


def verified_rules(verified: VerifiedPart) -> Iterator[Mapping[str, Plain]]:
    """Yield rules that record a verification's figures as they are, in dollars a month, by action.

    `trimtab verify` replays history to know them, which no query can do: they stay as they were until it runs again, and the
    label `until` says the day up to which it looked.
    """
    for row in verified.rows:
        labels: dict[str, Plain] = {
            "action": row.id,
            "lever": row.lever,
            "subject": row.subject,
            "status": row.status.value,
            "until": verified.window.end.date().isoformat(),
        }
        yield {"record": PLANNED, "expr": f"vector({row.predicted_usd_mo:.2f})", "labels": labels}
        yield {"record": REALISED, "expr": f"vector({row.realised_usd_mo:.2f})", "labels": labels}


def _metrics(canonical: str) -> list[ExportedMetric]:
    return [metric for metric in _READ if metric.canonical == canonical]


def first_of(expression: str, label: str, sources: Sequence[str]) -> str:
    """Return PromQL that sets a label to the first of several that is not empty, without a port."""
    joined = f'label_join({expression}, "{label}", ";", {", ".join(_quoted(source) for source in sources)})'
    return f'label_replace({joined}, "{label}", "$1", "{label}", ";*([^;]*?)(:[0-9]+)?(;.*)?")'


def with_workload(expression: str) -> str:
    """Return PromQL that gives each pod its workload: what is left of its name without what a controller appended."""
    expression = f'label_replace({expression}, "workload", "$1", "pod", "(.*)")'
    for pattern in (HASHED_POD, NUMBERED_POD, REPLICA_SET_POD):  # the surest last: it overwrites
        expression = f'label_replace({expression}, "workload", "$1", "pod", {_quoted(pattern.pattern.strip("^$"))})'
    return expression


def _readings() -> str:
    """Return PromQL of every reading of every GPU, raw, under one set of labels; `metric` says what it was called."""
    wanted = [metric.name for metric in _READ if metric.unit not in (MetricUnit.MILLIJOULE, MetricUnit.JOULE)]
    expression = f'label_replace({{__name__=~"{"|".join(wanted)}"}}, "metric", "$1", "__name__", "(.+)")'
    expression = first_of(expression, "pod", ("exported_pod", "pod_name", "pod"))
    expression = f'label_replace({expression}, "pod", "", "pod", "{_EXPORTER_POD}")'
    expression = first_of(expression, "namespace", ("exported_namespace", "pod_namespace", "namespace"))
    expression = f'label_replace({expression}, "namespace", "", "pod", "")'
    expression = first_of(expression, "node", ("exported_node", "node", "nodename", "Hostname", "hostname", "instance"))
    expression = first_of(expression, "gpu", ("UUID", "uuid", "gpu_uuid", "gpu"))
    expression = first_of(expression, "model", ("modelName", "model_name"))
    expression = first_of(expression, "mig", ("GPU_I_ID", "gpu_instance_id"))
    return f"max by (metric, {', '.join(DEVICE)}) ({with_workload(expression)}) < {_BLANK}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\")
    return f'"{escaped}"'


def _of(canonical: str) -> str:
    """Return PromQL of a reading in the unit of the tables; of two names of one reading the greater value."""
    parts = []
    for unit, metrics in groupby(_metrics(canonical), key=lambda metric: metric.unit):
        names = "|".join(metric.name for metric in metrics)
        selected = f'max by ({", ".join(DEVICE)}) ({READING}{{metric=~"{names}"}})'
        if unit is MetricUnit.SHARE:
            selected = f"{selected} / (1 + 99 * scalar(max({selected}) > bool {_RATIO_LIMIT:g}))"
        elif unit.factor != 1:
            selected = f"{selected} * {unit.factor:.12g}"
        parts.append(selected)
    return f"({' or '.join(parts)})"


def _activity() -> str:
    """Return the best signal that each GPU has: SM activity, else the graphics engine's, else (not on MIG) utilization."""
    labels = ", ".join(DEVICE)
    signals = (
        _signal("sm_active", _of("sm_active")),
        _signal("gr_engine_active", _of("gr_engine_active")),
        _signal("gpu_util", _of("gpu_util")),
    )
    return f" or on ({labels}) ".join(signals)


def _signal(name: str, expression: str) -> str:
    return f'label_replace({expression}, "signal", "{name}", "", "")'


def _power_limit(watched: Watched) -> str:
    """Return the limit that the driver enforces, else the board's own by its model."""
    parts = [_of("power_limit_w")]
    for board in watched.boards:
        models = "|".join(board.models)
        parts.append(f'({POWER}{{model=~"{models}"}} * 0 + {board.power_limit_w:g})')
    return " or ".join(parts)


def _throttled() -> str:
    """Return 1 where a GPU's clocks are held down by heat or by the power supply, 0 where they are not."""
    reasons = _of("clock_reasons")
    bits = " + ".join(f"floor({reasons} / {bit}) % 2" for bit in _SLOWDOWN_BITS)
    names = "|".join(metric.name for metric in _metrics("thermal_violation"))
    rising = f'max by ({", ".join(DEVICE)}) (increase({READING}{{metric=~"{names}"}}[5m]) > bool 0)'
    return f"(({bits}) > bool 0) or ({rising})"


def _node_rates(watched: Watched) -> str:
    """Return dollars a GPU-hour by node: by the node's own labels, else by the model of its GPUs."""
    parts = [_node_rate(rate) for rate in watched.node_rates]
    for board in watched.boards:
        if board.usd_gpu_hr is not None:
            models = "|".join(board.models)
            parts.append(f'(0 * max by (node) ({HELD}{{model=~"{models}"}}) + {board.usd_gpu_hr:.6f})')
    return " or ".join(parts) if parts else f"{HELD} != {HELD}"


def _node_rate(rate: NodeRate) -> str:
    where = f'{INSTANCE_TYPE_LABEL}="{rate.instance_type}",{REGION_LABEL}="{rate.region}"'
    nodes = f"kube_node_labels{{{where}}}"
    spot = " or ".join(f'kube_node_labels{{{where},{label}=~"{_SPOT_VALUES}"}}' for label in CAPACITY_LABELS)
    chosen = f"({spot})" if rate.capacity_type is CapacityType.SPOT else f"({nodes} unless on (node) ({spot}))"
    return f"(0 * max by (node) ({chosen}) + {rate.usd_gpu_hr:.6f})"


def _runs(watched: Watched) -> str:
    """Return the workloads whose pods run to an end, as the cluster says or as the bundle does."""
    kinds = "|".join(sorted(RUN_KINDS))
    owned = (
        f"{HELD} * on (namespace, pod) group_left () "
        f'(0 * max by (namespace, pod) (kube_pod_owner{{owner_kind=~"{kinds}"}}) + 1)'
    )
    parts = [f"max by ({', '.join(WORKLOAD)}) ({owned})"]
    for namespace, names in _by_namespace(watched.runs):
        selected = f'{HELD}{{namespace="{namespace}",workload=~"{"|".join(names)}"}}'
        parts.append(f"max by ({', '.join(WORKLOAD)}) ({selected})")
    return f"({' or '.join(parts)}) * 0 + 1"


def _by_namespace(workloads: Iterable[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    for namespace, found in groupby(sorted(workloads), key=lambda workload: workload[0]):
        yield namespace, [name for _, name in found]


def _kv_cache() -> str:
    """Return how full the caches of model servers are that take a GPU's memory at their start."""
    names = "|".join(name for server in model_servers.SERVERS for name in server.kv_cache)
    expression = first_of(f'{{__name__=~"{names}"}}', "pod", ("exported_pod", "pod"))
    expression = first_of(expression, "namespace", ("exported_namespace", "namespace"))
    return f"max by ({', '.join(WORKLOAD)}) ({with_workload(expression)})"


def _waste(idle_frac: float) -> str:
    """Return dollars an hour by kind: held by no workload, held and idle, and the part of working GPUs that does not work.

    The three and what works add up to the fleet's dollars.
    """
    idle = f'({COST}{{workload!=""}} and ignoring (signal) ({ACTIVITY} < {idle_frac:g}))'
    working = f'({COST}{{workload!=""}} * ignoring (signal) (1 - ({ACTIVITY} >= {idle_frac:g})))'
    by = ", ".join(WORKLOAD)
    parts = (
        ("unallocated", f'sum by ({by}) ({COST}{{workload=""}})'),
        ("idle", f"sum by ({by}) ({idle})"),
        ("unused part", f"sum by ({by}) ({working})"),
    )
    return " or ".join(f'label_replace({expression}, "kind", "{kind}", "", "")' for kind, expression in parts)


def expected_day_usd_hr() -> str:
    """Return what the fleet's last day is expected to cost: the week before, and how this weekday stood to its own week.

    The mean of the seven days before times the median over former weeks of (that weekday's day / the seven days before it): a
    weekend is no surprise, and one odd week does not move it. Nothing until there are two weeks.
    """
    ratios = " or ".join(
        f'label_replace({DAY_COST} offset {days}d / {WEEK_COST} offset {days + 1}d, "ago", "{days}", "", "")'
        for days in FORMER_WEEKS_DAYS
    )
    return f"{WEEK_COST} offset 1d * quantile (0.5, {ratios}) and {DAY_COST} offset 14d"
