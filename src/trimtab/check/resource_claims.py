"""What a server refuses in claims of devices, templates of them and device classes, and references of pods to them.

Sources: k8s.io/kubernetes pkg/apis/resource/validation/validation.go (009801d9), pkg/apis/core/validation (v1.34);
attributes: NVIDIA/k8s-dra-driver-gpu, cmd/gpu-kubelet-plugin/deviceinfo.go and mig.go (22407113).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trimtab.check.faults import FieldFault, Severity, join, nearest
from trimtab.check.names import dns_label, dns_subdomain
from trimtab.check.schemas import syntax_fault
from trimtab.sources.kubernetes.objects import Object, at, listed, number, text
from trimtab.sources.kubernetes.resource_claims import NVIDIA_CLASSES
from trimtab.sources.kubernetes.resource_slices import NVIDIA_DRIVER

DRIVER_CLASSES = NVIDIA_CLASSES
"""Device classes that a driver's own chart brings, and no folder."""
_ATTRIBUTES = (
    "type", "uuid", "productName", "brand", "architecture", "cudaComputeCapability", "driverVersion", "cudaDriverVersion",
    "addressingMode", "parentUUID", "profile", "index", "minor", "pcieBusID", "numa", "deviceID", "vendorID", "iommuFDEnabled",
)  # fmt: skip
_CAPACITIES = (
    "memory", "multiprocessors", "copyEngines", "decoders", "encoders", "jpegEngines", "ofaEngines", "addressableMemory",
)  # fmt: skip
_READ = re.compile(rf"device\.(attributes|capacity)\[['\"]{re.escape(NVIDIA_DRIVER)}['\"]\]\.(\w+)")
_SAID = re.compile(r"\.(profile|type)\s*==\s*['\"]([^'\"]*)['\"]")
_MIG_PROFILE = re.compile(r"\d+g\.\d+gb(\+(me|gfx)(\.all)?)?")
_TYPES = ("gpu", "mig", "vfio")
_MODES = ("ExactCount", "All")
_FLAT = "resource.k8s.io/v1beta1"
_MOST_CHOICES = 8


def claim_faults(body: Object) -> Iterator[FieldFault]:
    """Yield what is wrong with a ResourceClaim, or with a template of one."""
    path = "spec.spec" if text(body, "kind") == "ResourceClaimTemplate" else "spec"
    devices, where = at(body, *path.split("."), "devices"), f"{path}.devices"
    names = request_names(devices)
    seen = set[str]()
    for place, request in enumerate(listed(devices, "requests")):
        yield from _request(request, join(where, "requests", place), seen, flat=text(body, "apiVersion") == _FLAT)
    for part in ("constraints", "config"):
        for place, item in enumerate(listed(devices, part)):
            named = at(item, "requests")
            for number_, name in enumerate(named if isinstance(named, list) else []):
                if str(name) not in names:
                    near = nearest(str(name), names)
                    yield FieldFault(
                        field=join(where, part, place, "requests", number_), value=name, what="is no request of the claim",
                        cure=f"write {near or ' or '.join(sorted(names))}",
                    )  # fmt: skip
    for place, item in enumerate(listed(devices, "constraints")):
        attribute = text(item, "matchAttribute") or text(item, "distinctAttribute")
        if attribute and "/" not in attribute:
            yield FieldFault(
                field=join(where, "constraints", place, "matchAttribute"), value=attribute, what="has no domain",
                cure=f"write {NVIDIA_DRIVER}/{attribute}",
            )  # fmt: skip


def request_names(devices: object) -> set[str]:
    """Return how the requests of a claim can be referred to: by name, and their choices as `name/choice`."""
    names = set[str]()
    for request in listed(devices, "requests"):
        name = text(request, "name")
        names |= {name, *(f"{name}/{text(choice, 'name')}" for choice in listed(request, "firstAvailable"))}
    return names


def _request(request: Object, path: str, seen: set[str], *, flat: bool) -> Iterator[FieldFault]:
    name = text(request, "name")
    if name in seen:
        yield FieldFault(field=join(path, "name"), value=name, what="stands twice", cure="name each request once")
    seen.add(name)
    if wrong := dns_label(name):
        yield FieldFault(field=join(path, "name"), value=name, what=wrong, cure="write a DNS label")
    exactly, choices = at(request, "exactly"), listed(request, "firstAvailable")
    if flat and not choices:
        yield from _chosen(request, path)
    elif not flat and (exactly is None) == (not choices):
        of_beta = exactly is None and at(request, "deviceClassName") is not None
        cure = "put deviceClassName and what belongs to it under exactly" if of_beta else "state one of them"
        yield FieldFault(field=path, value=name, what="states none or both of exactly and firstAvailable", cure=cure)
    elif isinstance(exactly, Mapping):
        yield from _chosen(exactly, join(path, "exactly"))
    if len(choices) > _MOST_CHOICES:
        yield FieldFault(
            field=join(path, "firstAvailable"), value=len(choices), what="are more choices than are allowed",
            cure=f"state {_MOST_CHOICES} or fewer",
        )  # fmt: skip
    for place, choice in enumerate(choices):
        where = join(path, "firstAvailable", place)
        if wrong := dns_label(text(choice, "name")):
            yield FieldFault(
                field=join(where, "name"), value=text(choice, "name"), what=wrong, cure="write a DNS label"
            )
        yield from _chosen(choice, where)


