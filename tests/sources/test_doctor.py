import pytest

from trimtab.sources.prometheus.doctor import Facts, Status, findings

GOOD = {
    "gpus": 8,
    "readings": frozenset({"sm_active", "tensor_active", "dram_active", "gpu_util"}),
    "scrape_s": 30.0,
    "history_days": 30,
    "pods_named": True,
    "nodes": 2,
    "nodes_typed": 2,
    "teams": True,
    "servers": ("vLLM",),
}


def judged(bills=1, newest_price_days=10, **changes):
    return {
        one.what: one
        for one in findings(Facts(**{**GOOD, **changes}), bills=bills, newest_price_days=newest_price_days)
    }


def test_a_fleet_that_exports_everything_is_told_so():
    assert {one.status for one in judged().values()} == {Status.OK}


@pytest.mark.parametrize(
    ("changes", "what", "status", "fix"),
    [
        ({"gpus": 0}, "GPU metrics", Status.MISSING, "dcgm-exporter"),
        ({"readings": frozenset({"gpu_util"})}, "sm_active", Status.WEAK, "DCGM_FI_PROF_SM_ACTIVE, gauge"),
        ({"pods_named": False}, "pods of GPUs", Status.WEAK, "DCGM_EXPORTER_KUBERNETES"),
        ({"history_days": 3}, "history", Status.WEAK, "retention"),
        ({"scrape_s": 300.0}, "scrape interval", Status.WEAK, "interval"),
        ({"nodes": 0}, "kube-state-metrics", Status.MISSING, "helm install"),
        ({"nodes_typed": 1}, "instance types", Status.MISSING, "--metric-labels-allowlist=nodes="),
        ({"teams": False}, "teams", Status.WEAK, "pods=[team]"),
        ({"servers": ()}, "request metrics", Status.WEAK, "PodMonitor"),
        ({"bills": 0}, "bill", Status.WEAK, "--focus"),
        ({"newest_price_days": 400}, "price book", Status.WEAK, "prices refresh"),
    ],
)
def test_each_absence_says_what_it_costs_and_what_mends_it(changes, what, status, fix):
    finding = judged(**changes)[what]

    assert finding.status is status
    assert finding.cost
    assert fix in finding.fix
