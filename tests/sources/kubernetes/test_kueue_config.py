"""Kueue's configuration in a dump: which classes of devices its quotas count, and what of ConfigMaps is never kept."""

import pytest

from trimtab.sources.kubernetes.cluster_objects import device_class_mappings, queue_rows
from trimtab.sources.kubernetes.objects import Objects

MAPPINGS = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
resources:
  deviceClassMappings:
  - name: accelerator
    deviceClassNames: [foo.example.com, bar.example.com]
  - name: gpu-memory
    deviceClassNames: [gpu.nvidia.com]
    sources: [{counter: {name: memory, driver: gpu.nvidia.com}}]
"""
QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "gpus"},
    "spec": {
        "resourceGroups": [
            {"flavors": [{"name": "a100", "resources": [{"name": "accelerator", "nominalQuota": 8}, {"name": "cpu"}]}]}
        ]
    },
    "status": {"flavorsUsage": [{"name": "a100", "resources": [{"name": "accelerator", "total": "3"}]}]},
}  # fmt: skip


def objects(*documents):
    found = Objects()
    for document in documents:
        found.take(document)
    return found


def config_map(name="kueue-manager-config", **data):
    return {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "kueue-system"}, "data": data,
    }  # fmt: skip


def test_a_resource_counts_the_classes_that_its_configuration_names_and_is_read_as_a_quota_of_gpus():
    (row,) = queue_rows(objects(config_map(**{"controller_manager_config.yaml": MAPPINGS}), QUEUE))

    assert (row["resource"], row["device_classes"]) == ("accelerator", "foo.example.com, bar.example.com")
    assert (row["quota_gpus"], row["used_gpus"]) == (8.0, 3.0)


def test_without_its_configuration_a_quota_of_no_known_gpus_is_not_read():
    (row,) = queue_rows(objects(QUEUE))

    assert row.get("resource") is None


def test_a_resource_that_counts_an_amount_of_devices_is_counted_and_left_out():
    found = objects(config_map(**{"controller_manager_config.yaml": MAPPINGS}))

    assert device_class_mappings(found) == {"accelerator": ("foo.example.com", "bar.example.com")}
    assert found.counts == {"resources of Kueue that count an amount of devices, not their number: not judged": 1}


@pytest.mark.parametrize(
    "text",
    ["a: [", "", "3", "[1]", "apiVersion: config.jobset.x-k8s.io/v1alpha1\nresources: {deviceClassMappings: [{name: a}]}",
     "apiVersion: config.kueue.x-k8s.io/v1beta2\nresources: {deviceClassMappings: [{name: a}, 3, {deviceClassNames: [b]}]}"],
)  # fmt: skip
def test_a_configuration_that_is_none_of_kueue_or_none_at_all_maps_nothing(text):
    assert device_class_mappings(objects(config_map(**{"controller_manager_config.yaml": text}))) == {}


def test_of_other_config_maps_nothing_is_kept():
    found = objects(config_map("app", password="secret"))

    assert found.kept == 0
    assert found.counts == {"ConfigMap objects, which are not read": 1}
