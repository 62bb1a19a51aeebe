"""Commands that make node groups, read out of shell scripts as the objects that would declare the same groups.

`aws eks create-nodegroup`, `gcloud container node-pools create` and `az aks nodepool add` (their reference pages) become a
Nodegroup (AWS Controllers for Kubernetes), a ContainerNodePool (Config Connector) and a ManagedClustersAgentPool (Azure Service
Operator). Nothing is run: a value that a variable gives stays as it is written.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from trimtab.sources.kube_objects import Object

_EKS = ("aws", "eks", "create-nodegroup")
_GKE = ("gcloud", "container", "node-pools", "create")
_AKS = ("az", "aks", "nodepool", "add")
_EFFECTS: Mapping[str, str] = {
    "NO_SCHEDULE": "NoSchedule",
    "NO_EXECUTE": "NoExecute",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}
"""How EKS spells a taint's effect (API, Taint)."""
_Options = Mapping[str, tuple[str, ...]]


def node_groups_of(script: str) -> Iterator[Object]:
    """Yield an object for each command of a script that makes a node group."""
    for line in script.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue  # a quote that goes on in the next line: no command that is known here has one
        for command, read in ((_EKS, _eks), (_GKE, _gke), (_AKS, _aks)):
            if tuple(words[: len(command)]) == command:
                yield read(words[len(command) :])


def _options(words: Sequence[str]) -> _Options:
    """Return the values of each option; a flag has none. What stands before the first option is under ""."""
    found: dict[str, list[str]] = {"": []}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, given, value = word.partition("=")
            found[name] = [value] if given else []
        else:
            found[name].append(word)
    return {key: tuple(values) for key, values in found.items()}


def _first(options: _Options, *names: str) -> str:
    return next((options[name][0] for name in names if options.get(name)), "")


def _pairs(text: str) -> dict[str, str]:
    """Return `a=b,c=d` as a mapping."""
    return {key: value for key, given, value in (item.partition("=") for item in text.split(",")) if given}


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _taint(text: str) -> Object:
    """Return a taint that is written `key=value:Effect`."""
    said, _, effect = text.rpartition(":")
    key, _, value = said.partition("=")
    return {"key": key, "value": value, "effect": effect}


def _eks(words: Sequence[str]) -> Object:
    options = _options(words)
    sizes = _pairs(_first(options, "--scaling-config"))
    taints = [_pairs(text) for text in options.get("--taints", ())]
    return {
        "apiVersion": "eks.services.k8s.aws/v1alpha1",
        "kind": "Nodegroup",
        "metadata": {"name": _first(options, "--nodegroup-name")},
        "spec": {
            "name": _first(options, "--nodegroup-name"),
            "instanceTypes": [name for text in options.get("--instance-types", ()) for name in text.split(",")],
            "capacityType": _first(options, "--capacity-type") or "ON_DEMAND",
            "scalingConfig": {key: _count(value) for key, value in sizes.items()},
            "labels": _pairs(_first(options, "--labels")),
            "taints": [{**one, "effect": _EFFECTS.get(one.get("effect", ""), "")} for one in taints],
        },
    }


def _gke(words: Sequence[str]) -> Object:
    options = _options(words)
    scaled = "--enable-autoscaling" in options
    return {
        "apiVersion": "container.cnrm.cloud.google.com/v1beta1",
        "kind": "ContainerNodePool",
        "metadata": {"name": _first(options, "")},
        "spec": {
            "initialNodeCount": _count(_first(options, "--num-nodes")),
            "autoscaling": {
                "totalMinNodeCount": _count(_first(options, "--total-min-nodes")),
                "totalMaxNodeCount": _count(_first(options, "--total-max-nodes")),
                "minNodeCount": _count(_first(options, "--min-nodes")),
                "maxNodeCount": _count(_first(options, "--max-nodes")),
            }
            if scaled
            else None,
            "nodeConfig": {
                "machineType": _first(options, "--machine-type", "-m"),
                "spot": "--spot" in options or "--preemptible" in options,
                "labels": _pairs(_first(options, "--node-labels")),
                "taint": [_taint(text) for text in _first(options, "--node-taints").split(",") if text],
            },
        },
    }


def _aks(words: Sequence[str]) -> Object:
    options = _options(words)
    return {
        "apiVersion": "containerservice.azure.com/v1api20240901",
        "kind": "ManagedClustersAgentPool",
        "metadata": {"name": _first(options, "--name", "--nodepool-name")},
        "spec": {
            "vmSize": _first(options, "--node-vm-size"),
            "count": _count(_first(options, "--node-count")),
            "enableAutoScaling": "--enable-cluster-autoscaler" in options,
            "minCount": _count(_first(options, "--min-count")),
            "maxCount": _count(_first(options, "--max-count")),
            "scaleSetPriority": _first(options, "--priority") or "Regular",
            "nodeLabels": {key: value for text in options.get("--labels", ()) for key, value in _pairs(text).items()},
            "nodeTaints": [item for text in options.get("--node-taints", ()) for item in text.split(",")],
        },
    }
