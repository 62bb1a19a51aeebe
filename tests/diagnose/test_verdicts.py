"""Each of the five causes needs a witness of its own; without one the answer is that the evidence cannot tell."""

import pytest
from hypothesis import given, strategies as st

from trimtab.diagnose.verdicts import Cause, Signs, causes_of

shares = st.one_of(st.none(), st.floats(0, 1))


def first(**signs):
    return causes_of(Signs(**signs))[0]


@pytest.mark.parametrize(
    ("signs", "cause"),
    [
        ({"sm_frac": 0.3, "dram_frac": 0.72}, Cause.MEMORY_BANDWIDTH),
        ({"sm_frac": 0.3, "h2d_exposed_frac": 0.4}, Cause.TRANSFERS),
        ({"sm_frac": 0.3, "pcie_rx_frac": 0.8}, Cause.TRANSFERS),
        ({"sm_frac": 0.3, "loader_wait_frac": 0.5}, Cause.CPU_INPUT),
        ({"sm_frac": 0.2, "cpu_frac": 0.97}, Cause.CPU_INPUT),
        ({"gpu_util_frac": 0.97, "sm_frac": 0.2, "dram_frac": 0.1}, Cause.BATCH_TOO_SMALL),
        ({"serving": True, "sm_frac": 0.2, "batch": 2, "waiting": 0.0, "batch_cap": 32}, Cause.TOO_FEW_REQUESTS),
        ({"serving": True, "sm_frac": 0.2, "batch": 8, "waiting": 20, "batch_cap": 8}, Cause.TOO_FEW_REQUESTS),
        ({"sm_frac": 0.9, "tensor_frac": 0.7}, Cause.NOT_LOW),
    ],
)
def test_a_cause_is_named_by_its_witness(signs, cause):
    found = first(**signs)

    assert found.cause is cause
    assert found.evidence


@pytest.mark.parametrize(
    ("signs", "proven"),
    [
        ({"sm_frac": 0.3, "pcie_rx_frac": 0.5}, True),
        ({"sm_frac": 0.3, "pcie_rx_frac": 0.49}, False),
        ({"sm_frac": 0.7, "pcie_rx_frac": 0.9}, False),
        ({"sm_frac": 0.3, "pcie_tx_frac": 0.9}, False),
        ({"sm_frac": 0.3}, False),
    ],
)
def test_a_link_explains_idle_sms_from_half_of_what_it_carries_towards_the_gpu(signs, proven):
    assert any(found.cause is Cause.TRANSFERS for found in causes_of(Signs(**signs))) is proven


def test_a_link_that_is_busy_both_ways_is_between_gpus_and_pinned_memory_is_no_cure():
    host, peers = (
        first(sm_frac=0.3, pcie_rx_frac=0.8, pcie_tx_frac=0.1),
        first(sm_frac=0.3, pcie_rx_frac=0.8, pcie_tx_frac=0.7),
    )

    assert any("pinned" in advice for advice in host.try_next)
    assert any("NVLink" in advice for advice in peers.try_next)
    assert not any("pinned" in advice for advice in peers.try_next)


def test_low_sm_activity_alone_proves_no_cause():
    found = first(sm_frac=0.2, dram_frac=0.1, gpu_util_frac=0.5)

    assert found.cause is Cause.UNDETERMINED
    assert "no trace shows input, copies and gaps" in found.evidence
    assert any("--trace" in one for one in found.try_next)


def test_gpu_util_alone_proves_no_cause():
    assert first(gpu_util_frac=0.99).cause is Cause.UNDETERMINED


def test_a_service_that_holds_its_cap_with_a_queue_is_told_to_raise_it():
    found = first(serving=True, sm_frac=0.2, batch=8, waiting=20, batch_cap=8)

    assert "raise the concurrency cap" in found.try_next[0]


def test_kernels_that_wait_for_the_loader_are_not_called_a_small_batch():
    found = causes_of(Signs(gpu_util_frac=0.9, sm_frac=0.2, loader_wait_frac=0.4))

    assert [one.cause for one in found] == [Cause.CPU_INPUT]


@given(gpu_util=shares, sm=shares, tensor=shares, dram=shares, pcie=shares, cpu=shares, serving=st.booleans())
def test_there_is_always_an_answer_with_evidence_and_undetermined_stands_alone(
    gpu_util, sm, tensor, dram, pcie, cpu, serving
):
    found = causes_of(
        Signs(gpu_util_frac=gpu_util, sm_frac=sm, tensor_frac=tensor, dram_frac=dram, pcie_rx_frac=pcie, cpu_frac=cpu,
              serving=serving)
    )  # fmt: skip

    assert found
    assert all(one.evidence for one in found)
    assert len(found) == 1 or all(one.cause not in (Cause.UNDETERMINED, Cause.NOT_LOW) for one in found)
