import contextlib
import copy
import json
from datetime import UTC, datetime, timedelta

import jsonschema
import pytest
from hypothesis import given, settings, strategies as st
from tests.kube_cluster import GPU, NOW, OLD, cluster, dump, meta, node, pod

from trimtab.errors import InputError
from trimtab.sources.kubernetes.objects import Objects
from trimtab.sources.kubernetes.pods import asked_by
from trimtab.sources.kubernetes.snapshot import collect_snapshot, heartbeats_note, snapshot_moment, with_snapshot
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import memory_bundle
from trimtab.tables.checks import check_bundle

END = datetime(2026, 9, 15, tzinfo=UTC)
START = END - timedelta(days=14)


def objects_of(items):
    objects = Objects()
    objects.take(dump(items))
    return objects


def collected(items=None):
    return collect_snapshot(objects_of(items), START, END, source="a dump")


def rows(found, table):
    return found.tables[table].to_pylist(maps_as_pydicts="strict")


def by_name(found, table, column):
    return {row[column]: row for row in rows(found, table)}


def test_the_snapshot_is_dated_by_its_newest_moment():
    assert snapshot_moment(objects_of(None)) == datetime.fromisoformat(NOW)


def test_a_dump_without_heartbeats_reaches_to_the_newest_moment_of_a_container_or_event_and_says_so():
    items = [bare := node(), run := pod("run", "ml", owner=("Job", "j"))]
    bare["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": OLD}]
    run["status"]["containerStatuses"] = [{"state": {"running": {"startedAt": "2026-09-13T00:00:00Z"}}}]

    found = snapshot_moment(objects_of(items))
    items.append(
        {"apiVersion": "v1", "kind": "Event", "metadata": meta("e", "ml"), "lastTimestamp": "2026-09-14T00:00:00Z"}
    )

    assert found == datetime(2026, 9, 13, tzinfo=UTC)
    assert snapshot_moment(objects_of(items)) == datetime(2026, 9, 14, tzinfo=UTC)
    assert "--to" in heartbeats_note(objects_of(items), found)[0]
    assert not heartbeats_note(objects_of(None), found)


def test_a_gpu_node_has_its_type_place_age_labels_and_taints():
    (found,) = rows(collected(), "nodes")

    assert (found["provider"], found["instance_type"], found["region"]) == ("aws", "p4d.24xlarge", "us-east-1")
    assert (found["gpu"], found["gpu_count"], found["capacity_type"]) == ("A100-SXM4-40GB", 8, "on-demand")
    assert found["start"] == datetime.fromisoformat(OLD)
    assert found["labels"]["karpenter.sh/capacity-type"] == "on-demand"
    assert found["taints"] == {GPU: "present:NoSchedule"}


def test_pods_belong_to_the_deployment_or_cron_job_above_their_controller():
    found = by_name(collected(), "pods", "pod")

    assert found["chat-7d9f8b6c5d-aaaaa"]["workload"] == "prod/chat"
    assert found["chat-7d9f8b6c5d-aaaaa"]["owner_kind"] == "Deployment"
    assert found["nightly-28900000-x7k2p"]["workload"] == "ml/nightly"
    assert found["nightly-28900000-x7k2p"]["owner_kind"] == "CronJob"


def test_what_a_pod_asks_for_tolerates_and_runs_is_kept():
    found = by_name(collected(), "pods", "pod")["chat-7d9f8b6c5d-aaaaa"]

    assert (found["gpus"], found["gpu_resource"]) == (1.0, GPU)
    assert (found["cpu_request"], found["memory_request_gib"]) == (4.0, 32.0)
    assert (found["cpu_limit"], found["memory_limit_gib"]) == (None, None)
    assert found["tolerations"] == {GPU: ":NoSchedule"}
    assert found["images"] == "r/vllm:1"


