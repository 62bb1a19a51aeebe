from datetime import timedelta

import pytest

from trimtab.catalog import load_catalog
from trimtab.sources.prometheus.dcgm import OTHER_MAKERS
from trimtab.sources.prometheus.doctor import FindingStatus, ServerFacts, server_findings

GOOD = {
    "gpus": 8,
    "readings": frozenset({"sm_active", "tensor_active", "dram_active", "gpu_util", "pcie_rx_gb_s"}),
    "scrape_s": 30.0,
    "history_days": 30,
    "pods_named": True,
    "nodes": 2,
    "nodes_typed": 2,
    "teams": True,
    "servers": ("vLLM",),
    "watched": frozenset({"temperature_c", "thermal_violation", "sm_occupancy"}),
}


PRICES = load_catalog().prices
CONFIRMED = max(price.as_of for price in PRICES.prices)


def judged(bills=1, prices_days=1, **changes):
    day = CONFIRMED + timedelta(days=prices_days)
    return {
        one.what: one
        for one in server_findings(ServerFacts(**{**GOOD, **changes}), bills=bills, prices=PRICES, day=day)
    }


def test_a_fleet_that_exports_everything_is_told_so():
    assert {one.status for one in judged().values()} == {FindingStatus.OK}


@pytest.mark.parametrize(
    ("changes", "what", "status", "fix"),
    [
        ({"gpus": 0}, "GPU metrics", FindingStatus.MISSING, "dcgm-exporter"),
        ({"readings": frozenset({"gpu_util"})}, "sm_active", FindingStatus.WEAK, "DCGM_FI_PROF_SM_ACTIVE, gauge"),
        ({"readings": frozenset({"gpu_util"})}, "PCIe", FindingStatus.WEAK, "DCGM_FI_PROF_PCIE_RX_BYTES, gauge"),
        ({"pods_named": False}, "pods of GPUs", FindingStatus.WEAK, "DCGM_EXPORTER_KUBERNETES"),
        ({"pods_named": False}, "pods of GPUs", FindingStatus.WEAK, "KUBERNETES_ENABLE_DRA=true"),
        ({"sharing_nodes": 2}, "shared GPUs", FindingStatus.WEAK, "--kubernetes-virtual-gpus"),
        ({"history_days": 3}, "history", FindingStatus.WEAK, "retention"),
        ({"scrape_s": 300.0}, "scrape interval", FindingStatus.WEAK, "interval"),
        ({"nodes": 0}, "kube-state-metrics", FindingStatus.MISSING, "helm install"),
        ({"nodes_typed": 1}, "instance types", FindingStatus.MISSING, "--metric-labels-allowlist=nodes="),
        ({"teams": False}, "teams", FindingStatus.WEAK, "pods=[team]"),
        ({"servers": ()}, "request metrics", FindingStatus.WEAK, "PodMonitor"),
        ({"watched": frozenset({"temperature_c"})}, "alerts", FindingStatus.WEAK, "DCGM_FI_PROF_SM_OCCUPANCY, gauge"),
        ({"bills": 0}, "bill", FindingStatus.WEAK, "--focus"),
        ({"prices_days": 400}, "price book", FindingStatus.WEAK, "prices refresh"),
    ],
)
def test_each_absence_says_what_it_costs_and_what_mends_it(changes, what, status, fix):
    finding = judged(**changes)[what]

    assert finding.status is status
    assert finding.cost
    assert fix in finding.fix


@pytest.mark.parametrize("name", OTHER_MAKERS)
def test_boards_of_other_makers_are_not_asked_for_nvidias_counters(name):
    found = judged(
        nvidia=False, others=(name,), readings=frozenset({"gpu_util"}), watched=frozenset(), pods_named=False
    )

    assert found[name].status is FindingStatus.WEAK
    assert found[name].cost
    assert not {"sm_active", "alerts", "pods of GPUs"} & found.keys()
    assert "sm_active" in judged(others=(name,), readings=frozenset({"gpu_util"}))


def test_boards_whose_pods_are_told_apart_lack_nothing():
    assert judged(sharing_nodes=2, pods_apart=True)["shared GPUs"].status is FindingStatus.OK


def test_alerts_that_would_stay_silent_are_named():
    finding = judged(watched=frozenset({"temperature_c", "sm_occupancy"}))["alerts"]

    assert "TrimtabGpuThrottled" in finding.cost
    assert "TrimtabGpuHot" not in finding.cost
