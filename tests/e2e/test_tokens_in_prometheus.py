"""Tokens, time of the engine's steps and time per token as engines export them, through a real Prometheus server."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow.compute as pc
import pytest
from tests.e2e.conftest import collected_from

from trimtab.catalog.model_servers import SERVERS

START = datetime(2026, 9, 1, tzinfo=UTC)
HOURS, STEP_S = 4, 60
STEPS = HOURS * 60
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "telemetry" / "samples"

VLLM = """
vllm:num_requests_running{engine="0",model_name="m"} 24
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 978
vllm:prompt_tokens_total{engine="0",model_name="m"} 59150800
vllm:prompt_tokens_cached_total{engine="0",model_name="m"} 34176600
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 34176600
vllm:generation_tokens_total{engine="0",model_name="m"} 739935
vllm:request_prefill_time_seconds_sum{engine="0",model_name="m"} 1225.17
vllm:request_decode_time_seconds_sum{engine="0",model_name="m"} 51132.2
vllm:request_time_per_output_token_seconds_bucket{engine="0",le="0.05",model_name="m"} 240
vllm:request_time_per_output_token_seconds_bucket{engine="0",le="0.1",model_name="m"} 960
vllm:request_time_per_output_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 978
"""
"""A replica under agents' load for 35 minutes; totals as a public record of llm-d has them, buckets made to fit."""
OLD_VLLM = """
vllm:num_requests_running{model_name="m"} 2
vllm:request_success_total{finished_reason="stop",model_name="m"} 60
vllm:prompt_tokens_total{model_name="m"} 6000
vllm:generation_tokens_total{model_name="m"} 600
vllm:gpu_prefix_cache_hits_total{model_name="m"} 1200
"""
SGLANG = """
sglang:num_running_reqs{model_name="m",tp_rank="0"} 8
sglang:num_requests_total{model_name="m"} 300
sglang:prompt_tokens_total{model_name="m"} 683084
sglang:generation_tokens_total{model_name="m"} 109244
sglang:cached_tokens_total{model_name="m",cache_source="device"} 500000
sglang:cached_tokens_total{model_name="m",cache_source="host"} 10947
sglang:forward_execution_seconds_total{model_name="m",category="extend",tp_rank="0"} 12.1
sglang:forward_execution_seconds_total{model_name="m",category="decode",tp_rank="0"} 367.2
sglang:forward_execution_seconds_total{model_name="m",category="idle",tp_rank="0"} 9.0
"""
"""One H100; tokens and seconds as a public record of a load test has them."""
DYNAMO = SGLANG.replace('model_name="m"', 'dynamo_component="backend",dynamo_namespace="d",model_name="m"')
"""A worker of Dynamo passes its engine's series on with labels of its own."""
TGI = """
tgi_batch_current_size 3
tgi_request_count 120
tgi_request_success 120
tgi_request_input_length_sum 60000
tgi_request_input_length_count 120
tgi_request_generated_tokens_sum 12000
tgi_request_generated_tokens_count 120
tgi_batch_inference_duration_sum{method="prefill"} 10.8
tgi_batch_inference_duration_sum{method="decode"} 360.0
tgi_request_mean_time_per_token_duration_bucket{le="0.05"} 90
tgi_request_mean_time_per_token_duration_bucket{le="+Inf"} 120
"""
ENGINES = {"vllm": VLLM, "vllm-old": OLD_VLLM, "sglang": SGLANG, "dynamo": DYNAMO, "tgi": TGI}
GAUGES = ("_running", "_reqs", "_size")


def scraped(name, page):
    """Let the counters of a page rise evenly to what it says over the history, gauges stand, all on one pod."""
    lines = []
    for line in page.strip().splitlines():
        series, value = line.rsplit(" ", 1)
        metric, _, labels = series.partition("{")
        labels = ",".join(part for part in (f'namespace="prod",pod="{name}-0"', labels.rstrip("}")) if part)
        for step in range(STEPS):
            at = float(value) if metric.endswith(GAUGES) else float(value) * step / (STEPS - 1)
            lines.append(f"{metric}{{{labels}}} {at!r} {int(START.timestamp()) + step * STEP_S}\n")
    return lines


