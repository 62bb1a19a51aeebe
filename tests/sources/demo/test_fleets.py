from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from tests.sources.demo.bundles import PRICES_USD_HR, assert_consistent, bill_usd_mo

from trimtab.sources.demo import DEMO_FLEETS, demo_fleet, machines
from trimtab.sources.demo.demand import SIX_WEEKS
from trimtab.tables.bundle import BundleMeta, memory_bundle
from trimtab.tables.checks import check_bundle
from trimtab.tables.workloads import Workloads

BILLS_USD_MO = {
    "ninety-k-peak": 89_738.14,
    "quad-a100": 10_726.28,
    "three-small-models": 8_044.71,
    "finetune-7b": 16_029.08,
    "moderation": 5_875.04,
}


@pytest.fixture(scope="module", params=BILLS_USD_MO)
def fleet(request):
    return request.param, *demo_fleet(request.param)


def _mean(table, column, workload=None):
    rows = table if workload is None else table.filter(pc.equal(table["workload"], workload))
    return pc.mean(rows[column]).as_py()


def _requests_per_day(demand, workload):
    return pc.sum(demand.filter(pc.equal(demand["workload"], workload))["arrivals"]).as_py() / 42


def test_every_fleet_but_the_first_is_checked_here():
    assert set(DEMO_FLEETS) == {*BILLS_USD_MO, "two-hundred-k"}


def test_every_fleet_and_its_bill_stand_in_the_documentation():
    page = (Path(__file__).parents[3] / "docs" / "explanation" / "demo-fleets.md").read_text(encoding="utf-8")

    for name, bill in {**BILLS_USD_MO, "two-hundred-k": 200_121.81}.items():
        assert f"## `{name}`: {bill:,.2f} USD a month" in page


def test_tables_agree_with_one_another(fleet):
    _, tables, _, _ = fleet

    assert_consistent(tables, SIX_WEEKS.end)


def test_the_bundle_passes_its_checks_without_a_repair(fleet):
    _, tables, workloads, meta = fleet
    bundle = memory_bundle(tables, BundleMeta.model_validate(meta), Workloads.model_validate(workloads))

    assert check_bundle(bundle).meta.counts == {}
    assert set(bundle.workloads.workloads) <= set(tables["allocations"]["workload"].to_pylist())


def test_the_bill_is_the_stated_one(fleet):
    name, tables, _, _ = fleet
    bill = bill_usd_mo(tables["nodes"], SIX_WEEKS.start, SIX_WEEKS.proof)

    assert bill == pytest.approx(BILLS_USD_MO[name], abs=0.01)


def test_the_prices_of_the_machines_are_the_ones_the_bills_were_worked_out_with():
    stated = {m.instance_type: m.on_demand_usd_hr for m in vars(machines).values() if isinstance(m, machines.Machine)}

    assert stated == PRICES_USD_HR


def test_the_peak_cluster_is_used_thirty_percent_and_most_of_it_in_the_evening():
    usage = demo_fleet("ninety-k-peak")[0]["gpu_usage"]
    serving = usage.filter(pc.starts_with(usage["workload"], "shop/"))
    hours = serving.group_by(["workload", "hour"]).aggregate([("sm_active_mean", "mean")])

    assert _mean(serving, "sm_active_mean") == pytest.approx(0.30, abs=0.015)
    assert 0.6 < np.quantile(hours["sm_active_mean_mean"].to_numpy(), 0.999) < 0.75


def test_the_quad_takes_one_request_a_gpu_and_keeps_its_promise_although_bursts_queue():
    tables = demo_fleet("quad-a100")[0]
    demand = tables["demand"]
    latency = np.array(demand["latency_count"].to_pylist()).sum(axis=0)
    within_4_s = latency[: demand["latency_le_s"][0].as_py().index(4.0) + 1].sum() / latency.sum()

    assert _mean(tables["gpu_usage"], "gpu_util_mean") == pytest.approx(0.15, abs=0.01)
    assert pc.max(demand["running_mean"]).as_py() <= 4.0
    assert pc.max(demand["waiting_mean"]).as_py() > 50.0
    assert within_4_s > 0.95


def test_three_small_models_fit_one_gpu_together():
    tables = demo_fleet("three-small-models")[0]
    usage = tables["gpu_usage"]
    peaks = usage.group_by("workload").aggregate([("memory_used_gib_max", "max"), ("sm_active_mean", "mean")])

    assert sum(peaks["memory_used_gib_max_max"].to_pylist()) < 40.0
    assert sum(peaks["sm_active_mean_mean"].to_pylist()) < 0.1
    for workload in peaks["workload"].to_pylist():
        assert _requests_per_day(tables["demand"], workload) == pytest.approx(1_000, rel=0.15)


def test_fine_tuning_leaves_its_node_idle_at_night():
    usage = demo_fleet("finetune-7b")[0]["gpu_usage"]
    hour = pc.hour(usage["hour"])
    busy = pc.greater(usage["sm_active_mean"], 0.3)
    by_hour = {h: pc.mean(pc.filter(busy, pc.equal(hour, h)).cast("int8")).as_py() for h in (8, 18)}

    assert by_hour[8] < 0.1
    assert by_hour[18] > 0.4


def test_moderation_judges_a_million_images_a_day_and_promises_four_hours():
    tables, workloads, _ = demo_fleet("moderation")
    target = Workloads.model_validate(workloads).spec("trust/image-moderation").targets[0]

    assert _requests_per_day(tables["demand"], "trust/image-moderation") == pytest.approx(1e6, rel=0.05)
    assert target.limit_s == 4 * 3600
    assert pc.max(tables["demand"]["running_mean"]).as_py() <= 8.0
