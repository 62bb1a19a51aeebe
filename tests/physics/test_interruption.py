"""What losing spot nodes costs."""

import math

import pytest
from hypothesis import given, strategies as st

import trimtab as tt
from trimtab.catalog import BuyingOption, InterruptionBucket, load_catalog
from trimtab.physics.ask import FitMarket
from trimtab.physics.offers import Interruptions
from trimtab.physics.search_training import TrainingDemand
from trimtab.physics.serving_demand import Demand
from trimtab.physics.training import Method

UNDER_5, OVER_20 = InterruptionBucket.UNDER_5, InterruptionBucket.OVER_20
L4_AWS = FitMarket(catalog=load_catalog(), gpus=("L4",), provider="aws", region="us-east-1")


def test_an_open_or_unknown_rate_takes_the_stated_assumption():
    losses = Interruptions(unknown_loss_per_hr=0.25)

    assert losses.loss_per_hr(OVER_20) == losses.loss_per_hr(None) == 0.25


def test_a_served_node_lost_every_six_hours_for_six_minutes_costs_a_sixtieth_more():
    losses = Interruptions(startup_s=300, cold_start_s=180, notice_s=120, unknown_loss_per_hr=1 / 6)

    assert losses.serving_factor(None) == pytest.approx(1 + 360 / 3600 / 6)


def test_training_pays_for_saves_lost_work_and_restarts():
    # One loss in 2 h, saves of 60 s: Young's interval is sqrt(2 x 60 x 7200) = 929.5 s.
    losses = Interruptions(startup_s=300, save_s=60, restore_s=180, unknown_loss_per_hr=0.5)

    interval = math.sqrt(2 * 60 * 7200)
    expected = (1 + 60 / interval) / (1 - (interval / 2 + 480) / 7200)
    assert losses.training_factor(None, 1) == pytest.approx(expected)


@given(nodes=st.integers(1, 400), loss=st.floats(0.0001, 2))
def test_more_nodes_never_lose_less(nodes, loss):
    losses = Interruptions(unknown_loss_per_hr=loss)

    assert 1 <= losses.training_factor(None, nodes) <= losses.training_factor(None, nodes + 1)


def test_a_run_that_is_lost_before_it_moves_never_ends():
    assert Interruptions(unknown_loss_per_hr=20).training_factor(None, 8) == math.inf


def test_spot_in_the_rows_is_dearer_than_its_list_price_by_the_expected_loss():
    demand = Demand(input_tokens=1024, output_tokens=256, rate_req_s=5)
    one = tt.fit("llama-3.1-8b", serve=demand, market=L4_AWS).found[0]

    listed = one.offer.usd_hr[BuyingOption.SPOT] * one.nodes
    assert listed < one.usd_hr_by_option[BuyingOption.SPOT] < one.usd_hr_by_option[BuyingOption.ON_DEMAND]
    assert one.usd_hr == one.usd_hr_by_option[BuyingOption.ON_DEMAND]


def test_ranking_by_spot_pays_and_waits_for_the_expected_loss():
    demand = TrainingDemand(method=Method.LORA, tokens=1e8)
    market = FitMarket(
        catalog=load_catalog(), gpus=("L4",), provider="aws", region="us-east-1", option=BuyingOption.SPOT
    )

    spot = next(one for one in tt.fit("llama-3.1-8b", train=demand, market=market).found if one.gpus == 1)
    plain = next(one for one in tt.fit("llama-3.1-8b", train=demand, market=L4_AWS).found if one.gpus == 1)

    assert spot.days.value > plain.days.value
    assert spot.usd.value == pytest.approx(spot.usd_by_option[BuyingOption.SPOT])
    assert plain.usd_by_option[BuyingOption.SPOT] == pytest.approx(spot.usd.value)
