"""Services that take turns: slower by no more than their neighbours can make them, and held to what they promised them."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.catalog.kinds import Isolation
from trimtab.catalog.pools import Pool, SharedPool
from trimtab.deployment.effects import UseSlots
from trimtab.fleet.service_law import ServiceLaw
from trimtab.provenance import Basis, Estimate
from trimtab.replay.outcomes.replica_law import contended_law

SAME = Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.MEASURED)
LAW = ServiceLaw(
    capacity_req_s=2.0,
    load=np.array([0.1, 0.5]),
    share=np.array([[0.5, 0.5, 0.0, 0.0], [0.2, 0.6, 0.2, 0.0]]),
    le_s=np.array([1.0, 2.0, 4.0, np.inf]),
    top_load=0.8,
    basis=Basis.CALIBRATED,
    because="a test",
)


def slot(shares, busy_frac, isolation=Isolation.TIME_SLICING):
    shared = SharedPool(Pool("aws", "g5.xlarge", "r"), shares, isolation=isolation.value, busy_frac=busy_frac)
    return UseSlots(shared=shared, gpu="A10G", gpus_per_node=1, slots=1, memory_gib=5.0, speed=SAME, work_speed=SAME)


def test_one_neighbour_at_work_a_fifth_of_the_time():
    law = contended_law(LAW, slot(2, 0.2))

    # it leaves 0.8 of the time, and is met by 0.2 / 0.8 of the requests: 3/4 within 1 s as before, 1/4 within 1/2 s
    assert law.capacity_req_s == pytest.approx(1.6)
    assert law.share[0, 0] == pytest.approx(0.75 * 0.5 + 0.25 * 0.25)


@pytest.mark.parametrize("one", [None, slot(4, 1.0, Isolation.MPS)])
def test_who_takes_turns_with_nobody_keeps_its_law(one):
    assert contended_law(LAW, one) is LAW


@given(st.integers(2, 8), st.floats(0, 1), st.floats(0.5, 20))
def test_turns_never_make_a_request_quicker_nor_slower_than_behind_everybody(shares, busy_frac, limit_s):
    usual, careful = (contended_law(LAW, slot(shares, busy_frac), low=low).ok_frac(limit_s) for low in (False, True))

    assert (careful <= usual + 1e-9).all()
    assert (usual <= LAW.ok_frac(limit_s) + 1e-9).all()
    seen = LAW.grid() <= LAW.seen_load  # beyond, times stretch within buckets, which a finer law has more of
    assert (careful >= LAW.ok_frac(limit_s / shares) - 1e-9)[seen].all()


@given(st.floats(0, 1))
def test_more_neighbours_serve_less(busy_frac):
    served = [contended_law(LAW, slot(shares, busy_frac)).capacity_req_s for shares in (2, 3, 4, 8)]

    assert served == sorted(served, reverse=True)
    assert served[-1] >= LAW.capacity_req_s / 8 - 1e-9
