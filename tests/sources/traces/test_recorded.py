from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.errors import InputError, UnknownName
from trimtab.pipeline import audit
from trimtab.sources.traces import FORMATS, read_trace, repeated
from trimtab.sources.traces.runs import LATEST, machine_of
from trimtab.tables.bundle import memory_bundle
from trimtab.tables.checks import check_bundle

DAY = datetime(2017, 10, 3, 0, 30)


def write(folder, rows, name="trace.parquet"):
    file = folder / name
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file


def bundle_of(found):
    return check_bundle(memory_bundle(found.tables, found.meta))


def job(hours, length_hr, gpus, cluster="vc1", **changes):
    row = {
        "submit_utc": DAY + timedelta(hours=hours), "duration_s": length_hr * 3600.0, "num_gpus": gpus,
        "virtual_cluster": cluster,
    }  # fmt: skip
    return row | changes


def test_jobs_become_runs_of_their_virtual_cluster_on_nodes_that_held_them(tmp_path):
    file = write(tmp_path, [job(0, 5, 4), job(1, 2, 2, "vc2"), job(60, 1, 1), job(2, 0, 1), job(3, 1, 0)])

    found = read_trace(file, machine_of("aws:p3.8xlarge"))

    jobs = found.tables["jobs"].to_pylist()
    assert [(row["workload"], row["gpus"]) for row in jobs] == [
        ("vc1/training", 4.0), ("vc2/training", 2.0), ("vc1/training", 1.0)
    ]  # fmt: skip
    assert jobs[0]["submit"] == jobs[0]["start"] == DAY.replace(tzinfo=UTC)
    assert found.meta.counts == {"rows without a moment, a length or GPUs, left out": 2}
    assert found.tables["nodes"].num_rows == 2
    bundle_of(found)


def test_shared_pods_hold_their_thousandths_and_one_that_never_started_waits(tmp_path):
    pod = {
        "name": "p0", "num_gpu": 1, "gpu_milli": 460, "gpu_spec": None, "qos": "LS", "pod_phase": "Running",
        "creation_time": 0, "scheduled_time": 10.0, "deletion_time": 90_000,
    }  # fmt: skip
    batch = pod | {"name": "p1", "qos": "BE", "gpu_milli": 1000, "num_gpu": 2, "pod_phase": "Failed"}
    waits = pod | {"name": "p2", "qos": "BE", "scheduled_time": None, "pod_phase": "Pending"}
    plain = pod | {"name": "p3", "num_gpu": 0}

    found = read_trace(write(tmp_path, [pod, batch, waits, plain]))

    held = {row["pod"]: row["gpus"] for row in found.tables["allocations"].to_pylist()}
    runs = {row["job"]: row for row in found.tables["jobs"].to_pylist()}
    assert held == {"p0": 0.46, "p1": 2.0}
    assert (runs["p1"]["state"], runs["p2"]["state"], runs["p2"]["start"]) == ("failed", "queued", None)
    assert runs["p1"]["start"] - runs["p1"]["submit"] == timedelta(seconds=10)
    assert found.meta.end <= LATEST


def test_instances_without_a_moment_were_there_before_and_after(tmp_path):
    row = {"instance_sn": "a", "app_name": "app", "gpu_request": 1, "creation_time": None, "scheduled_time": None,
           "deletion_time": None, "role": "HN"}  # fmt: skip
    rows = [row, row | {"instance_sn": "b", "creation_time": 100.0, "deletion_time": 9000.0}, row | {"gpu_request": 0}]

    found = read_trace(write(tmp_path, rows))

    held = {one["pod"]: one for one in found.tables["allocations"].to_pylist()}
    assert (held["a"]["start"], held["a"]["end"]) == (found.meta.start, None)
    assert held["b"]["end"] - held["b"]["start"] == timedelta(seconds=8900)
    assert "jobs" not in found.tables


def readings(pods=2, hours=3):
    return [
        {"pod": f"pod{pod}", "t_s": second, "gpu_util_pct": 50.0, "gpu_mem_used_bytes": 8.0 * 2**30}
        for pod in range(pods)
        for second in range(0, hours * 3600, 60)
    ]


def test_readings_of_pods_are_rolled_up_by_hour_as_use_of_an_assumed_board(tmp_path):
    bad = [{"pod": "pod0", "t_s": 30, "gpu_util_pct": -1.0, "gpu_mem_used_bytes": None}]

    found = read_trace(write(tmp_path, readings() + bad))

    rows = found.tables["gpu_usage"].to_pylist()
    assert len(rows) == 6
    assert {(row["gpu_util_mean"], row["gpu_util_p95"], row["memory_used_gib_max"]) for row in rows} == {
        (0.5, 0.5, 8.0)
    }
    assert {row["samples"] for row in rows} == {60}
    assert rows[0]["activity_histogram"][50] == 60
    assert any(note.startswith("assumed: each pod holds one board") for note in found.meta.notes)
    assert sum(found.meta.counts.values()) == 2
    bundle_of(found)


