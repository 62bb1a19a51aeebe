"""Offenders are named with what they cost, and their harmless lookalikes are not."""

import pytest
from tests.diagnose.untidy_fleet import found_in, offence_usd, pod, stray
from tests.fleets import FleetRows

from trimtab.diagnose.findings import OffenceKind, WasteKind
from trimtab.diagnose.hygiene import keeps_others_out, tolerates_gpu_taint


def held(start=0, end=None, days=2, sm=0.9):
    """Return days of one node, all of whose GPUs one workload holds and uses."""
    rows = FleetRows(days).node("n", "p3.8xlarge").hold("lab/x", "n", range(4), start, end)
    for gpu in range(4):
        rows.use("lab/x", "n", gpu, range(start, days * 24 if end is None else end), sm=sm)
    return rows


def usd_of(rows, kind):
    return {subject: usd for (found, subject), usd in offence_usd(found_in(rows)[0]).items() if found is kind}


def test_a_stray_pod_costs_the_hours_in_which_it_alone_kept_its_node():
    found, waste = found_in(stray(held(end=12), "web/cache", "n"))

    (row,) = [row for row in found.offences if row.offence.kind is OffenceKind.STRAY]
    assert row.cost.micro_usd == 36_000_000
    assert row.offence.counted_in is WasteKind.HOURS_NOT_USED
    assert waste[WasteKind.HOURS_NOT_USED] == 36  # it names a part of waste that is there, and adds none


def test_a_stray_pod_on_a_node_that_is_held_all_the_time_is_named_and_costs_nothing():
    assert usd_of(stray(held(), "web/cache", "n"), OffenceKind.STRAY) == {"web/cache": 0}


def test_two_stray_pods_share_what_they_cost():
    rows = stray(stray(held(end=12), "web/cache", "n"), "web/other", "n")

    assert usd_of(rows, OffenceKind.STRAY) == {"web/cache": 18, "web/other": 18}


@pytest.mark.parametrize(
    "lookalike",
    [
        lambda rows: stray(rows, "kube-system/exporter", "n", owner_kind="DaemonSet"),
        lambda rows: stray(rows, "ci/tests", "n", 20, 26, owner_kind="Job"),
        lambda rows: stray(rows, "lab/x", "n"),
    ],
    ids=["a DaemonSet", "a job of hours", "the launcher of a workload with GPUs"],
)
def test_pods_that_belong_there_are_no_strays(lookalike):
    assert not usd_of(lookalike(held(end=12)), OffenceKind.STRAY)


def test_a_pool_without_a_taint_is_named_with_the_pods_it_let_in_and_whom_a_taint_would_keep_off():
    rows = pod(stray(held(), "web/cache", "n"), "lab/x", "lab/x-n", "n", gpus=4.0, tolerations={})

    (row,) = [row for row in found_in(rows)[0].offences if row.offence.kind is OffenceKind.NO_TAINT]

    assert row.offence.subject == "p3.8xlarge"
    assert "let in web/cache" in row.offence.evidence
    assert row.offence.unschedulable == ("lab/x",)


def test_a_workload_that_tolerates_the_taint_is_not_kept_off():
    rows = pod(stray(held(), "web/cache", "n"), "lab/x", "lab/x-n", "n", tolerations={"nvidia.com/gpu": ":NoSchedule"})

    (row,) = [row for row in found_in(rows)[0].offences if row.offence.kind is OffenceKind.NO_TAINT]
    assert row.offence.unschedulable == ()


def test_a_tainted_pool_is_not_named():
    rows = stray(held(), "web/cache", "n")
    rows.rows["nodes"][0]["taints"] = {"nvidia.com/gpu": "present:NoSchedule"}

    assert not usd_of(rows, OffenceKind.NO_TAINT)


def test_a_preference_is_no_taint_that_keeps_pods_out():
    assert not keeps_others_out({"gpu": "yes:PreferNoSchedule"})
    assert keeps_others_out({"gpu": "yes:NoSchedule"})


@pytest.mark.parametrize(
    "key",
    [
        "node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready", "karpenter.sh/disrupted",
        "ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler",
    ],
)  # fmt: skip
def test_a_taint_that_comes_and_goes_keeps_nobody_off_a_pool(key):
    assert not keeps_others_out({key: ":NoSchedule"})
    assert keeps_others_out({key: ":NoSchedule", "nvidia.com/gpu": "present:NoSchedule"})


@pytest.mark.parametrize(
    ("tolerations", "tolerates"),
    [
        ({"*": ":"}, True),
        ({"nvidia.com/gpu": ":NoSchedule"}, True),
        ({"nvidia.com/gpu": ":NoExecute for 300 s"}, False),
        ({"node.kubernetes.io/not-ready": ":NoExecute for 300 s"}, False),
    ],
)
def test_tolerations_are_read_as_the_scheduler_does(tolerations, tolerates):
    assert tolerates_gpu_taint(tolerations) is tolerates


def test_a_pod_that_waits_for_a_node_is_named_and_costs_nothing():
    rows = pod(held(), "prod/new", "new-0", created=40, unschedulable="0/9 nodes: insufficient nvidia.com/gpu")

    (row,) = [row for row in found_in(rows)[0].offences if row.offence.kind is OffenceKind.PENDING]
    assert row.cost.micro_usd == 0
    assert row.offence.items == ("new-0",)
    assert "insufficient nvidia.com/gpu" in row.offence.evidence


@pytest.mark.parametrize("more", [{"created": 47.5}, {"created": 1, "queue": "research"}, {"created": 1, "gpus": 0.0}])
def test_a_pod_that_waits_for_minutes_or_in_a_queue_or_for_no_gpu_is_not_named(more):
    assert not usd_of(pod(held(), "prod/new", "new-0", **more), OffenceKind.PENDING)


