"""Check objects as an API server would, by upstream schemas and CEL rules; and by a few rules of our own without them."""

import json
import re

import celpy
import celpy.adapter
import jsonschema

CRDS = {
    ("keda.sh/v1alpha1", "ScaledObject"): "jsonschema/scaledobject_keda.sh_v1alpha1.json",
    ("karpenter.sh/v1", "NodePool"): "jsonschema/nodepool_karpenter.sh_v1.json",
    ("karpenter.sh/v1alpha1", "NodeOverlay"): "jsonschema/nodeoverlay_karpenter.sh_v1alpha1.json",
    ("karpenter.k8s.aws/v1", "EC2NodeClass"): "jsonschema/ec2nodeclass_karpenter.k8s.aws_v1.json",
    ("karpenter.azure.com/v1beta1", "AKSNodeClass"): "jsonschema/aksnodeclass_karpenter.azure.com_v1beta1.json",
    ("karpenter.k8s.gcp/v1alpha1", "GCENodeClass"): "jsonschema/gcenodeclass_karpenter.k8s.gcp_v1alpha1.json",
    ("monitoring.coreos.com/v1", "PrometheusRule"): "jsonschema/prometheusrule_monitoring.coreos.com_v1.json",
    ("monitoring.coreos.com/v1", "PodMonitor"): "jsonschema/podmonitor_monitoring.coreos.com_v1.json",
    ("v1", "ConfigMap"): "core-v1.34-strict/configmap.json",
    ("autoscaling/v2", "HorizontalPodAutoscaler"): "core-v1.34-strict/hpa.json",
    ("policy/v1", "PodDisruptionBudget"): "core-v1.34-strict/pdb.json",
    ("apps/v1", "Deployment"): "core-v1.34-strict/deployment.json",
    ("kueue.x-k8s.io/v1beta2", "LocalQueue"): "jsonschema/localqueue_kueue.x-k8s.io_v1beta2.json",
    ("kueue.x-k8s.io/v1beta2", "ClusterQueue"): "jsonschema/clusterqueue_kueue.x-k8s.io_v1beta2.json",
    ("kueue.x-k8s.io/v1beta2", "ResourceFlavor"): "jsonschema/resourceflavor_kueue.x-k8s.io_v1beta2.json",
    ("batch/v1", "CronJob"): "core-v1.34-strict/cronjob.json",
    ("v1", "Service"): "core-v1.34-strict/service.json",
    ("v1", "ServiceAccount"): "core-v1.34-strict/serviceaccount.json",
    ("scheduling.k8s.io/v1", "PriorityClass"): "core-v1.34-strict/priorityclass.json",
}
UNSCHEMED = {"Component", "Kustomization", "Role", "RoleBinding"}
"""kustomize's own, which no API server sees, and kinds that no schema here describes as one file."""

DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
DURATION = re.compile(r"([0-9]+(ms|[smhdwy]))+")
KEYS = {
    "ScaledObject": {
        "scaleTargetRef", "pollingInterval", "cooldownPeriod", "initialCooldownPeriod", "idleReplicaCount",
        "minReplicaCount", "maxReplicaCount", "advanced", "triggers", "fallback",
    },
    "HorizontalPodAutoscaler": {"scaleTargetRef", "minReplicas", "maxReplicas", "metrics", "behavior"},
    "NodePool": {"template", "disruption", "limits", "weight", "replicas"},
    "NodeOverlay": {"requirements", "price", "priceAdjustment", "capacity", "weight"},
    "PrometheusRule": {"groups"},
    "PodDisruptionBudget": {"minAvailable", "maxUnavailable", "selector", "unhealthyPodEvictionPolicy"},
}  # fmt: skip


def schema_faults(one, schemas):
    """Faults against the upstream schema and its CEL rules."""
    schema = json.loads((schemas / CRDS[one["apiVersion"], one["kind"]]).read_text(encoding="utf-8"))
    validator = jsonschema.Draft7Validator(schema)
    return [error.message for error in validator.iter_errors(one)] + list(cel_faults(schema, one))


def cel_faults(schema, value):
    """Messages of the CEL rules that a value breaks; transition rules (`oldSelf`) do not apply to a new object."""
    for rule in schema.get("x-kubernetes-validations", ()):
        if "oldSelf" not in rule["rule"] and not holds(rule["rule"], value):
            yield rule.get("message", rule["rule"])
    if isinstance(value, dict):
        for key, child in value.items():
            below = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            if isinstance(below, dict):
                yield from cel_faults(below, child)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for child in value:
            yield from cel_faults(schema["items"], child)


def holds(rule, value):
    environment = celpy.Environment()
    program = environment.program(environment.compile(rule), functions={"find": find, "split": split})
    return bool(program.evaluate({"self": celpy.adapter.json_to_cel(value)}))


def split(text, separator):
    """CEL's string extension of Kubernetes: the parts between separators."""
    return celpy.celtypes.ListType(celpy.celtypes.StringType(part) for part in str(text).split(str(separator)))


def find(text, pattern):
    """CEL's string extension of Kubernetes: the first match, or the empty string."""
    found = re.search(str(pattern), str(text))
    return celpy.celtypes.StringType(found.group(0) if found else "")


def structural_faults(one):
    """Faults against the few rules that our own objects could break, without any schema."""
    faults = []
    if not DNS_1123.fullmatch(one["metadata"]["name"]) or len(one["metadata"]["name"]) > 63:
        faults.append(f"name {one['metadata']['name']!r} is no DNS-1123 label")
    if "trimtab.dev/action" not in one["metadata"].get("annotations", {}):
        faults.append("no action id")
    spec = one.get("spec", {})
    faults += [f"unknown field {key}" for key in spec.keys() - KEYS.get(one["kind"], spec.keys())]
    if one["kind"] == "NodePool" and spec["disruption"]["consolidationPolicy"] not in {
        "WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced",
    }:  # fmt: skip
        faults.append(f"consolidationPolicy {spec['disruption']['consolidationPolicy']}")
    for group in spec.get("groups", ()):
        for rule in group["rules"]:
            if not DURATION.fullmatch(rule.get("for", "5m")):
                faults.append(f"for: {rule['for']}")
    return faults
