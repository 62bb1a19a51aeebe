"""From a rate to replicas and whole nodes."""

import pytest
from hypothesis import given, strategies as st

from trimtab.errors import InputError
from trimtab.physics.offers import nodes_for, replicas_for


def test_500_a_second_at_200_a_gpu_need_3_and_4_with_20_percent_headroom():
    assert replicas_for(500, 200) == 3
    assert replicas_for(500, 200, headroom_frac=0.2) == 4


def test_an_exact_fit_needs_no_spare():
    assert replicas_for(600, 200) == 3


@given(rate=st.floats(0, 1e6), per=st.floats(0.01, 1e6), headroom=st.floats(0, 1))
def test_replicas_carry_the_rate_and_one_fewer_would_not(rate, per, headroom):
    need = replicas_for(rate, per)

    assert need * per >= rate * (1 - 1e-6)
    assert need == 1 or (need - 1) * per <= rate
    assert replicas_for(rate, per, headroom_frac=headroom) >= need


@pytest.mark.parametrize(("rate", "per"), [(-1, 5), (5, 0), (float("nan"), 1)])
def test_a_rate_that_cannot_be_meant_is_refused(rate, per):
    with pytest.raises(InputError, match="cannot be sized"):
        replicas_for(rate, per)


def test_a_replica_that_fits_a_node_does_not_span_two():
    # 3 replicas of 3 GPUs on nodes of 8: two to a node, so two nodes and 7 GPUs paid for nothing.
    nodes = nodes_for(3, 3, 8)

    assert (nodes.nodes, nodes.stranded_gpus) == (2, 7)


def test_a_replica_larger_than_a_node_takes_whole_nodes():
    assert nodes_for(2, 16, 8).nodes == 4
