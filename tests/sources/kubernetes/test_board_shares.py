import contextlib
import copy
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings, strategies as st
from tests.kube_cluster import dump, node, pod
from tests.shared_cluster import (
    MIB,
    PLACE,
    PRODUCT,
    asking,
    fraction_pod,
    hami_node,
    hami_pod,
    kai_node,
    reservation,
    uuid,
    volcano_node,
)

from trimtab.errors import InputError
from trimtab.sources.kubernetes.objects import Objects
from trimtab.sources.kubernetes.snapshot import collect_snapshot, with_snapshot
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import memory_bundle
from trimtab.tables.checks import check_bundle

END = datetime(2026, 9, 15, tzinfo=UTC)
START = END - timedelta(days=14)
STATEFUL = ("StatefulSet", "m")


def objects_of(items):
    objects = Objects()
    objects.take(dump(list(items)))
    return objects


def collected(*items):
    return collect_snapshot(objects_of(items), START, END, source="a dump")


def rows(found, table):
    return found.tables[table].to_pylist(maps_as_pydicts="strict")


def gpus_of(found):
    return {row["pod"]: row["gpus"] for row in rows(found, "allocations")}


def boards_of(found):
    return {row["node"]: row["gpu_count"] for row in rows(found, "nodes")}


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_node_of_hami_has_the_boards_that_it_registers_not_the_times_it_advertises_them(form):
    assert boards_of(collected(hami_node(boards=2, split=10, form=form))) == {"gpu-a": 2}


def test_a_pod_of_hami_holds_the_larger_part_of_memory_and_compute():
    found = collected(
        hami_node(),
        hami_pod("memory", [(uuid(0), MIB * 0.4, 10)]),
        hami_pod("compute", [(uuid(1), MIB * 0.1, 30)]),
        hami_pod("unlimited-compute", [(uuid(2), MIB * 0.25, 0)]),
    )

    assert gpus_of(found) == pytest.approx({"memory": 0.4, "compute": 0.3, "unlimited-compute": 0.25})


def test_containers_add_up_on_a_board_and_boards_of_a_pod_add_up():
    found = collected(
        hami_node(), hami_pod("m", [(uuid(0), MIB * 0.2, 10), (uuid(1), MIB * 0.5, 0)], [(uuid(0), MIB * 0.1, 30)])
    )

    assert gpus_of(found) == pytest.approx({"m": 0.4 + 0.5})


def test_an_init_container_that_ended_holds_nothing():
    done = hami_pod("m", [(uuid(0), MIB * 0.9, 0)], [(uuid(0), MIB * 0.2, 0)])
    done["spec"]["initContainers"] = [done["spec"]["containers"].pop()]

    assert gpus_of(collected(hami_node(), done)) == pytest.approx({"m": 0.2})

    done["status"]["phase"] = "Pending"
    assert gpus_of(collected(hami_node(), done)) == pytest.approx({"m": 0.9})


def test_boards_of_which_more_than_all_is_set_aside_are_shared_in_proportion_and_counted():
    found = collected(hami_node(), hami_pod("a", [(uuid(0), MIB * 0.4, 60)]), hami_pod("b", [(uuid(0), MIB * 0.6, 40)]))

    assert gpus_of(found) == pytest.approx({"a": 0.5, "b": 0.5})
    assert found.meta.counts["boards of which more than all is set aside, shared in proportion"] == 1


@pytest.mark.parametrize(
    ("limits", "gpus"),
    [
        ({"nvidia.com/gpu": "2", "nvidia.com/gpumem-percentage": "50", "nvidia.com/gpucores": "30"}, 1.0),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "10240"}, 0.25),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096", "nvidia.com/gpucores": "30"}, 0.3),
        ({"nvidia.com/gpu": "2"}, 2.0),
        ({"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "20480"}, 0.5),
        (
            {"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-cores": "50", "volcano.sh/vgpu-memory-percentage": "10"},
            1.0,
        ),
        ({"volcano.sh/vgpu-number": "3"}, 3.0),
    ],
)
def test_where_no_annotation_tells_a_pod_holds_what_it_asks_for(limits, gpus):
    assert gpus_of(collected(hami_node(), asking("m", limits=limits))) == pytest.approx({"m": gpus})


def test_mib_of_a_board_whose_memory_nobody_tells_count_as_the_whole_board():
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}

    found = collected(node(gpus="8", labels=PLACE), asking("m", limits=limits))

    assert gpus_of(found) == {"m": 1.0}
    assert any("MiB of boards whose memory is not known" in reason for reason in found.meta.counts)


def test_volcano_writes_parts_as_hami_does_under_names_of_its_own():
    found = collected(
        volcano_node(boards=2), hami_pod("m", [(uuid(1), MIB / 8, 10)], annotation="volcano.sh/vgpu-ids-new")
    )

    assert boards_of(found) == {"gpu-a": 2}
    assert gpus_of(found) == pytest.approx({"m": 0.125})


