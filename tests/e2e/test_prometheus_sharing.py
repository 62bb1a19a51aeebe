"""Boards that pods share, as a real server tells of them: whose parts they are, and what each pod did."""

from datetime import timedelta

import numpy as np
import pyarrow.compute as pc
import pytest
from tests.e2e.conftest import collected_from
from tests.e2e.test_prometheus_corners import HOURS, START, STEP_S, STEPS, Page

from trimtab.catalog import load_catalog
from trimtab.diagnose.verdicts import Cause, causes_of, signs_of
from trimtab.fleet.build import build_fleet
from trimtab.fleet.settings import Settings

pytestmark = pytest.mark.prometheus

MIB = 40960.0
BYTES = MIB * 1024**2


def board(node, index=0):
    return {"UUID": f"GPU-{node}-{index}", "gpu": str(index), "modelName": "NVIDIA A100-SXM4-40GB", "Hostname": node}


def dcgm(page, node, index=0, *, util, used_mib=1024.0, sm=None, **labels):
    """One series of a board, its memory split into used and free; SM activity where told."""
    known = {**board(node, index), **labels}
    page.add("DCGM_FI_DEV_GPU_UTIL", util, **known)
    page.add("DCGM_FI_DEV_FB_USED", used_mib, **known)
    page.add("DCGM_FI_DEV_FB_FREE", MIB - used_mib, **known)
    if sm is not None:
        page.add("DCGM_FI_PROF_SM_ACTIVE", sm, **known)


def node(page, name, advertised, resource="nvidia_com_gpu", **labels):
    page.add("kube_node_info", 1.0, node=name, provider_id=f"aws:///us-east-1a/{name}")
    page.add("kube_node_status_capacity", float(advertised), node=name, resource=resource, unit="integer")
    if labels:
        page.add("kube_node_labels", 1.0, node=name, **labels)


def pod(page, name, where, *, asks=(), steps=slice(0, STEPS)):
    """A running pod and what its container asks for."""
    known = {"namespace": "ml", "pod": name}
    page.add("kube_pod_info", 1.0, **known, node=where)
    page.add("kube_pod_status_phase", 1.0, steps, **known, phase="Running")
    for resource, amount in asks:
        page.add(
            "kube_pod_container_resource_requests", float(amount), **known, container="c", node=where, resource=resource
        )


def told_apart(page):
    """Four shares a board, DCGM with --kubernetes-virtual-gpus: the board's own readings, and each pod's."""
    node(page, "apart", 4, "nvidia_com_gpu_shared", label_nvidia_com_gpu_replicas="4")
    page.add("DCGM_FI_DEV_GPU_UTIL", 80.0, **board("apart"))
    page.add("DCGM_FI_DEV_FB_USED", 30000.0, **board("apart"))
    page.add("DCGM_FI_DEV_FB_FREE", MIB - 30000.0, **board("apart"))
    for name, util, used in (("busy-0", 60.0, 20000.0), ("calm-0", 20.0, 10000.0)):
        pod(page, name, "apart", asks=[("nvidia_com_gpu_shared", 1)])
        own = {**board("apart"), "namespace": "ml", "pod": name, "vgpu": "0"}
        page.add("DCGM_FI_DEV_GPU_UTIL", util, **own)
        page.add("DCGM_FI_DEV_FB_USED", used, **own)
        page.add("DCGM_FI_PROF_SM_ACTIVE", 0.4, **own)
        page.add("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", np.arange(STEPS) * 60.0 * 300.0 * 1000, **own)


def told_apart_blindly(page):
    """The same flag without hostPID: the exporter cannot see processes, and has 0 for every pod."""
    node(page, "blind", 2, "nvidia_com_gpu_shared", label_nvidia_com_gpu_replicas="2")
    dcgm(page, "blind", util=80.0, used_mib=30000.0)
    pod(page, "hidden-0", "blind", asks=[("nvidia_com_gpu_shared", 1)])
    page.add("DCGM_FI_DEV_GPU_UTIL", 0.0, **board("blind"), namespace="ml", pod="hidden-0", vgpu="0")
    page.add("DCGM_FI_DEV_FB_USED", 0.0, **board("blind"), namespace="ml", pod="hidden-0", vgpu="0")


