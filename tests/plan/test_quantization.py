"""Fewer bits a weight: offered where the team accepts them, priced beside the plan where nobody has evaluated them."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from tests.fleets import FleetRows, few_machines

from trimtab.catalog import load_catalog
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import SetPrecision, UseOffering
from trimtab.deployment.placement import resolve
from trimtab.fleet.build import build_fleet
from trimtab.fleet.declared_models import need_on, served_model
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet
from trimtab.fleet.settings import Settings
from trimtab.levers import quantization, right_size
from trimtab.physics.formats import WeightFormat
from trimtab.pipeline import audit
from trimtab.plan.model import Risk
from trimtab.provenance import Basis, Estimate, product

SETTINGS = Settings()
DAYS = 9
LE_S = (1.0, 1.5, 2.0, 3.0, 4.0, 8.0, float("inf"))


def chat(
    *,
    memory_gib=36.2,
    quantize=None,
    quality=None,
    model="mistralai/Mistral-7B-Instruct-v0.3",
    tokens=(600.0, 180.0),
    load=0.55,
):
    """Four replicas of a chat model, one A100 each, whose engine has reserved most of the memory."""
    rows = FleetRows(DAYS).node("n", "p4d.24xlarge").hold("prod/chat", "n", range(4), owner_kind="Deployment")
    for number, allocation in enumerate(rows.rows["allocations"]):
        allocation["pod"] = f"chat-{number}"
    for gpu in range(4):
        rows.use(
            "prod/chat", "n", gpu, range(DAYS * 24), sm=load, util=0.9, tensor=0.15, dram=0.45, memory_gib=memory_gib
        )
    counts = [5_000.0 * share for share in (0.1, 0.3, 0.3, 0.2, 0.07, 0.03, 0.0)]
    rows.demand("prod/chat", lambda hour: 5_000, 4, LE_S, lambda hour: counts, running=lambda hour: 12.0)
    for row in rows.rows["demand"]:
        row["input_tokens_mean"], row["output_tokens_mean"] = tokens
    spec = {"model": model, "targets": [{"metric": "latency", "quantile": 0.95, "limit_s": 8.0}]}
    declared = {"quantize": quantize, "quality": quality}
    rows.workloads = {"prod/chat": spec | {name: value for name, value in declared.items() if value is not None}}
    return rows.bundle()


def workload(**changes):
    fleet: Fleet = build_fleet(chat(**changes), SETTINGS)
    return fleet.workload("prod/chat")


@pytest.fixture(scope="module")
def market():
    return Market(catalog=load_catalog(), at=None, max_term_years=1, assumptions=SETTINGS.assumptions)


@pytest.fixture(scope="module")
def unasked():
    return audit(chat(), catalog=few_machines())


@pytest.fixture(scope="module")
def accepted():
    return audit(chat(quantize=["fp8", "awq"]), catalog=few_machines())


def test_nothing_is_quantized_that_nobody_accepted_but_its_saving_is_shown(unasked):
    reason = next(one.reason for one in unasked.plan.not_worth_doing if one.lever == quantization.NAME)

    assert quantization.NAME not in {action.lever for action in unasked.plan.actions}
    assert "a month more" in reason
    assert "evaluate it, then declare quantize:" in reason


def test_an_accepted_format_is_planned_at_high_risk_with_the_change_of_answers_said_to_be_unknown(accepted, unasked):
    action = next(one for one in accepted.plan.actions if one.lever == quantization.NAME)

    assert accepted.plan.joint_saving_micro_usd > unasked.plan.joint_saving_micro_usd
    assert action.risk is Risk.HIGH
    assert any(row.what.endswith("change of the model's answers") and row.value == "unknown" for row in action.evidence)
    assert all(one.kept for one in accepted.proof.targets)


def test_a_model_that_nobody_declared_is_asked_for():
    assert "not declared" in quantization.formats_of(workload(model=None))


@pytest.mark.parametrize("model", ["openai/whisper-large-v3", "stabilityai/sdxl-turbo"])
def test_a_model_that_generates_no_text_is_not_taken_for_a_misspelt_one(model):
    said = quantization.formats_of(workload(model=model))

    assert said == f"{model} generates no text: its speed elsewhere has to be measured"


def test_a_misspelt_format_is_named_with_near_matches():
    assert "fp9" in quantization.formats_of(workload(quantize=["fp9"]))


def evidence(verdict, form, low=-0.004, high=0.006):
    return {
        "verdict": verdict, "because": "it loses less", "format": form, "decided_on": "2026-11-20", "look": 1,
        "alpha_frac": 0.04, "margin_frac": 0.01, "pairs": 4_500, "tasks": ["mmlu"], "baseline_frac": 0.72,
        "candidate_frac": 0.72 - (low + high) / 2, "loss_frac": (low + high) / 2, "low_frac": low, "high_frac": high,
        "method": "score test",
    }  # fmt: skip


def test_an_accepted_verdict_makes_a_format_an_option_and_is_its_evidence(market):
    service = workload(quality={"fp8": evidence("accept", "fp8")})
    formats = quantization.formats_of(service)
    home = market.gpu(service.gpu)

    change = quantization.propose(service, formats.model, WeightFormat.FP8, home, home, SETTINGS.assumptions)

    assert formats.accepted == (WeightFormat.FP8,)
    assert change.answers == "-0.10 points (-0.60 to +0.40) on 4,500 questions of mmlu, 2026-11-20"
    assert "answers -0.10 points" in change.describe()


def test_a_rejected_format_is_neither_planned_nor_asked_for():
    rejected = {"awq": evidence("reject", "awq", 0.02, 0.05)}

    assert WeightFormat.INT4 not in quantization.formats_of(workload(quality=rejected)).unknown
    every = {form: evidence("reject", form, 0.02, 0.05) for form in ("awq", "fp8", "int8")}
    assert quantization.formats_of(workload(quality=every)) == "its evaluation rejected fp8 and int8 and int4"


def test_another_way_of_making_a_format_that_was_accepted_stands_for_it():
    both = {"awq": evidence("reject", "awq", 0.02, 0.05), "gptq": evidence("accept", "gptq")}

    assert quantization.formats_of(workload(quality=both)).accepted == (WeightFormat.INT4,)


def test_eight_bits_halve_the_weights_and_are_no_slower(market):
    service = workload()
    model = served_model(service)
    home = market.gpu(service.gpu)
    change = quantization.propose(service, model, WeightFormat.FP8, home, home, SETTINGS.assumptions)

    assert change.saved_gib == pytest.approx(6.7, abs=0.4)  # 7.1 of 7.25 billion weights go from 2 bytes to 1
    assert change.speed.value > 1


def test_a_gpu_without_kernels_for_a_format_is_refused(market):
    service = workload()
    turing = market.gpu("T4")
    found = quantization.propose(
        service, served_model(service), WeightFormat.FP8, market.gpu(service.gpu), turing, SETTINGS.assumptions
    )

    assert "FP8 needs Ada or Hopper" in found


def test_what_an_engine_has_reserved_is_no_need(market):
    reserved, measured = workload(), workload(memory_gib=18.0)
    gpu = market.gpu("L4")

    assert need_on(reserved, served_model(reserved), gpu) < 20
    assert need_on(measured, served_model(measured), gpu) == 18.0


def test_a_gpu_that_holds_only_the_quantized_model_is_no_place_without_it():
    service = workload()
    size = UseOffering(
        pool=replace(service.pool, instance_type="g6.xlarge"),
        gpu="L4",
        gpus_per_node=1,
        speed=Estimate(value=0.4, low=0.3, high=0.5, basis=Basis.CALIBRATED),
        only_quantized=True,
    )
    precision = SetPrecision(
        before=WeightFormat.BF16,
        after=WeightFormat.INT4,
        speed=Estimate(value=1.5, low=1.2, high=1.9, basis=Basis.CALIBRATED),
        speed_there=Estimate(value=2.0, low=1.6, high=2.5, basis=Basis.CALIBRATED),
        saved_gib=9.0,
        model="m",
    )

    alone = resolve(service, Deployment.of((right_size.NAME, size)))
    both = resolve(service, Deployment.of((right_size.NAME, size), (quantization.NAME, precision)))

    assert (alone.pool, alone.speed.value) == (service.pool, 1.0)
    assert (both.pool.instance_type, both.speed.value) == ("g6.xlarge", pytest.approx(0.8))
    assert resolve(service, Deployment.of((quantization.NAME, precision))).speed.value == 1.5


def test_the_speed_of_a_known_model_follows_bandwidth_and_not_idle_time(market):
    sizes = right_size.propose(workload(), market, SETTINGS.assumptions).fitting
    l4 = next(one for one in sizes if one.gpu == "L4")

    assert l4.speed.value < 0.5  # 300 GB/s against 1,555


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(1, 3), st.floats(1, 3))
def test_widths_of_independent_factors_add_in_squares(one, other, width, wider):
    def estimate(value, spread):
        return Estimate(value=value, low=value / spread, high=value * spread, basis=Basis.CALIBRATED)

    both = product(estimate(one, width), estimate(other, wider))

    assert both.value == pytest.approx(one * other)
    assert both.value / both.low == pytest.approx(math.exp(math.hypot(math.log(width), math.log(wider))))
