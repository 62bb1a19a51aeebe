"""Kinds of Kubernetes objects that own pods: which run for ever, and how KServe's are named.

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
RUN_FOR_EVER = KSERVE | {
    "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Rollout", "LeaderWorkerSet", "RayService", KNATIVE_SERVICE,
}  # fmt: skip
"""Kinds whose pods are replaced when they end."""
_PREFILL = "-kserve-prefill"
_SUFFIXES: Mapping[str, tuple[str, ...]] = {
    INFERENCE_SERVICE: ("-predictor", "-predictor-default"),
    LLM_INFERENCE_SERVICE: ("-kserve", _PREFILL),
}
"""What KServe appends to the name of its object for a Deployment; `-predictor-default` until v0.10."""


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