def one_named(page):
    """A board in four time slices, DCGM without the flag: of three pods it names the last."""
    node(page, "sliced", 4)
    dcgm(page, "sliced", util=50.0, namespace="ml", pod="slice-c-0")
    for name in "abc":
        pod(page, f"slice-{name}-0", "sliced", asks=[("nvidia_com_gpu", 1)])


def hami(page):
    """Two boards of HAMi, which DCGM's exporter cannot map: the scheduler's own metrics, scraped without honorLabels."""
    node(page, "hami", 20)
    scraped = {"namespace": "kube-system", "pod": "hami-scheduler-0"}
    for index in range(2):
        dcgm(page, "hami", index, util=30.0)
        page.add(
            "hami_gpu_memory_limit_bytes",
            BYTES,
            **scraped,
            node="hami",
            device_uuid=f"GPU-hami-{index}",
            device_index=index,
        )
    given = [("mem-0", 0, 0.25, 0), ("core-0", 0, 0.1, 40), ("two-0", 0, 0.2, 0), ("two-0", 1, 0.2, 0)]
    for name, index, memory, compute in given:
        known = {**scraped, "exported_namespace": "ml", "exported_pod": name, "node": "hami", "container_index": "0"}
        known["device_uuid"] = f"GPU-hami-{index}"
        page.add("hami_vgpu_memory_allocated_bytes", BYTES * memory, **known)
        page.add("hami_vgpu_core_allocated_ratio", float(compute), **known)
    for name in ("mem-0", "core-0", "two-0"):
        asks = [("nvidia_com_gpu", 1), ("nvidia_com_gpumem", 3000)]
        pod(page, name, "hami", asks=asks)


def hami_unscraped(page):
    """A board of HAMi whose scheduler nobody scrapes: requests alone tell."""
    node(page, "quiet", 10)
    dcgm(page, "quiet", util=30.0)
    pod(page, "asks-mem-0", "quiet", asks=[("nvidia_com_gpu", 1), ("nvidia_com_gpumem", MIB / 4)])
    pod(page, "asks-half-0", "quiet", asks=[("nvidia_com_gpu", 1), ("nvidia_com_gpumem_percentage", 50)])


def kai(page):
    """A board that KAI shares, held by its reservation as far as DCGM knows; kube-state-metrics exports the annotations."""
    node(page, "kai", 1)
    dcgm(page, "kai", util=40.0, namespace="kai-resource-reservation", pod="gpu-reservation-kai-x")
    for name, note in (("frac-0", {"gpu_fraction": "0.5"}), ("mib-0", {"gpu_memory": "10240"})):
        pod(page, name, "kai")
        notes = {f"annotation_{key}": value for key, value in note.items()}
        page.add("kube_pod_annotations", 1.0, namespace="ml", pod=name, **notes)


def kai_unknown(page):
    """A board that Run:ai shares, and nothing tells who is on it."""
    node(page, "runai", 1)
    dcgm(page, "runai", util=40.0, namespace="runai-reservation", pod="runai-reservation-gpu-x")


def unlabelled(page):
    """A node whose labels kube-state-metrics does not export, but what it has."""
    node(page, "plain", 8)
    page.add("kube_node_status_capacity", 96.0, node="plain", resource="cpu", unit="core")
    page.add("kube_node_status_capacity", 1121.0 * 1024**3, node="plain", resource="memory", unit="byte")
    for index in range(8):
        dcgm(page, "plain", index, util=10.0, namespace="ml", pod=f"plain-{index}")


