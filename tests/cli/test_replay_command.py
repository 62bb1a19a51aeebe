"""`trimtab replay` on a small demonstration fleet."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from trimtab.cli import root
from trimtab.cli.replay.run import out_of_reach
from trimtab.errors import UnknownName, UsageError
from trimtab.replay.services import ServiceModel

SMALL = ("--demo", "three-small-models", "-q")


def run(*arguments):
    return CliRunner().invoke(root, ["replay", *arguments], catch_exceptions=True)


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    picture = tmp_path_factory.mktemp("replay") / "replay.svg"
    shown = run(*SMALL, "--policy", "static", "--sweep", "hpa:40..80:20", "--picture", str(picture), "-o", "json")
    assert shown.exit_code == 0, shown.output
    return json.loads(shown.stdout)["rows"], picture.read_text(encoding="utf-8")


def test_each_service_is_replayed_under_each_policy_and_sweep(answered):
    rows, _ = answered
    services = {row["workload"] for row in rows}
    assert len(services) >= 1
    assert len(rows) == 4 * len(services)
    assert {row["policy"] for row in rows} == {"static", "hpa:40", "hpa:60", "hpa:80"}


def test_a_row_states_cost_regret_and_targets(answered):
    rows, _ = answered
    for row in rows:
        assert row["usd_mo"] > 0
        assert row["over_clairvoyant"] >= 0.9
        assert 0 <= row["attained_frac"] <= 1
        assert isinstance(row["keeps_targets"], bool)


def test_a_picture_names_the_policies(answered):
    _, picture = answered
    assert picture.startswith("<svg xmlns=")
    assert "hpa:60" in picture


def test_a_misspelt_service_gets_near_matches():
    result = run(*SMALL, "--policy", "static", "--workload", "nobody")
    assert isinstance(result.exception, UnknownName)


def test_no_history_is_a_usage_error():
    assert isinstance(run().exception, UsageError)


def trace(tmp_path, seconds, per_s=2.0):
    path = tmp_path / "short.parquet"
    rng = np.random.default_rng(1)
    t_s = np.sort(rng.uniform(0, seconds, int(seconds * per_s)))
    pq.write_table(pa.table({"t_s": t_s}), path)
    return str(path)


def test_a_trace_of_an_hour_is_tuned_on_its_first_half_and_replayed_over_the_second(tmp_path):
    shown = run("--demo-trace", trace(tmp_path, 3600), "-q", "--policy", "hpa:70+queue:5", "--policy", "static")
    assert shown.exit_code == 0, shown.output
    assert "second half of the trace, 0.5 h" in shown.stdout
    assert "replicas over time" in shown.stdout


def test_a_plan_needs_more_than_an_hour(tmp_path):
    assert isinstance(run("--demo-trace", trace(tmp_path, 3600), "-q", "--policy", "plan").exception, UsageError)


def test_serving_on_spot_costs_less_and_counts_what_it_lost(tmp_path):
    shown = run(
        *("--demo-trace", trace(tmp_path, 7200), "-q", "--policy", "static:8", "-o", "json"),
        *("--spot", "one-in-4", "--spot", "all", "--loss", "3/hr", "--outage-hr", "0.2"),
    )
    assert shown.exit_code == 0, shown.output
    plain, floor, everything = json.loads(shown.stdout)["rows"]

    assert [row["policy"] for row in (plain, floor, everything)] == [
        "static:8",
        "static:8 spot:one-in-4",
        "static:8 spot:all",
    ]
    assert plain["spot_frac"] is None
    assert everything["spot_frac"] > floor["spot_frac"] > 0
    assert everything["lost_replicas"] > 0


def test_recorded_availability_stands_in_for_a_rate(tmp_path):
    probes = tmp_path / "spot.parquet"
    pq.write_table(
        pa.table({"zone": ["a", "a", "a"], "t_s": [0.0, 600.0, 1200.0], "available_nodes": [1, 0, 0]}), probes
    )
    shown = run(
        *("--demo-trace", trace(tmp_path, 3600), "-q", "--policy", "static:8", "-o", "json"),
        *("--spot", "all", "--availability", str(probes)),
    )
    assert shown.exit_code == 0, shown.output
    assert 0.2 < json.loads(shown.stdout)["rows"][1]["spot_frac"] < 0.6


def test_a_floor_that_means_nothing_is_refused(tmp_path):
    assert isinstance(run("--demo-trace", trace(tmp_path, 3600), "-q", "--spot", "some").exception, UsageError)


def test_the_page_is_one_file_with_three_pictures_and_nothing_from_elsewhere(tmp_path):
    shown = run("--demo-trace", trace(tmp_path, 3600), "-q", "--sweep", "hpa:50..80:10", "-o", "html")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.count("<svg") == 3
    assert "http" not in shown.stdout.replace("http-equiv", "")


def test_a_target_that_nothing_keeps_is_named_with_the_nearest_that_can_be():
    model = ServiceModel(
        capacity_req_s=1.0,
        load_grid=np.array([0.0, 1.0]),
        ok_frac=np.array([[0.97, 0.9], [1.0, 1.0]]),
        wait_limit_s=np.array([1.0, 1.0]),
        cold_start_s=0.0,
    )
    said = list(out_of_reach(["ttft p99 <= 0.1 s", "e2e p99 <= 5 s"], np.array([0.99, 0.99]), model))

    assert said == [
        "no capacity keeps ttft p99 <= 0.1 s: at best 97.00% are in time, which is the nearest target that can be kept"
    ]