@pytest.mark.parametrize(("status", "restarts", "known"), [("True", 0, True), ("False", 0, False), ("True", 2, False)])
def test_a_pod_became_ready_unless_it_is_not_or_started_again(status, restarts, known):
    one = pod("m-0", "ml", owner=("StatefulSet", "m"))
    one["status"]["conditions"].append({"type": "Ready", "status": status, "lastTransitionTime": NOW})
    one["status"]["containerStatuses"] = [{"restartCount": restarts}]

    ready = by_name(collected([node(), one]), "pods", "pod")["m-0"]["ready"]

    assert ready == (datetime.fromisoformat(NOW) if known else None)


def test_a_pod_tells_by_which_labels_of_nodes_it_keeps_apart_from_its_own_and_from_no_other():
    one = pod("m-0", "ml", owner=("StatefulSet", "m"), labels={"app": "m"})
    own, other = ({"labelSelector": {"matchLabels": {"app": name}}} for name in ("m", "n"))
    one["spec"]["affinity"] = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname", **own}],
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {"topologyKey": "example.org/rack", **other}}
            ],
        }
    }
    one["spec"]["topologySpreadConstraints"] = [{"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1, **own}]

    found = by_name(collected([node(), one]), "pods", "pod")["m-0"]

    assert found["keeps_apart"] == "kubernetes.io/hostname,topology.kubernetes.io/zone"


def test_holdings_end_with_the_last_container_and_daemon_sets_hold_nothing():
    found = by_name(collected(), "allocations", "pod")

    assert set(found) == {"chat-7d9f8b6c5d-aaaaa", "chat-7d9f8b6c5d-bbbbb", "nightly-28900000-x7k2p"}
    assert found["nightly-28900000-x7k2p"]["end"] == datetime(2026, 9, 10, 6, 30, tzinfo=UTC)
    assert found["chat-7d9f8b6c5d-aaaaa"]["end"] is None
    assert found["chat-7d9f8b6c5d-aaaaa"]["team"] == "assistants"


def test_a_run_waits_from_its_creation_and_one_that_waits_still_is_queued():
    found = by_name(collected(), "jobs", "job")

    ran, waits = found["ml/nightly-28900000"], found["ml/sweep-1"]
    assert ran["start"] - ran["submit"] == timedelta(minutes=30)
    assert (ran["state"], ran["queue"], ran["gpus"]) == ("completed", "ml-queue", 4.0)
    assert (waits["state"], waits["start"], waits["gpus"], waits["queue"]) == ("queued", None, 8.0, "ml-queue")


def test_autoscalers_and_node_pools_in_place_are_told_in_words():
    found = by_name(collected(), "scalers", "kind")

    assert found["HorizontalPodAutoscaler"]["target"] == "prod/chat"
    assert found["HorizontalPodAutoscaler"]["triggers"] == "cpu 70 %"
    assert found["ScaledObject"]["triggers"] == "prometheus sum(vllm:num_requests_waiting) 5"
    assert (found["ScaledObject"]["min_replicas"], found["ScaledObject"]["max_replicas"]) == (0.0, 5.0)
    assert found["NodePool"]["limits"] == {GPU: "64"}
    assert found["NodePool"]["consolidation"] == "WhenEmpty after 5m"


def test_queues_have_their_quota_use_and_the_number_that_wait():
    found = by_name(collected(), "queues", "kind")

    assert found["ClusterQueue"]["quota_gpus"] == 8.0
    assert (found["ClusterQueue"]["borrowing_gpus"], found["ClusterQueue"]["used_gpus"]) == (4.0, 2.0)
    assert (found["ClusterQueue"]["pending"], found["LocalQueue"]["parent"]) == (1, "gpus")
    assert found["ClusterQueue"]["flavor_labels"] == {"node.kubernetes.io/instance-type": "p4d.24xlarge"}


def test_a_quota_says_what_it_limits_of_gpus_and_memory_and_for_which_pods():
    found = by_name(collected(), "resource_quotas", "resource")

    assert {name: (row["hard"], row["used"]) for name, row in found.items()} == {
        f"requests.{GPU}": (4.0, 2.0),
        "requests.memory": (64.0, 32.0),
    }
    assert {row["scopes"] for row in found.values()} == {"NotTerminating; PriorityClass In low,high"}
    assert {(row["namespace"], row["name"]) for row in found.values()} == {("prod", "team")}


def test_a_limit_range_says_what_each_container_may_ask_for_and_what_it_gets_that_asks_for_nothing():
    found = by_name(collected(), "limit_ranges", "resource")

    columns = ("place", "min", "max", "default_limit", "default_request", "max_ratio")
    assert {name: tuple(row[column] for column in columns) for name, row in found.items()} == {
        GPU: (1, None, 4.0, 0.0, 0.0, None),
        "cpu": (1, None, None, 8.0, 0.5, 16.0),
        "memory": (1, None, 256.0, 256.0, 256.0, None),
    }
    assert {(row["namespace"], row["name"], row["type"]) for row in found.values()} == {("prod", "each", "Container")}


def test_pods_with_gpus_say_what_each_container_asks_for_and_their_deadline():
    both = {"cpu": "500m", "memory": "1Gi"}
    spec = {
        "activeDeadlineSeconds": 3600,
        "containers": [{"resources": {"limits": {GPU: 1, "memory": "16Gi"}, "requests": {"memory": "8Gi"}}}, {}],
        "initContainers": [{"resources": {"requests": both}}, {"restartPolicy": "Always", "resources": {"limits": both}}],
    }  # fmt: skip
    source = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta("p", "ml"),
        "spec": spec,
        "status": {"phase": "Pending"},
    }
    (row,) = rows(collected([node(), source]), "pods")

    assert row["deadline_s"] == 3600.0
    assert json.loads(row["containers"]) == [
        {"limits": {GPU: 1.0, "memory": 16.0}, "requests": {GPU: 1.0, "memory": 8.0}},
        {"limits": {}, "requests": {}},
        {"limits": {}, "requests": {"cpu": 0.5, "memory": 1.0}, "role": "init"},
        {"limits": {"cpu": 0.5, "memory": 1.0}, "requests": {"cpu": 0.5, "memory": 1.0}, "role": "sidecar"},
    ]


def test_a_quota_without_a_status_holds_as_it_is_written():
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta("q", "ml"), "spec": {"hard": {"pods": 5}}}

    (row,) = rows(collected([node(), quota]), "resource_quotas")

    assert (row["resource"], row["hard"], row["used"], row["scopes"]) == ("pods", 5.0, None, None)


