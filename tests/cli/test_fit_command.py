"""`trimtab fit` end to end: answers, refusals, what is pasted."""

import json
import re

import pytest
from click.testing import CliRunner

from trimtab.cli.fit import command
from trimtab.cli.fit.inputs import amount, amount_per_second, model_of, seconds
from trimtab.cli.fit.tables import replayed_cells, replayed_lines
from trimtab.errors import InputError, PlanError, UsageError
from trimtab.physics.serving_demand import Demand
from trimtab.pipeline.fitting import ReplayedLoad


def run(*arguments):
    return CliRunner().invoke(command, list(arguments))


def test_serving_is_ranked_by_cost_and_says_what_to_paste():
    result = run("llama-3.1-8b", "--serve", "--rate", "10", "--ttft", "1s", "--tpot", "60ms", "-o", "json")

    document = json.loads(result.output)
    costs = [row["usd_per_mtok"] for row in document["rows"]]
    assert costs == sorted(costs)
    assert document["paste"].startswith("vllm serve meta-llama/Llama-3.1-8B-Instruct")
    assert all(row["tpot_ms"] <= 60 for row in document["rows"])
    assert any(row["reason"] == "not supported" for row in document["rejected"]) or document["rejected"]


def test_qlora_of_7b_fits_a_4090_and_full_training_does_not():
    good = run("mistral-7b", "--finetune", "qlora", "--tokens", "5M", "--on", "rtx4090", "-o", "json")
    assert json.loads(good.output)["rows"][0]["gpu"] == "RTX-4090"
    assert "BitsAndBytesConfig" in json.loads(good.output)["paste"]

    bad = run("mistral-7b", "--finetune", "full", "--tokens", "5M", "--on", "rtx4090")
    assert isinstance(bad.exception, PlanError)
    assert "LoRA" in str(bad.exception)


def test_a_deadline_that_nothing_meets_names_the_nearest_miss():
    result = run("llama-3.1-70b", "--finetune", "full", "--tokens", "500B", "--deadline", "1d")

    assert isinstance(result.exception, PlanError)
    assert "days" in str(result.exception)


def test_offline_work_is_sized_by_its_window():
    wide = json.loads(run("llama-3.1-8b", "--offline", "1M/day", "--gpu", "L4", "-o", "json").output)
    narrow = json.loads(
        run("llama-3.1-8b", "--offline", "1M/day", "--within", "4h", "--gpu", "L4", "-o", "json").output
    )

    assert narrow["rows"][0]["gpus"] >= 4 * wide["rows"][0]["gpus"] - 8


def test_a_measured_point_scales_all_predictions(tmp_path):
    point = tmp_path / "point.json"
    point.write_text('{"gpu": "L4", "tpot_ms": 200, "concurrency": 8}')

    plain = json.loads(run("llama-3.1-8b", "--serve", "--rate", "1", "--gpu", "L4", "-o", "json").output)
    scaled = json.loads(
        run("llama-3.1-8b", "--serve", "--rate", "1", "--gpu", "L4", "--calibrate", str(point), "-o", "json").output
    )

    assert scaled["rows"][0]["usd_hr"] >= plain["rows"][0]["usd_hr"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("llama-3.1-8b",), "give one of"),
        (("llama-3.1-8b", "--serve", "--pretrain"), "not --serve and --pretrain"),
        (("llama-3.1-8b", "--finetune", "lora"), "--tokens"),
        (("llama-3.1-8b", "--finetune", "qlora", "--stack", "megatron", "--tokens", "1M"), "4-bit base"),
        (("llama-3.1-8b", "--finetune", "qlora", "--format", "int8", "--tokens", "1M"), "No public run trained"),
        (
            ("llama-3.1-8b", "--pretrain", "--tokens", "1B", "--ttft", "1s", "--tpot", "50ms"),
            "--ttft and --tpot belong to --serve",
        ),
        (("llama-3.1-8b", "--serve", "--deadline", "3d"), "--deadline belongs to --finetune"),
        (("--serve", "--rate", "5"), "--params"),
    ],
)
def test_contradictory_or_missing_options_are_usage_errors(arguments, said):
    result = run(*arguments)

    assert isinstance(result.exception, UsageError)
    assert said in str(result.exception)


def test_an_unknown_model_says_what_is_near_and_what_else_helps():
    with pytest.raises(InputError, match=r"llama-3-8b.*--params"):
        model_of("llama-3-8c", None)


