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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimtab.deployment.effects import DECODE, PREFILL
from trimtab.emit.launch import serve_format
from trimtab.emit.manifests.emission import MANAGED_BY, Plain, dns_name, yaml_text
from trimtab.physics.disaggregated import DisaggregatedOption, Half
from trimtab.physics.formats import WeightFormat
from trimtab.physics.serving_demand import Demand

VLLM_IMAGE = "vllm/vllm-openai:latest"
SIDECAR_IMAGE = "ghcr.io/llm-d/llm-d-routing-sidecar:latest"
DYNAMO_IMAGE = "nvcr.io/nvidia/ai-dynamo/vllm-runtime:my-tag"
PROMETHEUS = "http://prometheus-operated.monitoring.svc:9090"
LWS_API = "leaderworkerset.x-k8s.io/v1"
MOST_BUSY_FRAC = 0.95
"""A pool is never planned busier; a queue's length has no meaning near 1."""
SERVER_PORT, BEHIND_SIDECAR_PORT, NIXL_PORT = 8000, 8200, 5600


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaForm:
    """What one replica of a role runs: the model, its GPUs, what bounds its steps and its cache."""

    role: str
    model: str
    gpus: int
    concurrency: int
    stored: WeightFormat
    context: int

    @property
    def labels(self) -> dict[str, Plain]:
        """Return the labels by which llm-d finds the pods of a role."""
        return {
            "llm-d.ai/inference-serving": "true",
            "llm-d.ai/model": dns_name(_name(self.model)),
            "llm-d.ai/role": self.role,
        }

    @property
    def notes(self) -> list[str]:
        """Return what somebody must do first for the stored format."""
        return [flag.replace("  # ", ": ") for flag in serve_format(self.stored) if "#" in flag]

    @property
    def flags(self) -> list[str]:
        """Return vLLM's flags, without those that need a comment: weights that somebody must make first."""
        formats = [flag for flag in serve_format(self.stored) if "#" not in flag]
        return [
            f"--tensor-parallel-size {self.gpus}",
            f"--max-model-len {self.context}",
            f"--max-num-seqs {self.concurrency}",
            *formats,
        ]

    @property
    def arguments(self) -> list[str]:
        """Return the same as a list of arguments."""
        return [part for flag in self.flags for part in flag.split(" ")]


def form_of(pair: DisaggregatedOption, role: str, model: str, context: int) -> ReplicaForm:
    """Return what a replica of a role runs."""
    half = _half(pair, role)
    return ReplicaForm(
        role=role,
        model=model,
        gpus=half.query.tensor,
        concurrency=half.concurrency,
        stored=half.query.stored,
        context=context,
    )


def pool_files(pair: DisaggregatedOption, model: str, context: int, demand: Demand) -> dict[str, str]:
    """Return the files of both forms: name -> YAML."""
    forms = [form_of(pair, role, model, context) for role in (PREFILL, DECODE)]
    sets = [
        leader_worker_set(
            form,
            {"name": dns_name(_name(model), form.role), "labels": {**form.labels, **MANAGED_BY}},
            replicas=_half(pair, form.role).replicas,
            selector={"node.kubernetes.io/instance-type": _half(pair, form.role).offer.instance_type},
        )
        for form in forms
    ]
    notes = "".join(f"\n{note}" for note in forms[1].notes)
    nodes = {role: _half(pair, role).offer.instance_type for role in (PREFILL, DECODE)}
    counts = {role: _half(pair, role).replicas for role in (PREFILL, DECODE)}
    return {
        "leader-worker-sets.yaml": yaml_text(
            *sets, comment=f"llm-d's roles on LeaderWorkerSets; set the images, and route with llm-d's gateway{notes}"
        ),
        "scaled-objects.yaml": yaml_text(
            *(_scaled_object(pair, role, model, demand) for role in (PREFILL, DECODE)),
            comment="The LeaderWorkerSets' autoscalers: one a pool; set the address of Prometheus",
        ),
        "dynamo-graph.yaml": yaml_text(
            dynamo_graph(forms, nodes, counts),
            comment=f"The same pools as a graph of NVIDIA Dynamo; set the images{notes}",
        ),
    }


def pool_commands(pair: DisaggregatedOption, model: str, context: int) -> str:
    """Return the `vllm serve` command of one replica of each pool."""
    forms = [form_of(pair, role, model, context) for role in (PREFILL, DECODE)]
    lines = [f"# {note}" for note in forms[1].notes]
    for form in forms:
        half = _half(pair, form.role)
        flags = " \\\n  ".join([f"vllm serve {model}", *form.flags, f"--kv-transfer-config '{_connector(form.role)}'"])
        lines += [f"# {half.replicas} x {form.role} on {form.gpus} x {half.gpu.name}", flags]
    return "\n".join(lines)


