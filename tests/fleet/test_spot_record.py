"""What a fleet's own history tells of spot, and how it is blended with the stated odds."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from trimtab.catalog.pools import Pool
from trimtab.fleet.model import Window
from trimtab.fleet.settings import Assumptions
from trimtab.fleet.spot_record import LOSS_DRIFT, PRIOR_HR, SpotRecord, spot_odds, spot_records
from trimtab.tables.arrow import table_from_rows

START = datetime(2026, 9, 1, tzinfo=UTC)
WINDOW = Window(start=START, hours=48)
POOL = Pool("aws", "p3.2xlarge", "us-east-1")
STATED = Assumptions()


def event(hr, what, zone=None, price=None):
    return {
        "provider": POOL.provider, "instance_type": POOL.instance_type, "region": POOL.region, "zone": zone,
        "at": START + timedelta(hours=hr), "event": what, "notice_s": None, "spot_usd_hr": price,
    }  # fmt: skip


def node(name, first_hr, last_hr, held="spot"):
    return {
        "node": name, "provider": POOL.provider, "instance_type": POOL.instance_type, "region": POOL.region, "zone": None,
        "capacity_type": held, "start": START + timedelta(hours=first_hr),
        "end": None if last_hr is None else START + timedelta(hours=last_hr), "gpu": None, "gpu_count": 1, "labels": {},
        "taints": {},
    }  # fmt: skip


def records(events, nodes=()):
    return spot_records(table_from_rows("spot_events", events), table_from_rows("nodes", list(nodes)), WINDOW)


def test_what_an_event_told_holds_until_the_next_one_and_for_an_hour_at_most():
    found = records(
        [event(0, "available"), event(0.5, "unavailable"), event(1.25, "launched"), event(10, "unavailable")]
    )

    # 0.5 h up, 0.75 h down, an hour up, an hour down of which nobody saw the end
    assert found[POOL].known_hr == pytest.approx(3.25)
    assert found[POOL].without_hr == pytest.approx(1.75)
    assert (found[POOL].droughts, found[POOL].droughts_hr) == (1, pytest.approx(0.75))


def test_a_pool_has_spot_while_any_of_its_zones_has():
    found = records([event(0, "unavailable", "a"), event(0.5, "available", "b"), event(0.75, "unavailable", "b")])

    assert found[POOL].known_hr == pytest.approx(1.75)
    assert found[POOL].without_hr == pytest.approx(1.5)


def test_losses_are_counted_over_the_hours_that_spot_nodes_were_up():
    events = [event(2, "interrupted"), event(20, "interrupted"), event(20.1, "unavailable"), event(70, "interrupted")]
    nodes = [node("a", -5, 2), node("b", 4, 20), node("c", 40, None), node("d", 0, 48, "on-demand")]

    found = records(events, nodes)[POOL]

    assert found.node_hr == pytest.approx(2 + 16 + 8)
    assert (found.losses, found.losses_at_droughts) == (2, 1)


def test_without_a_record_the_stated_odds_stand():
    odds = spot_odds(None, STATED, 0.2)

    assert (odds.loss_per_hr, odds.unavailable_frac, odds.drought_s) == (0.2, 0.53, 5400.0)


def test_as_many_known_hours_as_the_prior_is_worth_count_half():
    half = record(known_hr=PRIOR_HR, without_hr=0.0)

    assert half.weight_frac == 0.5
    assert spot_odds(half, STATED, 0.2).unavailable_frac == pytest.approx(0.53 / 2)


def test_one_loss_and_one_drought_weigh_as_much_as_what_is_stated():
    seen = record(node_hr=5.0, losses=1, droughts=1, droughts_hr=0.5)

    odds = spot_odds(seen, STATED, 0.2)

    assert odds.loss_per_hr == pytest.approx(2 / 10)
    assert odds.drought_s == pytest.approx((1800 + 5400) / 2)


def test_more_losses_tell_a_rate_better_and_a_week_that_changes_it_remains():
    few, many = (spot_odds(record(node_hr=10.0 * n, losses=n), STATED, 0.1) for n in (1, 1000))

    assert few.loss_high_per_hr / few.loss_per_hr > many.loss_high_per_hr / many.loss_per_hr
    assert many.loss_high_per_hr / many.loss_per_hr == pytest.approx(math.exp(1.2816 * LOSS_DRIFT), rel=0.01)


def test_a_loss_with_which_a_drought_began_is_no_loss_of_its_own():
    seen = record(node_hr=95.0, losses=3, losses_at_droughts=2)

    assert spot_odds(seen, STATED, 0.2).loss_per_hr == pytest.approx(2 / 100)
    assert spot_odds(seen, Assumptions(spot_droughts_take=False), 0.2).loss_per_hr == pytest.approx(4 / 100)


def test_prices_that_events_told_are_averaged():
    assert records([event(0, "launched", price=1.0), event(1, "available", price=1.5)])[POOL].spot_usd_hr == 1.25
    assert records([event(0, "launched")])[POOL].spot_usd_hr is None


@given(
    known=st.floats(0, 5000),
    share=st.floats(0, 1),
    rate=st.floats(0, 2),
    nodes=st.floats(0, 1e5),
    losses=st.integers(0, 500),
)
def test_odds_lie_between_what_is_stated_and_what_was_seen(known, share, rate, nodes, losses):
    seen = record(known_hr=known, without_hr=known * share, node_hr=nodes, losses=losses)

    odds = spot_odds(seen, STATED, rate)

    low, high = sorted((share, STATED.spot_unavailable_frac))
    assert low - 1e-9 <= odds.unavailable_frac <= high + 1e-9
    if rate > 0 and nodes > 0:
        least, most = sorted((rate, losses / nodes))
        assert least - 1e-9 <= odds.loss_per_hr <= most + 1e-9
    assert odds.loss_low_per_hr <= odds.loss_per_hr <= odds.loss_high_per_hr


MOMENTS = st.lists(
    st.tuples(
        st.floats(0, 47.9),
        st.sampled_from(["launched", "available", "unavailable", "interrupted"]),
        st.sampled_from("abc"),
    ),
    max_size=30,
)


@given(told=MOMENTS)
def test_time_without_spot_is_part_of_what_is_known_and_that_of_the_window(told):
    for found in records([event(*one) for one in told]).values():
        assert -1e-9 <= found.without_hr <= found.known_hr + 1e-9
        assert found.known_hr <= min(WINDOW.hours, len(told)) + 1e-6
        assert found.droughts_hr <= found.without_hr + 1e-6


def record(**seen):
    empty = {
        "known_hr": 0.0, "without_hr": 0.0, "droughts": 0, "droughts_hr": 0.0, "node_hr": 0.0, "losses": 0,
        "losses_at_droughts": 0,
    }  # fmt: skip
    return SpotRecord(**{**empty, **seen})