@pytest.mark.parametrize(("text", "value"), [("20", 20), ("1.5K", 1500), ("2B", 2e9), ("1,000", 1000)])
def test_amounts_are_read(text, value):
    assert amount(text) == value


@pytest.mark.parametrize("text", ["", "x", "-5", "7Q", "0"])
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(UsageError, match="amount"):
        amount(text)


def test_rates_and_limits_are_read_in_their_units():
    assert amount_per_second("86400/day") == 1
    assert seconds("300ms") == seconds("300") == pytest.approx(0.3)
    assert seconds("2s") == 2
    assert seconds("4h") == 14_400
    assert seconds(None) is None


def test_pictures_and_benchmark_jobs_come_on_request(tmp_path):
    result = run(
        "llama-3.1-8b", "--serve", "--rate", "5", "--gpu", "L4", "--gpu", "L40S", "--pictures",
        "--emit-bench", str(tmp_path / "jobs"),
    )  # fmt: skip

    assert result.exception is None
    assert "ridge at" in result.output
    assert "nothing beats" in result.output
    assert len(list((tmp_path / "jobs").glob("bench-*.yaml"))) == 2


def test_results_of_known_benchmarks_calibrate_and_must_name_their_gpu(tmp_path):
    named = tmp_path / "vllm.json"
    named.write_text('{"gpu": "L4", "mean_tpot_ms": 60.0, "max_concurrency": 8}')
    nameless = tmp_path / "genai.json"
    nameless.write_text('{"inter_token_latency": {"avg": 60.0}}')

    good = run("llama-3.1-8b", "--serve", "--rate", "1", "--gpu", "L4", "--calibrate", str(named))
    bad = run("llama-3.1-8b", "--serve", "--rate", "1", "--gpu", "L4", "--calibrate", str(nameless))

    assert "calibrated on your point" in good.output
    exact = run("llama-3.1-8b", "--serve", "--rate", "1", "--gpu", "L4", "--calibrate", str(named), "-o", "json")
    row = json.loads(exact.output)["rows"][0]
    assert row["basis"] == "calibrated"
    assert row["tpot_high_ms"] / row["tpot_low_ms"] < 1.8
    assert isinstance(bad.exception, UsageError)
    assert "which GPU" in str(bad.exception)


def test_narrow_weights_are_warned_of_and_can_be_ruled_out():
    narrow = run("llama-3.1-8b", "--serve", "--rate", "5", "--gpu", "L4")
    wide = json.loads(
        run("llama-3.1-8b", "--serve", "--rate", "5", "--gpu", "L4", "--format", "bf16", "-o", "json").output
    )

    assert "test quality first" in narrow.output
    assert {row["format"] for row in wide["rows"]} == {"bf16"}


def test_programs_get_bounds_as_numbers():
    row = json.loads(run("llama-3.1-8b", "--serve", "--rate", "5", "--gpu", "L4", "-o", "json").output)["rows"][0]

    assert row["usd_per_mtok_low"] <= row["usd_per_mtok"] <= row["usd_per_mtok_high"]
    assert 0 < row["memory_gib"] < 24
    assert row["basis"] == "modelled"
    assert "memory" not in row


def test_what_is_pasted_stands_line_for_line_in_the_table():
    result = run("llama-3.1-8b", "--serve", "--rate", "10", "--gpu", "L40S")

    assert "\nvllm serve meta-llama/Llama-3.1-8B-Instruct \\\n  --tensor-parallel-size" in result.output


def test_pictures_keep_their_lines():
    result = run("llama-3.1-8b", "--serve", "--rate", "10", "--gpu", "L4", "--gpu", "L40S", "--pictures")

    assert "\n└" + "─" * 60 + "\n" in result.output


def test_first_tokens_are_replayed_under_the_asked_load():
    def first(*load):
        result = run("llama-3.1-8b", "--serve", *load, "--gpu", "H100-SXM5-80GB", "-o", "json")
        return json.loads(result.output)

    document = first("--rate", "10")
    row = document["rows"][0]
    assert row["ttft_p50_low_ms"] <= row["ttft_p50_ms"] <= row["ttft_p95_ms"] <= row["ttft_p95_high_ms"]
    assert row["preempted_frac"] == 0
    assert any(remark.startswith("replayed scheduler, Poisson arrivals") for remark in document["remarks"])
    assert (
        first("--concurrency", "64")["rows"][0]["ttft_p95_ms"] > first("--concurrency", "4")["rows"][0]["ttft_p95_ms"]
    )


