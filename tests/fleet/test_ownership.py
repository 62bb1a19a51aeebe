"""What a model costs all told: every line there, none silent, the node bill split and not counted twice."""

from dataclasses import replace

import pytest

import trimtab as tt
from trimtab.catalog import BuyingOption, load_catalog
from trimtab.fleet.ownership import CostItem, serving_cost, training_cost
from trimtab.fleet.settings import Ownership, Settings
from trimtab.physics.ask import FitMarket
from trimtab.physics.search_training import TrainingDemand
from trimtab.physics.serving_demand import Demand
from trimtab.physics.training import Method

P4D = FitMarket(catalog=load_catalog(), gpus=("A100-40GB",), provider="aws", region="us-east-1")
NODE_ITEMS = (CostItem.WORK, CostItem.IDLE, CostItem.STRANDED)


def served(market=P4D, **changes):
    demand = {"input_tokens": 1024, "output_tokens": 256, "rate_req_s": 10, **changes}
    return tt.fit("llama-3.1-8b", serve=Demand(**demand), market=market).found[0]


def costs(one, settings=None, *, hours_per_day=24.0):
    total = serving_cost(one, settings or Settings(), output_tokens=256, hours_per_day=hours_per_day)
    return {line.item: line.usd for line in total.lines}


def test_work_idleness_and_stranded_gpus_split_the_node_bill():
    one = served()
    lines = costs(one)

    assert sum(lines[item] for item in NODE_ITEMS) == pytest.approx(one.usd_hr * 730)
    assert lines[CostItem.STRANDED] == pytest.approx(one.usd_hr * 730 * one.stranded_gpus / (8 * one.nodes))
    assert one.stranded_gpus > 0


def test_every_item_is_there_and_says_how_it_was_reckoned():
    total = serving_cost(served(), Settings(), output_tokens=256, hours_per_day=24)

    assert [line.item for line in total.lines] == list(CostItem)
    assert all(line.how for line in total.lines)
    assert total.usd == pytest.approx(sum(line.usd for line in total.lines))


def test_egress_is_tokens_out_at_a_rate():
    # 10 requests/s x 256 tokens x 2,628,000 s x 200 bytes = 1,253 GiB, at $0.09.
    assert costs(served())[CostItem.EGRESS] == pytest.approx(10 * 256 * 2_628_000 * 200 / 2**30 * 0.09)


def test_operations_are_engineer_hours_by_the_node():
    one = served()

    assert costs(one)[CostItem.OPERATIONS] == pytest.approx(one.nodes * 4000 / 40)


def test_a_peak_over_the_mean_is_paid_as_idleness():
    steady, peaky = served(), served(mean_req_s=2)

    assert costs(peaky)[CostItem.IDLE] > costs(steady)[CostItem.IDLE]
    assert peaky.usd_per_mtok.value == pytest.approx(steady.usd_per_mtok.value * 5)


def test_nodes_that_stop_at_night_pay_for_their_hours_and_each_morning():
    one = served()
    day = costs(one, hours_per_day=4)

    assert sum(day[item] for item in NODE_ITEMS) == pytest.approx(one.usd_hr * 730 / 6)
    assert day[CostItem.SETUP] > costs(one)[CostItem.SETUP]


def test_assumptions_can_be_overridden():
    free = replace(Settings(), ownership=Ownership(egress_usd_gib=0.0, storage_usd_gib_mo=0.0))
    lines = costs(served(), free)

    assert lines[CostItem.EGRESS] == lines[CostItem.STORAGE] == 0


def test_ones_own_card_pays_for_power_and_rent_holds_it():
    own = served(FitMarket(catalog=load_catalog(), own="rtx4090"), rate_req_s=1)

    assert own.option is BuyingOption.OWNED
    assert costs(own)[CostItem.POWER] == pytest.approx(own.gpus * own.gpu.tdp_w / 1000 * 730 * 0.15)
    assert costs(served())[CostItem.POWER] == 0


def test_a_training_run_costs_its_hours_its_setup_and_what_comes_besides():
    demand = TrainingDemand(method=Method.LORA, tokens=1e8)
    one = tt.fit("llama-3.1-8b", train=demand, market=P4D).found[0]

    total = training_cost(one, Settings(), setup_hr=demand.setup_hr, tokens=demand.tokens)

    lines = {line.item: line.usd for line in total.lines}
    rent = lines[CostItem.WORK] + lines[CostItem.STRANDED] + lines[CostItem.SETUP]
    assert rent == pytest.approx(one.usd.value)
    assert total.usd > one.usd.value
    assert total.per == "run"
