"""14 days of 26 GPUs on a real Prometheus server, collected and held against the truth."""

import json
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from tests.e2e.generated_fleet import (
    DAY,
    GPUS,
    IDLE,
    LATENCY_LE,
    MIXED,
    NODES,
    OUTAGE,
    PER_HOUR,
    ROLLOUT,
    SERVE,
    SPOT,
    START,
    STEP_S,
    STEPS,
    TRAIN,
    device_name,
)

from trimtab.cli import main
from trimtab.errors import SourceError
from trimtab.sources.prometheus.client import Prometheus
from trimtab.sources.prometheus.collect import collect_prometheus
from trimtab.tables.checks import checked_bundle
from trimtab.tables.rollup import histogram_of

pytestmark = pytest.mark.prometheus
HOUR = timedelta(hours=1)


def moment(step):
    return START + timedelta(seconds=step * STEP_S)


@pytest.fixture(scope="module")
def usage(collected_bundle):
    columns = [*collected_bundle.table("gpu_usage").column_names, "activity_histogram"]
    rows = collected_bundle.table("gpu_usage", columns).to_pylist()
    return {(row["device"], row["workload"], row["hour"]): row for row in rows}


def rows_of(bundle, table, **keys):
    found = bundle.table(table)
    for column, value in keys.items():
        found = found.filter(pc.equal(found[column], value))
    return found.to_pylist()


def test_the_bundle_passes_its_checks(collected_bundle):
    checked = checked_bundle(collected_bundle.path)

    assert checked.meta.counts == collected_bundle.meta.counts


def test_every_gpu_is_there_under_its_catalog_name(collected_bundle):
    devices = collected_bundle.table("devices").to_pylist()

    assert len(devices) == GPUS
    assert {row["gpu"] for row in devices} == {"A100-SXM4-40GB", "A10G"}
    assert {row["device"]: row["node"] for row in devices}[device_name(MIXED, 3)] == MIXED.name


def test_nodes_have_their_type_place_capacity_type_and_life(collected_bundle):
    nodes = {row["node"]: row for row in collected_bundle.table("nodes").to_pylist()}

    assert {name: row["instance_type"] for name, row in nodes.items()} == {
        node.name: node.instance_type for node in NODES
    }
    assert {row["region"] for row in nodes.values()} == {"us-east-1"}
    assert nodes[SPOT.name]["capacity_type"] == "spot"
    assert nodes[SPOT.name]["start"] == moment(SPOT.first)
    assert abs(nodes[SPOT.name]["end"] - moment(SPOT.last)) <= timedelta(seconds=STEP_S)
    assert nodes[TRAIN.name]["end"] is None
    assert nodes[TRAIN.name]["gpu_count"] == 8


@pytest.mark.parametrize(("node", "gpu"), [(TRAIN, 0), (SERVE, 5), (MIXED, 1), (IDLE, 2), (SPOT, 0)])
def test_hourly_use_agrees_with_the_samples(usage, generated_fleet, node, gpu):
    truth = generated_fleet.readings[node, gpu]
    device = device_name(node, gpu)

    checked = 0
    for (row_device, _, hour), row in usage.items():
        step = round((hour - START) / HOUR) * PER_HOUR
        span = slice(step, step + PER_HOUR)
        holders = {generated_fleet.holder(node, gpu, at) for at in range(step, step + PER_HOUR)}
        if row_device != device or len(holders) > 1:
            continue
        sm = truth["sm"][span][~np.isnan(truth["sm"][span])]
        assert row["samples"] == len(sm)
        assert row["samples_expected"] == PER_HOUR
        assert row["sm_active_mean"] == pytest.approx(sm.mean(), abs=1e-9)
        assert row["sm_active_max"] == pytest.approx(sm.max(), abs=1e-9)
        assert row["sm_active_p95"] == pytest.approx(np.quantile(sm, 0.95), abs=1e-9)
        assert row["gpu_util_mean"] == pytest.approx(np.nanmean(truth["util"][span]), abs=1e-9)
        assert row["dram_active_p50"] == pytest.approx(np.nanmedian(truth["dram"][span]), abs=1e-9)
        assert row["memory_used_gib_mean"] == pytest.approx(np.nanmean(truth["memory"][span]) / 1024)
        assert row["power_w_mean"] == pytest.approx(np.nanmean(truth["power"][span]))
        assert row["activity_histogram"] == histogram_of(sm).tolist()
        checked += 1
    assert checked > 5 * 24


