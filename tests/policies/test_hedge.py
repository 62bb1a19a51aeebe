from hypothesis import given, strategies as st

from trimtab.policies.hedge import HedgePolicy, ReplicaSplit, split

FEW = st.integers(0, 40)


def test_one_replica_in_four_stays_on_demand_rounded_up():
    assert split(HedgePolicy(4), 9, spot_ready=6, spot_held=6, on_demand_held=3, spot_up=True) == ReplicaSplit(6, 3)


def test_on_demand_fills_the_gap_while_no_zone_gives_spot():
    assert split(HedgePolicy(0), 8, spot_ready=0, spot_held=0, on_demand_held=0, spot_up=False) == ReplicaSplit(0, 8)


def test_what_fell_back_stays_until_spot_is_ready_again():
    back = split(HedgePolicy(0), 8, spot_ready=0, spot_held=0, on_demand_held=8, spot_up=True)
    ready = split(HedgePolicy(0), 8, spot_ready=8, spot_held=8, on_demand_held=8, spot_up=True)

    assert (back, ready) == (ReplicaSplit(8, 8), ReplicaSplit(8, 0))


@given(st.integers(0, 6), FEW, FEW, FEW, FEW, st.booleans())
def test_what_is_wanted_is_asked_for_and_the_floor_is_kept(one_in, wanted, ready, starting, on_demand, up):
    parts = split(HedgePolicy(one_in), wanted, ready, ready + starting, on_demand, up)

    assert parts.spot + parts.on_demand >= wanted
    assert one_in == 0 or parts.on_demand * one_in >= wanted
