"""Workloads that share nodes: one pool, its MIG layout, what each asks for; as golden files, and valid."""

import json
from collections import Counter
from dataclasses import replace

import jsonschema
import pytest
import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.example import P4D, action, evidence, example_audit
from tests.emit.validity import UNSCHEMED, schema_faults, structural_faults

from trimtab.catalog.kinds import Isolation
from trimtab.catalog.pools import Pool, SharedPool
from trimtab.deployment.effects import SetSchedule, UseSlots
from trimtab.emit.manifests.gpu_sharing import side_by_side as cut_nodes
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.levers import schedule, sharing
from trimtab.plan.model import Risk
from trimtab.provenance import Basis, Estimate

P4DE = Pool("aws", "p4de.24xlarge", "us-east-1")
G5 = Pool("aws", "g5.xlarge", "us-east-1")
SLOWER = Estimate(value=0.49, low=0.35, high=0.7, basis=Basis.CALIBRATED)
SAME = Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.MEASURED)
SLICE = UseSlots(
    shared=SharedPool(P4DE, 32, "1g.20gb"),
    gpu="A100-SXM4-80GB",
    gpus_per_node=8,
    slots=1,
    memory_gib=19.5,
    speed=SLOWER,
    work_speed=SLOWER,
)
WHOLE = UseSlots(
    shared=SharedPool(P4D, 8),
    gpu="A100-SXM4-40GB",
    gpus_per_node=8,
    slots=1,
    memory_gib=40.0,
    speed=SAME,
    work_speed=SAME,
)


def shared_by(name, subject, changes):
    return action(
        name,
        sharing.NAME,
        subject,
        4_000.0,
        changes,
        weeks=2.0,
        risk=Risk.MEDIUM,
        quarter=1,
        seen=(evidence("memory peak", "14.0 GiB", "19.5 GiB seen of 1g.20gb on p4de.24xlarge"),),
        rollback="point the node selectors back to the nodes before",
    )


def unisolated(isolation, shares, slots, busy_frac=1.0):
    shared = SharedPool(G5, shares, isolation=isolation.value, busy_frac=busy_frac)
    return UseSlots(
        shared=shared, gpu="A10G", gpus_per_node=1, slots=slots, memory_gib=5.6, speed=SAME, work_speed=SAME
    )


PLAN = replace(
    example_audit().plan,
    actions=(
        shared_by(
            "a1",
            "notebooks/ana, bo, embed-api",
            dict.fromkeys(("notebooks/ana", "notebooks/bo", "prod/embed-api"), SLICE),
        ),
        shared_by("a2", "chat-api, search-rank", dict.fromkeys(("prod/chat-api", "prod/search-rank"), WHOLE)),
    ),
)
EMISSION = emit_plan(PLAN, example_facts())
FILES = {file.path: file for file in EMISSION.files}
OBJECTS = [
    pytest.param(one, id=path)
    for path, file in FILES.items()
    if path.endswith(".yaml") and file.kind != "Helm values"
    for one in yaml.safe_load_all(file.text)
]


UNISOLATED = replace(
    example_audit().plan,
    actions=(
        shared_by(
            "a1",
            "prod/chat-api, search-rank",
            {
                "prod/chat-api": unisolated(Isolation.TIME_SLICING, 4, 2, 0.1),
                "prod/search-rank": unisolated(Isolation.TIME_SLICING, 4, 1, 0.1),
            },
        ),
        shared_by("a2", "prod/embed-api", {"prod/embed-api": unisolated(Isolation.MPS, 3, 1)}),
    ),
)
A2 = Pool("gcp", "a2-highgpu-1g", "us-central1")
SHARE_A2 = frozenset({"prod/chat-api", "prod/embed-api", "prod/search-rank"})


def facts_beside_a2():
    """The example's cluster with those who share A2 nodes at home in their region: slots elsewhere need a move there."""
    facts, home = example_facts(), replace(A2, instance_type="a2-highgpu-8g")
    return replace(
        facts, workloads=tuple(replace(one, pool=home) if one.name in SHARE_A2 else one for one in facts.workloads)
    )


def side_by_side(profile, per_gpu, takes, memory_gib, gpus=1, pool=A2):
    room = tuple(gpus * one for one in (8, 7, 3, 1))
    return UseSlots(
        shared=SharedPool(pool, per_gpu * gpus, profile, takes=takes, room=room),
        gpu="A100-SXM4-40GB",
        gpus_per_node=gpus,
        slots=1,
        memory_gib=memory_gib,
        speed=SLOWER,
        work_speed=SLOWER,
    )


