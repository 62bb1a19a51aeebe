import contextlib
import copy
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings, strategies as st
from tests.claimed_cluster import (
    API,
    MIG_CLASS,
    board,
    claim,
    claim_node,
    claimed_cluster,
    claiming_pod,
    held,
    instance,
    request,
    result,
    slice_of,
    template,
)
from tests.kube_cluster import OLD, dump, meta, node, pod

from trimtab.check.schemas import Schemas, schema_faults
from trimtab.errors import InputError
from trimtab.sources.kubernetes.objects import Objects
from trimtab.sources.kubernetes.snapshot import collect_snapshot, with_snapshot
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import memory_bundle
from trimtab.tables.checks import check_bundle

END = datetime(2026, 9, 15, tzinfo=UTC)
START = END - timedelta(days=14)
OWNER = ("StatefulSet", "m")
BOARDS = slice_of([board(index) for index in range(8)])


def collected(*items):
    objects = Objects()
    objects.take(dump([item for part in items for item in (part if isinstance(part, list) else [part])]))
    return collect_snapshot(objects, START, END, source="a dump")


def rows(found, table):
    return found.tables[table].to_pylist(maps_as_pydicts="strict")


def gpus_of(found):
    return {row["pod"]: row["gpus"] for row in rows(found, "allocations")}


def test_a_node_has_the_boards_and_the_product_that_its_slices_list():
    (found,) = rows(collected(claim_node(), BOARDS), "nodes")

    assert (found["gpu_count"], found["gpu"]) == (8, "A100-SXM4-40GB")


def test_instances_of_one_board_and_the_board_itself_are_one_board():
    found = collected(claim_node(), slice_of([board(0), instance(0), instance(0, place=1), instance(1)]))

    assert rows(found, "nodes")[0]["gpu_count"] == 2


def test_a_pod_holds_the_device_that_its_claim_was_given():
    found = collected(claim_node(), BOARDS, template(), held("m-0", "gpu-3", owner=OWNER))

    (row,) = rows(found, "allocations")
    assert (row["pod"], row["node"], row["gpus"], row["workload"]) == ("m-0", "gpu-a", 1.0, "ml/m")
    assert rows(found, "pods")[0]["gpu_resource"] == "gpu.nvidia.com"
    assert not [reason for reason in found.meta.counts if "claim" in reason.lower()]


def test_a_claim_is_found_by_its_owner_where_the_status_of_the_pod_is_missing():
    asking = claiming_pod("m-0", owner=OWNER)
    found = collected(
        claim_node(), BOARDS, asking, claim("m-0-gpu-x1", results=[result()], pods=["m-0"], made_for="m-0")
    )

    assert gpus_of(found) == {"m-0": 1.0}


def test_claims_of_the_first_beta_are_read_alike():
    api = "resource.k8s.io/v1beta1"
    found = collected(
        claim_node(), slice_of([board(0), board(1)], api=api), template(api=api),
        claiming_pod("m-0", made="c"), claim("c", results=[result()], pods=["m-0"], api=api),
        claiming_pod("m-1", template="single-gpu", node=None, phase="Pending"),
    )  # fmt: skip

    assert rows(found, "nodes")[0]["gpu_count"] == 2
    assert gpus_of(found) == {"m-0": 1.0}
    assert {row["pod"]: row["gpus"] for row in rows(found, "pods")} == {"m-0": 1.0, "m-1": 1.0}


def test_the_instances_of_a_claim_count_by_their_compute_slices():
    parts = [result("gpu-0-mig-1g5gb-19-0", name="small"), result("gpu-0-mig-3g20gb-9-4", name="large")]
    found = collected(
        claim_node(), slice_of([instance(0), {**instance(0, "3g.20gb"), "name": "gpu-0-mig-3g20gb-9-4"}]),
        claiming_pod("m-0", made="c"), claim("c", results=parts, pods=["m-0"]),
    )  # fmt: skip

    assert gpus_of(found)["m-0"] == pytest.approx(4 / 7)


def test_pods_that_share_a_claim_hold_equal_parts_of_it():
    sharers = [claiming_pod(f"m-{index}", claim="shared", owner=OWNER) for index in range(4)]
    found = collected(
        claim_node(), BOARDS, sharers, claim("shared", results=[result()], pods=[f"m-{index}" for index in range(4)])
    )

    assert gpus_of(found) == {f"m-{index}": 0.25 for index in range(4)}


