"""A small fleet as a Prometheus server would have seen it for 14 days, with the truth beside it. Seeded.

Both spellings of DCGM (names, host label, pod label), shares as ratios and as percent, sentinels, a monitoring outage,
pod churn, a counter that resets, a node that comes and goes, nodes labelled by Karpenter and by EKS.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

START = datetime(2026, 9, 1, tzinfo=UTC)
START_S = int(START.timestamp())
STEP_S = 300
PER_HOUR = 3600 // STEP_S
DAYS = 14
STEPS = DAYS * 24 * PER_HOUR
DAY = 24 * PER_HOUR
SENTINEL = 9223372036854775794.0
OUTAGE = slice(4 * DAY + 2 * PER_HOUR, 4 * DAY + 5 * PER_HOUR)
"""All scrapes fail for three hours."""
LATENCY_LE = (0.5, 1.0, 2.0, 4.0, 8.0, np.inf)
TTFT_LE = (0.1, 0.25, 0.5, 1.0, np.inf)


@dataclass(frozen=True, kw_only=True, eq=False)
class Node:
    name: str
    instance_type: str
    product: str
    gpus: int
    labels: dict
    new_dcgm: bool = False
    """New metric names, `hostname`, plain `pod` labels; else the old ones with `Hostname` and `exported_pod`."""
    percent: bool = False
    first: int = 0
    last: int = STEPS


@dataclass(kw_only=True, eq=False)
class Pod:
    namespace: str
    name: str
    node: Node
    gpus: tuple
    first: int = 0
    last: int = STEPS
    team: str = ""
    owner: tuple = ()
    """(kind, name) of the pod's controller."""
    top: tuple = ()
    """(kind, name) of the controller's controller; empty where it is the top."""
    load: str = "training"
    service: str = ""
    completed: np.ndarray | None = None
    extra: dict = field(default_factory=dict)


def _zone(zone="a"):
    return {"topology_kubernetes_io_region": "us-east-1", "topology_kubernetes_io_zone": f"us-east-1{zone}"}


def _typed(instance_type, **labels):
    return {"node_kubernetes_io_instance_type": instance_type, **_zone(), **labels}


A100, A10G = "NVIDIA A100-SXM4-40GB", "NVIDIA A10G"
NODES = (
    Node(
        name="ip-10-0-0-1.ec2.internal",
        instance_type="p4d.24xlarge",
        product=A100,
        gpus=8,
        labels=_typed("p4d.24xlarge", karpenter_sh_capacity_type="on-demand"),
    ),
    Node(
        name="ip-10-0-0-2.ec2.internal",
        instance_type="p4d.24xlarge",
        product=A100,
        gpus=8,
        labels=_typed("p4d.24xlarge", karpenter_sh_capacity_type="on-demand"),
    ),
    Node(
        name="ip-10-0-1-1.ec2.internal",
        instance_type="g5.12xlarge",
        product=A10G,
        gpus=4,
        labels=_typed("g5.12xlarge", eks_amazonaws_com_capacity_type="ON_DEMAND"),
        new_dcgm=True,
    ),
    Node(
        name="ip-10-0-1-2.ec2.internal",
        instance_type="g5.12xlarge",
        product=A10G,
        gpus=4,
        labels=_typed("g5.12xlarge", eks_amazonaws_com_capacity_type="ON_DEMAND"),
        new_dcgm=True,
        percent=True,
    ),
    Node(
        name="ip-10-0-2-1.ec2.internal",
        instance_type="g5.xlarge",
        product=A10G,
        gpus=1,
        labels=_typed("g5.xlarge", karpenter_sh_capacity_type="on-demand"),
        new_dcgm=True,
    ),
    Node(
        name="ip-10-0-2-2.ec2.internal",
        instance_type="g5.xlarge",
        product=A10G,
        gpus=1,
        labels=_typed("g5.xlarge", karpenter_sh_capacity_type="spot"),
        first=3 * DAY + 7,
        last=9 * DAY + 5,
    ),
)
TRAIN, SERVE, MIXED, IDLE, SMALL, SPOT = NODES
GPUS = sum(node.gpus for node in NODES)