def _chosen(body: Object, path: str) -> Iterator[FieldFault]:
    """Yield what is wrong with what a request asks for."""
    name = text(body, "deviceClassName")
    if not name:
        cure = f"write one such as {NVIDIA_DRIVER}"
        yield FieldFault(field=join(path, "deviceClassName"), value=None, what="is not stated", cure=cure)
    elif wrong := dns_subdomain(name):
        yield FieldFault(field=join(path, "deviceClassName"), value=name, what=wrong, cure="write the name of a class")
    mode, count = at(body, "allocationMode"), number(body, "count")
    if mode is not None and mode not in _MODES:
        near = nearest(str(mode), _MODES)
        yield FieldFault(
            field=join(path, "allocationMode"), value=mode, what="is no mode of allocation",
            cure=f"write {near or ' or '.join(_MODES)}",
        )  # fmt: skip
    if mode == "All" and count:
        yield FieldFault(
            field=join(path, "count"), value=count, what="stands beside allocationMode All", cure="take it out"
        )
    elif count is not None and mode != "All" and count < 1:
        yield FieldFault(field=join(path, "count"), value=count, what="asks for no device", cure="write 1 or more")
    yield from _selectors(body, path)


def class_faults(body: Object) -> Iterator[FieldFault]:
    """Yield what is wrong with a DeviceClass."""
    yield from _selectors(at(body, "spec"), "spec")


def _selectors(body: object, path: str) -> Iterator[FieldFault]:
    for place, selector in enumerate(listed(body, "selectors")):
        where, expression = join(path, "selectors", place, "cel", "expression"), text(selector, "cel", "expression")
        if not expression:
            yield FieldFault(field=where, value=None, what="is not stated", cure="write a CEL expression over `device`")
        elif wrong := syntax_fault(expression):
            yield FieldFault(field=where, value=expression, what=wrong, cure="write CEL, as in device.driver == 'name'")
        else:
            yield from _attributes(expression, where)


def _attributes(expression: str, path: str) -> Iterator[FieldFault]:
    """Yield names and values that no device of NVIDIA's driver has: what selects by them selects nothing, or fails."""
    for part, name in _READ.findall(expression):
        known = _ATTRIBUTES if part == "attributes" else _CAPACITIES
        if name not in known and not name.startswith("memorySlice"):
            near = nearest(name, known, least_frac=0.6)
            yield FieldFault(
                field=path, value=name, what=f"is nothing that {NVIDIA_DRIVER} says of its devices",
                cure=f"write {near}" if near else f"write one of {', '.join(known)}",
                severity=Severity.ERROR if near else Severity.WARNING,
            )  # fmt: skip
    for name, value in _SAID.findall(expression) if NVIDIA_DRIVER in expression else ():
        if name == "profile" and not _MIG_PROFILE.fullmatch(value):
            yield FieldFault(
                field=path, value=value, what="is no MIG profile", cure="write one such as 1g.10gb, as nvidia-smi does"
            )
        elif name == "type" and value not in _TYPES:
            cure = f"write {nearest(value, _TYPES) or ' or '.join(_TYPES)}"
            yield FieldFault(field=path, value=value, what="is no type of device", cure=cure)


def pod_claim_faults(spec: Object, path: str, *, partial: bool) -> Iterator[FieldFault]:
    """Yield what is wrong with the claims of a pod by themselves: names, and what each is made from."""
    names = set[str]()
    for place, entry in enumerate(listed(spec, "resourceClaims")):
        where, name = join(path, "resourceClaims", place), text(entry, "name")
        if name in names:
            yield FieldFault(field=join(where, "name"), value=name, what="stands twice", cure="name each claim once")
        names.add(name)
        if wrong := dns_label(name):
            yield FieldFault(field=join(where, "name"), value=name, what=wrong, cure="write a DNS label")
        stated = [key for key in ("resourceClaimName", "resourceClaimTemplateName") if at(entry, key) is not None]
        if len(stated) != 1 and not (partial and not stated):
            yield FieldFault(
                field=where, value=", ".join(stated) or None, cure="state one of them",
                what="states none or both of resourceClaimName and resourceClaimTemplateName",
            )  # fmt: skip
    if partial:
        return
    for group in ("initContainers", "containers"):
        for place, container in enumerate(listed(spec, group)):
            for number_, used in enumerate(listed(container, "resources", "claims")):
                if text(used, "name") not in names:
                    near = nearest(text(used, "name"), names) or " or ".join(sorted(names))
                    yield FieldFault(
                        field=join(path, group, place, "resources", "claims", number_, "name"),
                        value=text(used, "name"),
                        what="is no claim of the pod",
                        cure=f"write {near}" if near else "add it to the pod's resourceClaims",
                    )