@pytest.fixture(scope="module")
def demand(tmp_path_factory, prometheus_bin, promtool_bin):
    folder = tmp_path_factory.mktemp("tokens")
    lines = [line for name, page in ENGINES.items() for line in scraped(name, page)]
    board = 'UUID="GPU-a",gpu="0",modelName="Tesla T4",Hostname="n",namespace="prod",pod="vllm-0"'
    lines += [f"DCGM_FI_DEV_GPU_UTIL{{{board}}} 50.0 {int(START.timestamp()) + s * STEP_S}\n" for s in range(STEPS)]
    binaries = (prometheus_bin, promtool_bin)
    table = collected_from("".join(lines), folder, binaries, START, HOURS).table("demand")

    def of(name):
        return table.filter(pc.equal(table["workload"], f"prod/{name}")).to_pylist()

    return of


def total(rows, column):
    """Return what a column rises by from the second step on: the first has nothing before it."""
    return sum(row[column] for row in rows[1:])


@pytest.mark.prometheus
@pytest.mark.parametrize(
    ("engine", "read", "cached", "answered"),
    [
        ("vllm", 59150800, 34176600, 739935),
        ("vllm-old", 6000, 1200, 600),
        ("sglang", 683084, 510947, 109244),
        ("dynamo", 683084, 510947, 109244),
    ],
)
def test_tokens_of_an_engine_are_read_as_it_counted_them(demand, engine, read, cached, answered):
    rows = demand(engine)

    assert total(rows, "input_tokens") == pytest.approx(read)
    assert total(rows, "cached_tokens") == pytest.approx(cached)
    assert total(rows, "output_tokens") == pytest.approx(answered)


@pytest.mark.prometheus
def test_tgi_counts_tokens_and_no_cached_ones(demand):
    rows = demand("tgi")

    assert (total(rows, "input_tokens"), total(rows, "output_tokens")) == pytest.approx((60000, 12000))
    assert {row["cached_tokens"] for row in rows} == {None}


@pytest.mark.prometheus
@pytest.mark.parametrize(
    ("engine", "prefill_s", "decode_s"), [("sglang", 12.1, 367.2), ("dynamo", 12.1, 367.2), ("tgi", 10.8, 360.0)]
)
def test_the_time_of_an_engines_steps_is_told_by_what_they_computed(demand, engine, prefill_s, decode_s):
    rows = demand(engine)

    assert (total(rows, "prefill_s"), total(rows, "decode_s")) == pytest.approx((prefill_s, decode_s))


@pytest.mark.prometheus
def test_vllm_times_of_requests_are_not_taken_for_times_of_steps(demand):
    assert {(row["prefill_s"], row["decode_s"]) for row in demand("vllm")} == {(None, None)}


@pytest.mark.prometheus
def test_the_time_per_token_of_requests_is_read_as_a_histogram(demand):
    vllm, tgi, sglang = demand("vllm")[10], demand("tgi")[10], demand("sglang")[10]

    assert vllm["tpot_le_s"] == [0.05, 0.1, float("inf")]
    assert vllm["tpot_count"] == pytest.approx([240 / (STEPS - 1), 720 / (STEPS - 1), 18 / (STEPS - 1)])
    assert tgi["tpot_le_s"] == [0.05, float("inf")]
    assert sglang["tpot_le_s"] is None


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs recorded scrapes beside the checkout")
def test_a_recorded_scrape_of_vllm_has_the_series_that_tokens_are_read_from():
    text = (SHARED / "vllm_v1_qwen05b.prom").read_text(encoding="utf-8")
    vllm = next(server for server in SERVERS if server.server == "vllm")

    for names in (vllm.prompt_tokens, vllm.answer_tokens, vllm.cached_tokens, (f"{vllm.tpot}_bucket",)):
        assert any(f"\n{name}{{" in text for name in names), names
