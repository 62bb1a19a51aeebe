"""What pods hold through ResourceClaims of dynamic resource allocation, or ask for where nothing is allocated yet.

Fields: kubernetes.io/docs/reference/kubernetes-api, resource.k8s.io v1 (Kubernetes 1.34), v1beta2, and v1beta1, whose requests
have no `exactly`. A claim that several pods refer to is held by them in equal parts, as a board is that several pods share.
Admin access looks at devices that others hold, and holds nothing (KEP-5018). What cannot be known is counted with its reason.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from trimtab.sources.kubernetes.board_shares import renamed_boards
from trimtab.sources.kubernetes.holds import mig_share
from trimtab.sources.kubernetes.objects import (
    Object,
    Objects,
    at,
    listed,
    mapping,
    moment_at,
    namespace_and_name,
    number,
    quantity,
    text,
)
from trimtab.sources.kubernetes.resource_slices import (
    GPU_DRIVERS,
    NVIDIA_DRIVER,
    ClaimableGpu,
    ClaimableGpus,
    DeviceKey,
)
from trimtab.sources.prometheus.gpu_series import Tally

MIG_CLASS = "mig.nvidia.com"
NVIDIA_CLASSES = frozenset({NVIDIA_DRIVER, MIG_CLASS, "vfio.gpu.nvidia.com"})
"""Device classes that the chart of NVIDIA's driver brings (deployments/helm, templates/deviceclass-*.yaml)."""
GPU_CLASSES = NVIDIA_CLASSES | GPU_DRIVERS
"""Device classes of GPUs that drivers' charts bring: NVIDIA's, and others named as the driver."""
_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""How any class can be asked for as an extended resource (ResourceDeviceClassPrefix of resource.k8s.io/v1)."""
_POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
"""On a claim that was made from a template: which of its pod's claims it is (PodResourceClaimAnnotation)."""
_PROFILE = re.compile(r"profile\s*==\s*['\"](?P<profile>[^'\"]+)['\"]")
_DONE = frozenset({"Succeeded", "Failed"})

