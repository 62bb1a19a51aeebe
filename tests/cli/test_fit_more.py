"""`trimtab fit`: traces, pages, calibration, ways of buying, total cost, bad input."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from trimtab.cli.fit import command
from trimtab.errors import InputError, MissingPrice, PlanError, UnknownName, Unpredictable, UsageError

SERVE = ("llama-3.1-8b", "--serve", "--rate", "5", "--gpu", "L4", "--gpu", "L40S")


def run(*arguments):
    return CliRunner().invoke(command, list(arguments))


def answer(*arguments):
    return json.loads(run(*arguments, "-o", "json").output)


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.parquet"
    t_s = [second / 4 for second in range(2400)]
    pq.write_table(pa.table({"t_s": t_s, "input_tokens": [700] * 2400, "output_tokens": [90] * 2400}), path)
    return str(path)


def test_a_trace_gives_rate_tokens_and_the_longest_request(trace):
    document = answer("llama-3.1-8b", "--serve", "--trace", trace, "--gpu", "L4")

    assert "4 requests/s on average" in document["remarks"][0]
    assert "700 tokens in and 90 out" in document["remarks"][0]
    assert "--max-model-len 790" in document["paste"]


def test_options_go_over_what_the_trace_says(trace):
    plain = answer("llama-3.1-8b", "--serve", "--trace", trace, "--gpu", "L4")["rows"][0]
    longer = answer("llama-3.1-8b", "--serve", "--trace", trace, "--gpu", "L4", "--output-tokens", "900")["rows"][0]

    assert longer["usd_hr"] > plain["usd_hr"]


def test_html_is_one_page_with_its_pictures(tmp_path):
    out = tmp_path / "fit.html"

    result = run(*SERVE, "-o", "html", "--out", str(out))

    page = out.read_text(encoding="utf-8")
    assert result.exception is None
    assert page.startswith("<!doctype html>")
    assert page.count("<svg") == 4


def test_training_is_drawn_too():
    result = run("llama-3.1-8b", "--finetune", "lora", "--tokens", "100M", "--gpu", "L4", "--gpu", "L40S", "--pictures")

    assert "$ (up) against days (right)" in result.output
    assert "training step" in result.output
    assert "tokens/s per $/h" in result.output


def test_every_way_of_buying_has_its_price():
    row = answer(*SERVE, "--provider", "aws", "--region", "us-east-1")["rows"][0]

    assert row["spot_listed_usd_hr"] < row["spot_usd_hr"] < row["on_demand_usd_hr"]
    assert row["reserved_1y_usd_hr"] < row["on_demand_usd_hr"]
    assert row["owned_usd_hr"] is None
    assert row["spot_interruption"]


def test_owned_hardware_is_offered_at_its_owners_rate(tmp_path):
    rates = tmp_path / "own.yaml"
    rates.write_text(
        "owned:\n  - {instance_type: box, gpu: L4, gpu_count: 4, capital_usd: 20000, years: 4, power_w: 600, pue: 1.2,"
        " electricity_usd_kwh: 0.1, region: any}\n"
    )

    document = answer("llama-3.1-8b", "--serve", "--rate", "5", "--gpu", "L4", "--prices", str(rates))

    hourly = 20000 / 4 / 8760 + 0.6 * 1.2 * 0.1
    row = document["rows"][0]
    assert row["owned_usd_hr"] == pytest.approx(hourly, abs=1e-3)
    assert row["stranded_gpus"] == 4 - row["gpus"]


def test_what_the_first_row_costs_all_told_is_itemised():
    document = answer(*SERVE)
    told = run(*SERVE, "--explain").output

    lines = {line["item"]: line["usd"] for line in document["total_cost"]["lines"]}
    assert sum(lines.values()) == pytest.approx(document["total_cost"]["usd"], abs=0.05)
    for item in lines:
        assert item in told
    assert document["rows"][0]["total_usd_per_mtok"] > document["rows"][0]["usd_per_mtok"]


def test_ranking_by_the_total_can_differ_and_is_in_order():
    rows = answer("llama-3.1-8b", "--serve", "--rate", "20", "--rank", "total")["rows"]

    totals = [row["total_usd_per_mtok"] for row in rows]
    assert totals == sorted(totals)


def test_an_assumption_can_be_set_for_one_question():
    free = answer(*SERVE, "--set", "ownership.egress_usd_gib=0")["total_cost"]["lines"]

    assert next(line["usd"] for line in free if line["item"] == "network egress") == 0


@pytest.mark.parametrize(
    "content",
    [
        {"metrics": {"http_req_duration": {"avg": 9000.0, "p(95)": 12000}, "vus": {"value": 8, "max": 8}}},
        {"metrics": {"http_req_duration": {"values": {"avg": 9000.0}}, "vus_max": {"values": {"value": 8, "max": 8}}}},
        {"request_latency": {"avg": 9000.0, "unit": "ms"}, "concurrency": 8},
        {"mean_tpot_ms": 35.0, "max_concurrency": 8},
        {"inter_token_latency": {"avg": 35.0}, "concurrency": 8},
    ],
)
def test_results_of_k6_genai_perf_and_vllm_bench_calibrate(tmp_path, content):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(content))

    result = run(
        "llama-3.1-8b", "--serve", "--rate", "5", "--gpu", "L4", "--calibrate", str(path), "--measured-on", "L4"
    )

    assert result.exception is None
    assert "calibrated on your point" in result.output


def test_a_profile_of_a_training_step_calibrates(tmp_path):
    path = tmp_path / "profile.json"
    path.write_text('{"gpu": "L4", "gpus": 1, "step_s": 2.0, "tokens_per_step": 2048}')

    ask = ("llama-3.1-8b", "--finetune", "lora", "--tokens", "100M", "--gpu", "L4")
    row = answer(*ask, "--calibrate", str(path))["rows"][0]

    assert row["basis"] == "calibrated"
    single = [one for one in answer(*ask, "--calibrate", str(path), "--all")["rows"] if one["gpus"] == 1]
    assert single[0]["tok_s"] == pytest.approx(1024)


def test_an_old_driver_rejects_what_needs_a_newer_one():
    document = answer("llama-3.1-8b", "--serve", "--rate", "5", "--driver", "470.57", "--cuda", "11.4")

    said = {one["gpu"]: one["because"] for one in document["rejected"] if one["reason"] == "driver too old"}
    assert "needs driver 520.61" in said["L4"]
    assert "needs driver 570.26" in said["B200-SXM-180GB"]
    assert not {row["gpu"] for row in document["rows"]} & set(said)


def test_unsupported_formats_and_missing_kernels_are_told():
    document = answer("llama-3.1-8b", "--serve", "--rate", "5", "--gpu", "T4", "--gpu", "V100-SXM2-32GB")

    because = " ".join(one["because"] for one in document["rejected"] if one["reason"] == "not supported")
    assert "no bf16 path" in because
    assert "FP8 needs Ada or Hopper" in because
    assert "compute capability 7.5" in because
    assert any("no FlashAttention-2" in remark for remark in document["remarks"])


def test_the_requirement_stands_behind_the_count():
    document = answer("llama-3.1-8b", "--serve", "--rate", "5", "--gpu", "L4")

    assert any(remark.startswith("5 requests/s at") and "20% headroom" in remark for remark in document["remarks"])


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (("llama-3.1-8b", "--serve", "--rate", "5", "--concurrency", "4"), UsageError, "each states the load"),
        (("llama-3.1-8b", "--serve", "--within", "4h"), UsageError, "--within belongs to --offline"),
        (("llama-3.1-8b", "--offline", "1M/day", "--rate", "5"), UsageError, "leave out --rate"),
        (("llama-3.1-8b", "--finetune", "lora", "--tokens", "1M", "--rate", "5"), UsageError, "belong to --serve"),
        (("llama-3.1-8b", "--serve", "--rate", "5", "--adapter-bits", "16"), UsageError, "belongs to --finetune lora"),
        (("llama-3.1-8b", "--serve", "--rate", "0"), UsageError, "not an amount"),
        (("llama-3.1-8b", "--serve", "--rate", "5", "--ttft", "1us"), UsageError, "not a length of time"),
        (("--serve", "--params", "0B"), UsageError, "not an amount"),
        (("--serve", "--params", "9999999T", "--rate", "1"), InputError, ""),
        (("bert-base", "--serve", "--rate", "5"), Unpredictable, "encoder"),
        (("llama-3.1-8b", "--serve", "--rate", "5", "--region", "atlantis-1"), MissingPrice, "no price for"),
        (("llama-3.1-8b", "--serve", "--rate", "5", "--region", "us-esat-1"), MissingPrice, "us-east-1"),
        (
            ("llama-3.1-8b", "--serve", "--rate", "5", "--gpu", "H100-NVL-94GB", "--region", "us-east-1"),
            MissingPrice,
            "H100-NVL",
        ),
        (("llama-3.1-8b", "--serve", "--rate", "5", "--on", "rtx9999"), UnknownName, "rtx"),
        (("llama-3.1-8b", "--serve", "--rate", "5", "--driver", "new"), InputError, "not a version"),
        (("llama-3.1-8b", "--serve", "--rate", "5", "--ttft", "1ms"), PlanError, "TTFT p95"),
        (("llama-3.1-405b", "--serve", "--rate", "5", "--gpu", "L4"), PlanError, "does not fit"),
        (("llama-3.1-8b", "--finetune", "full", "--tokens", "9T", "--deadline", "1d"), PlanError, "the deadline is 1"),
    ],
)
def test_bad_input_has_a_clear_answer(arguments, kind, said):
    result = run(*arguments)

    assert isinstance(result.exception, kind), result.exception
    assert said in str(result.exception)
    assert "lists all" not in str(result.exception)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "no num_hidden_layers"),
        ({"mystery_field": 3}, "no hidden_size"),
        (
            {"num_hidden_layers": 0, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 9},
            "num_hidden_layers is 0",
        ),
        ({"num_hidden_layers": -1, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 9}, "absurd"),
        (
            {"num_hidden_layers": 2, "hidden_size": 65, "num_attention_heads": 4, "vocab_size": 9},
            "not a multiple of the heads",
        ),
        (
            {
                "num_hidden_layers": 2,
                "hidden_size": 64,
                "num_attention_heads": 4,
                "vocab_size": 9,
                "num_local_experts": 8,
            },
            "num_experts_per_tok",
        ),
        (
            {
                "num_hidden_layers": 2,
                "hidden_size": 64,
                "num_attention_heads": 4,
                "vocab_size": 9,
                "num_key_value_heads": 3,
            },
            "num_key_value_heads",
        ),
        (
            {
                "num_hidden_layers": 2,
                "hidden_size": 64,
                "num_attention_heads": 4,
                "vocab_size": 9,
                "num_local_experts": 4,
                "num_experts_per_tok": 8,
            },
            "more experts",
        ),
        (
            {"num_hidden_layers": "many", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 9},
            "no num_hidden_layers",
        ),
    ],
)
def test_a_config_that_describes_no_model_is_refused_with_every_fault(tmp_path, config, said):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))

    result = run(str(path), "--serve", "--rate", "1")

    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)


def test_layers_that_are_not_understood_are_named(tmp_path):
    path = tmp_path / "config.json"
    shape = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 32000}
    path.write_text(json.dumps({**shape, "mamba_d_state": 128}))

    document = answer(str(path), "--serve", "--rate", "1", "--gpu", "L4")

    assert any("mamba_d_state" in remark for remark in document["remarks"])


def test_a_measured_hit_rate_comes_from_the_trace(tmp_path):
    path = tmp_path / "trace.parquet"
    rows = {"t_s": [at / 4 for at in range(400)], "input_tokens": [2000] * 400, "output_tokens": [50] * 400}
    pq.write_table(pa.table({**rows, "cached_tokens": [1000] * 400}), path)

    plain, cached = (
        answer("llama-3.1-8b", "--serve", "--trace", str(path), "--gpu", "L4", *extra)
        for extra in ((), ("--prefix-hit", "measured"))
    )

    assert "50% of the prompt tokens cached" in plain["remarks"][0]
    assert any("prefix cache: 50%" in remark for remark in cached["remarks"])
    assert cached["rows"][0]["usd_per_mtok"] <= plain["rows"][0]["usd_per_mtok"]
    assert cached["rows"][0]["ttft_p50_ms"] < plain["rows"][0]["ttft_p50_ms"]


def test_drafts_and_adapters_are_said_and_pasted():
    document = answer(*SERVE, "--draft-tokens", "3", "--acceptance", "0.7", "--adapters", "8", "--adapter-rank", "16")

    assert "--max-loras 8" in document["paste"]
    assert '"num_speculative_tokens": 3' in document["paste"]
    assert document["rows"][0]["memory_adapters_gib"] > 0
    assert any("2.53 tokens a step" in remark for remark in document["remarks"])


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        (("--prefix-hit", "1.4"), "is not a share"),
        (("--prefix-hit", "measured"), "cached_tokens or prefix_block_ids"),
        (("--draft-tokens", "3"), "needs both --draft-tokens and --acceptance"),
    ],
)
def test_shares_and_drafts_that_do_not_hold_are_refused(extra, told):
    found = run(*SERVE, *extra)

    assert isinstance(found.exception, UsageError)
    assert told in str(found.exception)


def test_a_replica_over_several_nodes_says_so_and_pastes_its_layout():
    asked = ("deepseek-v3", "--serve", "--rate", "2", "--gpu", "H100-SXM5-80GB", "--provider", "aws", "--format", "fp8")
    document = answer(*asked, "--over-nodes")

    assert isinstance(run(*asked).exception, PlanError)
    assert any("spans 2 nodes" in remark for remark in document["remarks"])
    assert "--pipeline-parallel-size 2" in document["paste"] or "--enable-expert-parallel" in document["paste"]
