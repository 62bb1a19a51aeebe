"""Kinds of Kubernetes objects that own pods: which run for ever, where each keeps its pods, and how KServe's are named.

A workload is named after the Deployment that runs its pods. KServe derives that name from its own object's (`chat` becomes
`chat-predictor`), and one LLMInferenceService makes two Deployments where prefill is served apart.

Sources: kserve/kserve, `constants.PredictorServiceName` and `pkg/controller/v1alpha1/llmisvc/workload_single_node.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

INFERENCE_SERVICE, LLM_INFERENCE_SERVICE = "InferenceService", "LLMInferenceService"
KSERVE = frozenset({INFERENCE_SERVICE, LLM_INFERENCE_SERVICE})
KNATIVE_SERVICE = "KnativeService"
"""Owner kind of the pods of a Knative Service, whose own kind is just `Service`."""
KSERVE_COMPONENT = "KServeComponent"
"""Owner kind of other pods that KServe makes: of a transformer, an explainer, a canary or a group of several nodes, or of a
Deployment whose name KServe had to shorten. Where their object holds them is not known."""
DEPLOYED = KSERVE | {"Deployment", KNATIVE_SERVICE, KSERVE_COMPONENT}
"""Kinds whose pods belong to Deployments."""
RUN_FOR_EVER = DEPLOYED | {
    "StatefulSet", "DaemonSet", "ReplicaSet", "Rollout", "LeaderWorkerSet", "RayService", "PodClique",
}  # fmt: skip
"""Kinds whose pods are replaced when they end. Pods of NVIDIA Dynamo belong to a PodClique (ai-dynamo/grove,
`operator/internal/controller/podclique/components/pod/syncflow.go`: `runSyncFlow` makes those that are missing)."""
_PREFILL = "-kserve-prefill"
_SUFFIXES: Mapping[str, tuple[str, ...]] = {
    INFERENCE_SERVICE: ("-predictor", "-predictor-default"),
    LLM_INFERENCE_SERVICE: ("-kserve", _PREFILL),
}
"""What KServe appends to the name of its object for a Deployment; `-predictor-default` until v0.10."""
RAY_SERVICE = "RayService"
_POD_SPECS: Mapping[str, tuple[str, ...]] = {
    "Pod": ("spec",),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    "LeaderWorkerSet": ("spec", "leaderWorkerTemplate", "workerTemplate", "spec"),
    RAY_SERVICE: ("spec", "rayClusterConfig", "workerGroupSpecs", "0", "template", "spec"),
    INFERENCE_SERVICE: ("spec", "predictor"),
    LLM_INFERENCE_SERVICE: ("spec", "template"),
}
"""Where a pod's spec lies, where not in `spec.template.spec` (LeaderWorkerSet v1, `leaderWorkerTemplate`; KubeRay v1,
RayClusterSpec, whose worker groups are a list; KServe v1beta1, PredictorSpec, and v1alpha1, LLMInferenceServiceSpec)."""
INFERENCE_SERVICE_LABEL = "serving.kserve.io/inferenceservice"
"""Label of the pods of an InferenceService: its name (kserve/kserve, `constants.InferenceServicePodLabelKey`)."""
LLM_PART_OF = "llminferenceservice"
"""Value of `app.kubernetes.io/part-of` on the pods of an LLMInferenceService; `app.kubernetes.io/name` is its name."""


def kind_of_deployment(deployment: str, kind: str, name: str) -> str:
    """Return the owner kind of a Deployment's pods, given the object of KServe that makes it.

    >>> kind_of_deployment("chat-predictor", "InferenceService", "chat")
    'InferenceService'
    >>> kind_of_deployment("chat-transformer", "InferenceService", "chat")
    'KServeComponent'
    """
    return kind if any(deployment == name + suffix for suffix in _SUFFIXES[kind]) else KSERVE_COMPONENT


def pod_spec_path(kind: str) -> tuple[str, ...]:
    """Return where an object of a kind holds the spec of its pods. KServe's hold it without a template around it.

    >>> pod_spec_path("Deployment")
    ('spec', 'template', 'spec')
    """
    return _POD_SPECS.get(kind, ("spec", "template", "spec"))


def object_name(kind: str, workload: str) -> str:
    """Return the name of the object that a person writes, given a workload's name without its namespace.

    >>> object_name("InferenceService", "chat-predictor")
    'chat'
    >>> object_name("Deployment", "chat-predictor")
    'chat-predictor'
    """
    suffix = next((suffix for suffix in _SUFFIXES.get(kind, ()) if workload.endswith(suffix)), "")
    return workload.removesuffix(suffix)


def workload_name(kind: str, name: str, *, prefill: bool = False) -> str:
    """Return the name of the workload that an object makes, without its namespace: the inverse of `object_name`.

    >>> workload_name("LLMInferenceService", "llm", prefill=True)
    'llm-kserve-prefill'
    """
    suffixes = _SUFFIXES.get(kind, ("",))
    return name + (suffixes[1] if prefill else suffixes[0])


def is_prefill(kind: str, workload: str) -> bool:
    """Return whether a workload is the prefill part of an LLMInferenceService."""
    return kind == LLM_INFERENCE_SERVICE and workload.endswith(_PREFILL)


def parts(kind: str, spec: Mapping[str, object]) -> Iterator[tuple[bool, Mapping[str, object]]]:
    """Yield each part of an object's `spec` that makes a workload: whether it is prefill, and its own spec.

    Prefill has the fields of the whole spec again (KServe v1alpha1, WorkloadSpec).
    """
    prefill = spec.get("prefill") if kind == LLM_INFERENCE_SERVICE else None
    if not isinstance(prefill, Mapping) or set(spec) - {"prefill"}:
        yield False, spec
    if isinstance(prefill, Mapping):
        yield True, prefill