def test_containers_that_share_a_claim_count_once():
    two = claiming_pod("m-0", made="c")
    two["spec"]["containers"] = [*two["spec"]["containers"]] * 2
    found = collected(claim_node(), BOARDS, two, claim("c", results=[result()], pods=["m-0"]))

    assert gpus_of(found) == {"m-0": 1.0}


def test_two_claims_of_one_pod_add_up():
    two = claiming_pod("m-0", made="a")
    two["spec"]["resourceClaims"].append({"name": "other", "resourceClaimName": "b"})
    found = collected(
        claim_node(), BOARDS, two,
        claim("a", results=[result("gpu-0")], pods=["m-0"]), claim("b", results=[result("gpu-1")], pods=["m-0"]),
    )  # fmt: skip

    assert gpus_of(found) == {"m-0": 2.0}


@pytest.mark.parametrize("where", ["allocation", "request"])
def test_admin_access_holds_nothing_and_is_counted(where):
    admin = [request(adminAccess=True)] if where == "request" else None
    more = {"adminAccess": True} if where == "allocation" else {}
    found = collected(
        claim_node(), BOARDS, claiming_pod("monitor", made="c"),
        claim("c", results=[result(**more)], pods=["monitor"], requests=admin), held("m-0", "gpu-0"),
    )  # fmt: skip

    assert gpus_of(found) == {"m-0": 1.0, "monitor": 0.0}
    assert found.meta.counts["devices claimed with admin access, which holds none"] == 1


def test_devices_of_other_drivers_are_no_gpus_and_are_named():
    nic = slice_of([{"name": "nic-0"}], driver="dra.net")
    found = collected(
        claim_node(), BOARDS, nic, claiming_pod("m-0", made="c"),
        claim("c", results=[result(), result("nic-0", driver="dra.net", name="nic")], pods=["m-0"]),
    )  # fmt: skip

    assert gpus_of(found) == {"m-0": 1.0}
    assert found.meta.counts["devices of the driver dra.net, which are no GPUs"] == 1


def test_a_pod_that_waits_for_its_claim_asks_for_it_and_is_counted():
    found = collected(
        claim_node(), BOARDS, template(requests=[request(count=2)]),
        claiming_pod("m-0", made="c", node=None, phase="Pending"), claim("c", requests=[request(count=2)]),
    )  # fmt: skip

    assert [(row["gpus"], row["phase"], row["node"]) for row in rows(found, "pods")] == [(2.0, "Pending", None)]
    assert rows(found, "allocations") == []
    assert found.meta.counts["pods that wait for GPUs of their ResourceClaims"] == 1


def test_a_finished_pod_held_what_its_template_asks_for():
    found = collected(
        claim_node(), BOARDS, template(requests=[request(device_class=MIG_CLASS, profile="3g.20gb")]),
        claiming_pod("run-1", phase="Succeeded", ended="2026-09-10T06:00:00Z", created="2026-09-10T00:00:00Z"),
    )  # fmt: skip

    assert gpus_of(found)["run-1"] == pytest.approx(3 / 7)


def test_claims_that_were_not_read_are_taken_as_a_gpu_each_and_the_cure_is_named():
    found = collected(node(), claiming_pod("m-0", made="c"))

    assert gpus_of(found) == {"m-0": 1.0}
    (reason,) = (reason for reason in found.meta.counts if "not read" in reason)
    assert "add resourceclaims, resourceclaimtemplates, resourceslices and deviceclasses to the dump" in reason


def test_claims_without_slices_are_taken_as_the_devices_are_named():
    small = claim("b", results=[result("gpu-1-mig-1g5gb-19-0")], pods=["m-1"])
    found = collected(
        node(), claiming_pod("m-0", made="a"), claim("a", results=[result()], pods=["m-0"]),
        claiming_pod("m-1", made="b"), small,
    )  # fmt: skip

    assert gpus_of(found) == {"m-0": 1.0, "m-1": pytest.approx(1 / 7)}
    assert found.meta.counts["claimed GPUs that no ResourceSlice describes, taken as they are named"] == 2