def test_a_board_too_small_for_the_memory_seen_is_refused_with_a_larger_one(tmp_path):
    rows = readings()
    rows[0]["gpu_mem_used_bytes"] = 47.0 * 2**30

    with pytest.raises(InputError, match=r"47\.0 GiB were in use.*--machine"):
        read_trace(write(tmp_path, rows), machine_of("aws:p4d.24xlarge"))


def test_rates_by_client_are_added_up_by_model(tmp_path):
    rows = [
        {"model": "m", "client": client, "t_s": second, "requests_per_s": 1.0 + client}
        for client in (0, 1)
        for second in range(0, 7200, 600)
    ]

    found = read_trace(write(tmp_path, rows))

    assert set(found.tables["demand"]["arrivals"].to_pylist()) == {1800.0}
    with pytest.raises(InputError, match="--machine is for traces of jobs"):
        read_trace(write(tmp_path, rows), machine_of("aws:p4d.24xlarge"))


def test_a_short_trace_repeated_says_so_and_its_audit_comes_to_an_end(tmp_path):
    found = repeated(read_trace(write(tmp_path, readings(pods=8, hours=23))), 4)

    assert found.meta.end - found.meta.start == timedelta(days=4)
    assert "repeated to 4 days" in found.meta.notes[0]
    hours = found.tables["gpu_usage"]["hour"].to_pylist()
    assert len(hours) == 8 * 23 * 4
    assert {hour.hour for hour in hours} == set(range(23))
    told = audit(bundle_of(found))
    assert told.bill_micro_usd > 0


def test_runs_that_come_and_go_are_not_repeated(tmp_path):
    with pytest.raises(InputError, match="runs that come and go"):
        repeated(read_trace(write(tmp_path, [job(0, 5, 4), job(1, 2, 2)])), 30)


def test_a_file_that_is_no_trace_names_the_columns_of_those_that_are(tmp_path):
    with pytest.raises(InputError) as raised:
        read_trace(write(tmp_path, [{"a": 1}, {"a": 2}]))

    assert all(", ".join(sorted(one.columns)) in str(raised.value) for one in FORMATS)
    text = tmp_path / "text.parquet"
    text.write_text("hello")
    with pytest.raises(InputError, match="not a readable Parquet"):
        read_trace(text)


@pytest.mark.parametrize(
    ("text", "machine"),
    [("p4d.24xlarge", ("aws", "us-east-1", 8)), ("aws:p3.8xlarge:us-west-2", ("aws", "us-west-2", 4))],
)
def test_a_machine_is_named_by_its_type_and_maybe_its_place(text, machine):
    found = machine_of(text)

    assert (found.provider, found.region, found.gpu_count) == machine


@pytest.mark.parametrize(
    ("text", "error", "part"),
    [
        ("p4d.24xlage", UnknownName, "did you mean p4d.24xlarge"),
        ("aws:p4d.24xlarge:atlantis-1", InputError, "no rate on demand"),
        ("a:b:c:d", InputError, "is not a machine"),
    ],
)
def test_a_machine_that_is_none_is_refused(text, error, part):
    with pytest.raises(error, match=part):
        machine_of(text)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("file", "tables"),
    [
        ("jobs/philly2017_jobs", {"jobs": 54_565}),
        ("jobs/alibaba2023_openb_pods", {"jobs": 1_837}),
        ("jobs/alibaba2025_dlrm_instances", {"allocations": 4_567}),
        ("util/gentd26_pod_gpu_1min", {"devices": 92, "allocations": 92}),
        ("requests/servegen_client_rates_10min", {"demand": 4_055}),
        ("requests/gentd26_diffusion_requests", {"devices": 16}),
        ("requests/mooncake_conversation", {"devices": 16}),
    ],
)
def test_real_traces_become_bundles_that_stand_the_check(shared_dir, file, tables):
    found = read_trace(shared_dir / "data/traces" / f"{file}.parquet")

    bundle = bundle_of(found)
    assert {name: bundle.table(name).num_rows for name in tables} == tables


@pytest.mark.shared
def test_the_demand_summed_by_client_is_that_of_the_models_own_file(shared_dir):
    folder = shared_dir / "data/traces/requests"
    by_client = read_trace(folder / "servegen_client_rates_10min.parquet").tables["demand"]
    by_model = read_trace(folder / "servegen_model_rate_10min.parquet").tables["demand"]

    difference = [
        abs(a - b) for a, b in zip(by_client["arrivals"].to_pylist(), by_model["arrivals"].to_pylist(), strict=True)
    ]
    assert max(difference) <= 1.0