def test_quotas_and_limits_that_telemetry_told_stay_where_the_snapshot_has_none():
    told = {"namespace": "ml", "name": "q", "resource": "pods", "hard": 5.0, "used": 1.0, "scopes": "unknown"}
    full = collected()
    before = type(full)(
        tables={**full.tables, "resource_quotas": table_from_rows("resource_quotas", [told])}, meta=full.meta
    )

    assert rows(with_snapshot(before, objects_of([node()]), source="x"), "resource_quotas") == [told]
    assert len(rows(with_snapshot(before, objects_of(None), source="x"), "resource_quotas")) == 2


def _renamed(resources, gpus="8", labels=None):
    told = node(labels=labels)
    usual = {"cpu": "96", "memory": "1176Gi", GPU: "0"}
    told["status"]["capacity"] = usual | resources
    told["metadata"]["labels"] |= {"nvidia.com/gpu.count": gpus}
    return told


def _asking(resource, pieces):
    asks = pod("p", "ml", owner=("Job", "j"), gpus=0)
    asks["spec"]["containers"][0]["resources"] = {"limits": {resource: str(pieces)}}
    return asks


@pytest.mark.parametrize(
    ("resources", "asked", "gpus"),
    [
        ({"nvidia.com/a100": "8"}, "nvidia.com/a100", 2.0),
        ({"nvidia.com/a100": "4", "nvidia.com/a100-debug": "4"}, "nvidia.com/a100-debug", 2.0),
        ({"nvidia.com/gpu-shared": "32"}, "nvidia.com/gpu-shared", 0.5),
        ({"nvidia.com/a100": "8", "nvidia.com/rdma_shared_device_a": "63"}, "nvidia.com/a100", 2.0),
    ],
)
def test_gpus_that_the_device_plugin_advertises_under_another_name_are_held(resources, asked, gpus):
    """NVIDIA/k8s-device-plugin renames resources; their pods must not look as if they held none, nor their nodes unheld."""
    (row,) = rows(collected([_renamed(resources), _asking(asked, 2)]), "allocations")

    assert row["gpus"] == gpus