def test_a_node_of_claimed_gpus_has_those_of_its_type_where_no_slice_was_read():
    found = collected(claim_node(), claiming_pod("m-0", made="a"), claim("a", results=[result()], pods=["m-0"]))

    (row,) = rows(found, "nodes")
    assert (row["node"], row["gpu_count"], row["gpu"]) == ("gpu-a", 8, "A100-SXM4-40GB")
    assert gpus_of(found) == {"m-0": 1.0}
    assert any("counted by their type: add resourceslices" in reason for reason in found.meta.counts)


def test_a_node_of_that_type_that_nothing_claims_has_no_gpus():
    found = collected(node(), claim_node("gpu-b"))

    assert [row["node"] for row in rows(found, "nodes")] == ["gpu-a"]
    assert found.meta.counts["nodes without GPUs, left out"] == 1


def test_a_claim_tells_of_a_holder_that_was_not_read():
    found = collected(claim_node(), BOARDS, claim("c", results=[result("gpu-2")], pods=["lost-0"]))

    (row,) = rows(found, "allocations")
    assert (row["pod"], row["node"], row["gpus"]) == ("lost-0", "gpu-a", 1.0)
    assert row["start"] == datetime.fromisoformat(OLD)
    assert found.meta.counts["pods that hold claimed GPUs and were not read: known by their claims"] == 1


def test_a_device_that_is_held_for_no_pod_is_counted():
    found = collected(claim_node(), BOARDS, claim("c", results=[result("gpu-2")]))

    assert rows(found, "allocations") == []
    assert found.meta.counts["ResourceClaims that hold devices for no pod"] == 1


def test_slices_of_an_older_generation_are_no_longer_in_force():
    old, new = slice_of([board(0), board(1)]), slice_of([board(0)], generation=2, count=2)

    found = collected(claim_node(), old, new)

    assert rows(found, "nodes")[0]["gpu_count"] == 1
    assert found.meta.counts["pools of GPUs of which not every ResourceSlice was read"] == 1


def test_a_part_of_a_board_without_a_profile_counts_by_the_counter_that_it_uses_most():
    used = [{"counterSet": "gpu-0-counter-set", "counters": {"memory": {"value": "10Gi"}, "cores": {"value": "54"}}}]
    part = {**board(0), "name": "gpu-0-part-0", "consumesCounters": used}
    shared = [{"name": "gpu-0-counter-set", "counters": {"memory": {"value": "40Gi"}, "cores": {"value": "108"}}}]
    found = collected(
        claim_node(), slice_of([part], sharedCounters=shared), claiming_pod("m-0", made="c"),
        claim("c", results=[result("gpu-0-part-0")], pods=["m-0"]),
    )  # fmt: skip

    assert gpus_of(found) == {"m-0": 0.5}


def test_a_device_that_several_claims_hold_is_split_by_the_capacity_that_each_takes():
    taken = {"a": "30Gi", "b": "10Gi"}
    claims = [
        claim(name, results=[result(shareID=name, consumedCapacity={"memory": amount})], pods=[f"m-{name}"])
        for name, amount in taken.items()
    ]
    sharers = [claiming_pod(f"m-{name}", made=name) for name in taken]
    found = collected(claim_node(), slice_of([board(0, allowMultipleAllocations=True)]), sharers, claims)

    assert gpus_of(found) == {"m-a": 0.75, "m-b": 0.25}


def test_a_device_that_several_claims_hold_without_saying_how_much_is_split_evenly_and_counted():
    claims = [claim(name, results=[result(shareID=name)], pods=[f"m-{name}"]) for name in "abcd"]
    sharers = [claiming_pod(f"m-{name}", made=name) for name in "abcd"]
    found = collected(claim_node(), slice_of([board(0, allowMultipleAllocations=True)]), sharers, claims)

    assert gpus_of(found) == {f"m-{name}": 0.25 for name in "abcd"}
    assert found.meta.counts["shares of GPUs that several claims hold without saying how much, taken as equal"] == 4


def test_gpus_of_an_extended_resource_that_a_claim_provides_count_once():
    asking = pod("m-0", "ml", gpus=1)
    asking["status"]["extendedResourceClaimStatus"] = {
        "resourceClaimName": "m-0-extended-resources-x7k9m",
        "requestMappings": [
            {"containerName": "c", "requestName": "container-0-request-0", "resourceName": "nvidia.com/gpu"}
        ],
    }
    made = claim("m-0-extended-resources-x7k9m", results=[result()], pods=["m-0"])

    assert gpus_of(collected(claim_node(), BOARDS, asking, made)) == {"m-0": 1.0}


