"""Models that take turns on one GPU as objects: a pod of vLLM servers that sleep and wake behind llama-swap.

One container holds all servers of a GPU, because Kubernetes gives a GPU to one container. llama-swap starts each server once
and then puts it to sleep (`mostlygeek/llama-swap`, config.example.yaml). Its `matrix` names the models that may be awake
together: here the largest sets that fit the GPU's memory. `vllm-wrapper` (`cmd/vllm-wrapper` there) calls vLLM's `/wake_up` and
`/sleep`. It sends level 1 only; level 2 would also need `reload_weights` (docs.vllm.ai, Sleep mode).

The servers listen on the pod's loopback: whoever reaches their sleep endpoints can stop them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from trimtab.emit.manifests.emission import MANAGED_BY, Plain, dns_name, yaml_text
from trimtab.emit.manifests.own_replicas import START_TIMEOUT_S, OwnReplicas, RoutedModel, own_replica_objects

IMAGE = "registry.example.com/vllm-llama-swap:set-me"
PORT, FIRST_SERVER_PORT = 8080, 9001
MOST_MEMBERS = 16
"""More models than this on one GPU would make too many sets of models that fit together."""
_CONFIG, _CONFIG_FOLDER = "config.yaml", "/etc/llama-swap"
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"

DOCKERFILE = """\
# vLLM with llama-swap as its router. Pin both images, build, push, and set the image in the pool files.
FROM ghcr.io/mostlygeek/llama-swap:unified-cuda AS router
FROM vllm/vllm-openai:latest
COPY --from=router /usr/local/bin/llama-swap /usr/local/bin/vllm-wrapper /usr/local/bin/
ENTRYPOINT ["llama-swap"]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMember:
    """A service on a shared GPU: the model that it serves, its memory, and how long it may idle before it sleeps."""

    workload: str
    model: str
    awake_gib: float
    asleep_gib: float
    at_once: int
    own_at_once: int
    sleeps_after_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedGpu:
    """One GPU that several models share: where it is, its memory, and how much of it servers may use."""

    number: int
    instance_type: str
    gpu: str
    gpu_gib: float
    usable_gib: float
    members: tuple[PoolMember, ...]


def pool_files(gpus: Sequence[SharedGpu], own: OwnReplicas | None = None) -> dict[str, str]:
    """Return the files: name -> text. One file for each GPU, and a Dockerfile for the image that they use.

    With `own`, a router and replicas of their own for models with many requests at once.
    """
    files = {f"{_name(gpu)}.yaml": _gpu_file(gpu, own) for gpu in gpus}
    return {"Dockerfile": DOCKERFILE, **files} if files else {}


def _name(gpu: SharedGpu) -> str:
    return dns_name("pool", gpu.instance_type.replace(".", "-"), str(gpu.number))


def _gpu_file(gpu: SharedGpu, own: OwnReplicas | None) -> str:
    names = ", ".join(member.workload for member in gpu.members)
    clients = "the Service below" if own is None else "its own Service below, which HAProxy answers"
    comment = (
        f"{len(gpu.members)} models take turns on one {gpu.gpu}: {names}\n"
        "Set the image (see Dockerfile), add the flags that each model needs (--max-model-len, --quantization), and the token\n"
        f"for gated models. Test sleeping with your version of vLLM, then point each service's clients at {clients}."
    )
    if own is not None:
        comment += (
            f"\nA model with {own.policy.own_requests:g} requests at once gets own replicas, at most {own.policy.own_most}.\n"
            "Needs KEDA, the Prometheus operator (PodMonitor) and kube-state-metrics.\n"
            f"KEDA asks the Prometheus at {own.facts.prometheus_url}; replay --cluster names another."
        )
    namespaces = sorted({_namespace(member.workload) for member in gpu.members})
    if len(namespaces) > 1:
        comment += (
            f"\nThe services come from {', '.join(namespaces)}; the pod has the quota and secrets of {namespaces[0]}."
        )
    namespace = namespaces[0]
    objects = [_config_map(gpu, namespace), _deployment(gpu, namespace), _service(gpu, namespace)]
    if own is not None:
        objects += own_replica_objects(
            _routed(gpu), own, pool=_name(gpu), namespace=namespace, pool_port=PORT, image=IMAGE,
            node_selector=_node_selector(gpu),
        )  # fmt: skip
    return yaml_text(*objects, comment=comment)


def _routed(gpu: SharedGpu) -> tuple[RoutedModel, ...]:
    names = _model_names(gpu)
    return tuple(
        RoutedModel(
            workload=member.workload,
            model=member.model,
            served_name=names[member.workload],
            shared_at_once=member.at_once,
            own_at_once=member.own_at_once,
        )
        for member in gpu.members
    )


def _node_selector(gpu: SharedGpu) -> dict[str, Plain]:
    return {_INSTANCE_TYPE: gpu.instance_type}


def _namespace(workload: str) -> str:
    return workload.split("/")[0] if "/" in workload else "default"


def _model_names(gpu: SharedGpu) -> dict[str, str]:
    """Return the name that requests use for each workload: its model, or the workload where several serve the same model."""
    models = [member.model for member in gpu.members]
    return {
        member.workload: member.model if models.count(member.model) == 1 else member.workload for member in gpu.members
    }