@pytest.mark.parametrize(
    "resources",
    [
        {"nvidia.com/gpu": "8", "nvidia.com/hostdev": "8"},
        {"nvidia.com/hostdev": "8"},
        {"nvidia.com/odd": "7"},
        {"example.com/fpga": "8"},
    ],
)
def test_other_devices_of_a_node_are_no_gpus(resources):
    name = next(name for name in reversed(resources))

    (row,) = rows(collected([_renamed(resources), _asking(name, 2)]), "allocations")

    assert row["gpus"] == 0.0


def test_a_pod_tells_how_many_pieces_it_asks_for_where_boards_are_shared():
    sliced = node(labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.replicas": "4"})

    found = by_name(collected([sliced, pod("p", "ml", gpus=2)]), "pods", "pod")

    assert (found["p"]["gpu_pieces"], found["p"]["gpus"]) == (2.0, 0.5)


def test_a_volcano_queue_and_its_waiting_pod_group_are_read():
    queue = {
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": meta("research"),
        "spec": {"deserved": {GPU: 16}}, "status": {"pending": 1, "allocated": {GPU: "8"}},
    }  # fmt: skip
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": meta("tune-abc", "ml", owner=("Job", "tune")),
        "spec": {"queue": "research", "minResources": {GPU: "16", "cpu": "8"}}, "status": {"phase": "Pending"},
    }  # fmt: skip
    found = collected([*cluster(), queue, group])

    assert by_name(found, "queues", "name")["research"]["quota_gpus"] == 16.0
    waits = by_name(found, "jobs", "job")["ml/tune"]
    assert (waits["gpus"], waits["queue"], waits["state"]) == (16.0, "research", "queued")


def test_a_volcano_queue_has_a_row_for_each_gpu_resource_that_it_names_and_its_capability_limits_no_other():
    """The spec of Volcano's "Queue" with all that rations GPUs: capability, deserved, guarantee, weight, reclaimable."""
    slices = "nvidia.com/mig-1g.10gb"
    queue = {
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": meta("research"),
        "spec": {
            "weight": 2, "reclaimable": False, "parent": "root", "capability": {"cpu": 64, GPU: 12},
            "deserved": {GPU: 8, slices: 4}, "guarantee": {"resource": {GPU: 4}},
        },
        "status": {"allocated": {"cpu": "16", GPU: "5"}},
    }  # fmt: skip
    bare = queue | {"metadata": meta("default"), "spec": {"weight": 1}, "status": {}}

    found = by_name(collected([node(), queue]), "queues", "resource")
    (row,) = rows(collected([node(), bare]), "queues")

    columns = ("quota_gpus", "limit_gpus", "guaranteed_gpus", "used_gpus", "weight", "reclaimable", "parent")
    assert tuple(found[GPU][name] for name in columns) == (8.0, 12.0, 4.0, 5.0, 2.0, False, "root")
    assert tuple(found[slices][name] for name in columns) == (4.0, None, None, 0.0, 2.0, False, "root")
    assert (row["resource"], row["weight"], row["reclaimable"], row["used_gpus"]) == (None, 1.0, None, None)


def test_images_of_gpu_nodes_and_volumes_have_sizes():
    found = collected()

    assert rows(found, "images") == [{"node": "gpu-a", "image": "r/vllm:1", "size_gib": 8.0}]
    (claim,) = rows(found, "volumes")
    assert (claim["workload"], claim["requested_gib"], claim["storage_class"]) == ("prod/chat", 500.0, "gp3")