@pytest.mark.parametrize("told", ["GPU-1", "GPU-1,NVIDIA,many,0:;", "GPU-1,NVIDIA,-5,0:;", ",NVIDIA,5,0:;"])
def test_a_damaged_annotation_is_counted_and_its_pod_holds_what_it_asks_for(told):
    damaged = hami_pod("m", limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "30"})
    damaged["spec"]["containers"] = asking("m", limits={"nvidia.com/gpu": "1"})["spec"]["containers"]
    damaged["metadata"]["annotations"] = {"hami.io/vgpu-devices-allocated": told}

    found = collected(hami_node(), damaged)

    assert gpus_of(found) == {"m": pytest.approx(1.0)}
    assert any("could not be read" in reason for reason in found.meta.counts)


def test_fractions_of_kai_are_held_by_their_pods_and_not_by_the_pod_that_reserves_the_board():
    found = collected(
        kai_node(),
        reservation("g1", uuid(0)),
        fraction_pod("half", "0.5", groups=["g1"]),
        fraction_pod("quarter", mib=10240, groups=["g1"]),
        reservation("g2", uuid(1)),
        reservation("g3", uuid(2)),
        fraction_pod("two", "0.3", devices=2, groups=["g2", "g3"]),
    )

    assert gpus_of(found) == pytest.approx({"half": 0.5, "quarter": 0.25, "two": 0.6})


def test_a_reservation_whose_pods_were_not_read_holds_its_board_and_is_counted():
    found = collected(kai_node(), reservation("g1", uuid(0), namespace="runai-reservation"))

    assert gpus_of(found) == {"gpu-reservation-gpu-a-g1": 1.0}
    assert any("whose pods were not read" in reason for reason in found.meta.counts)


def test_a_reservation_holds_its_board_until_the_first_pod_that_was_read():
    late = "2026-09-12T00:00:00Z"
    found = collected(kai_node(), reservation("g1", uuid(0)), fraction_pod("half", "0.5", groups=["g1"], created=late))

    ends = {row["pod"]: (row["gpus"], row["end"]) for row in rows(found, "allocations")}
    assert ends == {
        "gpu-reservation-gpu-a-g1": (1.0, datetime(2026, 9, 12, tzinfo=UTC)),
        "half": (0.5, None),
    }


@pytest.mark.parametrize(
    ("change", "gpus"),
    [({"schedulerName": "default-scheduler"}, 0.0), ({"schedulerName": "runai-scheduler"}, 0.5)],
)
def test_a_fraction_counts_only_with_a_scheduler_that_reads_it(change, gpus):
    asked = fraction_pod("m", "0.5")
    asked["spec"] |= change

    assert gpus_of(collected(kai_node(), asked)) == {"m": gpus}


def test_a_fraction_that_cannot_be_read_is_a_whole_board_and_counted():
    found = collected(kai_node(), fraction_pod("m", "some", groups=["g1"]))

    assert gpus_of(found) == {"m": 1.0}
    assert any("fractions of boards that could not be read" in reason for reason in found.meta.counts)


@pytest.mark.parametrize(
    ("labels", "resource"),
    [
        ({"nvidia.com/gpu.replicas": "4"}, "nvidia.com/gpu"),
        ({"nvidia.com/gpu.replicas": "4"}, "nvidia.com/gpu.shared"),
        ({"cloud.google.com/gke-max-shared-clients-per-gpu": "4"}, "nvidia.com/gpu"),
    ],
)
def test_shares_in_time_slices_are_their_part_of_a_board(labels, resource):
    shared = node(gpus="", labels={**PLACE, **labels})
    shared["status"]["capacity"][resource] = "8"

    found = collected(shared, asking("m", limits={resource: "1"}), asking("two", limits={resource: "2"}))

    assert boards_of(found) == {"gpu-a": 2}
    assert gpus_of(found) == {"m": 0.25, "two": 0.5}


def test_a_virtual_gpu_is_the_part_of_the_board_that_its_type_names():
    virtual = node(gpus="", labels={**PLACE, "nvidia.com/gpu.product": PRODUCT, "nvidia.com/gpu.memory": "40960"})
    virtual["status"]["capacity"]["nvidia.com/NVIDIA_A100-10C"] = "8"

    found = collected(virtual, asking("vm", limits={"nvidia.com/NVIDIA_A100-10C": "1"}))

    assert boards_of(found) == {"gpu-a": 2}
    assert gpus_of(found) == {"vm": 0.25}


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(1, 2 * MIB), st.integers(0, 100)), min_size=1, max_size=12))
def test_the_parts_of_a_board_never_add_up_to_more_than_it(parts):
    pods = [hami_pod(f"m-{at}", [(uuid(board), mib, compute)]) for at, (board, mib, compute) in enumerate(parts)]

    held = gpus_of(collected(hami_node(boards=4), *pods))

    for board in range(4):
        assert sum(held[f"m-{at}"] for at, part in enumerate(parts) if part[0] == board) <= 1 + 1e-9


