"""The tables of a fleet bundle, as data: code, validation and docs all read this one list.

A table is a tuple of `Column`s; `TABLES` names them all. Timestamps are UTC; intervals are `[start, end)`. A missing reading
is null, never 0. Histograms have 101 bins over 0..1 (bin i counts samples with round(100 * value) == i) and add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

HISTOGRAM_BINS = 101


class Dtype(Enum):
    """Column types, each one Arrow type (see `tables.arrow`)."""

    STRING = "string"
    FLOAT = "float64"
    INT = "int64"
    BOOL = "bool"
    TIME = "timestamp[us, UTC]"
    FLOATS = "list<float64>"
    INTS = "list<int64>"
    LABELS = "map<string, string>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its type, unit, meaning, origin; `low`/`high` bound its values (inclusive) where they are bounded."""

    name: str
    dtype: Dtype
    meaning: str
    unit: str = ""
    origin: str = ""
    nullable: bool = False
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    """The only values, for a closed choice."""


def _text(name: str, meaning: str, *, nullable: bool = False, origin: str = "") -> Column:
    return Column(name=name, dtype=Dtype.STRING, meaning=meaning, nullable=nullable, origin=origin)


def _time(name: str, meaning: str, *, nullable: bool = False) -> Column:
    return Column(name=name, dtype=Dtype.TIME, meaning=meaning, unit="UTC", nullable=nullable)


def _frac(name: str, meaning: str, origin: str) -> Column:
    return Column(
        name=name,
        dtype=Dtype.FLOAT,
        meaning=meaning,
        unit="0..1",
        origin=origin,
        nullable=True,
        low=0.0,
        high=1.0,
    )


def _amount(name: str, meaning: str, unit: str, *, nullable: bool = True, origin: str = "") -> Column:
    return Column(name=name, dtype=Dtype.FLOAT, meaning=meaning, unit=unit, nullable=nullable, low=0.0, origin=origin)


def _count(name: str, meaning: str, *, nullable: bool = False) -> Column:
    return Column(name=name, dtype=Dtype.INT, meaning=meaning, unit="count", nullable=nullable, low=0.0)


def _activity(name: str, meaning: str, origin: str) -> tuple[Column, ...]:
    statistics = (("mean", "mean"), ("p50", "median"), ("p95", "95th percentile"), ("max", "maximum"))
    return tuple(_frac(f"{name}_{suffix}", f"{meaning}: {word} of the hour", origin) for suffix, word in statistics)


def _histogram(name: str, buckets: str) -> tuple[Column, Column]:
    """Return the bounds and the counts of a histogram of requests."""
    return (
        Column(
            name=f"{name}_le_s", dtype=Dtype.FLOATS, meaning=f"upper bounds of the {buckets}", unit="s", nullable=True
        ),
        Column(
            name=f"{name}_count",
            dtype=Dtype.FLOATS,
            meaning="requests per bucket (not cumulative)",
            unit="requests",
            nullable=True,
        ),
    )


DEVICES = (
    _text("device", "UUID of a GPU or MIG instance", origin="DCGM UUID, NVML"),
    _text("node", "node that holds it"),
    _text("gpu", "GPU name of the catalog, or the raw product name where the catalog knows none"),
    _text("mig_profile", "MIG profile such as 1g.10gb", nullable=True),
    _amount("memory_gib", "visible memory", "GiB"),
    _text(
        "pod_label",
        "label that carries the pod on its series: pod, exported_pod, pod_name; null where no pod held it",
        nullable=True,
    ),
)

NODES = (
    _text("node", "node name"),
    _text("provider", "aws, gcp, azure, ...; `owned` for own hardware"),
    _text("instance_type", "instance type, as the provider spells it"),
    _text("region", "region"),
    _text("zone", "availability zone", nullable=True),
    Column(
        name="capacity_type",
        dtype=Dtype.STRING,
        meaning="on-demand, spot, reserved, capacity-block, owned",
        choices=("on-demand", "spot", "reserved", "capacity-block", "owned"),
    ),
    _time("start", "first moment the node was billed"),
    _time("end", "moment it was given back; null while it lives", nullable=True),
    _text("gpu", "GPU name", nullable=True),
    _count("gpu_count", "GPUs on the node"),
    Column(name="labels", dtype=Dtype.LABELS, meaning="Kubernetes node labels", nullable=True),
    Column(name="taints", dtype=Dtype.LABELS, meaning="taint key -> `value:effect`", nullable=True),
)