def test_mig_instances_and_time_sliced_shares_count_their_part_of_a_board():
    mig = pod("m-0", "ml", owner=("StatefulSet", "m"))
    mig["spec"]["containers"] = [{"resources": {"limits": {"nvidia.com/mig-3g.20gb": 1}}}]
    shared = node("gpu-s", gpus="16")
    shared["metadata"]["labels"] |= {"nvidia.com/gpu.count": "4", "nvidia.com/gpu.replicas": "4"}
    slice_ = pod("s-0", "ml", owner=("StatefulSet", "s"), node="gpu-s")

    found = collected([node(), shared, mig, slice_])

    pods = by_name(found, "pods", "pod")
    assert pods["m-0"]["gpus"] == pytest.approx(3 / 7)
    assert pods["s-0"]["gpus"] == 0.25
    assert by_name(found, "nodes", "node")["gpu-s"]["gpu_count"] == 4


def asks(name, node_name, resource, amount):
    asked = pod(name, "ml", gpus=0, node=node_name)
    asked["spec"]["containers"][0]["resources"] = {"requests": {resource: amount}, "limits": {resource: amount}}
    return asked


def with_boards(name, labels, **capacity):
    board = node(name, gpus="", labels=labels)
    board["status"]["capacity"] |= capacity
    return board


@pytest.mark.parametrize(
    ("resource", "advertised", "asked", "gpus"),
    [
        ("google.com/tpu", 4, "4", 4.0),
        ("habana.ai/gaudi", 8, "2", 2.0),
        ("gpu.intel.com/i915", 2, "1", 1.0),
        ("gpu.intel.com/xe", 2, "1", 1.0),
        ("amd.com/gpu", 8, "1", 1.0),
        ("aws.amazon.com/neurondevice", 16, "1", 1.0),
    ],
)
def test_boards_of_every_maker_are_held_by_those_that_ask_for_them(resource, advertised, asked, gpus):
    found = collected([with_boards("n", {}, **{resource: str(advertised)}), asks("p", "n", resource, asked)])

    assert by_name(found, "nodes", "node")["n"]["gpu_count"] == advertised
    assert by_name(found, "pods", "pod")["p"]["gpus"] == gpus
    assert found.tables["allocations"]["gpus"].to_pylist() == [gpus]


def test_cores_of_neuron_chips_are_parts_of_them():
    capacity = {"aws.amazon.com/neuron": "16", "aws.amazon.com/neuroncore": "32"}
    labels = {"node.kubernetes.io/instance-type": "trn1.32xlarge"}
    found = collected([with_boards("n", labels, **capacity), asks("p", "n", "aws.amazon.com/neuroncore", "6")])

    assert by_name(found, "nodes", "node")["n"]["gpu_count"] == 16
    assert by_name(found, "nodes", "node")["n"]["gpu"] == "Trainium"
    assert by_name(found, "pods", "pod")["p"]["gpus"] == 3.0


def test_cores_of_chips_that_a_node_does_not_tell_count_as_chips_and_are_counted():
    found = collected([node("n"), asks("p", "n", "aws.amazon.com/neuroncore", "2")])

    assert by_name(found, "pods", "pod")["p"]["gpus"] == 2.0
    assert any("NeuronCores" in reason for reason in found.meta.counts)


def test_a_tpu_node_is_known_by_gkes_label():
    labels = {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"}
    found = collected([with_boards("n", labels, **{"google.com/tpu": "8"})])

    assert by_name(found, "nodes", "node")["n"]["gpu"] == "TPU-v5e"


def test_init_containers_count_by_the_largest_and_sidecars_with_the_sum():
    def container(cpu, **more):
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    asked = asked_by(
        {
            "containers": [container("1"), container("2")],
            "initContainers": [container("5"), container("500m", restartPolicy="Always")],
        }
    )

    assert asked.cpu_request == 5.0


def test_owners_are_followed_through_job_set_and_leader_worker_set():
    items = [
        node(),
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta("train-w-0", "ml", owner=("JobSet", "train"))},
        pod("train-w-0-abcde", "ml", owner=("Job", "train-w-0")),
        apps("StatefulSet", "llm", ("LeaderWorkerSet", "llm")),
        pod("llm-0", "ml", owner=("StatefulSet", "llm")),
        apps(
            "StatefulSet", "llm-0", ("Pod", "llm-0")
        ),  # lws, pod_controller.go: the leader's pod owns its workers' set
        pod("llm-0-1", "ml", owner=("StatefulSet", "llm-0")),
    ]
    found = by_name(collected(items), "pods", "pod")

    assert (found["train-w-0-abcde"]["workload"], found["train-w-0-abcde"]["owner_kind"]) == ("ml/train", "JobSet")
    for name in ("llm-0", "llm-0-1"):
        assert (found[name]["workload"], found[name]["owner_kind"]) == ("ml/llm", "LeaderWorkerSet")


