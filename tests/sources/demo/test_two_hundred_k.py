import ast
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.sources.demo.bundles import assert_consistent, bill_usd_mo

import trimtab.sources.demo as demo
from trimtab.errors import UnknownName
from trimtab.sources.demo.two_hundred_k import SPAN
from trimtab.tables.bundle import BundleMeta, memory_bundle
from trimtab.tables.checks import check_bundle
from trimtab.tables.workloads import Workloads

SERVICES = ("prod/chat-api", "prod/search-rank", "prod/embed-api")


@pytest.fixture(scope="module")
def fleet():
    return demo.demo_fleet("two-hundred-k")


@pytest.fixture(scope="module")
def tables(fleet):
    return fleet[0]


def _fit(table, column):
    return table.filter(pc.less(table[column], pa.scalar(SPAN.proof, pa.timestamp("us", tz="UTC"))))


def _proof(table, column):
    return table.filter(pc.greater_equal(table[column], pa.scalar(SPAN.proof, pa.timestamp("us", tz="UTC"))))


def _of(table, workload):
    return table.filter(pc.equal(table["workload"], workload))


def test_its_tables_agree_with_one_another(tables):
    assert_consistent(tables, SPAN.end)


def test_its_declarations_are_a_valid_bundle(fleet):
    _, workloads, meta = fleet

    assert Workloads.model_validate(workloads).spec("prod/chat-api").targets[0].limit_s == 4.0
    assert BundleMeta.model_validate(meta).end == SPAN.end


def test_the_bundle_passes_its_checks_without_a_repair(fleet):
    tables, workloads, meta = fleet
    bundle = memory_bundle(tables, BundleMeta.model_validate(meta), Workloads.model_validate(workloads))

    assert check_bundle(bundle).meta.counts == {}


def test_the_bill_of_the_fit_window_is_the_stated_one(tables):
    assert bill_usd_mo(tables["nodes"], SPAN.start, SPAN.proof) == pytest.approx(200_121.81, abs=0.01)


def test_services_answer_fifty_million_requests_a_day_at_a_fifth_of_their_gpus(tables):
    arrivals = pc.sum(_fit(tables["demand"], "start")["arrivals"]).as_py()
    usage = _fit(tables["gpu_usage"], "hour")
    serving = usage.filter(pc.is_in(usage["workload"], pa.array(SERVICES)))

    assert arrivals / 28 == pytest.approx(50e6, rel=0.005)
    assert pc.mean(serving["sm_active_mean"]).as_py() == pytest.approx(0.20, abs=0.01)
    assert pc.mean(serving["gpu_util_mean"]).as_py() > 0.45


def test_the_busiest_hour_of_a_normal_week_takes_half_the_gpus_at_most(tables):
    usage = _fit(tables["gpu_usage"], "hour")

    for service in SERVICES:
        hours = _of(usage, service).group_by("hour").aggregate([("sm_active_mean", "mean")])
        assert 0.38 < np.quantile(hours["sm_active_mean_mean"].to_numpy(), 0.99) < 0.5


def test_experiments_hold_four_gpus_and_use_one(tables):
    usage = tables["gpu_usage"]
    for workload in ("research/vision-exp", "research/nlp-exp"):
        jobs = _of(tables["jobs"], workload)
        by_device = _of(usage, workload).group_by("device").aggregate([("gpu_util_max", "max")])

        assert set(jobs["gpus"].to_pylist()) == {4.0}
        assert sum(most > 0 for most in by_device["gpu_util_max_max"].to_pylist()) == by_device.num_rows / 4


def test_experiment_nodes_are_busy_two_thirds_of_the_time_and_jobs_still_queue(tables):
    jobs = tables["jobs"]
    runs = jobs.filter(pc.starts_with(jobs["workload"], "research/")).to_pylist()
    started = [run for run in runs if run["start"] is not None]
    busy_hr = sum(((run["end"] or SPAN.end) - run["start"]) / timedelta(hours=1) for run in started)
    wait_hr = [(run["start"] - run["submit"]) / timedelta(hours=1) for run in started]

    assert 0.58 < busy_hr / (9 * 42 * 24) < 0.72
    assert np.quantile(wait_hr, 0.95) > 1.0


def test_one_team_takes_checkpoints_and_the_other_declares_none(tables):
    vision, nlp = (_of(tables["jobs"], f"research/{team}-exp") for team in ("vision", "nlp"))

    assert set(vision["checkpoint_interval_s"].to_pylist()) == {1800.0}
    assert nlp["checkpoint_interval_s"].null_count == nlp.num_rows