def test_a_limit_on_the_first_token_is_kept_in_the_replay_with_more_replicas_where_it_takes_them():
    asked = ("llama-3.1-8b", "--serve", "--rate", "20", "--tpot", "40ms", "--gpu", "L40S", "-o", "json")

    document = json.loads(run(*asked, "--ttft", "200ms").output)

    (row,) = document["rows"]
    assert row["ttft_p95_ms"] <= 200
    assert any(f"for first tokens in time {row['replicas']}" in remark for remark in document["remarks"])


def test_what_memory_is_spent_on_adds_up_for_programs_and_is_told_to_people():
    document = json.loads(run("llama-3.1-8b", "--serve", "--rate", "5", "--gpu", "L40S", "-o", "json").output)

    (row,) = document["rows"]
    items = [value for key, value in row.items() if key.startswith("memory_") and key != "memory_gib"]
    assert sum(items) == pytest.approx(row["memory_gib"], abs=0.02)
    # 8.03 billion weights of two bytes
    assert row["memory_weights_gib"] == pytest.approx(8.03e9 * 2 / 2**30, rel=0.01)
    assert any(remark.startswith("memory of one L40S, ") and "kv cache" in remark for remark in document["remarks"])


def test_an_interruption_rate_has_the_day_on_which_it_was_published():
    document = json.loads(run("llama-3.1-8b", "--serve", "--rate", "5", "--provider", "aws", "-o", "json").output)

    known = [row for row in document["rows"] if row["spot_interruption"]]
    assert known
    assert all(row["spot_as_of"].startswith("20") for row in known)


def test_no_first_token_is_said_of_a_load_beyond_saturation():
    load = ReplayedLoad(ttft_p50_s=None, ttft_p95_s=None, tpot_p95_s=0.02, preempted_frac=0.5)
    demand = Demand(input_tokens=1000, output_tokens=100, rate_req_s=5)

    assert replayed_lines(load, demand) == [
        "replayed scheduler, Poisson arrivals: more comes than is served at once, so no time to first token is said; "
        "0.5 preemptions a request"
    ]
    assert replayed_cells(load)["ttft_p95_ms"] is None
    assert replayed_cells(load)["beyond_saturation"] is True


def test_a_bulk_of_requests_has_no_replayed_first_tokens():
    document = json.loads(run("llama-3.1-8b", "--offline", "1M/day", "--gpu", "L4", "-o", "json").output)

    assert document["rows"][0]["ttft_p95_ms"] is None
    assert not any("replayed" in remark for remark in document["remarks"])


def answer(*arguments):
    return json.loads(run(*arguments, "-o", "json").output)


@pytest.fixture(scope="module")
def plain():
    """What the whole market offers a model of 8 billion, and no caveat is accepted."""
    return answer("llama-3.1-8b", "--serve", "--rate", "20", "--limit", "60")


def test_marketplaces_consumer_cards_and_four_bit_weights_never_come_first_unless_accepted(plain):
    accepting = ("--accept", "marketplace", "--accept", "consumer", "--accept", "4-bit")
    accepted = answer("llama-3.1-8b", "--serve", "--rate", "20", *accepting)

    flagged = [row["caveats"] is not None for row in plain["rows"]]
    assert flagged == sorted(flagged)
    assert not flagged[0]
    assert any("GeForce" in (row["caveats"] or "") for row in plain["rows"])
    assert accepted["rows"][0]["usd_per_mtok"] < plain["rows"][0]["usd_per_mtok"]


def test_a_named_consumer_card_has_no_caveat():
    row = answer("llama-3.1-8b", "--serve", "--rate", "5", "--gpu", "RTX-4090", "--provider", "runpod")["rows"][0]

    assert row["caveats"] is None or "GeForce" not in row["caveats"]


def test_scenarios_are_ordered_by_what_they_promise(plain):
    found = {one["scenario"]: one for one in plain["scenarios"]}

    assert found["cheapest"]["cost"] <= found["standard"]["cost"]
    assert found["cheapest"]["caveats"] is None
    assert found["fastest"]["time"] <= found["standard"]["time"]
    assert found["fastest"]["caveats"] is None