KSERVE_LABEL = {"serving.kserve.io/inferenceservice": "chat"}
LLM_LABELS = {"app.kubernetes.io/part-of": "llminferenceservice", "app.kubernetes.io/name": "llm"}


@pytest.mark.parametrize(
    ("deployment", "owner", "labels", "workload", "kind"),
    [
        ("chat-predictor", ("InferenceService", "chat"), KSERVE_LABEL, "ml/chat-predictor", "InferenceService"),
        ("chat-transformer", ("InferenceService", "chat"), KSERVE_LABEL, "ml/chat-transformer", "KServeComponent"),
        ("chat-predictor-00007-deployment", ("Revision", "chat-predictor-00007"), KSERVE_LABEL, "ml/chat-predictor",
         "InferenceService"),
        ("web-00002-deployment", ("Revision", "web-00002"), {}, "ml/web", "KnativeService"),
        ("llm-kserve", ("LLMInferenceService", "llm"), LLM_LABELS, "ml/llm-kserve", "LLMInferenceService"),
        ("llm-kserve-prefill", ("LLMInferenceService", "llm"), LLM_LABELS, "ml/llm-kserve-prefill", "LLMInferenceService"),
        ("llm-kserve-router-scheduler", ("LLMInferenceService", "llm"), LLM_LABELS, "ml/llm-kserve-router-scheduler",
         "KServeComponent"),
        ("nim", ("NIMService", "nim"), {}, "ml/nim", "Deployment"),
    ],
)  # fmt: skip
def test_a_deployment_of_kserve_is_known_by_its_name_and_by_the_kind_of_its_object(
    deployment, owner, labels, workload, kind
):
    """kserve/kserve: constants.go, workload_single_node.go; knative/serving: revision names and labels."""
    replica_set = f"{deployment}-7d9f8b6c5d"
    item = pod(f"{replica_set}-x7k2p", "ml", owner=("ReplicaSet", replica_set), labels=labels)
    items = [
        node(),
        apps("Deployment", deployment, owner),
        apps("ReplicaSet", replica_set, ("Deployment", deployment)),
        item,
    ]

    (found,) = by_name(collected(items), "pods", "pod").values()

    assert (found["workload"], found["owner_kind"]) == (workload, kind)


def apps(kind, name, owner):
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta(name, "ml", owner=owner)}


def test_pods_of_a_ray_cluster_are_those_of_the_service_or_job_that_made_it():
    """KubeRay, utils/constant.go: a RayService and a RayJob own the RayCluster, which owns the pods."""
    items = [
        node(),
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": meta("llm-raycluster-x7k2p", "ml", owner=("RayService", "llm")),
        },
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": meta("tune-4-abcde", "ml", owner=("RayJob", "tune-4")),
        },
        {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": meta("shared", "ml")},
        pod("llm-gpu-worker-aaaaa", "ml", owner=("RayCluster", "llm-raycluster-x7k2p")),
        pod("tune-gpu-worker-aaaaa", "ml", owner=("RayCluster", "tune-4-abcde")),
        pod("shared-gpu-worker-aaaaa", "ml", owner=("RayCluster", "shared")),
    ]
    found = by_name(collected(items), "pods", "pod")

    owners = {name: (one["workload"], one["owner_kind"]) for name, one in found.items()}
    assert owners == {
        "llm-gpu-worker-aaaaa": ("ml/llm", "RayService"),
        "tune-gpu-worker-aaaaa": ("ml/tune", "RayJob"),
        "shared-gpu-worker-aaaaa": ("ml/shared", "RayCluster"),
    }


