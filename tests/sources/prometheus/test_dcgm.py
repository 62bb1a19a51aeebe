import pytest
from hypothesis import given, strategies as st

from trimtab.sources.prometheus.dcgm import KEPT_LABELS, MetricUnit, read_labels

OLD = {"UUID": "GPU-1", "gpu": "0", "modelName": "NVIDIA A100-SXM4-40GB", "Hostname": "n1"}


@pytest.mark.parametrize(
    ("more", "namespace", "pod"),
    [
        ({"namespace": "prod", "pod": "chat-1"}, "prod", "chat-1"),
        ({"exported_namespace": "prod", "exported_pod": "chat-1", "namespace": "ops", "pod": "x"}, "prod", "chat-1"),
        ({"pod_namespace": "prod", "pod_name": "chat-1"}, "prod", "chat-1"),
        ({"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-tl46n"}, "", ""),
        ({"exported_namespace": "", "exported_pod": "", "pod": "nvidia-dcgm-exporter-tl46n"}, "", ""),
        ({"namespace": "", "pod": ""}, "", ""),
        ({}, "", ""),
    ],
)
def test_the_owner_is_the_workload_and_never_the_exporter(more, namespace, pod):
    labels = read_labels({**OLD, **more})

    assert (labels.namespace, labels.pod) == (namespace, pod)


@pytest.mark.parametrize(
    "spelling",
    [
        {"Hostname": "n1"},
        {"hostname": "n1"},
        {"node": "n1", "Hostname": "nvidia-dcgm-exporter-tl46n"},
        {"instance": "n1:9400"},
        {"exported_node": "n1", "node": "monitoring"},
    ],
)
def test_the_node_is_found_under_every_spelling(spelling):
    assert read_labels({"UUID": "GPU-1", **spelling}).node == "n1"


def test_a_mig_instance_is_a_device_of_its_own():
    labels = read_labels({**OLD, "GPU_I_PROFILE": "1g.5gb", "GPU_I_ID": "7"})

    assert (labels.device, labels.uuid, labels.mig_profile) == ("GPU-1/7", "GPU-1", "1g.5gb")


def test_a_gpu_without_a_uuid_is_told_by_its_node_and_number():
    assert read_labels({"gpu": "3", "Hostname": "n1"}).device == "n1/gpu3"


def test_labels_that_name_no_device_are_refused():
    assert read_labels({"Hostname": "n1"}) is None


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        (MetricUnit.PERCENT, 50, 0.5),
        (MetricUnit.MIB, 2048, 2.0),
        (MetricUnit.BYTES, 1024**3, 1.0),
        (MetricUnit.MILLIJOULE, 3.6e9, 1.0),
        (MetricUnit.JOULE, 3.6e6, 1.0),
    ],
)
def test_units_become_shares_gib_and_kwh(unit, value, expected):
    assert value * unit.factor == pytest.approx(expected)


@given(st.dictionaries(st.sampled_from(KEPT_LABELS), st.text(max_size=8)))
def test_any_labels_are_read_or_refused(labels):
    found = read_labels(labels)

    assert found is None or found.device