MIXED = replace(
    example_audit().plan,
    actions=(
        shared_by(
            "a1",
            "prod/chat-api, embed-api, search-rank",
            {
                "prod/chat-api": side_by_side("3g.20gb", 2, (4, 3, 1, 0), 19.5),
                "prod/embed-api": side_by_side("2g.10gb", 3, (2, 2, 1, 0), 9.6),
                "prod/search-rank": side_by_side("1g.5gb", 7, (1, 1, 0, 0), 4.7),
            },
        ),
    ),
)
MIXED_FILES = {file.path: file for file in emit_plan(MIXED, facts_beside_a2()).files}
OPEN_FILES = {file.path: file for file in emit_plan(UNISOLATED, example_facts()).files}
OBJECTS += [
    pytest.param(one, id=f"{name}-{path}")
    for name, files in (("open", OPEN_FILES), ("mixed", MIXED_FILES))
    for path, file in files.items()
    if path.endswith(".yaml") and file.kind != "Helm values"
    for one in yaml.safe_load_all(file.text)
]


def test_every_file_is_as_its_golden_file(golden):
    for path, file in FILES.items():
        golden(f"sharing/{path}", file.text)
    for path, file in OPEN_FILES.items():
        golden(f"sharing-unisolated/{path}", file.text)
    for path, file in MIXED_FILES.items():
        golden(f"sharing-mixed/{path}", file.text)


@pytest.mark.parametrize("one", [one for one in OBJECTS if one.values[0]["kind"] not in UNSCHEMED])
def test_every_object_is_valid_against_the_strict_upstream_schema(one, shared_dir):
    assert schema_faults(one, shared_dir / "data" / "k8s-schemas") == []


@pytest.mark.parametrize("one", OBJECTS)
def test_every_object_is_named_and_annotated(one):
    assert structural_faults(one) == []


def loaded(path):
    return yaml.safe_load(FILES[path].text)


def test_the_layouts_are_valid_for_mig_parted_and_are_those_of_the_operators_own_table(shared_dir):
    schemas = shared_dir / "data" / "k8s-schemas"
    config = yaml.safe_load(loaded("nodes/mig-layouts.configmap.yaml")["data"]["config.yaml"])

    own = (schemas / "mig-parted-default-config.configmap.yaml").read_text(encoding="utf-8")
    theirs = yaml.safe_load(yaml.safe_load(own)["data"]["config.yaml"])["mig-configs"]
    jsonschema.validate(config, json.loads((schemas / "jsonschema" / "mig-parted-config_v1.json").read_text()))
    assert config["mig-configs"]["all-1g.20gb"][0]["mig-devices"] == {"1g.20gb": 4}
    assert any(one["mig-devices"] == {"1g.20gb": 4} for one in theirs["all-1g.20gb"])