def cpu(page, name, container, cores, *, limit=None, **labels):
    """CPU time of a container, as two jobs tell it that scrape one kubelet, and its limit."""
    used = np.arange(STEPS) * float(STEP_S) * cores
    for job in ("kubelet", "cadvisor"):
        page.add("container_cpu_usage_seconds_total", used, namespace="ml", pod=name, container=container, job=job)
    if limit is not None:
        known = {"exported_namespace": "ml", "namespace": "monitoring", "exported_pod": name, "pod": "ksm-0"}
        page.add(
            "kube_pod_container_resource_limits", limit, **known, exported_container=container, resource="cpu", **labels
        )


def training(page):
    """Runs that prepare their input: two at the limit of their CPUs, one without a limit, one of which nothing is told."""
    node(page, "train", 4)
    page.add("kube_node_status_capacity", 64.0, node="train", resource="cpu", unit="core")
    for index, name in enumerate(("bound-0", "bound-1", "free-0", "untold-0")):
        dcgm(page, "train", index, util=50.0, sm=0.2, namespace="ml", pod=name)
        pod(page, name, "train", asks=[("nvidia_com_gpu", 1)])
        run = name.partition("-")[0]
        page.add("kube_pod_owner", 1.0, namespace="ml", pod=name, owner_kind="Job", owner_name=run)
    for name, cores in (("bound-0", 8.0), ("bound-1", 7.2)):
        cpu(page, name, "main", cores, limit=8.0)
        cpu(page, name, "proxy", 0.1, limit=0.1)
        cpu(page, name, "", cores + 0.1)  # the whole pod, and the container that holds its network
        cpu(page, name, "POD", 20.0)
    cpu(page, "free-0", "main", 16.0)


SENTINEL = 9223372036854775792.0
"""What DCGM gives for a field that it cannot read (DCGM_FP64_BLANK and its kin, as a 64-bit integer)."""


def links(page):
    """Runs that wait for PCIe (an A100's carries 31.5 GB/s): of the host, of each other, not at all, and not told."""
    node(page, "link", 4)
    rates = {"host-0": (20e9, 1e9), "peers-0": (25e9, 24e9), "calm-link-0": (3e9, 1e9), "unlinked-0": None}
    for index, (name, told) in enumerate(rates.items()):
        dcgm(page, "link", index, util=50.0, sm=0.2, namespace="ml", pod=name)
        pod(page, name, "link", asks=[("nvidia_com_gpu", 1)])
        page.add("kube_pod_owner", 1.0, namespace="ml", pod=name, owner_kind="Job", owner_name=name.removesuffix("-0"))
        known = {**board("link", index), "namespace": "ml", "pod": name}
        for metric, rate in zip(("RX", "TX"), told or (), strict=False):
            values = np.full(STEPS, rate)
            if name == "host-0":
                values[10] = SENTINEL
            page.add(f"DCGM_FI_PROF_PCIE_{metric}_BYTES", values, **known)