def test_evaluation_runs_eight_hours_on_nodes_held_a_day(tables):
    runs = _of(tables["jobs"], "eval/weekly-eval").to_pylist()
    holds = _of(tables["allocations"], "eval/weekly-eval").to_pylist()

    assert len(runs) == 6
    assert all(run["end"] - run["start"] == timedelta(hours=8) and run["gpus"] == 16.0 for run in runs)
    assert all(hold["end"] - hold["start"] == timedelta(hours=24) for hold in holds)
    assert all(hold["start"].weekday() == 5 for hold in holds)


def test_one_node_is_held_by_nobody(tables):
    held = set(tables["allocations"]["node"].to_pylist())

    assert [n for n in tables["nodes"]["node"].to_pylist() if n not in held and n.startswith("research-old")]


def test_a_few_sensors_are_silent_and_one_gives_no_sm_activity(tables):
    usage = tables["gpu_usage"]
    silent = usage.filter(pc.is_null(usage["sm_active_mean"]))

    assert pc.count_distinct(silent["device"]).as_py() == 1
    assert silent["gpu_util_mean"].null_count == 0
    service_hours = 24 * 42 * 24
    assert 0 < service_hours - _of(usage, "prod/chat-api").num_rows < 0.01 * service_hours


def test_the_proof_window_brings_growth_a_burst_a_newcomer_and_a_leaver(tables):
    demand = tables["demand"]
    for service in ("prod/chat-api", "prod/embed-api"):
        before = pc.mean(_of(_fit(demand, "start"), service)["arrivals"]).as_py()
        after = pc.mean(_of(_proof(demand, "start"), service)["arrivals"]).as_py()
        assert after / before == pytest.approx(1.075, abs=0.02)
    fit_names, proof_names = (set(part(tables["gpu_usage"], "hour")["workload"].to_pylist()) for part in (_fit, _proof))
    gone_before_the_last_week = _of(tables["gpu_usage"], "notebooks/dmitri")["hour"].to_pylist()

    assert proof_names - fit_names == {"prod/moderate-text"}
    assert max(gone_before_the_last_week) < SPAN.end - timedelta(days=7)


def test_the_burst_doubles_search_for_two_hours(tables):
    rows = _of(tables["demand"], "prod/search-rank")
    arrivals = rows["arrivals"].to_numpy()
    first = SPAN.minute_of(SPAN.start + timedelta(days=38, hours=20))
    day = 24 * 60

    burst, before = arrivals[first : first + 120].mean(), arrivals[first - day : first - day + 120].mean()

    assert burst / before == pytest.approx(2.0, abs=0.3)


def test_the_same_seed_gives_the_same_tables_and_another_seed_does_not(tables):
    again, other = demo.demo_fleet("two-hundred-k", seed=7)[0], demo.demo_fleet("two-hundred-k", seed=8)[0]

    assert all(again[name].equals(table) for name, table in tables.items())
    assert not other["demand"].equals(tables["demand"])


def test_the_ground_truth_stays_out_of_the_bundle(fleet):
    _, workloads, meta = fleet
    text = repr(workloads) + repr(meta)

    assert "capacity" not in text
    assert "rho" not in text


def test_an_unknown_fleet_names_near_matches():
    with pytest.raises(UnknownName, match="two-hundred-k"):
        demo.demo_fleet("two-hundred")


def test_the_generator_imports_nothing_of_the_planner():
    allowed = ("trimtab.sources.demo", "trimtab.tables", "trimtab.inputs", "trimtab.units", "trimtab.errors")
    for module in Path(demo.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert all(n.startswith(allowed) for n in names if n and n.startswith("trimtab")), (module.name, names)


def test_experiments_wait_in_a_queue_whose_quota_leaves_out_the_node_that_nobody_uses(tables):
    local, cluster = tables["queues"].to_pylist()
    jobs = tables["jobs"].to_pylist()
    running = [job for job in jobs if job["state"] == "running" and job["workload"].startswith("research/")]

    assert {job["queue"] for job in jobs if job["workload"].startswith("research/")} == {local["name"]}
    assert {job["queue"] for job in jobs if not job["workload"].startswith("research/")} == {None}
    assert (local["parent"], cluster["quota_gpus"]) == (cluster["name"], 9 * 4)
    assert cluster["used_gpus"] == sum(job["gpus"] for job in running)
