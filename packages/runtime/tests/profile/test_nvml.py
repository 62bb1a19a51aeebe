"""Our constants and structures are those of NVIDIA's own Python binding."""

import ctypes

import pytest

from trimtab_runtime.profile import nvml

pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")


@pytest.mark.parametrize("answer", [one for one in nvml.Answer if one is not nvml.Answer.SUCCESS])
def test_answers_have_their_numbers(answer):
    assert getattr(pynvml, f"NVML_ERROR_{answer.name}") == answer


@pytest.mark.parametrize("field", list(nvml.Field))
def test_fields_have_their_numbers(field):
    assert getattr(pynvml, f"NVML_FI_DEV_{field.name}") == field


@pytest.mark.parametrize("metric", list(nvml.Gpm))
def test_profiling_metrics_have_their_numbers(metric):
    assert getattr(pynvml, f"NVML_GPM_METRIC_{metric.name}") == metric


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (nvml.FieldValue, "c_nvmlFieldValue_t"),
        (nvml.GpmMetric, "c_nvmlGpmMetric_t"),
        (nvml.GpmSupport, "c_nvmlGpmSupport_t"),
        (nvml.ProcessRow, "c_nvmlProcessInfo_v2_t"),
    ],
)
def test_structures_have_their_size(ours, theirs):
    assert ctypes.sizeof(ours) == ctypes.sizeof(getattr(pynvml, theirs))
    assert len(ours._fields_) >= 1


def test_the_metrics_follow_their_head():
    assert ctypes.sizeof(nvml.GpmHead) == pynvml.c_nvmlGpmMetricsGet_t.metrics.offset
