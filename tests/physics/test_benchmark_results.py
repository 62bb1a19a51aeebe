"""Results of serving benchmarks as one measured point: small examples of the documented formats, made for these tests."""

import pytest

from trimtab.physics.benchmark_results import figures_of, figures_of_loadgen


def guidellm_run(concurrency, itl_ms):
    means = {
        "inter_token_latency_ms": itl_ms, "request_latency": 4.0, "request_concurrency": concurrency,
        "requests_per_second": concurrency / 4.0,
    }  # fmt: skip
    return {"metrics": {name: {"successful": {"mean": value}} for name, value in means.items()}}


def test_guidellm_gives_the_middle_run_of_a_sweep():
    content = {"benchmarks": [guidellm_run(64, 40.0), guidellm_run(1, 9.0), guidellm_run(8, 14.0)]}

    assert figures_of(content) == {"tpot_ms": 14.0, "latency_ms": 4000.0, "concurrency": 8}


def test_inference_perf_is_in_seconds_and_states_a_rate():
    latency = {"time_per_output_token": {"mean": 0.02}, "request_latency": {"mean": 5.0}}
    content = {"successes": {"count": 90, "latency": latency, "throughput": {"requests_per_sec": 3.0}}}

    # Little's law: 3 requests a second that take 5 seconds each
    assert figures_of(content) == {"tpot_ms": 20.0, "latency_ms": 5000.0, "concurrency": 15}


@pytest.mark.parametrize(("units", "mean"), [("s/token", 0.02), ("ms/token", 20.0)], ids=["seconds", "milliseconds"])
def test_llm_d_benchmark_states_its_units(units, mean):
    latency = {"time_per_output_token": {"units": units, "mean": mean}}
    old = {"version": "0.1", "metrics": {"latency": latency}}
    new = {"version": "0.2", "results": {"request_performance": {"aggregate": {"latency": latency}}}}

    assert figures_of(old) == figures_of(new) == {"tpot_ms": pytest.approx(20.0)}


def test_loadgen_is_in_nanoseconds():
    summary = """================================================
MLPerf Results Summary
================================================
SUT name : example
Scenario : Server
Completed samples per second    : 2.0
Mean latency (ns)               : 4000000000
Mean Time to Output Token (ns)  : 25000000
"""

    assert figures_of_loadgen(summary) == {"tpot_ms": 25.0, "latency_ms": 4000.0, "concurrency": 8}


def test_other_documents_are_not_taken_for_results():
    assert figures_of({"mean_tpot_ms": 20.0}) is None
    assert figures_of({"metrics": {"http_req_duration": {"avg": 12.0}}}) is None
    assert figures_of_loadgen("no summary") is None
