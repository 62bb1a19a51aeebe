"""GPU metrics of Azure Monitor as the tables of a bundle."""

import json
from datetime import UTC, datetime

import pytest
from tests.sources.answering_server import answering

from trimtab.catalog import load_catalog
from trimtab.errors import SourceError
from trimtab.sources.clouds.azure import AzureMonitor
from trimtab.sources.clouds.fleet import cloud_fleet
from trimtab.sources.hour_grid import HourGrid

START_S = 1_790_000_000 // 3600 * 3600
GRID = HourGrid(start_s=START_S, hours=24 * 8)
NAMES = ("hour", "Name", "Computer", "gpu", "model", "cluster", "mean", "p50", "p95", "most", "samples")
GIB = 1024.0**3


def row(hour, name, values, *, gpu="GPU-9"):
    at = datetime.fromtimestamp(START_S + 3600 * hour, tz=UTC).isoformat()
    return [at, name, "aks-gpu-1", gpu, "Tesla T4", "prod", *values, 60]


FIRST = [
    row(0, "containerGpuDutyCycle", [25.0, 20.0, 80.0, 99.0]),
    row(0, "containerGpumemoryUsedBytes", [2 * GIB, 2 * GIB, 3 * GIB, 4 * GIB]),
    row(0, "containerGpumemoryTotalBytes", [15 * GIB] * 4),
    row(1, "containerGpuDutyCycle", [25.0, 20.0, 80.0, 99.0], gpu=""),
    ["no", "row"],
]
LATER = [row(24 * 7, "containerGpuDutyCycle", [50.0, 50.0, 50.0, 50.0])]


def azure(asked):
    question = json.loads(asked.body)
    first = question["timespan"].startswith(datetime.fromtimestamp(START_S, tz=UTC).isoformat())
    table = {"name": "PrimaryResult", "columns": [{"name": name} for name in NAMES], "rows": FIRST if first else LATER}
    answer = {"tables": [table]}
    if not first:
        answer["error"] = {"message": "partial query failure"}
    return 200, {}, json.dumps(answer).encode()


@pytest.fixture
def collected():
    with answering(azure) as (script, url):
        monitor = AzureMonitor(workspace="w", headers={"Authorization": "Bearer t"}, url=url)
        reading = monitor.read(GRID, lambda stage, done: None)
    assert [asked.path for asked in script.seen] == ["/v1/workspaces/w/query"] * 2, "a week at a time"
    return cloud_fleet(reading, load_catalog())


def test_duty_cycle_and_memory_land_by_hour(collected):
    first, later = collected.tables["gpu_usage"].to_pylist()

    assert (first["gpu_util_mean"], first["gpu_util_p50"], first["gpu_util_p95"], first["gpu_util_max"]) == (
        0.25, 0.2, 0.8, 0.99)  # fmt: skip
    assert (first["memory_used_gib_mean"], first["memory_used_gib_max"]) == (2.0, 4.0)
    assert later["hour"].timestamp() == START_S + 24 * 7 * 3600


def test_boards_and_machines_are_named(collected):
    (device,) = collected.tables["devices"].to_pylist()
    (node,) = collected.tables["nodes"].to_pylist()

    assert (device["device"], device["gpu"], device["memory_gib"]) == ("GPU-9", "T4", 15.0)
    assert (node["node"], node["provider"], node["instance_type"]) == ("aks-gpu-1", "azure", "unknown")


def test_what_cannot_be_used_is_counted_and_a_partial_answer_told_of(collected):
    assert collected.meta.counts["rows of Azure Monitor that name no board"] == 1
    assert collected.meta.counts["rows of Azure Monitor that cannot be understood"] == 1
    assert any("part of the answer" in note for note in collected.meta.notes)


def test_an_answer_that_is_none_is_an_error():
    monitor_of = {"workspace": "w", "headers": {}}
    with (
        answering(lambda asked: (200, {}, b"{}")) as (_, url),
        pytest.raises(SourceError, match="no answer to a query"),
    ):
        AzureMonitor(url=url, **monitor_of).read(GRID, lambda stage, done: None)