def test_an_extended_resource_that_only_a_device_class_tells_of_is_a_gpu():
    of_class = {
        "apiVersion": API, "kind": "DeviceClass", "metadata": meta("large.example.com"),
        "spec": {"extendedResourceName": "example.com/large",
                 "selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]},
    }  # fmt: skip
    asking = pod("m-0", "ml", gpus=0)
    asking["spec"]["containers"][0]["resources"] = {"limits": {"example.com/large": "2"}}

    assert gpus_of(collected(claim_node(), BOARDS, of_class, asking)) == {"m-0": 2.0}


def test_a_run_that_waits_in_kueue_asks_for_what_its_template_claims():
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "single-gpu"}], "containers": [{}]}
    queued = {
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload",
        "metadata": meta("job-sweep-1-abc", "ml", owner=("Job", "sweep-1")),
        "spec": {"queueName": "q", "podSets": [{"count": 3, "template": {"spec": spec}}]},
    }  # fmt: skip

    (row,) = rows(collected(claim_node(), BOARDS, template(), queued), "jobs")

    assert (row["state"], row["gpus"]) == ("queued", 3.0)


@given(
    sharers=st.lists(st.integers(1, 5), min_size=1, max_size=8),
    absent=st.sets(st.integers(0, 4)),
)
@settings(max_examples=50, deadline=None)
def test_the_parts_of_a_claimed_board_add_up_to_it_whoever_of_its_pods_was_read(sharers, absent):
    items = []
    for index, count in enumerate(sharers):
        names = [f"m{index}-{number}" for number in range(count)]
        items.append(claim(f"c{index}", results=[result(f"gpu-{index}")], pods=names))
        items += [claiming_pod(name, claim=f"c{index}") for number, name in enumerate(names) if number not in absent]

    found = collected(claim_node(), BOARDS, items)

    assert sum(row["gpus"] for row in rows(found, "allocations")) == pytest.approx(len(sharers))


def test_a_holder_that_was_not_read_holds_all_devices_of_its_claim():
    both = [result("gpu-0"), result("gpu-1", name="other")]

    assert gpus_of(collected(claim_node(), BOARDS, claim("c", results=both, pods=["lost-0"]))) == {"lost-0": 2.0}


def telemetry(named_pod=None):
    """What DCGM told of two boards in two hours: of the first under no pod, or under one."""
    hour = datetime(2026, 9, 14, tzinfo=UTC)
    told = collected(claim_node(), BOARDS)
    boards = [
        {"device": f"GPU-0000000{index}", "node": "gpu-a", "gpu": "A100-SXM4-40GB", "memory_gib": 40.0}
        for index in range(2)
    ]
    usage = [
        {"device": board["device"], "hour": hour + timedelta(hours=at), "samples": 120, "samples_expected": 120,
         "basis": "raw samples", "sm_active_mean": 0.5}
        for board in boards for at in range(2)
    ]  # fmt: skip
    stray = {"workload": "ml/m", "namespace": "ml", "pod": "m-0", "node": "gpu-a", "gpus": 0.0, "start": hour}
    if named_pod:
        stray |= {"gpus": 1.0, "device": "GPU-00000001"}
    tables = {
        **told.tables,
        "devices": table_from_rows("devices", boards),
        "gpu_usage": table_from_rows("gpu_usage", usage),
        "allocations": table_from_rows("allocations", [stray]),
    }
    return type(told)(tables=tables, meta=told.meta)


def completed(found, *items):
    objects = Objects()
    objects.take(dump([item for part in items for item in (part if isinstance(part, list) else [part])]))
    return with_snapshot(found, objects, source="the cluster")


def test_a_pod_that_telemetry_does_not_name_holds_the_board_that_its_claim_names_and_its_readings():
    late = "2026-09-14T01:00:00Z"
    found = completed(telemetry(), claim_node(), BOARDS, held("m-0", "gpu-1", owner=OWNER, created=late))

    (row,) = rows(found, "allocations")
    assert (row["pod"], row["device"], row["gpus"]) == ("m-0", "GPU-00000001", 1.0)
    assert [(row["device"], row["workload"]) for row in rows(found, "gpu_usage")] == [
        ("GPU-00000000", None), ("GPU-00000000", None), ("GPU-00000001", None), ("GPU-00000001", "ml/m")
    ]  # fmt: skip