def router_config(gpu: SharedGpu) -> dict[str, Plain]:
    """Return llama-swap's configuration: how each model starts, wakes and sleeps, and which may be awake together."""
    names = _model_names(gpu)
    return {
        "healthCheckTimeout": START_TIMEOUT_S,
        "models": {
            names[member.workload]: _model(gpu, member, FIRST_SERVER_PORT + at) for at, member in enumerate(gpu.members)
        },
        "matrix": {
            "vars": {f"m{at}": names[member.workload] for at, member in enumerate(gpu.members)},
            "evict_costs": {f"m{at}": max(1, round(member.awake_gib)) for at, member in enumerate(gpu.members)},
            "sets": {
                f"set{at}": " & ".join(f"m{number}" for number in numbers)
                for at, numbers in enumerate(awake_together(gpu))
            },
        },
        "hooks": {"on_startup": {"preload": list(names.values())}},
    }


def awake_together(gpu: SharedGpu) -> list[tuple[int, ...]]:
    """Return the largest sets of members, by number, whose memory fits the GPU while the others sleep.

    Raises ValueError for more than `MOST_MEMBERS` members.
    """
    number = len(gpu.members)
    if number > MOST_MEMBERS:
        raise ValueError(f"{number} models on one GPU are more than {MOST_MEMBERS}")
    free_gib = gpu.usable_gib - sum(member.asleep_gib for member in gpu.members)
    more_gib = [member.awake_gib - member.asleep_gib for member in gpu.members]
    largest: list[tuple[int, ...]] = []
    for size in range(number, 0, -1):
        for chosen in combinations(range(number), size):
            fits = sum(more_gib[at] for at in chosen) <= free_gib
            if fits and not any(set(chosen) <= set(found) for found in largest):
                largest.append(chosen)
    return largest


def _model(gpu: SharedGpu, member: PoolMember, port: int) -> dict[str, Plain]:
    url = f"http://127.0.0.1:{port}"
    # vLLM takes a share of the whole GPU; rounded down, so that the sets that fit on paper fit on the GPU
    share = math.floor((member.awake_gib - member.asleep_gib) / gpu.gpu_gib * 100) / 100
    start = [
        f"vllm-wrapper serve --vllm-url {url} --listen 127.0.0.1:${{PORT}} --wait-timeout {START_TIMEOUT_S}s --",
        f"vllm serve {member.model} --served-model-name {_model_names(gpu)[member.workload]}",
        f"--host 127.0.0.1 --port {port}",
        f"--enable-sleep-mode --gpu-memory-utilization {share:.2f} --max-num-seqs {member.at_once}",
    ]
    return {
        "cmd": "\n".join(start) + "\n",
        "cmdStop": f"vllm-wrapper sleep --vllm-url {url} --stop-pid ${{PID}}",
        "proxy": "http://127.0.0.1:${PORT}",
        # llama-swap answers 429 above its default of 10; requests must wait in vLLM's queue instead
        "concurrencyLimit": max(4 * member.at_once, 64),
        **({} if member.sleeps_after_s is None else {"ttl": member.sleeps_after_s}),
    }


def _labels(gpu: SharedGpu) -> dict[str, Plain]:
    return {**MANAGED_BY, "app.kubernetes.io/name": _name(gpu)}


def _config_map(gpu: SharedGpu, namespace: str) -> dict[str, Plain]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _name(gpu), "namespace": namespace, "labels": _labels(gpu)},
        "data": {_CONFIG: yaml_text(router_config(gpu))},
    }


def _deployment(gpu: SharedGpu, namespace: str) -> dict[str, Plain]:
    memory_gib = math.ceil(sum(member.awake_gib for member in gpu.members))
    container: dict[str, Plain] = {
        "name": "pool",
        "image": IMAGE,
        "args": [f"--config={_CONFIG_FOLDER}/{_CONFIG}", f"--listen=:{PORT}"],
        "env": [{"name": "VLLM_SERVER_DEV_MODE", "value": "1"}],
        "ports": [{"name": "http", "containerPort": PORT}],
        # level 1 keeps the weights of sleeping models in the node's memory
        "resources": {"requests": {"memory": f"{memory_gib}Gi"}, "limits": {"nvidia.com/gpu": "1"}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}},
        "volumeMounts": [{"name": "config", "mountPath": _CONFIG_FOLDER}, {"name": "shm", "mountPath": "/dev/shm"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": _name(gpu), "namespace": namespace, "labels": _labels(gpu)},
        "spec": {
            "replicas": 1,
            # two pods would need two GPUs during an update
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {"app.kubernetes.io/name": _name(gpu)}},
            "template": {
                "metadata": {"labels": _labels(gpu)},
                "spec": {
                    "nodeSelector": _node_selector(gpu),
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                    "containers": [container],
                    "volumes": [
                        {"name": "config", "configMap": {"name": _name(gpu)}},
                        {"name": "shm", "emptyDir": {"medium": "Memory"}},
                    ],
                },
            },
        },
    }


def _service(gpu: SharedGpu, namespace: str) -> dict[str, Plain]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _name(gpu), "namespace": namespace, "labels": _labels(gpu)},
        "spec": {
            "selector": {"app.kubernetes.io/name": _name(gpu)},
            "ports": [{"name": "http", "port": PORT, "targetPort": "http"}],
        },
    }


def missing_models(members: Sequence[tuple[str, str | None, int | None]]) -> Iterator[str]:
    """Yield why a service cannot be put into a file: (workload, declared model, sleep level) of each."""
    for workload, model, level in members:
        if model is None:
            yield f"{workload}: declare model: with the id that vLLM loads"
        if level == 2:
            yield f"{workload}: sleep_level: 2 cannot be written, vllm-wrapper sends level 1 only"
