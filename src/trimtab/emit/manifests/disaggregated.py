"""Prefill and decode pools as objects: LeaderWorkerSets with llm-d's roles and their autoscalers, and a graph of NVIDIA Dynamo.

The two forms are alternatives: apply one. Each pool has an autoscaler of its own (KEDA) that keeps the requests at a replica
where they are at the planned load: a prefill replica's from a queue with one server and fixed times, ρ + ρ² / (2 (1 - ρ)), a
decode replica's from Little's law. Fields follow llm-d's guide (`llm-d/llm-d guides/pd-disaggregation`), the LeaderWorkerSet
API (`leaderworkerset.x-k8s.io/v1`) and Dynamo's examples (`ai-dynamo/dynamo examples/backends/vllm/deploy`). What routes
requests is not made here: llm-d's gateway with its inference pool, or Dynamo's frontend, which the graph includes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from trimtab.emit.launch import serve_format
from trimtab.emit.manifests.emission import MANAGED_BY, Plain, dns_name, yaml_text
from trimtab.physics.disaggregated import DisaggregatedOption, Half
from trimtab.physics.serving_demand import Demand

VLLM_IMAGE = "vllm/vllm-openai:latest"
SIDECAR_IMAGE = "ghcr.io/llm-d/llm-d-routing-sidecar:latest"
DYNAMO_IMAGE = "nvcr.io/nvidia/ai-dynamo/vllm-runtime:my-tag"
PROMETHEUS = "http://prometheus-operated.monitoring.svc:9090"
LWS_API = "leaderworkerset.x-k8s.io/v1"
MOST_BUSY_FRAC = 0.95
"""A pool is never planned busier; a queue's length has no meaning near 1."""
SERVER_PORT, BEHIND_SIDECAR_PORT, NIXL_PORT = 8000, 8200, 5600
PREFILL, DECODE = "prefill", "decode"


def pool_files(pair: DisaggregatedOption, model: str, context: int, demand: Demand) -> dict[str, str]:
    """Return the files of both forms: name -> YAML."""
    sets = [_leader_worker_set(pair, role, model, context) for role in (PREFILL, DECODE)]
    notes = "".join(f"\n{note}" for note in _notes(pair.decode))
    return {
        "leader-worker-sets.yaml": yaml_text(
            *sets, comment=f"llm-d's roles on LeaderWorkerSets; set the images, and route with llm-d's gateway{notes}"
        ),
        "scaled-objects.yaml": yaml_text(
            *(_scaled_object(pair, role, model, demand) for role in (PREFILL, DECODE)),
            comment="The LeaderWorkerSets' autoscalers: one a pool; set the address of Prometheus",
        ),
        "dynamo-graph.yaml": yaml_text(
            _graph(pair, model, context), comment=f"The same pools as a graph of NVIDIA Dynamo; set the images{notes}"
        ),
    }


def pool_commands(pair: DisaggregatedOption, model: str, context: int) -> str:
    """Return the `vllm serve` command of one replica of each pool."""
    lines = [f"# {note}" for note in _notes(pair.decode)]
    for role in (PREFILL, DECODE):
        half = _half(pair, role)
        flags = " \\\n  ".join(
            [f"vllm serve {model}", *_plain_flags(half, context), f"--kv-transfer-config '{_connector(role)}'"]
        )
        lines += [f"# {half.replicas} x {role} on {half.query.tensor} x {half.gpu.name}", flags]
    return "\n".join(lines)


def _notes(half: Half) -> list[str]:
    """Return what somebody must do first for the stored format."""
    return [flag.replace("  # ", ": ") for flag in serve_format(half.query.stored) if "#" in flag]


def _half(pair: DisaggregatedOption, role: str) -> Half:
    return pair.prefill if role == PREFILL else pair.decode


def _connector(role: str) -> str:
    kv_role = "kv_producer" if role == PREFILL else "kv_consumer"
    return json.dumps({"kv_connector": "NixlConnector", "kv_role": kv_role})


def _plain_flags(half: Half, context: int) -> list[str]:
    """Return vLLM's flags, without those that need a comment: weights that somebody must make first."""
    formats = [flag for flag in serve_format(half.query.stored) if "#" not in flag]
    return [
        f"--tensor-parallel-size {half.query.tensor}",
        f"--max-model-len {context}",
        f"--max-num-seqs {half.concurrency}",
        *formats,
    ]


def _arguments(half: Half, context: int) -> list[str]:
    return [part for flag in _plain_flags(half, context) for part in flag.split(" ")]


