"""ResourceClaimTemplates for workloads that claim their GPUs, instead of amounts of `nvidia.com/gpu` in their containers.

A template cannot be changed once it is made, so a changed one gets a new name that ends in a hash of what it says; the names of
its requests stay, because containers, constraints and configurations refer to them. Fields: resource.k8s.io v1 (Kubernetes
1.34) and v1beta1, whose requests have no `exactly`; attributes and classes: NVIDIA/k8s-dra-driver-gpu, cmd/gpu-kubelet-plugin.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from trimtab.emit.manifests.emission import Plain, dns_name, metadata
from trimtab.emit.manifests.facts import GpuClaim, WorkloadFacts
from trimtab.plan.model import Action

GPU_CLASS, MIG_CLASS = "gpu.nvidia.com", "mig.nvidia.com"
_DRIVER = "gpu.nvidia.com"
_HASH_LENGTH = 6
_STEM_LENGTH = 56
_FLAT = "resource.k8s.io/v1beta1"
_CHOSEN = ("deviceClassName", "allocationMode", "count", "selectors", "tolerations", "capacity", "adminAccess")

Body = dict[str, Plain]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimChange:
    """What a plan asks of a workload's claims; None leaves a part of them as it is."""

    count: int | None = None
    """Devices of its one request."""
    profile: str | None = None
    """MIG profile of each device."""
    product: str | None = None
    """Product that a request must no longer rule out: boards of another type, as `nvidia-smi` names them."""

    def __str__(self) -> str:
        what = (
            f"deviceClassName {MIG_CLASS}, profile {self.profile}" if self.profile else f"deviceClassName {GPU_CLASS}"
        )
        product = f", productName {self.product}" if self.product else ""
        return f"{what}{product}, count {self.count or 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewClaim:
    """A claim of a workload and the template that it is to be made from."""

    claim: GpuClaim
    name: str
    template: Body


def new_claims(known: WorkloadFacts, change: ClaimChange, actions: Sequence[Action]) -> tuple[NewClaim, ...]:
    """Return the templates that a change asks for, of those claims that it changes."""
    found = []
    for claim in known.gpu_claims:
        spec = json.loads(claim.spec)
        changed = _changed_spec(spec, claim, change)
        if changed != spec:
            mark = hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:_HASH_LENGTH]
            name = f"{dns_name('trimtab', known.short_name, claim.name, length=_STEM_LENGTH)}-{mark}"
            template: Body = {
                "apiVersion": claim.api_version,
                "kind": "ResourceClaimTemplate",
                "metadata": metadata(name, actions, namespace=known.namespace),
                "spec": {"spec": changed},
            }
            found.append(NewClaim(claim=claim, name=name, template=template))
    return tuple(found)


def claims_by_hand(known: WorkloadFacts, change: ClaimChange) -> str | None:
    """Return why no template can be written for a change of a workload's claims; None where one can."""
    for claim in known.gpu_claims:
        if not claim.template:
            return (
                f"its pods share ResourceClaim {claim.claim}, which cannot be changed while they use it: make a new one"
            )
        if not claim.spec:
            return f"ResourceClaimTemplate {claim.template} was not read: write one like it"
        if (
            change.product is not None
            and change.profile is None
            and (MIG_CLASS in claim.spec or ".profile" in claim.spec)
        ):
            return "its pods claim MIG instances, of which other boards have others: choose a profile of theirs"
    requests = sum(len(claim.requests) for claim in known.gpu_claims)
    if (change.count is not None or change.profile is not None) and requests != 1:
        return f"its claims ask for GPUs in {requests} requests: change one of them"
    return None


def claim_steps(template_path: str, claims: Sequence[NewClaim] | Sequence[GpuClaim]) -> list[dict[str, str]]:
    """Return the steps of a JSON patch that name the templates of a pod's claims; `template_path` is where its spec lies."""
    return [
        {
            "op": "replace",
            "path": f"{template_path}/resourceClaims/{_place(claim)}/resourceClaimTemplateName",
            "value": claim.name if isinstance(claim, NewClaim) else claim.template,
        }
        for claim in claims
    ]


def _place(claim: NewClaim | GpuClaim) -> int:
    return claim.claim.place if isinstance(claim, NewClaim) else claim.place


def _changed_spec(spec: Mapping[str, Plain], claim: GpuClaim, change: ClaimChange) -> Body:
    devices = cast(Mapping[str, Plain], spec["devices"])
    requests = [
        _changed_request(request, claim, change) if request["name"] in claim.requests else dict(request)
        for request in cast(Sequence[Mapping[str, Plain]], devices["requests"])
    ]
    body: Body = {**devices, "requests": requests}
    if change.profile is not None:
        kept = [config for config in cast(Sequence[Body], devices.get("config", [])) if not _is_of_boards(config)]
        body = {key: value for key, value in body.items() if key != "config"} | ({"config": kept} if kept else {})
    return {**spec, "devices": body}


def _is_of_boards(config: Mapping[str, Plain]) -> bool:
    """Return whether a configuration is NVIDIA's for whole boards, which its driver refuses for instances."""
    opaque = cast(Mapping[str, Plain], config.get("opaque") or {})
    parameters = cast(Mapping[str, Plain], opaque.get("parameters") or {})
    return opaque.get("driver") == _DRIVER and parameters.get("kind") == "GpuConfig"


def _changed_request(request: Mapping[str, Plain], claim: GpuClaim, change: ClaimChange) -> Body:
    options = cast(Sequence[Mapping[str, Plain]], request.get("firstAvailable") or ())
    asked = request if claim.api_version == _FLAT else request.get("exactly") or (options[0] if options else {})
    body = {key: value for key, value in cast(Mapping[str, Plain], asked).items() if key in _CHOSEN}
    if change.profile is not None:
        body |= {"deviceClassName": MIG_CLASS, "selectors": [_equal("profile", change.profile)]}
    elif change.product is not None and (body.get("selectors") or body["deviceClassName"] != GPU_CLASS or options):
        # the class or a selector may rule the new boards out; the node's pool says which they are
        body |= {"deviceClassName": GPU_CLASS, "selectors": [_equal("productName", change.product)]}
    elif change.count is None:
        return dict(request)
    if change.count is not None:
        body |= {"allocationMode": "ExactCount", "count": change.count}
    return (
        {"name": request["name"], **body} if claim.api_version == _FLAT else {"name": request["name"], "exactly": body}
    )


def _equal(attribute: str, value: str) -> Body:
    return {"cel": {"expression": f"device.attributes['{_DRIVER}'].{attribute} == '{value}'"}}