def device_name(node, gpu):
    return f"GPU-{NODES.index(node):08x}-0000-0000-0000-{gpu:012x}"


def _replica(service, namespace, node, gpus, generation, number, first=0, last=STEPS, team=""):
    set_name = f"{service}-{generation}"
    return Pod(
        namespace=namespace,
        name=f"{set_name}-{number:05x}",
        node=node,
        gpus=gpus,
        first=first,
        last=last,
        team=team,
        owner=("ReplicaSet", set_name),
        top=("Deployment", service),
        load="serving",
        service=service,
    )


ROLLOUT = 7 * DAY + 6
"""All replicas of `chat` are replaced in one interval."""


def _pods():
    chat = [
        _replica("chat", "prod", SERVE, (gpu,), "7c9f8d6b5", gpu, last=ROLLOUT, team="assistants") for gpu in range(6)
    ]
    chat += [
        _replica("chat", "prod", SERVE, (gpu,), "66d5f7b9c", gpu + 16, first=ROLLOUT, team="assistants")
        for gpu in range(6)
    ]
    embed = [_replica("embed", "prod", MIXED, (gpu,), "5f4d8c7b9", gpu + 32, team="search") for gpu in range(2)]
    rerank = [_replica("rerank", "prod", SMALL, (0,), "6b7c8d9f4", 48, team="search")]
    training = [
        Pod(
            namespace="research",
            name=f"pretrain-{number}-x{number}k2p",
            node=TRAIN,
            gpus=tuple(range(8)),
            first=first * PER_HOUR,
            last=last * PER_HOUR,
            team="research",
            owner=("Job", f"pretrain-{number}"),
        )
        for number, (first, last) in enumerate(((5, 90), (100, 180), (190, 320)), start=1)
    ]
    experiments = [
        Pod(
            namespace="research",
            name=f"sweep-{number}-worker-0",
            node=SPOT,
            gpus=(0,),
            first=SPOT.first + 4 + number * DAY,
            last=SPOT.first + 4 + number * DAY + 6 * PER_HOUR,
            team="research",
            owner=("PyTorchJob", f"sweep-{number}"),
            load="small",
        )
        for number in range(4)
    ]
    notebook = Pod(
        namespace="research",
        name="notebook-ana-0",
        node=MIXED,
        gpus=(3,),
        team="research",
        owner=("StatefulSet", "notebook-ana"),
        load="notebook",
    )
    shipper = Pod(
        namespace="infra",
        name="log-archiver-58c9d7f6b4-q2w3e",
        node=SERVE,
        gpus=(),
        owner=("ReplicaSet", "log-archiver-58c9d7f6b4"),
        top=("Deployment", "log-archiver"),
    )
    daemon = Pod(
        namespace="infra", name="node-exporter-abcde", node=SERVE, gpus=(), owner=("DaemonSet", "node-exporter")
    )
    return [*chat, *embed, *rerank, *training, *experiments, notebook, shipper, daemon]