def test_pods_of_nodes_that_are_gone_are_counted_not_dropped_in_silence():
    gone = pod("old-0", "ml", owner=("StatefulSet", "old"), node="gone", phase="Succeeded", ended=NOW)

    found = collected([node(), gone])

    assert found.meta.counts["pods with GPUs on nodes that are gone, not judged"] == 1


def test_pods_of_nodes_whose_gpus_are_not_known_are_counted_apart_from_those_of_nodes_that_are_gone():
    bare = node()
    bare["status"]["capacity"].pop(GPU)
    bare["metadata"]["labels"] = {}
    found = collected([bare, pod("run", "ml", owner=("StatefulSet", "r"))])

    assert rows(found, "allocations") == []
    assert (
        found.meta.counts["pods with GPUs on nodes whose GPUs are not known (dump resourceslices too), not judged"] == 1
    )


def test_objects_of_a_version_that_is_not_known_are_read_and_counted():
    items = copy.deepcopy(cluster())
    for item in items:
        if item["kind"] == "ClusterQueue":
            item["apiVersion"] = "kueue.x-k8s.io/v9"

    found = collected(items)

    assert rows(found, "queues") == rows(collected(), "queues")
    assert (
        found.meta.counts[
            "ClusterQueue objects of kueue.x-k8s.io/v9, a version unknown to trimtab: fields may be missed"
        ]
        == 1
    )


def test_a_pod_whose_clock_is_ahead_of_the_window_holds_nothing_in_it_and_is_counted():
    late = pod("run", "ml", owner=("StatefulSet", "r"))
    for condition in late["status"]["conditions"]:
        condition["lastTransitionTime"] = "2031-01-01T00:00:00Z"
    late["status"]["startTime"] = "2031-01-01T00:00:00Z"

    found = collected([node(), late])

    assert rows(found, "allocations") == []
    assert found.meta.counts["pods that held nothing within the window"] == 1


def test_a_snapshot_without_nodes_says_how_to_get_them():
    with pytest.raises(InputError, match="kubectl get nodes"):
        collected([pod("p", "n")])


def test_a_collected_fleet_is_completed_from_the_snapshot():
    full = collected()
    unknown = [
        row | {"provider": "unknown", "instance_type": "unknown", "region": "unknown"} for row in rows(full, "nodes")
    ]
    nobody = [row | {"team": None, "owner_kind": None} for row in rows(full, "allocations")]
    bare = {name: full.tables[name] for name in ("devices", "gpu_usage")} | {
        "allocations": table_from_rows("allocations", nobody),
        "jobs": table_from_rows("jobs", [row | {"queue": None} for row in rows(full, "jobs") if row["start"]]),
    }
    poor = type(full)(tables={**bare, "nodes": table_from_rows("nodes", unknown)}, meta=full.meta)

    found = with_snapshot(poor, objects_of(None), source="the cluster")

    (row,) = rows(found, "nodes")
    assert (row["instance_type"], row["provider"], row["region"]) == ("p4d.24xlarge", "aws", "us-east-1")
    assert found.tables["scalers"].num_rows == 3
    assert any("1 node(s) completed" in note for note in found.meta.notes)
    assert {(row["workload"], row["team"], row["owner_kind"]) for row in rows(found, "allocations")} == {
        ("prod/chat", "assistants", "Deployment"), ("ml/nightly", None, "CronJob")
    }  # fmt: skip
    assert {row["job"]: (row["queue"], row["state"]) for row in rows(found, "jobs")} == {
        "ml/nightly-28900000": ("ml-queue", "completed"), "ml/sweep-1": ("ml-queue", "queued")
    }  # fmt: skip


_scrap = st.none() | st.integers(-5, 10**20) | st.text(max_size=6) | st.lists(st.none(), max_size=2) | st.just({})