def test_the_pool_carries_the_layout_and_its_slices_are_known_to_karpenter():
    name = "p4de-24xlarge-us-east-1-on-demand-1g-20gb-services"
    pool, overlay = loaded(f"nodes/{name}.nodepool.yaml"), loaded(f"nodes/{name}.nodeoverlay.yaml")

    assert pool["spec"]["template"]["metadata"]["labels"]["nvidia.com/mig.config"] == "all-1g.20gb"
    assert overlay["spec"]["capacity"] == {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.20gb": "32"}
    assert overlay["spec"]["requirements"][0]["values"] == [pool["metadata"]["name"]]


def test_a_slice_is_asked_for_in_place_of_a_gpu():
    patches = loaded("workloads/prod/embed-api/kustomization.yaml")["patches"]

    assert yaml.safe_load(patches[1]["patch"]) == [
        {"op": "remove", "path": "/spec/template/spec/containers/0/resources/limits/nvidia.com~1gpu"},
        {
            "op": "add",
            "path": "/spec/template/spec/containers/0/resources/limits/nvidia.com~1mig-1g.20gb",
            "value": "1",
        },
    ]


def test_whole_gpus_are_shared_on_one_pool_as_they_are_asked_for():
    pool = loaded("nodes/p4d-24xlarge-us-east-1-on-demand-services.nodepool.yaml")

    assert pool["spec"]["limits"] == {"nvidia.com/gpu": "40"}, "four nodes for 32 replicas and one for a rollout"
    assert len(loaded("workloads/prod/chat-api/kustomization.yaml")["patches"]) == 1


def test_each_way_to_share_is_a_configuration_of_the_device_plugin_that_its_pools_label_picks():
    configs = yaml.safe_load(OPEN_FILES["nodes/gpu-sharing.configmap.yaml"].text)["data"]
    pools = [yaml.safe_load(file.text) for path, file in OPEN_FILES.items() if path.endswith(".nodepool.yaml")]
    labels = [pool["spec"]["template"]["metadata"]["labels"]["nvidia.com/device-plugin.config"] for pool in pools]

    assert [*sorted(labels), "default"] == sorted(configs, key=lambda name: (name == "default", name))
    assert sorted(labels) == ["mps-3", "time-slicing-4"]
    assert yaml.safe_load(configs["mps-3"])["sharing"] == {
        "mps": {"renameByDefault": True, "resources": [{"name": "nvidia.com/gpu", "replicas": 3}]}
    }
    assert yaml.safe_load(configs["time-slicing-4"])["sharing"]["timeSlicing"]["failRequestsGreaterThanOne"] is False


def test_whoever_needs_the_memory_of_two_time_slices_asks_for_two():
    asked = {
        name: yaml.safe_load(
            yaml.safe_load(OPEN_FILES[f"workloads/prod/{name}/kustomization.yaml"].text)["patches"][1]["patch"]
        )[1]
        for name in ("chat-api", "search-rank", "embed-api")
    }

    assert {one["path"].rpartition("/")[2] for one in asked.values()} == {"nvidia.com~1gpu.shared"}
    assert [asked[name]["value"] for name in ("chat-api", "search-rank", "embed-api")] == ["2", "1", "1"]


def test_slices_of_several_profiles_stand_side_by_side_and_hold_all_that_is_asked_for(shared_dir):
    config = yaml.safe_load(yaml.safe_load(MIXED_FILES["nodes/mig-layouts.configmap.yaml"].text)["data"]["config.yaml"])
    schema = shared_dir / "data" / "k8s-schemas" / "jsonschema" / "mig-parted-config_v1.json"
    pools = [yaml.safe_load(file.text)["spec"] for path, file in MIXED_FILES.items() if path.endswith(".nodepool.yaml")]
    labels = [pool["template"]["metadata"]["labels"] for pool in pools]

    jsonschema.validate(config, json.loads(schema.read_text()))
    assert {one["nvidia.com/mig.config"] for one in labels} == config["mig-configs"].keys() - {"all-disabled"}
    assert len({one["trimtab.dev/slices"] for one in labels}) == 1
    held = Counter()
    for pool in pools:
        held.update({name: int(count) for name, count in pool["limits"].items()})
    replicas = {one.short_name: one.replicas for one in example_facts().workloads}
    assert held["nvidia.com/mig-3g.20gb"] >= replicas["chat-api"]
    assert held["nvidia.com/mig-2g.10gb"] >= replicas["embed-api"]
    assert held["nvidia.com/mig-1g.5gb"] >= replicas["search-rank"]


def test_whoever_shares_mixed_nodes_is_pointed_at_all_of_them():
    patch = yaml.safe_load(MIXED_FILES["workloads/prod/embed-api/kustomization.yaml"].text)["patches"][0]["patch"]

    selector = yaml.safe_load(patch)["spec"]["template"]["spec"]["nodeSelector"]
    assert [key for key, value in selector.items() if value is not None] == ["trimtab.dev/slices"]


@pytest.mark.parametrize("gpus", [1, 8])
def test_the_gpus_of_a_node_may_be_cut_in_several_ways(gpus):
    kinds = [one.shared for one in (
        side_by_side("3g.20gb", 2, (4, 3, 1, 0), 19.5, gpus), side_by_side("1g.5gb", 7, (1, 1, 0, 0), 4.7, gpus),
    )]  # fmt: skip

    cuts = cut_nodes(dict(zip(kinds, (5, 9), strict=True)), gpus)

    held = sum((Counter({kind: count * cut.nodes for kind, count in cut.slots.items()}) for cut in cuts), Counter())
    assert sum(cut.nodes for cut in cuts) * gpus == (4 if gpus == 1 else 8)
    assert held[kinds[0]] >= 5
    assert held[kinds[1]] >= 9
    assert all(len(cut.gpus) == gpus for cut in cuts)


def test_a_notebook_with_a_timetable_stays_on_the_nodes_that_it_shares_with_services():
    subjects = ("notebooks/ana", "notebooks/bo", "prod/embed-api")
    hours = SetSchedule(hours_of_week=tuple(range(8, 20)))
    closed = action(
        "a3", schedule.NAME, "notebooks/ana", 100.0, {"notebooks/ana": hours},
        weeks=1.0, risk=Risk.LOW, quarter=1, seen=(), rollback="remove the timetable",
    )  # fmt: skip
    shared = shared_by("a1", ", ".join(subjects), dict.fromkeys(subjects, SLICE))

    files = emit_plan(replace(example_audit().plan, actions=(shared, closed)), example_facts()).files

    pools = [yaml.safe_load(file.text) for file in files if file.path.endswith("nodepool.yaml")]
    (said,) = [pool["metadata"]["annotations"]["trimtab.dev/action"] for pool in pools]
    assert said.count(",") == 1  # of both actions
    assert pools[0]["spec"]["disruption"]["consolidationPolicy"] == "WhenEmptyOrUnderutilized"