@pytest.fixture(scope="module")
def bundle(prometheus_bin, promtool_bin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharing")
    page = Page()
    for part in (
        told_apart,
        told_apart_blindly,
        one_named,
        hami,
        hami_unscraped,
        kai,
        kai_unknown,
        unlabelled,
        training,
        links,
    ):
        part(page)
    binaries = (prometheus_bin, promtool_bin)
    return collected_from("".join(page.lines), folder, binaries, START, HOURS)


def held(bundle, node):
    """What each pod of a node held, by device."""
    table = bundle.table("allocations")
    rows = table.filter(pc.equal(table["node"], node)).to_pylist()
    assert all(row["end"] is None and row["start"] == START for row in rows)
    return {(row["pod"], row["device"]): row["gpus"] for row in rows if row["gpus"]}


def usage(bundle, device):
    table = bundle.table("gpu_usage")
    return table.filter(pc.equal(table["device"], device)).to_pylist()


def test_nodes_have_their_boards_however_often_they_advertise_them(bundle):
    boards = {row["node"]: row["gpu_count"] for row in bundle.table("nodes").to_pylist()}

    assert boards == {
        "apart": 1,
        "blind": 1,
        "sliced": 1,
        "hami": 2,
        "quiet": 1,
        "kai": 1,
        "runai": 1,
        "plain": 8,
        "train": 4,
        "link": 4,
    }


def test_a_node_without_labels_is_the_one_type_that_has_its_hardware(bundle):
    types = {
        row["node"]: (row["provider"], row["instance_type"], row["region"]) for row in bundle.table("nodes").to_pylist()
    }

    assert types["plain"] == ("aws", "p4d.24xlarge", "us-east-1")
    assert types["hami"] == ("aws", "unknown", "us-east-1")
    assert any("--context or --kube-dump" in reason for reason in bundle.meta.counts if "instance type" in reason)


def test_pods_on_a_board_in_time_slices_hold_what_they_ask_for_on_it(bundle):
    assert held(bundle, "apart") == {("busy-0", "GPU-apart-0"): 0.25, ("calm-0", "GPU-apart-0"): 0.25}


def test_pods_that_the_exporter_does_not_name_on_a_shared_board_hold_their_part_too(bundle):
    found = held(bundle, "sliced")

    assert {pod: gpus for (pod, _), gpus in found.items()} == {f"slice-{name}-0": 0.25 for name in "abc"}


def test_hamis_scheduler_tells_the_part_of_each_board(bundle):
    assert held(bundle, "hami") == pytest.approx(
        {
            ("mem-0", "GPU-hami-0"): 0.25,
            ("core-0", "GPU-hami-0"): 0.4,
            ("two-0", "GPU-hami-0"): 0.2,
            ("two-0", "GPU-hami-1"): 0.2,
        }
    )


def test_without_it_requests_tell_the_part(bundle):
    assert held(bundle, "quiet") == pytest.approx({("asks-mem-0", None): 0.25, ("asks-half-0", None): 0.5})


def test_fractions_stand_in_for_the_pod_that_reserves_their_board(bundle):
    assert held(bundle, "kai") == pytest.approx({("frac-0", None): 0.5, ("mib-0", None): 0.25})


def test_a_board_that_nobody_says_who_shares_stays_held_and_the_cure_is_named(bundle):
    assert held(bundle, "runai") == {("runai-reservation-gpu-x", "GPU-runai-0"): 1.0}
    assert any("--context or --kube-dump" in reason for reason in bundle.meta.counts)


def test_each_pod_that_is_told_apart_has_its_own_use_and_the_board_none_besides(bundle):
    rows = usage(bundle, "GPU-apart-0")

    assert {row["workload"] for row in rows} == {"ml/busy", "ml/calm"}
    busy = next(row for row in rows if row["workload"] == "ml/busy")
    calm = next(row for row in rows if row["workload"] == "ml/calm")
    assert busy["of_pods"]
    assert (busy["gpu_util_mean"], calm["gpu_util_mean"]) == pytest.approx((0.6, 0.2))
    # what is told of the board alone is split by GPU_UTIL
    assert (busy["sm_active_mean"], calm["sm_active_mean"]) == pytest.approx((0.3, 0.1))
    assert busy["memory_used_gib_mean"] == pytest.approx(20000 / 1024)
    whole = [row["energy_kwh"] for row in rows if row["hour"] == START + timedelta(hours=2)]
    assert sum(whole) == pytest.approx(0.3, rel=0.02)


def test_pods_of_a_busy_board_that_all_read_zero_are_not_idle(bundle):
    rows = usage(bundle, "GPU-blind-0")

    assert {(row["workload"], row["gpu_util_mean"], row["of_pods"]) for row in rows} == {("ml/hidden", 0.8, False)}
    assert rows[0]["memory_used_gib_mean"] == pytest.approx(30000 / 1024)
    assert any("hostPID" in reason for reason in bundle.meta.counts)


def test_a_workload_that_is_told_apart_is_busy_by_what_it_did_not_by_what_the_board_did(bundle):
    fleet = build_fleet(bundle, settings=Settings())
    activity = {workload.name: workload.activity for workload in fleet.workloads}

    assert np.nanmean(activity["ml/busy"].busy_gpus) == pytest.approx(0.3)
    assert np.nanmean(activity["ml/calm"].busy_gpus) == pytest.approx(0.1)
    assert activity["ml/busy"].mean_frac == pytest.approx(1.0)
    assert activity["ml/calm"].mean_frac == pytest.approx(0.4)


def test_the_cpus_that_runs_use_are_shares_of_their_limit_else_of_their_node(bundle):
    rows = bundle.table("gpu_usage").to_pylist()
    shares = {
        name: {row["cpu_used_frac_mean"] for row in rows if row["workload"] == name}
        for name in ("ml/bound", "ml/free", "ml/untold")
    }

    assert [pytest.approx(share, rel=0.01) for share in shares["ml/bound"]] == [0.95] * len(shares["ml/bound"])
    assert [pytest.approx(share, rel=0.01) for share in shares["ml/free"]] == [0.25] * len(shares["ml/free"])
    assert shares["ml/bound"]
    assert shares["ml/free"]
    assert shares["ml/untold"] == {None}


def test_a_run_at_the_limit_of_its_cpus_beside_idle_sms_waits_for_its_input(bundle):
    fleet = build_fleet(bundle, settings=Settings())
    causes = {
        workload.name: [found.cause for found in causes_of(signs_of(workload))]
        for workload in fleet.workloads
        if workload.name in ("ml/bound", "ml/free")
    }

    assert Cause.CPU_INPUT in causes["ml/bound"]
    assert Cause.CPU_INPUT not in causes["ml/free"]


def test_what_boards_receive_and_send_over_pcie_is_a_rate_and_a_sentinel_spoils_its_hour_alone(bundle):
    host = [row for row in usage(bundle, "GPU-link-0") if row["workload"] == "ml/host"]

    assert host[0]["pcie_rx_gb_s_mean"] is None
    assert {(row["pcie_rx_gb_s_mean"], row["pcie_tx_gb_s_mean"]) for row in host[1:]} == {(20.0, 1.0)}
    assert {row["pcie_rx_gb_s_mean"] for row in usage(bundle, "GPU-link-3")} == {None}
    assert bundle.meta.counts["DCGM_FI_PROF_PCIE_RX_BYTES: hours with an implausible mean dropped"] == 1


def test_a_run_beside_idle_sms_waits_for_what_its_link_carries_from_the_host_or_between_gpus(bundle):
    fleet, board = build_fleet(bundle, settings=Settings()), load_catalog().gpu("A100-SXM4-40GB")
    told = {
        workload.name: [
            found.sentence for found in causes_of(signs_of(workload, board)) if found.cause is Cause.TRANSFERS
        ]
        for workload in fleet.workloads
    }

    assert told["ml/host"] == ["transfers (PCIe carries 63% of what it can, towards the GPU)"]
    assert told["ml/peers"] == [
        "transfers (PCIe carries 79% of what it can, towards the GPU, and 76% away from it: GPUs exchange data over it)"
    ]
    assert told["ml/calm-link"] == told["ml/unlinked"] == told["ml/bound"] == []


def test_what_a_link_carries_is_no_share_where_the_board_or_its_link_is_not_known(bundle):
    host = next(
        workload for workload in build_fleet(bundle, settings=Settings()).workloads if workload.name == "ml/host"
    )
    behind_nvlink = load_catalog().gpu("GH200-96GB")

    assert signs_of(host).pcie_rx_frac is None
    assert signs_of(host, behind_nvlink).pcie_rx_frac is None