@settings(max_examples=60)
@given(st.data())
def test_no_damage_to_an_object_stops_a_collect(data):
    items = copy.deepcopy(cluster())
    for _ in range(data.draw(st.integers(1, 6))):
        target = data.draw(st.sampled_from(items))
        for _ in range(data.draw(st.integers(0, 3))):
            inner = [value for value in target.values() if isinstance(value, dict) and value]
            if inner:
                target = data.draw(st.sampled_from(inner))
        target[data.draw(st.sampled_from(sorted(target)))] = data.draw(_scrap)

    with contextlib.suppress(InputError):
        found = collected(items)
        check_bundle(memory_bundle(found.tables, found.meta))


@pytest.mark.parametrize(
    ("instance_type", "labelled", "reported", "replicas", "counted"),
    [
        ("p4d.24xlarge", "4", "8", None, 8),  # what the type has
        ("p4d.24xlarge", "8", "16", None, 8),  # shares of boards, as some plugins report them
        ("p4d.24xlarge", "8", "4", None, 8),  # some boards are not given to pods
        ("own-box", "2", "4", "1", 4),
        ("own-box", "2", "4", "2", 2),
        ("own-box", "2", "4", None, 2),  # these may be shares
    ],
)
def test_a_kubelet_that_reports_more_boards_than_an_old_label_is_believed_and_counted(
    instance_type, labelled, reported, replicas, counted
):
    told = node(gpus=reported)
    labels = {"nvidia.com/gpu.count": labelled, "node.kubernetes.io/instance-type": instance_type}
    told["metadata"]["labels"] |= labels | ({} if replicas is None else {"nvidia.com/gpu.replicas": replicas})

    found = collected([told])

    (row,) = rows(found, "nodes")
    assert row["gpu_count"] == counted
    said = [what for what in found.meta.counts if "than their label nvidia.com/gpu.count says" in what]
    assert bool(said) == (counted != int(labelled))


def test_a_node_that_shows_only_mig_instances_has_the_fewest_boards_that_hold_them():
    mixed = node("gpu-m", gpus="")
    del mixed["metadata"]["labels"]["nvidia.com/gpu.count"]
    mixed["status"]["capacity"] |= {"nvidia.com/mig-1g.5gb": "14", "nvidia.com/mig-3g.20gb": "2"}

    assert by_name(collected([mixed]), "nodes", "node")["gpu-m"]["gpu_count"] == 3


@pytest.mark.parametrize(
    ("memory", "cpu", "found"),
    [
        ("1121Gi", "96", "p4d.24xlarge"),
        ("1121Gi", "64", "unknown"),
        ("600Gi", "96", "unknown"),
        ("lots", "96", "unknown"),
    ],
)
def test_a_node_without_its_type_is_the_one_type_that_has_its_hardware(memory, cpu, found):
    bare = node(
        labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "topology.kubernetes.io/region": "us-east-1"}
    )
    bare["status"]["capacity"] |= {"cpu": cpu, "memory": memory}

    assert by_name(collected([bare]), "nodes", "node")["gpu-a"]["instance_type"] == found


SCHEMAS = {
    "Node": "core-v1.34-strict/node.json",
    "Job": "core-v1.34-strict/job.json",
    "Deployment": "core-v1.34-strict/deployment.json",
    "HorizontalPodAutoscaler": "core-v1.34-strict/hpa.json",
    "ScaledObject": "jsonschema/scaledobject_keda.sh_v1alpha1.json",
    "NodePool": "jsonschema/nodepool_karpenter.sh_v1.json",
    "ResourceQuota": "core-v1.34-strict/resourcequota.json",
    "ClusterQueue": "jsonschema/clusterqueue_kueue.x-k8s.io_v1beta1.json",
    "LocalQueue": "jsonschema/localqueue_kueue.x-k8s.io_v1beta1.json",
}


@pytest.mark.shared
@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_small_cluster_has_the_shapes_that_the_real_schemas_allow(shared_dir, kind):
    schema = json.loads((shared_dir / "data/k8s-schemas" / SCHEMAS[kind]).read_text())
    names = {
        tuple(error.absolute_path)
        for one in cluster()
        if one["kind"] == kind
        for error in jsonschema.Draft7Validator(schema).iter_errors(one)
        if error.validator in ("additionalProperties", "type", "enum", "pattern")
    }

    assert names == set()
