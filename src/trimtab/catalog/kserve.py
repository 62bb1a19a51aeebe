"""What KServe makes of its objects: the names of their Deployments, and where each keeps its pods in the object.

A workload of KServe bears the name of its Deployment, which Prometheus sees, and the kind of the object, which people change:
KServe writes a changed Deployment back. Sources: kserve/kserve at aaac4e2, `pkg/constants/constants.go` (PredictorServiceName,
InferenceServicePodLabelKey, KubernetesPartOfLabelKey), `pkg/controller/v1alpha2/llmisvc/workload_single_node.go` (`-kserve`,
`-kserve-prefill`), `pkg/apis/serving/v1beta1/predictor.go` (PredictorSpec embeds a pod's spec),
`pkg/apis/serving/v1alpha2/llm_inference_service_types.go` (WorkloadSpec.Template is a pod's spec).
"""

from __future__ import annotations

from dataclasses import dataclass

INFERENCE_SERVICE, LLM_INFERENCE_SERVICE = "InferenceService", "LLMInferenceService"
KSERVE_COMPONENT = "KServeComponent"
"""Not a Kubernetes kind: a Deployment of KServe whose place in its object is not known. It is a transformer, an explainer, a
canary or a group of several nodes, or its name was too long for KServe."""
KNATIVE_SERVICE = "KnativeService"
"""Kind `Service` of serving.knative.dev, under a name that no other kind has."""
KSERVE_KINDS = frozenset({INFERENCE_SERVICE, LLM_INFERENCE_SERVICE})
DEPLOYED = frozenset({"Deployment", KSERVE_COMPONENT, KNATIVE_SERVICE}) | KSERVE_KINDS
"""Kinds whose pods belong to Deployments."""
INFERENCE_SERVICE_LABEL = "serving.kserve.io/inferenceservice"
"""Label of the pods of an InferenceService: the name of the object."""
LLM_PART_OF = "llminferenceservice"
"""Value of `app.kubernetes.io/part-of` on the pods of every LLMInferenceService; `app.kubernetes.io/name` is the object's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KServePart:
    """A part of an object that KServe makes a Deployment of."""

    kind: str
    suffix: str
    """What the Deployment's name has behind the object's."""
    pods: tuple[str, ...]
    """Where the spec of its pods lies under the object's `spec`."""
    replicas: tuple[str, ...] = ()
    """Where a fixed number of replicas is stated under `spec`; empty: only as bounds."""

    @property
    def path(self) -> str:
        """Return where the spec of its pods lies, as a JSON pointer."""
        return "/spec/" + "/".join(self.pods)


PARTS = (
    KServePart(kind=INFERENCE_SERVICE, suffix="-predictor", pods=("predictor",)),
    KServePart(kind=LLM_INFERENCE_SERVICE, suffix="-kserve", pods=("template",), replicas=("replicas",)),
    KServePart(
        kind=LLM_INFERENCE_SERVICE,
        suffix="-kserve-prefill",
        pods=("prefill", "template"),
        replicas=("prefill", "replicas"),
    ),
)
"""Parts whose Deployments can be told by name; of each kind the part that every object has comes first. Before 0.11 predictors
were `-predictor-default`: those are components."""


def parts_of(kind: str) -> tuple[KServePart, ...]:
    """Return the parts of a kind; none where KServe does not make it."""
    return tuple(part for part in PARTS if part.kind == kind)


def part_of(kind: str, workload: str) -> tuple[str, KServePart]:
    """Return the object of a workload and which part of it the workload is; a name without a suffix is the object's.

    >>> part_of("InferenceService", "chat-predictor")[0]
    'chat'
    """
    parts = parts_of(kind)
    fits = [part for part in parts if workload.endswith(part.suffix) and workload != part.suffix]
    part = max(fits, key=lambda fit: len(fit.suffix), default=None)
    return (workload, parts[0]) if part is None else (workload.removesuffix(part.suffix), part)


def kind_of_deployment(deployment: str, kind: str, name: str) -> str:
    """Return the kind of a workload whose Deployment an object of KServe makes.

    >>> kind_of_deployment("chat-transformer", "InferenceService", "chat")
    'KServeComponent'
    """
    known = any(deployment == name + part.suffix for part in parts_of(kind))
    return kind if known else KSERVE_COMPONENT