def test_a_pod_that_never_starts_costs_the_gpus_that_it_holds():
    rows = FleetRows(2).node("n", "p3.8xlarge").hold("prod/new", "n", range(2), 20, pod="new-0")
    pod(rows, "prod/new", "new-0", "n", gpus=2.0, created=20, phase="Pending", waiting="ImagePullBackOff")

    (row,) = [row for row in found_in(rows)[0].offences if row.offence.kind is OffenceKind.STUCK]
    assert row.cost.micro_usd == 14_000_000  # half the node for 28 hours
    assert row.cost.usd_hr == 0.5


def test_a_pod_that_did_nothing_for_a_day_costs_the_gpus_that_it_holds():
    rows = held(sm=lambda hour: 0.9 if hour < 20 else 0.0)

    assert usd_of(rows, OffenceKind.UNUSED) == {"lab/x": 28}


@pytest.mark.parametrize(
    "level",
    [lambda hour: 0.9 if hour < 30 else 0.0, lambda hour: 0.9 if hour == 47 else 0.0],
    ids=["a night", "woke up"],
)
def test_a_pod_that_rests_for_less_than_a_day_is_not_named(level):
    assert not usd_of(held(sm=level), OffenceKind.UNUSED)


def notebook(level, days=2):
    rows = FleetRows(days).node("n", "g5.xlarge").hold("notebooks/ana", "n", [0], owner_kind="Notebook")
    return rows.use("notebooks/ana", "n", 0, range(days * 24), sm=level)


def test_a_notebook_left_open_costs_its_idle_hours_beyond_the_first_four():
    rows = notebook(lambda hour: 0.5 if 9 <= hour % 24 < 17 else 0.0)

    # 0-9, 17-9, 17-24: nine, sixteen and seven hours, each less four
    assert usd_of(rows, OffenceKind.NOTEBOOK) == {"notebooks/ana": 5 + 12 + 3}


@pytest.mark.parametrize("level", [lambda hour: 0.5 if hour % 4 else 0.0, None], ids=["a lunch", "not measured"])
def test_a_notebook_that_rests_for_lunch_or_is_not_measured_is_not_named(level):
    assert not usd_of(notebook(level), OffenceKind.NOTEBOOK)


def test_gpus_that_no_pod_of_a_workload_ever_used_cost_their_share():
    rows = FleetRows(2).node("n", "p3.8xlarge").hold("lab/x", "n", range(4), owner_kind="Job")
    for gpu in range(4):
        rows.use("lab/x", "n", gpu, range(48), sm=0.9 if gpu == 0 else 0.0)

    assert usd_of(rows, OffenceKind.OVER_ASKED) == {"lab/x": 36}


def test_what_a_pod_asks_for_and_uses_is_not_named():
    assert not usd_of(held(), OffenceKind.OVER_ASKED)


def test_lines_of_hygiene_never_exceed_the_bill():
    rows = stray(stray(notebook(lambda hour: 0.0), "web/cache", "n"), "web/other", "n")

    assert sum(offence_usd(found_in(rows)[0]).values()) <= 48


def scaler(rows, name, target="lab/x", **more):
    told = {"kind": "HorizontalPodAutoscaler", "namespace": "lab", "name": name, "target": target, "min_replicas": 1.0,
            "max_replicas": 8.0, "triggers": "Pods vllm_queue 5"}  # fmt: skip
    rows.rows["scalers"].append(told | more)
    return rows


@pytest.mark.parametrize(
    ("scalers", "said"),
    [
        ([("a", {"min_replicas": 4.0, "max_replicas": 4.0})], "4 replicas as floor and as ceiling"),
        ([("a", {"triggers": "cpu 70 %"})], "says nothing of its GPUs"),
        ([("a", {}), ("b", {})], "a and b both scale it"),
    ],
)
def test_autoscalers_that_cannot_work_are_named(scalers, said):
    rows = held()
    for name, more in scalers:
        scaler(rows, name, **more)

    (row,) = [row for row in found_in(rows)[0].offences if row.offence.kind is OffenceKind.SCALER]
    assert said in row.offence.evidence


def test_keda_and_the_autoscaler_that_it_makes_are_one():
    rows = scaler(scaler(held(), "x", kind="ScaledObject"), "keda-hpa-x")

    assert not usd_of(rows, OffenceKind.SCALER)


def test_an_autoscaler_of_a_workload_without_gpus_is_none_of_this():
    assert not usd_of(scaler(held(), "a", target="web/cache", triggers="cpu 70 %"), OffenceKind.SCALER)


def test_a_karpenter_pool_with_gpus_and_no_limits_is_named():
    rows = held()
    rows.rows["nodes"][0]["labels"] = {"karpenter.sh/nodepool": "gpu"}
    for name, limits in (("gpu", {}), ("cpu", {})):
        rows.rows["scalers"].append({"kind": "NodePool", "name": name, "limits": limits})

    assert usd_of(rows, OffenceKind.UNLIMITED) == {"gpu": 0}


def test_budgets_that_let_no_pod_go_and_replicas_without_one_are_named():
    rows = held()
    for name in ("a", "b"):
        pod(rows, "lab/x", name, "n")
    rows.rows["disruption_budgets"].append(
        {"namespace": "web", "name": "strict", "workload": "lab/y", "allowed": 0.0, "healthy": 2.0, "expected": 2.0}
    )
    pod(rows, "lab/y", "y-0", "n")

    assert usd_of(rows, OffenceKind.BUDGET) == {"lab/y": 0, "lab/x": 0}


def test_where_no_budget_was_read_none_is_missed():
    rows = held()
    for name in ("a", "b"):
        pod(rows, "lab/x", name, "n")

    assert not usd_of(rows, OffenceKind.BUDGET)