class GeneratedFleet:
    """The series and the truth. Arrays are by 5-minute step; NaN = no sample was stored."""

    def __init__(self, seed: int = 11) -> None:
        self.rng = np.random.default_rng(seed)
        self.pods = _pods()
        self.watched = np.ones(STEPS, dtype=bool)
        self.watched[OUTAGE] = False
        self.arrivals = {"chat": self._arrivals(900), "embed": self._arrivals(1500), "rerank": self._arrivals(200)}
        self._share_requests()
        self.readings = {(node, gpu): self._readings(node, gpu) for node in NODES for gpu in range(node.gpus)}

    def _arrivals(self, peak):
        """Requests in each step: a day and a night, a weekend, and noise."""
        hour = np.arange(STEPS) / PER_HOUR
        day = 0.25 + 0.75 * np.clip(np.sin((hour % 24 - 7) / 14 * np.pi), 0, None)
        weekend = np.where((hour // 24) % 7 >= 5, 0.5, 1.0)
        return self.rng.poisson(peak * day * weekend)

    def _share_requests(self):
        for service, arrivals in self.arrivals.items():
            pods = [pod for pod in self.pods if pod.service == service]
            for pod in pods:
                pod.completed = np.zeros(STEPS, dtype=int)
            for step in range(STEPS):
                alive = [pod for pod in pods if pod.first <= step < pod.last]
                for pod, part in zip(
                    alive, self.rng.multinomial(arrivals[step], [1 / len(alive)] * len(alive)), strict=True
                ):
                    pod.completed[step] = part

    def holder(self, node, gpu, step):
        return next((p for p in self.pods if p.node is node and gpu in p.gpus and p.first <= step < p.last), None)

    def _readings(self, node, gpu):
        """SM activity, tensor, DRAM activity and GPU_UTIL as shares, memory in MiB and power, step by step."""
        sm = np.zeros(STEPS)
        memory = np.full(STEPS, 400.0)
        for pod in self.pods:
            if pod.node is not node or gpu not in pod.gpus:
                continue
            span = slice(pod.first, pod.last)
            length = pod.last - pod.first
            if pod.load == "serving":
                busy = pod.completed[span] / max(1, pod.completed.max())
                sm[span] = np.clip(0.05 + 0.5 * busy + self.rng.normal(0, 0.02, length), 0, 1)
                memory[span] = 30_000 if node.product == A100 else 18_000
            elif pod.load == "training":
                sm[span] = np.clip(0.8 + self.rng.normal(0, 0.05, length), 0, 1)
                memory[span] = 34_000
            elif pod.load == "small":
                sm[span] = np.clip(0.3 + self.rng.normal(0, 0.05, length), 0, 1)
                memory[span] = 6_000
            else:
                sm[span] = np.where(np.arange(length) % DAY < 2 * PER_HOUR, 0.15, 0.0)
                memory[span] = 2_000
        sm = np.round(sm, 4)
        lived = self.watched.copy()
        lived[: node.first] = False
        lived[node.last :] = False
        if (node, gpu) == (MIXED, 0):
            lived[10 * DAY : 10 * DAY + PER_HOUR // 2] = False
        readings = {
            "sm": sm,
            "tensor": np.round(sm * 0.6, 4),
            "dram": np.round(sm * 0.4, 4),
            "util": np.round(np.minimum(sm * 1.5 + (sm > 0) * 0.1, 1.0), 2),
            "memory": memory,
            "power": np.round(60 + 300 * sm, 1),
        }
        return {name: np.where(lived, values, np.nan) for name, values in readings.items()}

    def spoil(self, node, gpu, name, values):
        """Return what the exporter says where it lies: sentinels, a share above 1."""
        if (node, gpu, name) == (SERVE, 2, "sm"):
            values = values.copy()
            values[2 * DAY + 3] = SENTINEL
            values[2 * DAY + 4] = SENTINEL
        if (node, gpu, name) == (SERVE, 3, "util"):
            values = values.copy()
            values[5 * DAY] = 1.07
        if (node, name) == (TRAIN, "dram") and gpu == 7:
            values = np.where(np.isnan(values), np.nan, SENTINEL)
        return values

    def write(self, path: Path) -> None:
        """Write everything as OpenMetrics text."""
        written = set()
        with path.open("w", encoding="utf-8") as file:
            for name, labels, values in self.series():
                text = ",".join(f'{key}="{value}"' for key, value in labels.items())
                prefix = f"{name}{{{text}}}"
                if prefix in written:
                    continue
                written.add(prefix)
                kept = np.flatnonzero(~np.isnan(values))
                times = (START_S + kept * STEP_S).tolist()
                lines = [f"{prefix} {v!r} {t}\n" for v, t in zip(values[kept].tolist(), times, strict=True)]
                file.write("".join(lines))
            file.write("# EOF\n")

    def series(self):
        yield from self._dcgm()
        yield from self._kube()
        yield from self._vllm()

    def _dcgm(self):
        old = {
            "sm": "DCGM_FI_PROF_SM_ACTIVE",
            "tensor": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
            "dram": "DCGM_FI_PROF_DRAM_ACTIVE",
            "util": "DCGM_FI_DEV_GPU_UTIL",
            "memory": "DCGM_FI_DEV_FB_USED",
            "power": "DCGM_FI_DEV_POWER_USAGE",
        }
        new = {
            "sm": "DCGM_FI_PROF_SM_UTIL_RATIO",
            "tensor": "DCGM_FI_PROF_TENSOR_UTIL_RATIO",
            "dram": "DCGM_FI_PROF_DRAM_UTIL_RATIO",
            "util": "DCGM_FI_DEV_GPU_UTIL_RATIO",
            "memory": "DCGM_FI_DEV_FB_USED",
            "power": "DCGM_FI_DEV_BOARD_POWER_WATTS",
        }
        for (node, gpu), readings in self.readings.items():
            for name, values in readings.items():
                spoilt = self.spoil(node, gpu, name, values)
                share = name in ("sm", "tensor", "dram", "util")
                if share and (node.percent or (name == "util" and not node.new_dcgm)):
                    spoilt = np.where(spoilt < SENTINEL, spoilt * 100, spoilt)
                for labels, span in self._held_by(node, gpu):
                    metric = (new if node.new_dcgm else old)[name]
                    yield metric, labels, np.where(span, spoilt, np.nan)

    def _held_by(self, node, gpu):
        """Yield the labels under each holder, and the steps in which they were so."""
        base = {
            "UUID": device_name(node, gpu),
            "gpu": str(gpu),
            "modelName": node.product,
            "DCGM_FI_DRIVER_VERSION": "550.1",
            "job": "dcgm",
            "instance": f"10.1.0.{NODES.index(node)}:9400",
        }
        base["hostname" if node.new_dcgm else "Hostname"] = node.name.partition(".")[0]
        free = np.ones(STEPS, dtype=bool)
        for pod in self.pods:
            if pod.node is node and gpu in pod.gpus:
                span = np.zeros(STEPS, dtype=bool)
                span[pod.first : pod.last] = True
                free &= ~span
                if node.new_dcgm:
                    yield {**base, "namespace": pod.namespace, "pod": pod.name, "container": "main"}, span
                else:
                    owner = {"exported_namespace": pod.namespace, "exported_pod": pod.name}
                    yield {**base, **owner, "namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-abc12"}, span
        if free.any():
            own = {} if node.new_dcgm else {"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-abc12"}
            yield {**base, **own}, free

    def _kube(self):
        for node in NODES:
            lived = self._lived(node.first, node.last)
            hourly = self._hourly(node.first, node.last)
            zone = node.labels["topology_kubernetes_io_zone"]
            yield "kube_node_info", {"node": node.name, "provider_id": f"aws:///{zone}/i-{NODES.index(node):05}"}, lived
            labels = {f"label_{key}": value for key, value in node.labels.items()}
            yield "kube_node_labels", {"node": node.name, **labels}, hourly
            yield "kube_node_created", {"node": node.name}, hourly * (START_S + node.first * STEP_S)
            capacity = {"node": node.name, "resource": "nvidia_com_gpu", "unit": "integer"}
            yield "kube_node_status_capacity", capacity, hourly * node.gpus
            taint = {"node": node.name, "key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
            yield "kube_node_spec_taint", taint, hourly
        for pod in self.pods:
            yield from self._kube_pod(pod)

    def _kube_pod(self, pod):
        subject = {"namespace": pod.namespace, "pod": pod.name}
        hourly = self._hourly(pod.first, pod.last)
        owner = {"owner_kind": pod.owner[0], "owner_name": pod.owner[1], "owner_is_controller": "true"}
        created = {"node": pod.node.name, "created_by_kind": pod.owner[0], "created_by_name": pod.owner[1]}
        yield "kube_pod_info", {**subject, **created}, hourly
        yield "kube_pod_owner", {**subject, **owner}, hourly
        yield "kube_pod_status_phase", {**subject, "phase": "Running"}, self._lived(pod.first, pod.last)
        if pod.team:
            yield "kube_pod_labels", {**subject, "label_team": pod.team}, hourly
        if pod.gpus:
            request = {**subject, "container": "main", "node": pod.node.name, "resource": "nvidia_com_gpu"}
            yield "kube_pod_container_resource_requests", request, hourly * len(pod.gpus)
        if pod.top:
            parent = {"namespace": pod.namespace, "replicaset": pod.owner[1]}
            yield "kube_replicaset_owner", {**parent, "owner_kind": pod.top[0], "owner_name": pod.top[1]}, hourly
        if pod.owner[0] == "Job":
            job = {"namespace": pod.namespace, "job_name": pod.owner[1]}
            after = self._hourly(pod.last - 1, min(STEPS, pod.last + DAY))
            yield "kube_job_created", job, hourly * (START_S + pod.first * STEP_S - 600)
            yield "kube_job_status_start_time", job, hourly * (START_S + pod.first * STEP_S - 500)
            yield "kube_job_status_completion_time", job, after * (START_S + pod.last * STEP_S)

    def _lived(self, first, last):
        values = np.full(STEPS, np.nan)
        values[first:last] = 1.0
        return np.where(self.watched, values, np.nan)

    def _hourly(self, first, last):
        """A series that hardly changes, stored once an hour to keep the fixture small, and at its first step."""
        values = np.full(STEPS, np.nan)
        values[first:last:PER_HOUR] = 1.0
        return values

    def _vllm(self):
        for pod in (pod for pod in self.pods if pod.service):
            labels = {"namespace": pod.namespace, "pod": pod.name, "model_name": f"acme/{pod.service}", "engine": "0"}
            for name, more, counts in self.counters(pod):
                yield f"vllm:{name}", {**labels, **more}, self._counter(pod, counts)
            alive = self._lived(pod.first, pod.last)
            busy = pod.completed / 30.0
            yield "vllm:num_requests_running", labels, alive * busy
            yield "vllm:num_requests_waiting", labels, alive * np.maximum(0.0, busy - 4.0)
            cache = "vllm:gpu_cache_usage_perc" if pod.service == "embed" else "vllm:kv_cache_usage_perc"
            yield cache, labels, alive * np.minimum(0.9, busy / 10)

    def counters(self, pod):
        """Yield name, labels and rise by step of each counter of a pod."""
        done = pod.completed
        failed = done // 100
        yield "request_success_total", {"finished_reason": "stop"}, done - failed
        yield "request_success_total", {"finished_reason": "abort"}, failed
        yield "request_prompt_tokens_sum", {}, done * 800
        yield "request_prompt_tokens_count", {}, done
        yield "request_generation_tokens_sum", {}, done * 150
        yield "request_generation_tokens_count", {}, done
        for bound, share in zip(LATENCY_LE, (0.3, 0.6, 0.85, 0.95, 0.99, 1.0), strict=True):
            yield "e2e_request_latency_seconds_bucket", {"le": _bound(bound)}, _part(done, share)
        for bound, share in zip(TTFT_LE, (0.5, 0.8, 0.95, 0.99, 1.0), strict=True):
            yield "time_to_first_token_seconds_bucket", {"le": _bound(bound)}, _part(done, share)

    def _counter(self, pod, rises):
        """Return the counter's samples: 0 at the pod's first, so that every request shows as a rise; one pod restarts."""
        values = np.full(STEPS, np.nan)
        total = np.cumsum(np.concatenate([[0], rises[pod.first + 1 : pod.last]]))
        values[pod.first : pod.last] = total
        restart = 3 * DAY + 17
        if pod.service == "rerank":
            values[restart:] -= values[restart - 1]
        return np.where(self.watched, values, np.nan)


def _part(done, share):
    return np.floor(done * share).astype(int)


def _bound(bound):
    return "+Inf" if np.isinf(bound) else f"{bound:g}"