Named = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDevice:
    """A device that a claim holds, and a pod's part of it in boards' worth of GPU."""

    gpu: ClaimableGpu
    gpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedGpus:
    """What a pod holds or asks for through its claims."""

    gpus: float = 0.0
    device_class: str | None = None
    devices: tuple[HeldDevice, ...] = ()
    """Those that are allocated."""
    for_extended_resources: bool = False
    """Whether one of its claims was made for the extended resources that it asks for, which must not count again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenHolder:
    """A pod that a claim is reserved for and that is not among the objects that were read."""

    namespace: str
    pod: str
    since: datetime
    devices: tuple[HeldDevice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """A request of a claim: the class of its devices, how many (None: all that match), and the MIG profile it asks for."""

    name: str
    device_class: str
    count: float | None
    profile: str
    is_admin: bool


def requests_of(spec: object, profiles: Mapping[str, str] = MappingProxyType({})) -> Iterator[DeviceRequest]:
    """Yield the requests of a claim's spec; of several to choose from (`firstAvailable`) the first.

    `profiles` are those that classes select by themselves.
    """
    for request in listed(spec, "devices", "requests"):
        options = listed(request, "firstAvailable")
        body = at(request, "exactly") or (options[0] if options else request)
        device_class = text(body, "deviceClassName")
        yield DeviceRequest(
            name=text(request, "name"),
            device_class=device_class,
            count=None if text(body, "allocationMode") == "All" else number(body, "count") or 1.0,
            profile=profile_of(body) or profiles.get(device_class, ""),
            is_admin=at(body, "adminAccess") is True,
        )


@dataclass(slots=True, kw_only=True)
class ResourceClaims:
    """Claims, templates and classes of a cluster, and the pods that refer to them."""

    gpus: ClaimableGpus
    tally: Tally
    claims: dict[Named, Object] = field(default_factory=dict)
    templates: dict[Named, Object] = field(default_factory=dict)
    profiles: dict[str, str] = field(default_factory=dict)
    """Class of GPUs -> the MIG profile that it selects; empty where it selects none."""
    extended: frozenset[str] = frozenset()
    """Extended resources that are GPUs of a class, or GPUs under another name than the usual one."""
    gpu_nodes: frozenset[str] = frozenset()
    users: dict[Named, set[str]] = field(default_factory=dict)
    """Claim -> pods of its namespace that hold it, or wait for it."""
    made_for: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """(namespace, pod, name within the pod) -> claim, as the claims say."""
    shares: Counter[DeviceKey] = field(default_factory=Counter)
    """How many allocations each device is part of."""
    held: dict[Named, tuple[HeldDevice, ...]] = field(default_factory=dict)
    """What each user of a claim has of its devices, once somebody asked."""

    def of(self, pod: Object) -> ClaimedGpus:
        """Return what a pod holds or asks for."""
        found = [self._entry(pod, entry) for entry in listed(pod, "spec", "resourceClaims")]
        made = text(pod, "status", "extendedResourceClaimStatus", "resourceClaimName")
        claim = self.claims.get((text(pod, "metadata", "namespace"), made)) if made else None
        extended = claim is not None and at(claim, "status", "allocation") is not None
        if claim is not None and extended:
            found.append(self._allocated(pod, claim))
        return ClaimedGpus(
            gpus=sum(part.gpus for part in found),
            device_class=next((part.device_class for part in found if part.device_class), None),
            devices=tuple(device for part in found for device in part.devices),
            for_extended_resources=extended,
        )

    def _entry(self, pod: Object, entry: Object) -> ClaimedGpus:
        namespace = text(pod, "metadata", "namespace")
        claim = self.claims.get((namespace, self.claim_name(pod, entry) or ""))
        if claim is not None and at(claim, "status", "allocation") is not None:
            return self._allocated(pod, claim)
        if claim is not None:
            sharers = max(len(self.users.get((namespace, text(claim, "metadata", "name")), ())), 1)
            asked = self._asked(at(claim, "spec"), text(pod, "spec", "nodeName"))
            if asked.gpus:
                self.tally.count("pods that wait for GPUs of their ResourceClaims", int(_is_alive(pod)))
            return ClaimedGpus(gpus=asked.gpus / sharers, device_class=asked.device_class)
        template = self.templates.get((namespace, text(entry, "resourceClaimTemplateName")))
        if template is not None:
            return self._asked(at(template, "spec", "spec"), text(pod, "spec", "nodeName"))
        return self._unread(pod)

    def _unread(self, pod: Object) -> ClaimedGpus:
        """Return what a pod is assumed to hold whose claim was not read: nothing may be called idle on its account."""
        if text(pod, "spec", "nodeName") not in self.gpu_nodes:
            waits = not text(pod, "spec", "nodeName")
            self.tally.count("claims of waiting pods that were not read: what they ask for is not known", int(waits))
            return ClaimedGpus()
        if not _is_alive(pod):
            self.tally.count("finished pods whose ResourceClaims are gone: what they held is not known")
            return ClaimedGpus()
        self.tally.count(
            "claims of pods on GPU nodes that were not read, taken as one GPU each: add resourceclaims, "
            "resourceclaimtemplates, resourceslices and deviceclasses to the dump"
        )
        return ClaimedGpus(gpus=1.0)

    def claim_name(self, pod: Object, entry: Object) -> str | None:
        """Return the claim of an entry of a pod's `resourceClaims`: by its own word, the pod's status, or the claim's."""
        name = text(entry, "name")
        made = next(
            (said for said in listed(pod, "status", "resourceClaimStatuses") if text(said, "name") == name), None
        )
        here = (text(pod, "metadata", "namespace"), text(pod, "metadata", "name"), name)
        return text(entry, "resourceClaimName") or text(made, "resourceClaimName") or self.made_for.get(here)

    def _allocated(self, pod: Object, claim: Object) -> ClaimedGpus:
        namespace, name = text(claim, "metadata", "namespace"), text(claim, "metadata", "name")
        users = self.users.get((namespace, name), set())
        if text(pod, "metadata", "name") not in users:
            return ClaimedGpus()
        devices = self._devices((namespace, name))
        classes = [request.device_class for request in requests_of(at(claim, "spec"), self.profiles)]
        return ClaimedGpus(
            gpus=sum(device.gpus for device in devices),
            device_class=next((named for named in classes if named in self.profiles), None),
            devices=devices,
        )

    def _devices(self, named: Named) -> tuple[HeldDevice, ...]:
        """Return the GPUs that a claim holds and the part of them that is each user's."""
        if named not in self.held:
            self.held[named] = tuple(self._read(self.claims[named], max(len(self.users.get(named, ())), 1)))
        return self.held[named]

    def _read(self, claim: Object, users: int) -> Iterator[HeldDevice]:
        for result in _results(claim):
            key = device_key(result)
            gpu = self.gpus.of(key)
            if gpu is None:
                continue
            if self.holds_nothing(claim, result):
                self.tally.count("devices claimed with admin access, which holds none")
                continue
            if key not in self.gpus.devices:
                self.tally.count("claimed GPUs that no ResourceSlice describes, taken as they are named")
            yield HeldDevice(gpu=gpu, gpus=self._part(gpu, result) / users)

    def holds_nothing(self, claim: Object, result: Object) -> bool:
        """Return whether a device is only looked at, by admin access."""
        named = text(result, "request").partition("/")[0]
        asked = any(
            request.is_admin and request.name == named for request in requests_of(at(claim, "spec"), self.profiles)
        )
        return asked or at(result, "adminAccess") is True

    def _part(self, gpu: ClaimableGpu, result: Object) -> float:
        """Return the boards' worth that an allocation has of a device: by the capacity that it takes, else an equal part."""
        consumed = at(result, "consumedCapacity")
        taken = {
            str(name).removeprefix(f"{gpu.key[0]}/"): read
            for name, amount in (consumed.items() if isinstance(consumed, Mapping) else ())
            if (read := quantity(amount)) is not None
        }
        parts = [amount / gpu.capacity[name] for name, amount in taken.items() if gpu.capacity.get(name)]
        if parts:
            return gpu.share * min(max(parts), 1.0)
        if self.shares[gpu.key] > 1:
            self.tally.count("shares of GPUs that several claims hold without saying how much, taken as equal")
        return gpu.share / max(self.shares[gpu.key], 1)

    def asked_by(self, namespace: str, spec: object) -> float:
        """Return the boards' worth that a pod template asks for through the ResourceClaimTemplates that it names."""
        return sum(
            self._asked(at(template, "spec", "spec"), "").gpus
            for entry in listed(spec, "resourceClaims")
            if (template := self.templates.get((namespace, text(entry, "resourceClaimTemplateName")))) is not None
        )

    def _asked(self, spec: object, node: str) -> ClaimedGpus:
        """Return what a claim's spec asks for, as if it were allocated on a node (empty: on any)."""
        product, gpus, name = self.gpus.product_on(node) or "", 0.0, None
        for request in requests_of(spec, self.profiles):
            if request.device_class not in self.profiles or request.is_admin:
                continue
            count = request.count
            if count is None:
                count = float(max(self.gpus.boards_on(node), 1))
                self.tally.count(
                    "claims of all GPUs of a node that are not allocated, taken as the boards of their node"
                )
            gpus += count * (mig_share(request.profile, product) if request.profile else 1.0)
            of_any_size = request.device_class == MIG_CLASS and not request.profile
            self.tally.count(
                "claims of MIG instances of any size, taken as whole boards until allocated", int(of_any_size)
            )
            name = name or request.device_class
        return ClaimedGpus(gpus=gpus, device_class=name)

    def unseen(self, known: Iterable[Named]) -> Iterator[UnseenHolder]:
        """Yield the holders of claims that are not among the pods that were read."""
        seen = set(known)
        for (namespace, name), claim in sorted(self.claims.items()):
            since = _since(claim)
            for pod in sorted(self.users.get((namespace, name), ())):
                if (namespace, pod) not in seen and since is not None and self._devices((namespace, name)):
                    self.tally.count("pods that hold claimed GPUs and were not read: known by their claims")
                    devices = self._devices((namespace, name))
                    yield UnseenHolder(namespace=namespace, pod=pod, since=since, devices=devices)

    def told_of(self, pod: Object) -> str | None:
        """Return as JSON what a pod's claims of GPUs are made from, for whoever is to write them again; None where it has none.

        A list, one for each entry of `resourceClaims` that asks for GPUs: `place` in that list, `name`, the `template` or else
        the `claim` that it names, the `api_version` and `spec` of that, and `requests`, the names of those that ask for GPUs.
        """
        namespace, found = text(pod, "metadata", "namespace"), []
        for place, entry in enumerate(listed(pod, "spec", "resourceClaims")):
            template = text(entry, "resourceClaimTemplateName")
            body = self.templates.get((namespace, template)) if template else None
            claim = self.claims.get((namespace, self.claim_name(pod, entry) or ""))
            source = body or claim
            spec = at(body, "spec", "spec") if body is not None else at(claim, "spec")
            asking = [
                request.name
                for request in requests_of(spec, self.profiles)
                if request.device_class in self.profiles and not request.is_admin
            ]
            if asking or source is None:
                said = {"template": template} if template else {"claim": text(entry, "resourceClaimName")}
                version = text(source, "apiVersion") or "resource.k8s.io/v1"
                found.append(
                    {"place": place, "name": text(entry, "name"), **said, "api_version": version}
                    | ({"requests": asking, "spec": spec} if source is not None else {})
                )
        return json.dumps(found, sort_keys=True) if found else None