def test_an_outage_leaves_no_rows_rather_than_zeros(usage):
    missing = {START + HOUR * hour for hour in range(OUTAGE.start // PER_HOUR, OUTAGE.stop // PER_HOUR)}

    assert missing.isdisjoint({hour for _, _, hour in usage})


def test_a_device_that_missed_half_an_hour_shows_half_the_samples(usage):
    row = usage[device_name(MIXED, 0), "prod/embed", START + 240 * HOUR]

    assert (row["samples"], row["samples_expected"]) == (6, 12)


def test_sentinels_are_dropped_and_counted_and_their_hour_is_mended(usage, generated_fleet, collected_bundle):
    row = usage[device_name(SERVE, 2), "prod/chat", START + 48 * HOUR]
    sm = np.delete(generated_fleet.readings[SERVE, 2]["sm"][2 * DAY : 2 * DAY + PER_HOUR], [3, 4])

    assert row["sm_active_mean"] == pytest.approx(sm.mean())
    assert row["sm_active_max"] == sm.max()
    counts = collected_bundle.meta.counts
    assert counts["DCGM_FI_PROF_SM_ACTIVE: readings dropped (sentinel, NaN or negative)"] == 2


def test_a_share_above_one_is_clamped_and_counted(usage, collected_bundle):
    row = usage[device_name(SERVE, 3), "prod/chat", START + 120 * HOUR]

    assert row["gpu_util_max"] == 1.0
    assert collected_bundle.meta.counts["DCGM_FI_DEV_GPU_UTIL: readings clamped to their bound"] == 1


def test_a_reading_that_the_board_does_not_support_is_absent(usage):
    rows = [row for (device, _, _), row in usage.items() if device == device_name(TRAIN, 7)]

    assert all(row["dram_active_mean"] is None for row in rows)
    assert all(row["sm_active_mean"] is not None for row in rows)


def test_unallocated_gpus_are_the_idle_pool(usage):
    idle = [workload for (device, workload, _) in usage if device == device_name(IDLE, 0)]

    assert len(idle) == 14 * 24 - 3
    assert set(idle) == {None}


def test_the_replicas_of_a_rollout_are_one_workload(collected_bundle):
    chat = rows_of(collected_bundle, "allocations", workload="prod/chat")

    assert len(chat) == 12
    assert {row["owner_kind"] for row in chat} == {"Deployment"}
    assert {row["team"] for row in chat} == {"assistants"}
    old = [row for row in chat if "7c9f8d6b5" in row["pod"]]
    new = [row for row in chat if "66d5f7b9c" in row["pod"]]
    assert all(abs(row["end"] - moment(ROLLOUT)) <= timedelta(seconds=STEP_S) for row in old)
    assert all(abs(row["start"] - moment(ROLLOUT)) <= timedelta(seconds=STEP_S) for row in new)
    assert all(row["end"] is None for row in new)


def test_a_pod_without_a_gpu_on_a_gpu_node_is_seen_and_a_daemon_is_not(collected_bundle):
    others = rows_of(collected_bundle, "allocations", gpus=0.0)

    assert [(row["workload"], row["node"]) for row in others] == [("infra/log-archiver", SERVE.name)]


def test_runs_are_jobs_of_their_workload(collected_bundle):
    jobs = {row["job"]: row for row in collected_bundle.table("jobs").to_pylist()}

    first = jobs["research/pretrain-1"]
    assert {row["workload"] for row in jobs.values()} == {"research/pretrain", "research/sweep"}
    assert (first["gpus"], first["state"]) == (8.0, "completed")
    assert first["start"] == START + 5 * HOUR
    assert first["submit"] == START + 5 * HOUR - timedelta(minutes=10)
    assert first["end"] == START + 90 * HOUR


def demand_of(bundle, service):
    return rows_of(bundle, "demand", workload=service)


def finished_by_step(fleet, service):
    """Requests whose rise can be seen: not those of a pod's first step, nor those around the outage."""
    total = np.zeros(STEPS)
    for pod in fleet.pods:
        if pod.service == service:
            seen = pod.completed.copy()
            seen[pod.first] = 0
            total += seen
    return total


@pytest.mark.parametrize("service", ["chat", "embed", "rerank"])
def test_demand_agrees_with_the_requests_made_through_resets_and_rollouts(collected_bundle, generated_fleet, service):
    truth = finished_by_step(generated_fleet, service)

    rows = {row["start"]: row for row in demand_of(collected_bundle, f"prod/{service}")}

    compared = 0
    for step in range(1, STEPS):
        if OUTAGE.start <= step <= OUTAGE.stop or step == ROLLOUT:
            continue
        row = rows[moment(step)]
        assert row["interval_s"] == STEP_S
        assert row["completed"] + row["failed"] == pytest.approx(truth[step])
        compared += 1
    assert compared > 13 * DAY


def test_requests_are_unknown_in_an_outage_and_right_after(collected_bundle):
    rows = {row["start"]: row for row in demand_of(collected_bundle, "prod/chat")}

    assert moment(OUTAGE.start) not in rows
    assert rows[moment(OUTAGE.stop)]["completed"] is None


def test_latency_buckets_are_counts_of_their_interval(collected_bundle, generated_fleet):
    step = 2 * DAY + 150
    row = {row["start"]: row for row in demand_of(collected_bundle, "prod/chat")}[moment(step)]
    alive = [pod for pod in generated_fleet.pods if pod.service == "chat" and pod.first <= step < pod.last]
    cumulative = [sum(int(pod.completed[step] * share) for pod in alive) for share in (0.3, 0.6, 0.85, 0.95, 0.99, 1)]

    assert row["latency_le_s"] == list(LATENCY_LE)
    assert row["latency_count"] == pytest.approx(np.diff(cumulative, prepend=0))


def test_tokens_queue_cache_and_replicas_are_read(collected_bundle, generated_fleet):
    step = 2 * DAY + 150
    alive = [pod for pod in generated_fleet.pods if pod.service == "chat" and pod.first <= step < pod.last]

    row = {row["start"]: row for row in demand_of(collected_bundle, "prod/chat")}[moment(step)]

    assert row["input_tokens_mean"] == 800.0
    assert row["output_tokens_mean"] == 150.0
    assert row["replicas_ready"] == 6.0
    assert row["running_mean"] == pytest.approx(sum(pod.completed[step] / 30 for pod in alive))
    assert row["kv_cache_frac_max"] == pytest.approx(max(pod.completed[step] / 300 for pod in alive))


def test_vllm_v0_names_are_read_too(collected_bundle):
    rows = demand_of(collected_bundle, "prod/embed")

    assert sum(row["kv_cache_frac_max"] is not None for row in rows) > 13 * DAY


def test_the_command_writes_the_bundle_with_a_bill_and_says_its_coverage(prometheus_server, tmp_path, capsys):
    bill = Path(__file__).parent.parent / "data" / "bills" / "focus_1_2.csv"
    window = ["--from", "2026-09-04", "--to", "2026-09-06"]

    with pytest.raises(SystemExit) as exit_:
        main(["collect", "-p", prometheus_server.url, *window, "--out", str(tmp_path / "fleet"), "--focus", str(bill)])

    said = capsys.readouterr()
    assert exit_.value.code == 0
    assert "1.9 of 2 days, 100 % of 26 GPUs" in said.out
    bundle = checked_bundle(tmp_path / "fleet")
    assert bundle.table("costs").num_rows == 3
    assert bundle.table("gpu_usage").num_rows > 26 * 40


def test_a_server_killed_in_the_middle_is_waited_for(prometheus_server, tmp_path):
    restarts = []

    def restart(seconds):
        restarts.append(seconds)
        prometheus_server.start()

    def kill_once(stage, done_frac):
        if stage == "pods and runs" and not restarts:
            prometheus_server.stop()

    with Prometheus(prometheus_server.url, sleep=restart) as server:
        collected = collect_prometheus(server, START, START + 24 * HOUR, report=kill_once)

    assert len(restarts) == 1
    assert collected.tables["demand"].num_rows == 3 * 288


def test_a_window_without_gpu_metrics_is_told(prometheus_server):
    with (
        Prometheus(prometheus_server.url) as server,
        pytest.raises(SourceError, match=r"has no GPU metrics in 2026-08-01"),
    ):
        collect_prometheus(server, START - 31 * 24 * HOUR, START - 30 * 24 * HOUR)


def test_the_doctor_sees_what_the_server_has(prometheus_server, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["doctor", "-p", prometheus_server.url, "--to", "2026-09-15", "-o", "json"])

    rows = {row["what"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert exit_.value.code == 0
    assert rows["GPU metrics"]["detail"] == "25 GPUs"
    assert rows["sm_active"]["status"] == "ok"
    assert rows["history"]["detail"] == "14 days"
    assert rows["scrape interval"]["status"] == "weak"
    assert rows["instance types"]["detail"] == "5 of 5 nodes"
    assert rows["request metrics"]["detail"] == "vLLM"
    assert rows["bill"]["status"] == "weak"