def _leader_worker_set(pair: DisaggregatedOption, role: str, model: str, context: int) -> dict[str, Plain]:
    half = _half(pair, role)
    labels = _labels(model, role)
    pod: dict[str, Plain] = {
        "nodeSelector": {"node.kubernetes.io/instance-type": half.offer.instance_type},
        "containers": [_model_server(half, role, model, context)],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        **({"initContainers": [_routing_sidecar()]} if role == DECODE else {}),
    }
    return {
        "apiVersion": LWS_API,
        "kind": "LeaderWorkerSet",
        "metadata": {"name": dns_name(_name(model), role), "labels": {**labels, **MANAGED_BY}},
        "spec": {
            "replicas": half.replicas,
            "leaderWorkerTemplate": {
                # a replica lies within one node, so a group is one pod
                "size": 1,
                "workerTemplate": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
    }


def _model_server(half: Half, role: str, model: str, context: int) -> dict[str, Plain]:
    port = SERVER_PORT if role == PREFILL else BEHIND_SIDECAR_PORT
    pod_ip: Plain = {"fieldRef": {"fieldPath": "status.podIP"}}
    return {
        "name": "modelserver",
        "image": VLLM_IMAGE,
        "command": ["vllm", "serve"],
        "args": [model, *_arguments(half, context), f"--port={port}", "--kv-transfer-config", _connector(role)],
        "env": [{"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": pod_ip}],
        "ports": [{"name": "modelserver", "containerPort": port}, {"name": "nixl", "containerPort": NIXL_PORT}],
        "resources": {"limits": {"nvidia.com/gpu": str(half.query.tensor)}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": "modelserver"}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }


def _routing_sidecar() -> dict[str, Plain]:
    """Return what sends a prompt to a prefill replica first and hands its cache over."""
    return {
        "name": "routing-proxy",
        "image": SIDECAR_IMAGE,
        "args": [
            f"--port={SERVER_PORT}",
            f"--vllm-port={BEHIND_SIDECAR_PORT}",
            "--connector=nixlv2",
            "--secure-proxy=false",
        ],
        "ports": [{"containerPort": SERVER_PORT}],
        "restartPolicy": "Always",
    }


def requests_at_replica(pair: DisaggregatedOption, role: str, demand: Demand) -> float:
    """Return the requests at one replica under the planned rate, waiting ones included."""
    half, rate = _half(pair, role), demand.rate_req_s or 0.0
    if role == DECODE:
        held_s = max(demand.output_tokens - 1, 1) * half.time.value
        return min(rate / half.replicas * held_s, float(half.concurrency))
    busy = min(half.busy_frac(rate), MOST_BUSY_FRAC)
    return busy + busy**2 / (2 * (1 - busy))


def _scaled_object(pair: DisaggregatedOption, role: str, model: str, demand: Demand) -> dict[str, Plain]:
    half, name = _half(pair, role), dns_name(_name(model), role)
    pods = f'{{pod=~"{name}-[0-9]+"}}'
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name, "labels": {**_labels(model, role), **MANAGED_BY}},
        "spec": {
            "scaleTargetRef": {"apiVersion": LWS_API, "kind": "LeaderWorkerSet", "name": name},
            "minReplicaCount": 1,
            # the replicas that the plan pays for at its busiest
            "maxReplicaCount": half.replicas,
            "triggers": [
                {
                    "type": "prometheus",
                    "metricType": "AverageValue",
                    "metadata": {
                        "serverAddress": PROMETHEUS,
                        "query": f"sum(vllm:num_requests_running{pods} + vllm:num_requests_waiting{pods})",
                        "threshold": f"{requests_at_replica(pair, role, demand):.3g}",
                    },
                }
            ],
        },
    }


def _labels(model: str, role: str) -> dict[str, Plain]:
    return {"llm-d.ai/inference-serving": "true", "llm-d.ai/model": dns_name(_name(model)), "llm-d.ai/role": role}


def _name(model: str) -> str:
    """Return a model's name without its organisation, as labels and names may hold it."""
    return re.sub(r"[^a-z0-9]+", "-", model.rsplit("/", 1)[-1].lower()).strip("-")


def _graph(pair: DisaggregatedOption, model: str, context: int) -> dict[str, Plain]:
    workers: dict[str, Plain] = {
        f"Vllm{role.capitalize()}Worker": _worker(_half(pair, role), role, model, context) for role in (PREFILL, DECODE)
    }
    frontend: Mapping[str, Plain] = {
        "componentType": "frontend",
        "replicas": 1,
        "extraPodSpec": {"mainContainer": {"image": DYNAMO_IMAGE}},
    }
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {
            "name": dns_name(_name(model), "pools"),
            "labels": dict(MANAGED_BY),
        },
        "spec": {"services": {"Frontend": frontend, **workers}},
    }


def _worker(half: Half, role: str, model: str, context: int) -> dict[str, Plain]:
    return {
        "componentType": "worker",
        "subComponentType": role,
        "replicas": half.replicas,
        "resources": {"limits": {"gpu": str(half.query.tensor)}},
        "extraPodSpec": {
            "nodeSelector": {"node.kubernetes.io/instance-type": half.offer.instance_type},
            "mainContainer": {
                "image": DYNAMO_IMAGE,
                "workingDir": "/workspace/examples/backends/vllm",
                "command": ["python3", "-m", "dynamo.vllm"],
                "args": ["--model", model, *_arguments(half, context), f"--is-{role}-worker"],
            },
        },
    }