def test_what_costs_least_with_a_caveat_is_a_scenario_of_its_own():
    load = ("--serve", "--rate", "50", "--input", "8192", "--tpot", "25ms", "--gpu", "B200")
    found = {one["scenario"]: one for one in answer("llama-3.1-70b", *load)["scenarios"]}

    assert found["cheapest"]["caveats"] is None
    assert found["if accepted"]["caveats"] == "4-bit weights"
    assert found["if accepted"]["cost"] < found["cheapest"]["cost"]


def test_a_run_of_days_is_not_bought_under_a_commitment():
    found = answer("llama-3.1-8b", "--finetune", "lora", "--tokens", "20M")["scenarios"]

    assert {one["option"] for one in found} <= {"on-demand", "spot", "capacity-block"}


def test_pre_training_assumes_the_usual_batch_and_says_so():
    arguments = ("llama-3.1-8b", "--pretrain", "--tokens", "100B", "--gpu", "H100", "--all", "--limit", "20")
    assumed, stated = answer(*arguments), answer(*arguments, "--batch", "2048")
    tight = answer(*arguments, "--batch", "1024")

    assert assumed["rows"] == stated["rows"]
    assert any("2,048 sequences (4.2M tokens" in remark for remark in assumed["remarks"])
    assert not any("is assumed; --batch" in remark for remark in stated["remarks"])
    # a thousand GPUs share the batch: one sequence each, however much memory there is
    assert [row["micro_batch"] for row in tight["rows"] if row["gpus"] == 1024] == [1]
    assert [row["micro_batch"] for row in assumed["rows"] if row["gpus"] == 1024] == [2]


def test_what_trains_is_what_is_pasted():
    arguments = ("llama-3.1-8b", "--pretrain", "--tokens", "100B", "--gpu", "H100", "--batch", "500")

    assert "TrainingArguments(" in answer(*arguments)["paste"]
    pasted = answer(*arguments, "--stack", "megatron")["paste"]
    assert "pretrain_gpt.py" in pasted
    assert "TrainingArguments(" not in pasted


def test_a_run_of_a_few_dollars_is_told_in_cents():
    text = run("llama-3.1-8b", "--finetune", "lora", "--tokens", "20M", "--gpu", "L40S").output

    assert re.search(r"all told \$\d\.\d\d a run", text)


def test_limits_are_kept_at_the_percentile_that_was_asked_for():
    limit_s = 6.0
    row = answer("llama-3.1-8b", "--serve", "--rate", "20", "--latency", "6s", "--percentile", "99", "--gpu", "L40S")[
        "rows"
    ][0]

    assert row["tail_percentile"] == 99
    assert row["latency_tail_ms"] <= 1000 * limit_s


def test_a_percentile_needs_a_limit():
    result = run("llama-3.1-8b", "--serve", "--rate", "5", "--percentile", "99")

    assert isinstance(result.exception, UsageError)


def test_a_service_without_limits_keeps_tokens_within_100_ms():
    default = answer("llama-3.1-70b", "--serve", "--rate", "5")
    lifted = answer("llama-3.1-70b", "--serve", "--rate", "5", "--tpot", "none")

    assert all(row["tpot_ms"] <= 100 for row in default["rows"])
    assert any(row["tpot_ms"] > 100 for row in lifted["rows"])


def test_the_context_is_that_of_the_longest_request_and_not_of_the_mean():
    asked = ("llama-3.1-8b", "--serve", "--rate", "5", "--gpu", "L40S")

    stated = answer(*asked, "--longest", "30000")["paste"]
    assumed = answer(*asked)

    assert "--max-model-len 30000" in stated
    assert "--max-model-len 8192" in assumed["paste"]
    assert any("--max-model-len 8,192 is assumed" in remark for remark in assumed["remarks"])


def test_what_has_no_id_on_the_hub_is_pasted_as_a_placeholder():
    paste = answer("--params", "7B", "--serve", "--concurrency", "4", "--gpu", "L40S")["paste"]

    assert "vllm serve YOUR_ORG/YOUR_MODEL" in paste


def test_nothing_that_does_not_fit_seems_to_fit():
    for reject in answer("deepseek-r1", "--serve", "--rate", "2")["rejected"]:
        if reject["reason"] == "does not fit":
            need, usable = (
                float(word) for word in re.findall(r"needs ([\d.]+) GiB.*use ([\d.]+) of", reject["because"])[0]
            )
            assert need > usable