ALLOCATIONS = (
    _text("workload", "workload that held the GPU: namespace/name of the owner"),
    _text("namespace", "Kubernetes namespace, Slurm partition", nullable=True),
    _text("owner_kind", "Deployment, StatefulSet, Job, Notebook, slurm, ...", nullable=True),
    _text("team", "who pays", nullable=True),
    _text("pod", "pod or Slurm job step"),
    _text("node", "node it ran on"),
    _text("device", "device it held; null where only a count is known", nullable=True),
    Column(
        name="gpus",
        dtype=Dtype.FLOAT,
        meaning="GPUs held; 0 for a non-GPU pod on a GPU node",
        unit="GPU",
        low=0.0,
    ),
    _time("start", "when it began to hold it"),
    _time("end", "when it released it; null while it holds it", nullable=True),
)

GPU_USAGE = (
    _text("device", "device"),
    _text("workload", "workload that held it in that hour; null = unallocated", nullable=True),
    _time("hour", "start of the hour"),
    _count("samples", "samples seen in the hour"),
    _count("samples_expected", "samples that a complete hour has"),
    *_activity("gpu_util", "share of time that any kernel ran", "DCGM_FI_DEV_GPU_UTIL, NVML"),
    *_activity("sm_active", "share of SM-cycles with a warp resident", "DCGM_FI_PROF_SM_ACTIVE, NVML GPM"),
    *_activity("tensor_active", "share of cycles the tensor pipe was busy", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
    *_activity("dram_active", "share of cycles DRAM moved data", "DCGM_FI_PROF_DRAM_ACTIVE"),
    _frac(
        "cpu_used_frac_mean",
        "CPU that the workload's pods used, of what they may use: mean of the hour",
        "cAdvisor container_cpu_usage_seconds_total, kube_pod_container_resource_limits",
    ),
    _amount("pcie_rx_gb_s_mean", "received over PCIe, mean of the hour", "GB/s", origin="DCGM_FI_PROF_PCIE_RX_BYTES"),
    _amount("pcie_tx_gb_s_mean", "sent over PCIe, mean of the hour", "GB/s", origin="DCGM_FI_PROF_PCIE_TX_BYTES"),
    _amount("memory_used_gib_mean", "memory in use, mean", "GiB", origin="DCGM_FI_DEV_FB_USED"),
    _amount("memory_used_gib_max", "memory in use, maximum", "GiB", origin="DCGM_FI_DEV_FB_USED"),
    _amount("power_w_mean", "board power, mean", "W", origin="DCGM_FI_DEV_POWER_USAGE"),
    _amount("energy_kwh", "energy drawn in the hour", "kWh", origin="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"),
    Column(
        name="activity_histogram",
        dtype=Dtype.INTS,
        meaning="101-bin histogram of the best activity signal present (sm_active, else gpu_util)",
        unit="samples",
        nullable=True,
    ),
    _text("basis", "raw samples | recording rules | pushed down | hourly average | power over the board's limit"),
    Column(
        name="of_pods",
        dtype=Dtype.BOOL,
        meaning="readings are of the workload's own processes on a board that others use too, as shares of the whole board",
        nullable=True,
        origin="dcgm-exporter --kubernetes-virtual-gpus",
    ),
)

DEMAND = (
    _text("workload", "service"),
    _text(
        "server",
        "what its requests were read from: a model server (vllm, sglang, tgi, triton, ray-serve, trimtab-batcher, dynamo, nim, "
        "bentoml, torchserve, kserve), a proxy in front (llm-d-router, llm-d, dynamo-frontend, istio, ingress-nginx, "
        "envoy), or `declared`",
        nullable=True,
    ),
    _amount("scrape_interval_s", "how often its server was scraped", "s"),
    _text(
        "scrape_job",
        "the scrape job that it was read from alone; null where only one reads its pods",
        nullable=True,
        origin="Prometheus' label job",
    ),
    _time("start", "start of the interval"),
    Column(name="interval_s", dtype=Dtype.FLOAT, meaning="length of the interval", unit="s", low=1e-3),
    _amount("arrivals", "requests that arrived", "requests"),
    _amount("completed", "requests answered", "requests"),
    _amount("failed", "requests refused or failed", "requests"),
    _amount("input_tokens_mean", "mean prompt length", "tokens"),
    _amount("output_tokens_mean", "mean answer length", "tokens"),
    _amount(
        "input_tokens",
        "prompt tokens of the interval, those found in the prefix cache included",
        "tokens",
        origin="vllm:prompt_tokens_total, sglang:prompt_tokens_total, tgi_request_input_length_sum",
    ),
    _amount(
        "output_tokens",
        "tokens answered in the interval",
        "tokens",
        origin="vllm:generation_tokens_total, sglang:generation_tokens_total, tgi_request_generated_tokens_sum",
    ),
    _amount(
        "cached_tokens",
        "prompt tokens found in the prefix cache and not computed; null where the server does not count them",
        "tokens",
        origin="vllm:prompt_tokens_cached_total, vllm:prefix_cache_hits_total, sglang:cached_tokens_total",
    ),
    _amount(
        "prefill_s",
        "time of the server's steps that computed prompts, added up over its processes; null where it does not say",
        "s",
        origin="sglang:forward_execution_seconds_total, tgi_batch_inference_duration_sum",
    ),
    _amount(
        "decode_s",
        "time of its steps that computed answers alone, likewise",
        "s",
        origin="sglang:forward_execution_seconds_total, tgi_batch_inference_duration_sum",
    ),
    _amount("running_mean", "requests in service, mean", "requests"),
    _amount("waiting_mean", "requests queued, mean", "requests"),
    _frac("kv_cache_frac_max", "KV cache in use, maximum", "vllm:kv_cache_usage_perc"),
    _amount("replicas_ready", "ready replicas, mean", "replicas"),
    _amount(
        "flops_per_gpu",
        "floating point operations that the server estimates for a GPU, mean of its GPUs",
        "FLOP",
        origin="vllm:estimated_flops_per_gpu_total",
    ),
    _amount(
        "read_bytes_per_gpu",
        "bytes read from GPU memory, estimated likewise",
        "bytes",
        origin="vllm:estimated_read_bytes_per_gpu_total",
    ),
    _amount(
        "write_bytes_per_gpu",
        "bytes written to GPU memory, estimated likewise",
        "bytes",
        origin="vllm:estimated_write_bytes_per_gpu_total",
    ),
    *_histogram("latency", "end-to-end latency buckets; the last is inf"),
    *_histogram("ttft", "time-to-first-token buckets"),
    *_histogram("tpot", "buckets of a request's mean time per token after the first"),
)

JOBS = (
    _text("job", "run identifier"),
    _text("workload", "workload it belongs to"),
    _time("submit", "when it was submitted"),
    _time("start", "when it started; null while it queues", nullable=True),
    _time("end", "when it ended; null while it runs", nullable=True),
    Column(name="gpus", dtype=Dtype.FLOAT, meaning="GPUs it held", unit="GPU", low=0.0),
    _text(
        "state", "queued, running, completed, failed, cancelled, preempted, timeout; of Slurm also requeued, node_fail"
    ),
    _text("node", "node(s), comma separated", nullable=True),
    _text("queue", "queue it waited in: Kueue LocalQueue, Volcano queue, Slurm partition", nullable=True),
    _amount("steps_done", "training steps or items done", "steps"),
    _amount("tokens_done", "tokens processed", "tokens"),
    _amount("checkpoint_interval_s", "time between checkpoints; null = none taken", "s"),
    _amount("checkpoint_save_s", "time one save stalls the run", "s"),
    _amount("checkpoint_restore_s", "time to load and rejoin after a restart", "s"),
)

SPOT_EVENTS = (
    _text("provider", "provider"),
    _text("instance_type", "instance type"),
    _text("region", "region"),
    _text("zone", "zone", nullable=True),
    _time("at", "moment of the event"),
    Column(
        name="event",
        dtype=Dtype.STRING,
        meaning="launched, interrupted, unavailable, available",
        choices=("launched", "interrupted", "unavailable", "available"),
    ),
    Column(name="notice_s", dtype=Dtype.FLOAT, meaning="notice given", unit="s", nullable=True, low=0.0),
    Column(
        name="spot_usd_hr",
        dtype=Dtype.FLOAT,
        meaning="price of a spot node at that moment; it goes over the price book's",
        unit="USD/h",
        nullable=True,
        low=0.0,
    ),
)

PODS = (
    _text("pod", "pod name"),
    _text("namespace", "namespace"),
    _text("workload", "workload it belongs to: namespace/name of the owner"),
    _text("owner_kind", "kind of the owner", nullable=True),
    _text("node", "node it was placed on; null while it waits", nullable=True),
    _text("phase", "Pending, Running, Succeeded, Failed, Unknown"),
    _amount("gpus", "boards' worth of GPUs asked for: MIG and time-sliced resources count their share", "GPU"),
    _text(
        "gpu_resource",
        "extended resource asked for, such as nvidia.com/mig-1g.10gb, or the device class of a claim, such as mig.nvidia.com",
        nullable=True,
    ),
    _amount(
        "gpu_pieces",
        "pieces of that extended resource, which quotas count; null where it claims GPUs or its resource was not read",
        "pieces",
    ),
    _text(
        "gpu_containers",
        "containers that ask for GPUs, by their place from 0, such as `1:limits+requests:args`: where they say so, and where "
        "the words lie that start their program: `args`, `command` (no args), `shell` (a line or script of a shell), `program` "
        "(a command that does not name vLLM), `image` (neither; the image says); commas",
        nullable=True,
    ),
    _text(
        "gpu_claims",
        "JSON list of its entries of `resourceClaims` that ask for GPUs: `place` there, `name`, the `template` or `claim` that "
        "each names, `api_version` and `spec` of that, and which of its `requests` ask for GPUs",
        nullable=True,
    ),
    _text(
        "containers",
        "JSON list of what each container asks for, where the pod asks for GPUs: `requests` and `limits` in cores, GiB and "
        "pieces, and of init containers the `role`: `init`, or `sidecar` where it runs beside the others",
        nullable=True,
    ),
    _amount("cpu_request", "CPU asked for", "cores", origin="resources.requests"),
    _amount("cpu_limit", "CPU allowed; null = no limit", "cores", origin="resources.limits"),
    _amount("memory_request_gib", "memory asked for", "GiB", origin="resources.requests"),
    _amount("memory_limit_gib", "memory allowed; null = no limit", "GiB", origin="resources.limits"),
    _time("created", "when it was created"),
    _time("scheduled", "when it got its node; null while it waits", nullable=True),
    _time(
        "ready",
        "when it last became ready; null where it is not, or a container of it was started again",
        nullable=True,
    ),
    _time(
        "started",
        "when the last of its containers started; null where one was started again",
        nullable=True,
    ),
    _amount(
        "pull_s",
        "how long the pulls of its images took, waits for other pulls included; 0 where the node had all of them; null where "
        "no event says",
        "s",
        origin="events Pulled",
    ),
    _amount("pulled_gib", "size of the images that were pulled for it", "GiB", origin="events Pulled"),
    _time("ended", "when its last container ended; null while it runs", nullable=True),
    _text("queue", "Kueue or Volcano queue that it names", nullable=True),
    _text("priority_class", "priority class", nullable=True),
    _amount("deadline_s", "how long it may run; null = without end", "s", origin="spec.activeDeadlineSeconds"),
    Column(name="node_selector", dtype=Dtype.LABELS, meaning="labels that its node must have", nullable=True),
    Column(
        name="tolerations",
        dtype=Dtype.LABELS,
        meaning="taint key (`*` = any) -> `value:effect`, then ` for N s` where it ends; several of a key with commas",
        nullable=True,
    ),
    _text("affinity", "labels of nodes that it requires by affinity, comma separated", nullable=True),
    _text("keeps_apart", "labels of nodes by which it keeps apart from its own pods, comma separated", nullable=True),
    Column(
        name="selector",
        dtype=Dtype.LABELS,
        meaning="labels by which its Deployment or StatefulSet selects its pods",
        nullable=True,
    ),
    _text("images", "images of its containers, comma separated", nullable=True),
    _count("restarts", "times that its containers were started again", nullable=True),
    _text("waiting", "why a container of it waits: CrashLoopBackOff, ImagePullBackOff, ...", nullable=True),
    _text("last_exit", "how the last life of a container ended: OOMKilled, Error (exit 1)", nullable=True),
    _time("last_ended", "when that was", nullable=True),
    _amount("last_life_s", "how long that life was", "s"),
    _text("unschedulable", "what the scheduler says where it finds no node", nullable=True),
)

FAULTS = (
    _text("node", "node"),
    _text("device", "device; null where the whole node is meant", nullable=True),
    _time("start", "when it began, or was first seen"),
    _time("end", "when it was over; null while it lasts", nullable=True),
    Column(
        name="fault",
        dtype=Dtype.STRING,
        meaning="what is wrong",
        choices=("cordoned", "not-ready", "xid", "ecc", "row-remap", "thermal-throttle", "power-throttle"),
        origin="spec.unschedulable, condition Ready, DCGM_FI_DEV_XID_ERRORS, ..._ECC_DBE_VOL_TOTAL, ..._ROW_REMAP_FAILURE, "
        "..._THERMAL_VIOLATION",
    ),
    Column(name="code", dtype=Dtype.INT, meaning="number of the XID", nullable=True, low=0.0),
    _frac(
        "lost_frac", "share of the speed that throttling took; null where it was not measured", "DCGM_FI_DEV_SM_CLOCK"
    ),
)

SCALERS = (
    _text("kind", "HorizontalPodAutoscaler, ScaledObject, NodePool"),
    _text("namespace", "namespace; null for what belongs to the cluster", nullable=True),
    _text("name", "name"),
    _text("target", "workload that it scales; null for a NodePool", nullable=True),
    _amount("min_replicas", "least replicas", "replicas"),
    _amount("max_replicas", "most replicas", "replicas"),
    _amount("current_replicas", "replicas when it was read", "replicas"),
    _text("triggers", "what it scales on, in words", nullable=True),
    Column(name="limits", dtype=Dtype.LABELS, meaning="a NodePool's limits: resource -> quantity", nullable=True),
    _text("consolidation", "a NodePool's consolidation policy and delay", nullable=True),
)

DISRUPTION_BUDGETS = (
    _text("namespace", "namespace"),
    _text("name", "name of the PodDisruptionBudget"),
    _text("workload", "workload whose pods it selects; null where it selects none that runs", nullable=True),
    _amount("allowed", "pods that it allows to be evicted", "pods", origin="status.disruptionsAllowed"),
    _amount("healthy", "healthy pods", "pods", origin="status.currentHealthy"),
    _amount("expected", "pods that it counts", "pods", origin="status.expectedPods"),
)

QUEUES = (
    _text("kind", "ClusterQueue, LocalQueue (Kueue), Queue (Volcano), Partition (Slurm)"),
    _text("namespace", "namespace; null for what belongs to the cluster", nullable=True),
    _text("name", "name"),
    _text("parent", "ClusterQueue of a LocalQueue, cohort of a ClusterQueue, queue above a Queue", nullable=True),
    _text("resource", "resource that it rations", nullable=True),
    _text(
        "device_classes",
        "classes of claimed devices that it counts as this resource: gpu.nvidia.com, mig.nvidia.com",
        nullable=True,
        origin="Kueue's configuration: deviceClassMappings",
    ),
    _text("flavor", "resource flavor", nullable=True),
    Column(
        name="flavor_labels",
        dtype=Dtype.LABELS,
        meaning="labels that the flavor has its pods select nodes by",
        nullable=True,
    ),
    _amount("quota_gpus", "GPUs that are its own; null = none stated", "GPU", origin="nominalQuota; deserved"),
    _amount("borrowing_gpus", "GPUs that it may borrow; null = no limit stated", "GPU", origin="borrowingLimit"),
    _amount("limit_gpus", "GPUs that it may use at most; null = no limit stated", "GPU", origin="capability"),
    _amount("guaranteed_gpus", "GPUs that are kept for it, used or not", "GPU", origin="guarantee"),
    _amount("weight", "its weight among queues of which none has GPUs of its own", "1", origin="weight"),
    Column(
        name="reclaimable",
        dtype=Dtype.BOOL,
        meaning="whether other queues may take back what it uses beyond its own",
        nullable=True,
        origin="reclaimable",
    ),
    _amount("used_gpus", "GPUs in use when it was read", "GPU"),
    _count("pending", "workloads that waited in it when it was read", nullable=True),
    _count("admitted", "workloads that it had admitted when it was read", nullable=True),
)

DEVICES_OF_CLASS = ".deviceclass.resource.k8s.io/devices"
"""How the name ends by which a quota limits the devices of a class that claims ask for (core/v1, ResourceClaimsPerClass)."""
UNKNOWN_SCOPES = "unknown"
"""Scopes of a quota that kube-state-metrics reports: it does not say for which pods it is."""

RESOURCE_QUOTAS = (
    _text("namespace", "namespace whose pods it limits"),
    _text("name", "name of the ResourceQuota"),
    _text(
        "resource",
        "what it limits, as it spells it: requests.nvidia.com/gpu, CLASS.deviceclass.resource.k8s.io/devices, pods, cpu",
    ),
    _amount("hard", "the most that pods may ask for together", "pieces, cores, GiB", nullable=False),
    _amount("used", "what they asked for when it was read", "pieces, cores, GiB"),
    _text(
        "scopes",
        "which pods it counts: `PriorityClass In low,high`, `Terminating`; several with `; `, which all must hold; `unknown` "
        "if it was read from kube-state-metrics and its resources allow scopes; null = all",
        nullable=True,
    ),
)

_BOUND = "pieces, cores, GiB"

LIMIT_RANGES = (
    _text("namespace", "namespace whose new pods it judges"),
    _text("name", "name of the LimitRange"),
    _count(
        "place", "place of the item in spec.limits, from 0; null if it was read from kube-state-metrics", nullable=True
    ),
    Column(name="type", dtype=Dtype.STRING, meaning="what it judges", choices=("Container", "Pod")),
    _text("resource", "resource, as pods ask for it: nvidia.com/gpu, cpu, memory"),
    _amount("min", "least request", _BOUND),
    _amount("max", "most of a limit, which must be stated", _BOUND),
    _amount("default_limit", "limit that a container gets which states none", _BOUND, origin="default, else max"),
    _amount(
        "default_request",
        "request that a container gets which states none",
        _BOUND,
        origin="defaultRequest, else default, max or min",
    ),
    _amount("max_ratio", "most that a limit may be of its request", "1", origin="maxLimitRequestRatio"),
)

IMAGES = (
    _text("node", "node that holds it"),
    _text("image", "image, by its first name that is not a digest"),
    _amount("size_gib", "compressed or unpacked size as the node's runtime reports it", "GiB"),
)

VOLUMES = (
    _text("namespace", "namespace of the claim"),
    _text("name", "name of the PersistentVolumeClaim"),
    _text("workload", "workload whose pods mount it; null where none does", nullable=True),
    _text("storage_class", "storage class", nullable=True),
    _amount("requested_gib", "size asked for", "GiB"),
    _amount("capacity_gib", "size it has", "GiB"),
    _text("access_modes", "access modes, comma separated", nullable=True),
    _text("phase", "Bound, Pending, Lost"),
    _time("created", "when it was created", nullable=True),
)

_COST_TEXT = (
    "BillingAccountId",
    "BillingCurrency",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "CommitmentDiscountId",
    "CommitmentDiscountStatus",
    "CommitmentDiscountType",
    "InvoiceId",
    "PricingCategory",
    "PricingUnit",
    "ProviderName",
    "RegionId",
    "ResourceId",
    "ResourceType",
    "ServiceName",
    "SkuId",
    "SkuMeter",
)
_COST_MONEY = ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")

COSTS = (
    _time("ChargePeriodStart", "start of the charge period"),
    _time("ChargePeriodEnd", "its end, exclusive"),
    _time("BillingPeriodStart", "start of the month that the charge is invoiced for", nullable=True),
    *(_text(name, f"FOCUS {name}", nullable=True, origin="FOCUS 1.0-1.4") for name in _COST_TEXT),
    *(
        Column(
            name=name,
            dtype=Dtype.FLOAT,
            meaning=f"FOCUS {name}",
            unit="BillingCurrency",
            nullable=name != "BilledCost",
        )
        for name in _COST_MONEY
    ),
    Column(
        name="PricingQuantity",
        dtype=Dtype.FLOAT,
        meaning="FOCUS PricingQuantity",
        unit="PricingUnit",
        nullable=True,
    ),
    _text("instance_type", "instance type, from SkuPriceDetails or the SKU meter", nullable=True),
    Column(name="Tags", dtype=Dtype.LABELS, meaning="FOCUS Tags", nullable=True),
)

TABLES: dict[str, tuple[Column, ...]] = {
    "devices": DEVICES,
    "nodes": NODES,
    "allocations": ALLOCATIONS,
    "gpu_usage": GPU_USAGE,
    "demand": DEMAND,
    "jobs": JOBS,
    "costs": COSTS,
    "spot_events": SPOT_EVENTS,
    "pods": PODS,
    "faults": FAULTS,
    "scalers": SCALERS,
    "disruption_budgets": DISRUPTION_BUDGETS,
    "queues": QUEUES,
    "resource_quotas": RESOURCE_QUOTAS,
    "limit_ranges": LIMIT_RANGES,
    "images": IMAGES,
    "volumes": VOLUMES,
}
"""Every table of a bundle; `nodes`, `devices`, `allocations` and `gpu_usage` must be there, the others may be absent."""

REQUIRED_TABLES = ("devices", "nodes", "allocations", "gpu_usage")
