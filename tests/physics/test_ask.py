"""The library's face: answers, refusals, a notebook's view."""

import pytest

import trimtab as tt
from trimtab.catalog import load_catalog
from trimtab.errors import MissingPrice, UnknownName, Unpredictable, UsageError
from trimtab.physics.ask import FitMarket
from trimtab.physics.found_ways import Unmet
from trimtab.physics.search_training import TrainingDemand
from trimtab.physics.serving_demand import Demand, Targets
from trimtab.physics.training import Method

CATALOG = load_catalog()
CHAT = Demand(input_tokens=1024, output_tokens=256, rate_req_s=20)


def test_answers_are_ranked_by_cost_and_keep_the_targets():
    demand = Demand(input_tokens=1024, output_tokens=256, rate_req_s=20, targets=Targets(tpot_s=0.03, latency_s=10))

    answer = tt.fit("llama-3.1-8b", serve=demand)

    ranks = [(bool(one.caveats), one.usd_per_mtok.value) for one in answer.found]
    assert ranks == sorted(ranks)
    assert all(one.tpot_s.low <= 0.03 and one.latency_s <= 10 for one in answer.found)
    assert all(one.replica_req_s * one.replicas >= 20 for one in answer.found)
    assert all(one.footprint.total_gib <= one.gpu.memory_gib for one in answer.found)


def test_a_tighter_target_never_makes_serving_cheaper():
    def cheapest(tpot_s):
        demand = Demand(input_tokens=1024, output_tokens=256, rate_req_s=20, targets=Targets(tpot_s=tpot_s))
        return tt.fit("llama-3.1-8b", serve=demand, market=FitMarket(catalog=CATALOG, gpus=("L40S",))).found[0].usd_hr

    assert cheapest(0.02) >= cheapest(0.04) >= cheapest(0.2)


def test_a_gpu_without_bf16_is_rejected_for_training_with_its_reason():
    answer = tt.fit("llama-3.1-8b", train=TrainingDemand(method=Method.LORA, tokens=1e8))

    v100 = [one for one in answer.rejected if one.gpu.startswith("V100")]
    assert v100
    assert all(one.reason is Unmet.FORMAT and "bf16" in one.because for one in v100)
    assert not any(one.gpu.name == "T4" for one in answer.found)


def test_a_model_too_large_for_any_card_alone_runs_on_several():
    answer = tt.fit(
        "llama-3.1-70b", serve=CHAT, market=FitMarket(catalog=CATALOG, gpus=("A100-SXM4-80GB", "H100-SXM5-80GB"))
    )

    assert answer.found
    assert all(one.tensor >= 2 or one.stored.value in ("int4", "fp8") for one in answer.found)


def test_more_gpus_finish_training_sooner():
    answer = tt.fit(
        "llama-3.1-8b",
        train=TrainingDemand(method=Method.LORA, tokens=1e9),
        market=FitMarket(catalog=CATALOG, gpus=("H100-SXM5-80GB",)),
    )

    days = {one.gpus: one.days.value for one in answer.found}
    assert days[8] < days[4] < days[1]


def test_the_view_of_a_notebook_escapes_and_counts():
    answer = tt.fit("llama-3.1-8b", serve=CHAT, market=FitMarket(catalog=CATALOG, gpus=("L4",)))

    html = answer._repr_html_()
    assert "<table" in html
    assert f"{len(answer.rejected)} rejected" in html


def test_no_price_unknown_model_and_no_question_have_clear_answers():
    with pytest.raises(MissingPrice, match="no price"):
        tt.fit("llama-3.1-8b", serve=CHAT, market=FitMarket(catalog=CATALOG, provider="moon"))
    with pytest.raises(UnknownName):
        tt.fit("lama", serve=CHAT)
    with pytest.raises(UsageError, match="either"):
        tt.fit("llama-3.1-8b")


def test_a_misspelt_provider_is_told_with_near_matches():
    with pytest.raises(MissingPrice, match=r"provider 'awss'.*did you mean aws"):
        tt.fit("llama-3.1-8b", serve=CHAT, market=FitMarket(catalog=CATALOG, provider="awss"))


def test_a_provider_under_another_of_its_names_is_told_by_the_one_in_price_lists():
    with pytest.raises(MissingPrice, match=r"provider 'Amazon'.*did you mean aws\?"):
        tt.fit("llama-3.1-8b", serve=CHAT, market=FitMarket(catalog=CATALOG, provider="Amazon"))


def test_an_encoder_generates_nothing_and_is_refused_with_what_helps():
    with pytest.raises(Unpredictable, match="speed_ratio"):
        tt.fit("bert-large", serve=CHAT)


def test_a_notebook_shows_every_way_of_buying_without_scripts():
    market = FitMarket(catalog=CATALOG, gpus=("L4", "L40S"), provider="aws", region="us-east-1")
    view = tt.fit("llama-3.1-8b", train=TrainingDemand(method=Method.LORA, tokens=1e8), market=market)._repr_html_()

    assert "spot with losses" in view
    assert "days" in view
    assert "<script" not in view
    assert view.count("<tr>") == view.count("</tr>") >= 3