def resource_claims(
    objects: Objects, gpus: ClaimableGpus, tally: Tally, gpu_nodes: Iterable[str] = ()
) -> ResourceClaims:
    """Return the claims of a snapshot; `gpu_nodes` are its nodes with GPUs."""
    classes = list(objects.of("DeviceClass"))
    profiles = dict.fromkeys(GPU_CLASSES, "")
    profiles |= {text(item, "metadata", "name"): profile_of(at(item, "spec")) for item in classes if _is_gpu(item)}
    found = ResourceClaims(
        gpus=gpus,
        tally=tally,
        claims={
            namespace_and_name(claim): claim
            for claim in objects.of("ResourceClaim")
            if at(claim, "spec", "devices") is not None
        },
        templates={namespace_and_name(template): template for template in objects.of("ResourceClaimTemplate")},
        profiles=profiles,
        extended=frozenset({text(item, "spec", "extendedResourceName") for item in classes if _is_gpu(item)} - {""})
        | {f"{_CLASS_PREFIX}{name}" for name in profiles}
        | {name for node in objects.of("Node") for name in renamed_boards(node)},
        gpu_nodes=frozenset(gpu_nodes) | {gpu.node for gpu in gpus.devices.values() if gpu.node is not None},
        made_for=_made_for(objects),
    )
    older = sum(1 for _ in objects.of("ResourceClaim")) - len(found.claims)
    tally.count(
        "ResourceClaims without devices in their spec, which were not read (API versions before v1alpha3)", older
    )
    found.users = _users(objects, found)
    for claim in found.claims.values():
        found.shares.update(device_key(result) for result in _results(claim) if not found.holds_nothing(claim, result))
    tally.count("ResourceClaims that hold devices for no pod", sum(map(_is_held_by_none, found.claims.values())))
    return found