def test_what_telemetry_tells_of_a_claiming_pod_stays():
    found = completed(telemetry("m-0"), claim_node(), BOARDS, held("m-0", "gpu-0", owner=OWNER))

    (row,) = rows(found, "allocations")
    assert (row["device"], row["gpus"]) == ("GPU-00000001", 1.0)
    assert {row["workload"] for row in rows(found, "gpu_usage")} == {None}


def test_of_instances_only_how_many_are_held_is_known_beside_telemetry():
    found = completed(
        telemetry(), claim_node(), slice_of([instance(0)]), claiming_pod("m-0", made="c", owner=OWNER),
        claim("c", results=[result("gpu-0-mig-1g5gb-19-0")], pods=["m-0"]),
    )  # fmt: skip

    (row,) = rows(found, "allocations")
    assert (row["device"], row["gpus"]) == (None, pytest.approx(1 / 7))


_SCRAP = st.none() | st.integers(-5, 10**20) | st.text(max_size=6) | st.lists(st.none(), max_size=2) | st.just({})


def _parts(value):
    """Every object and list within one."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    found = [value] if isinstance(value, dict) and value else []
    return found + [part for child in inner for part in _parts(child)]


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_no_damage_to_claims_and_slices_stops_a_collect(data):
    items = copy.deepcopy(claimed_cluster())
    parts = [part for item in items if item["kind"] != "Node" for part in _parts(item)]
    for _ in range(data.draw(st.integers(1, 8))):
        target = data.draw(st.sampled_from(parts))
        target[data.draw(st.sampled_from(sorted(target)))] = data.draw(_SCRAP)

    with contextlib.suppress(InputError):
        found = collected(items)
        check_bundle(memory_bundle(found.tables, found.meta))


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate", "DeviceClass"])
def test_the_claimed_cluster_has_the_shapes_that_the_api_allows(kind):
    schema = Schemas().of(API, kind)
    bodies = [item for item in claimed_cluster() if item["kind"] == kind]

    assert schema is not None
    assert [fault for body in bodies for fault in schema_faults(schema, body) if "uid" not in fault.what] == []


def test_parts_of_amd_boards_without_counters_are_whole_boards_and_counted():
    """ROCm/k8s-gpu-dra-driver: `type` amdgpu, or amdgpu-partition with `partitionProfile`."""
    part = {"name": "gpu-56-184", "attributes": {"type": {"string": "amdgpu-partition"}}}
    found = collected(
        claim_node(), slice_of([part], driver="gpu.amd.com"), claiming_pod("m-0", made="c"),
        claim("c", results=[result("gpu-56-184", driver="gpu.amd.com")], pods=["m-0"]),
    )  # fmt: skip

    assert gpus_of(found) == {"m-0": 1.0}
    assert found.meta.counts["parts of boards that state no counters, taken as whole boards"] == 1


def test_a_waiting_pod_whose_claim_was_not_read_is_counted():
    found = collected(claim_node(), BOARDS, claiming_pod("m-0", node=None, phase="Pending"))

    assert rows(found, "pods")[0]["gpus"] == 0.0
    assert found.meta.counts["claims of waiting pods that were not read: what they ask for is not known"] == 1


def test_a_claim_of_an_instance_of_any_size_is_counted_until_it_is_allocated():
    any_size = [request(device_class=MIG_CLASS)]
    waiting = collected(
        claim_node(), BOARDS, claiming_pod("m-0", made="c", node=None, phase="Pending"), claim("c", requests=any_size)
    )
    given = collected(
        claim_node(), slice_of([instance(0)]), claiming_pod("m-0", made="c"),
        claim("c", requests=any_size, results=[result("gpu-0-mig-1g5gb-19-0")], pods=["m-0"]),
    )  # fmt: skip

    reason = "claims of MIG instances of any size, taken as whole boards until allocated"
    assert (waiting.meta.counts.get(reason), given.meta.counts.get(reason)) == (1, None)
    assert gpus_of(given) == {"m-0": pytest.approx(1 / 7)}