def telemetry(*, named=None, hours=4, cluster=()):
    """What DCGM told of two boards: readings under no pod or the one named, which holds the first board whole."""
    first = END - timedelta(hours=hours)
    told = collected(*cluster)
    boards = [{"device": uuid(at), "node": "gpu-a", "gpu": "A100-SXM4-40GB", "memory_gib": 40.0} for at in range(2)]
    workload = "/".join(named) if named else None
    usage = [
        {"device": board["device"], "hour": first + timedelta(hours=at), "samples": 120, "samples_expected": 120,
         "basis": "raw samples", "sm_active_mean": 0.5, "energy_kwh": 0.3,
         "workload": workload if board["device"] == uuid(0) else None}
        for board in boards for at in range(hours)
    ]  # fmt: skip
    holds = []
    if named:
        holds = [{"workload": workload, "namespace": named[0], "pod": named[1], "node": "gpu-a", "gpus": 1.0,
                  "device": uuid(0), "start": first}]  # fmt: skip
    tables = {
        **told.tables,
        "devices": table_from_rows("devices", boards),
        "gpu_usage": table_from_rows("gpu_usage", usage),
        "allocations": table_from_rows("allocations", holds),
    }
    return type(told)(tables=tables, meta=told.meta)


def test_telemetry_that_names_the_reservation_is_completed_with_who_holds_the_board():
    cluster = [
        kai_node(),
        reservation("g1", uuid(0)),
        fraction_pod("a-0", "0.5", groups=["g1"], owner=("StatefulSet", "a")),
        fraction_pod("b-0", "0.25", groups=["g1"], owner=("StatefulSet", "b"), created="2026-09-14T22:00:00Z"),
    ]
    named = ("kai-resource-reservation", "gpu-reservation-gpu-a-g1")

    found = with_snapshot(telemetry(named=named, cluster=cluster), objects_of(cluster), source="the cluster")

    assert {(row["pod"], row["device"], row["gpus"]) for row in rows(found, "allocations")} == {
        ("a-0", uuid(0), 0.5), ("b-0", uuid(0), 0.25)
    }  # fmt: skip
    readings = [row for row in rows(found, "gpu_usage") if row["device"] == uuid(0)]
    assert [row["workload"] for row in readings] == ["ml/a", "ml/a", "ml/a", "ml/b", "ml/a", "ml/b"]
    assert sum(row["energy_kwh"] for row in readings) == pytest.approx(4 * 0.3)
    check_bundle(memory_bundle(found.tables, found.meta))


def test_parts_that_hami_tells_stand_over_the_whole_board_that_telemetry_knows():
    cluster = [hami_node(), hami_pod("m-0", [(uuid(0), MIB / 4, 0)], owner=STATEFUL)]

    found = with_snapshot(telemetry(named=("ml", "m-0"), cluster=cluster), objects_of(cluster), source="the cluster")

    (row,) = rows(found, "allocations")
    assert (row["pod"], row["device"], row["gpus"]) == ("m-0", uuid(0), 0.25)


def test_what_telemetry_tells_of_an_earlier_life_of_a_pod_stays():
    late = "2026-09-14T22:00:00Z"
    cluster = [hami_node(), hami_pod("m-0", [(uuid(1), MIB / 4, 0)], owner=STATEFUL, created=late)]

    found = with_snapshot(telemetry(named=("ml", "m-0"), cluster=cluster), objects_of(cluster), source="the cluster")

    again = datetime(2026, 9, 14, 22, tzinfo=UTC)
    assert [(row["device"], row["gpus"], row["start"], row["end"]) for row in rows(found, "allocations")] == [
        (uuid(0), 1.0, END - timedelta(hours=4), again), (uuid(1), 0.25, again, None)
    ]  # fmt: skip


_SCRAP = st.none() | st.integers(-5, 10**20) | st.text(max_size=6) | st.lists(st.none(), max_size=2) | st.just({})


@settings(max_examples=60)
@given(st.data())
def test_no_damage_to_what_is_written_of_shares_stops_a_collect(data):
    items = copy.deepcopy(
        [
            hami_node(), hami_pod("m", [(uuid(0), MIB / 4, 0)]), kai_node("gpu-b"),
            reservation("g1", uuid(1), node="gpu-b"), fraction_pod("f", "0.5", groups=["g1"], node="gpu-b"),
            pod("whole", "ml", node="gpu-b"),
        ]
    )  # fmt: skip
    for _ in range(data.draw(st.integers(1, 5))):
        notes = data.draw(st.sampled_from(items))["metadata"]
        where = notes.get(data.draw(st.sampled_from(["annotations", "labels", ""]))) or notes
        if isinstance(where, dict) and where:
            where[data.draw(st.sampled_from(sorted(where)))] = data.draw(
                _SCRAP | st.text(alphabet="G1,:;[{-}", max_size=12)
            )

    with contextlib.suppress(InputError):
        found = collected(*items)
        check_bundle(memory_bundle(found.tables, found.meta))


def test_a_pod_with_whole_boards_that_telemetry_does_not_know_holds_them_too():
    cluster = [kai_node(), pod("m-0", "ml", gpus=2, owner=STATEFUL)]

    found = with_snapshot(telemetry(cluster=cluster), objects_of(cluster), source="the cluster")

    assert [(row["pod"], row["device"], row["gpus"]) for row in rows(found, "allocations")] == [("m-0", None, 2.0)]
