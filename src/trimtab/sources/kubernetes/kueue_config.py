"""Which classes of devices Kueue counts as which resource of its quotas: `deviceClassMappings` of its configuration.

The configuration is a ConfigMap's text (charts/kueue/templates/manager/manager-config.yaml), found by its key and API group.
A mapping with `sources` counts memory or another amount of devices in place of their number; such a resource is left out.

Source: kubernetes-sigs/kueue at ff69552 (2026-08-22), apis/config/v1beta2/configuration_types.go (DeviceClassMapping),
pkg/dra/mapper.go, "Dynamic Resource Allocation".
"""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.errors import InputError
from trimtab.inputs.documents import load_yaml_documents
from trimtab.sources.kubernetes.objects import MANAGER_CONFIG, Objects, listed, text, texts

_GROUP = "config.kueue.x-k8s.io/"


def device_class_mappings(objects: Objects) -> Mapping[str, tuple[str, ...]]:
    """Return the classes of devices by the resource whose quota counts them; what cannot be read is counted."""
    found: dict[str, tuple[str, ...]] = {}
    for config in objects.of("ConfigMap"):
        where = f"ConfigMap {text(config, 'metadata', 'namespace')}/{text(config, 'metadata', 'name')}"
        try:
            documents = load_yaml_documents(text(config, "data", MANAGER_CONFIG), where=where)
        except InputError:
            objects.count("ConfigMaps of a controller whose configuration is no YAML")
            continue
        for document in documents:
            if not text(document, "apiVersion").startswith(_GROUP):
                continue
            for mapping in listed(document, "resources", "deviceClassMappings"):
                name, classes = text(mapping, "name"), texts(mapping, "deviceClassNames")
                if listed(mapping, "sources"):
                    objects.count("resources of Kueue that count an amount of devices, not their number: not judged")
                elif name and classes:
                    found[name] = (*found.get(name, ()), *classes)
    return found
