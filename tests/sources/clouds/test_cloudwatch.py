"""GPU metrics of CloudWatch as the tables of a bundle."""

import json
from datetime import UTC, datetime

import pytest
from tests.sources.answering_server import answering
from tests.sources.recorded_cloudwatch import START_S, cloudwatch

from trimtab.catalog import load_catalog
from trimtab.errors import CredentialsError, SourceError
from trimtab.sources.clouds import CloudReading
from trimtab.sources.clouds.aws import CloudWatch
from trimtab.sources.clouds.fleet import cloud_fleet
from trimtab.sources.hour_grid import HourGrid

GRID = HourGrid(start_s=START_S, hours=4)
THROTTLED = (
    400,
    {"Content-Type": "application/x-amz-json-1.0"},
    b'{"__type":"ThrottlingException","message":"Rate exceeded"}',
)
REFUSED = (400, {"Content-Type": "application/x-amz-json-1.0"}, b'{"__type":"AccessDeniedException","message":"no"}')


@pytest.fixture(autouse=True)
def signed(monkeypatch):
    """Let boto3 sign without asking anybody."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def collected():
    with answering(cloudwatch()) as (script, url):
        script.faults = [THROTTLED]
        reading = CloudWatch(region="us-east-1", endpoint=url).read(GRID, lambda stage, done: None)
    return cloud_fleet(reading, load_catalog())


def rows(collected, table, **wanted):
    found = collected.tables[table].to_pylist()
    return [row for row in found if all(row[key] == value for key, value in wanted.items())]


def test_hourly_statistics_of_the_agent_land_in_their_columns(collected):
    found = rows(collected, "gpu_usage", device="i-a:0")

    assert len(found) == 3, "an hour that was not told has no row"
    first = found[0]
    assert first["hour"] == datetime.fromtimestamp(START_S, tz=UTC)
    assert (first["gpu_util_mean"], first["gpu_util_p50"], first["gpu_util_p95"]) == (0.4, 0.35, 0.9)
    assert first["gpu_util_max"] == 1.0, "above 100 % is clamped"
    assert first["memory_used_gib_mean"] == 10.0
    assert first["power_w_mean"] == 36.0
    assert first["energy_kwh"] == pytest.approx(0.036)
    assert (first["samples"], first["samples_expected"], first["basis"]) == (60, 60, "hourly average")
    assert first["sm_active_mean"] is None
    assert collected.meta.counts["shares outside 0..1, clamped"] == 6


def test_machines_come_with_type_zone_and_way_of_holding(collected):
    (spot,) = rows(collected, "nodes", node="i-b")
    assert (spot["instance_type"], spot["zone"], spot["capacity_type"]) == ("g6.12xlarge", "us-east-1b", "spot")
    (first,) = rows(collected, "nodes", node="i-a")
    assert (first["provider"], first["region"], first["gpu_count"], first["capacity_type"]) == (
        "aws", "us-east-1", 2, "on-demand")  # fmt: skip
    assert first["end"] == datetime.fromtimestamp(START_S + 3 * 3600, tz=UTC)
    assert collected.meta.counts["machines that EC2 no longer knows: on demand assumed"] == 2


def test_boards_are_those_of_the_catalog(collected):
    gpus = {row["device"]: (row["gpu"], row["memory_gib"]) for row in rows(collected, "devices")}

    assert gpus["i-a:0"] == ("L4", pytest.approx(23034 / 1024))
    assert gpus["ip-10-0-0-1:0"][0] == "A100-SXM4-40GB", "Container Insights names no board: the machine's type does"


def test_where_only_power_is_told_power_over_the_limit_is_the_signal_and_says_so(collected):
    first = rows(collected, "gpu_usage", device="i-b:0")[0]

    assert first["basis"] == "power over the board's limit"
    assert first["gpu_util_mean"] == pytest.approx(36 / 72)
    assert first["gpu_util_max"] == 1.0
    assert collected.meta.counts["GPUs judged by power over the board's limit, because no activity is reported"] == 1


def test_a_group_of_machines_stands_as_one_workload_where_no_pod_is_named(collected):
    workloads = {row["device"]: row["workload"] for row in rows(collected, "allocations")}

    assert workloads == {"i-a:0": "aws/serve", "i-a:1": "aws/serve", "i-b:0": "aws/serve", "ip-10-0-0-1:0": "aws/prod"}
    assert any("who held a GPU is not known" in note for note in collected.meta.notes)


def test_metrics_rolled_up_over_boards_are_counted_not_used(collected):
    assert collected.meta.counts["metrics rolled up over boards or machines: not used"] == 2


def test_no_gpu_metrics_is_an_error_that_says_what_to_check():
    def nothing(asked):
        return 200, {"Content-Type": "application/x-amz-json-1.0"}, b'{"Metrics": [], "MetricDataResults": []}'

    with answering(nothing) as (_, url):
        reading = CloudWatch(region="us-east-1", endpoint=url).read(GRID, lambda stage, done: None)
    with pytest.raises(SourceError, match="no GPU metrics"):
        cloud_fleet(reading, load_catalog())


def test_being_refused_is_a_matter_of_credentials():
    with answering(lambda asked: REFUSED) as (_, url), pytest.raises(CredentialsError, match="AccessDenied"):
        CloudWatch(region="us-east-1", endpoint=url).read(GRID, lambda stage, done: None)


@pytest.mark.parametrize(
    "body", [b"[1]", b'{"Metrics": 5}', b'{"Metrics": [1.5]}', b"<html>login</html>", b"[" * 20_000, b""]
)
def test_an_answer_of_another_kind_is_an_error_that_names_the_operation(body):
    def read(url):
        reading = CloudWatch(region="us-east-1", endpoint=url).read(GRID, lambda stage, done: None)
        return cloud_fleet(reading, load_catalog())

    answer = 200, {"Content-Type": "application/x-amz-json-1.0"}, body
    with answering(lambda asked: answer) as (_, url), pytest.raises(SourceError):
        read(url)


def test_counts_of_samples_that_no_hour_has_are_left_out():
    reading = CloudReading(grid=GRID, source="a test")

    reading.put("i-a:0", "samples", [0, 1, 2, 3], [60.0, 1e30, -5.0, 0.0])

    assert reading.of("i-a:0", "samples")[[0, 3]].tolist() == [60.0, 0.0]
    assert reading.counts["values outside the window, or no numbers"] == 2


@pytest.mark.parametrize(
    "result",
    [
        {"Id": "q9999", "Timestamps": [START_S], "Values": [1.0]},
        {"Id": "q0", "Timestamps": [START_S, START_S + 3600], "Values": [1.0]},
        {"Id": "q0", "Timestamps": [START_S], "Values": [1.0, 2.0]},
    ],
)
def test_values_that_belong_to_no_question_or_no_hour_are_counted_and_left_out(result):
    whole = cloudwatch()

    def answer(asked):
        status, headers, body = whole(asked)
        return status, headers, body.replace(b'{"MetricDataResults": [', b'{"MetricDataResults": [' + said + b", ")

    said = json.dumps(result).encode()
    with answering(answer) as (_, url):
        reading = CloudWatch(region="us-east-1", endpoint=url).read(GRID, lambda stage, done: None)

    assert reading.counts["answers of CloudWatch to no question, or with values without a time"] > 0