def _half(pair: DisaggregatedOption, role: str) -> Half:
    return pair.prefill if role == PREFILL else pair.decode


def _connector(role: str) -> str:
    kv_role = "kv_producer" if role == PREFILL else "kv_consumer"
    return json.dumps({"kv_connector": "NixlConnector", "kv_role": kv_role})


def leader_worker_set(
    form: ReplicaForm,
    about: Mapping[str, Plain],
    *,
    replicas: int | None,
    selector: Mapping[str, Plain],
    tolerations: Sequence[Mapping[str, Plain]] = (),
    together: Mapping[str, Plain] | None = None,
    own_labels: Mapping[str, str] | None = None,
) -> dict[str, Plain]:
    """Return the LeaderWorkerSet of a role, with its metadata; `replicas` None: an autoscaler says how many there are.

    `together` says, where a node holds several replicas, that a new one goes to the fullest. `own_labels` are those that no
    other set's pods have.
    """
    pod: dict[str, Plain] = {
        "nodeSelector": dict(selector),
        **({"tolerations": [dict(toleration) for toleration in tolerations]} if tolerations else {}),
        **(together or {}),
        "containers": [_model_server(form)],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        **({"initContainers": [_routing_sidecar()]} if form.role == DECODE else {}),
    }
    return {
        "apiVersion": LWS_API,
        "kind": "LeaderWorkerSet",
        "metadata": dict(about),
        "spec": {
            **({} if replicas is None else {"replicas": replicas}),
            "leaderWorkerTemplate": {
                # a replica lies within one node, so a group is one pod
                "size": 1,
                "workerTemplate": {"metadata": {"labels": {**form.labels, **(own_labels or {})}}, "spec": pod},
            },
        },
    }


def _model_server(form: ReplicaForm) -> dict[str, Plain]:
    port = SERVER_PORT if form.role == PREFILL else BEHIND_SIDECAR_PORT
    pod_ip: Plain = {"fieldRef": {"fieldPath": "status.podIP"}}
    connector = ["--kv-transfer-config", _connector(form.role)]
    return {
        "name": "modelserver",
        "image": VLLM_IMAGE,
        "command": ["vllm", "serve"],
        "args": [form.model, *form.arguments, f"--port={port}", *connector],
        "env": [{"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": pod_ip}],
        "ports": [{"name": "modelserver", "containerPort": port}, {"name": "nixl", "containerPort": NIXL_PORT}],
        "resources": {"limits": {"nvidia.com/gpu": str(form.gpus)}},
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
    labels = form_of(pair, role, model, 0).labels
    pods = f'{{pod=~"{name}-[0-9]+"}}'
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name, "labels": {**labels, **MANAGED_BY}},
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


def _name(model: str) -> str:
    """Return a model's name without its organisation, as labels and names may hold it."""
    return re.sub(r"[^a-z0-9]+", "-", model.rsplit("/", 1)[-1].lower()).strip("-")


def dynamo_graph(
    forms: Sequence[ReplicaForm], instance_types: Mapping[str, str], replicas: Mapping[str, int]
) -> dict[str, Plain]:
    """Return the graph of NVIDIA Dynamo of both roles, on nodes and with replicas by role."""
    workers: dict[str, Plain] = {
        f"Vllm{form.role.capitalize()}Worker": _worker(form, instance_types[form.role], replicas[form.role])
        for form in forms
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
            "name": dns_name(_name(forms[0].model), "pools"),
            "labels": dict(MANAGED_BY),
        },
        "spec": {"services": {"Frontend": frontend, **workers}},
    }


def _worker(form: ReplicaForm, instance_type: str, replicas: int) -> dict[str, Plain]:
    return {
        "componentType": "worker",
        "subComponentType": form.role,
        "replicas": replicas,
        "resources": {"limits": {"gpu": str(form.gpus)}},
        "extraPodSpec": {
            "nodeSelector": {"node.kubernetes.io/instance-type": instance_type},
            "mainContainer": {
                "image": DYNAMO_IMAGE,
                "workingDir": "/workspace/examples/backends/vllm",
                "command": ["python3", "-m", "dynamo.vllm"],
                "args": ["--model", form.model, *form.arguments, f"--is-{form.role}-worker"],
            },
        },
    }