def device_key(result: Object) -> DeviceKey:
    """Return the device that a result of an allocation names."""
    return text(result, "driver"), text(result, "pool"), text(result, "device")


def claimed_nodes(objects: Objects) -> frozenset[str]:
    """Return the nodes of which claims hold GPUs, as far as pools are named after them: NVIDIA's and AMD's drivers do that."""
    keys = (device_key(result) for claim in objects.of("ResourceClaim") for result in _results(claim))
    return frozenset(pool for driver, pool, _ in keys if driver in GPU_DRIVERS)


def profile_of(body: object) -> str:
    """Return the MIG profile that the selectors of a request or a class ask for by name; empty where they name none."""
    expressions = " ".join(text(selector, "cel", "expression") for selector in listed(body, "selectors"))
    matched = _PROFILE.search(expressions)
    return matched["profile"] if matched else ""


def _is_gpu(item: Object) -> bool:
    """Return whether a DeviceClass is of GPUs: by its name, or by the driver that its selectors name."""
    expressions = " ".join(text(selector, "cel", "expression") for selector in listed(item, "spec", "selectors"))
    quoted = re.findall(r"['\"]([^'\"]+)['\"]", expressions)
    return text(item, "metadata", "name") in GPU_CLASSES or not GPU_DRIVERS.isdisjoint(quoted)


def _results(claim: Object) -> Sequence[Object]:
    return listed(claim, "status", "allocation", "devices", "results")


def _since(claim: Object) -> datetime | None:
    """Return when a claim got its devices, or at least when it was made."""
    allocated = moment_at(claim, "status", "allocation", "allocationTimestamp")
    return allocated or moment_at(claim, "metadata", "creationTimestamp")


def _is_alive(pod: Object) -> bool:
    return text(pod, "status", "phase") not in _DONE


def _is_held_by_none(claim: Object) -> bool:
    return bool(_results(claim)) and not listed(claim, "status", "reservedFor")


def _made_for(objects: Objects) -> dict[tuple[str, str, str], str]:
    """Return the claims that were made from templates, by the pod that owns them and the name of its claim."""
    found = {}
    for claim in objects.of("ResourceClaim"):
        entry = mapping(claim, "metadata", "annotations").get(_POD_CLAIM)
        for owner in listed(claim, "metadata", "ownerReferences"):
            if entry and text(owner, "kind") == "Pod":
                namespace, name = namespace_and_name(claim)
                found[namespace, text(owner, "name"), entry] = name
    return found


def _users(objects: Objects, claims: ResourceClaims) -> dict[Named, set[str]]:
    """Return the pods of each claim: those that it is reserved for, and those on a node that refer to it and have not ended.

    While nothing is allocated, those that wait for it.
    """
    users: dict[Named, set[str]] = defaultdict(set)
    for named, claim in claims.claims.items():
        for consumer in listed(claim, "status", "reservedFor"):
            if text(consumer, "resource") == "pods":
                users[named].add(text(consumer, "name"))
            else:
                claims.tally.count(
                    f"ResourceClaims reserved for {text(consumer, 'resource')}, whose pods are not named"
                )
    for pod in objects.of("Pod"):
        namespace, name = namespace_and_name(pod)
        made = text(pod, "status", "extendedResourceClaimStatus", "resourceClaimName")
        referred = [claims.claim_name(pod, entry) for entry in listed(pod, "spec", "resourceClaims")]
        for claim_name in (*referred, made):
            referred_to = claims.claims.get((namespace, claim_name)) if claim_name else None
            waits = referred_to is not None and at(referred_to, "status", "allocation") is None
            if claim_name and _is_alive(pod) and (waits or text(pod, "spec", "nodeName")):
                users[namespace, claim_name].add(name)
    return users
