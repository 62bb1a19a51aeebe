import pytest
from tests.tables.bundles import META, START, allocation, device, node, tables, usage

from trimtab.errors import UsageError
from trimtab.sources.collected import Collected, merge_clusters
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import memory_bundle
from trimtab.tables.checks import check_bundle


def cluster(gpu="GPU-0", **options):
    return Collected(
        tables=tables(
            devices=[device(gpu)],
            nodes=[node()],
            allocations=[allocation(device=gpu)],
            gpu_usage=[usage(device=gpu)],
            **options,
        ),
        meta=META,
    )


def test_nodes_and_workloads_of_the_same_name_stay_apart():
    merged = merge_clusters({"east": cluster("GPU-0"), "west": cluster("GPU-1")})

    assert merged.tables["nodes"]["node"].to_pylist() == ["n0@east", "n0@west"]
    assert merged.tables["devices"]["node"].to_pylist() == ["n0@east", "n0@west"]
    assert merged.tables["allocations"]["workload"].to_pylist() == ["prod/chat@east", "prod/chat@west"]
    assert merged.tables["devices"]["device"].to_pylist() == ["GPU-0", "GPU-1"]
    assert merged.meta.counts == {"clamped": 6}
    assert merged.meta.sources == ("east: a test", "west: a test")


def test_devices_named_after_their_host_stay_apart_too():
    merged = merge_clusters({"east": cluster("n0/gpu0"), "west": cluster("n0/gpu0")})

    assert merged.tables["devices"]["device"].to_pylist() == ["n0/gpu0@east", "n0/gpu0@west"]
    assert merged.tables["allocations"]["device"].to_pylist() == ["n0/gpu0@east", "n0/gpu0@west"]


def test_the_merged_tables_are_a_sound_bundle():
    merged = merge_clusters({"east": cluster("n0/gpu0"), "west": cluster("n0/gpu0")})

    assert check_bundle(memory_bundle(merged.tables, merged.meta)).table("nodes").num_rows == 2


def test_one_cluster_alone_keeps_its_names():
    only = cluster()

    assert merge_clusters({"east": only}) is only


def test_no_cluster_at_all_is_told():
    with pytest.raises(UsageError, match="cluster label"):
        merge_clusters({})


def test_what_stands_beside_the_workloads_names_them_as_they_are_named():
    def with_objects(gpu):
        part = cluster(gpu)
        pod = {"pod": "chat-0", "namespace": "prod", "workload": "prod/chat", "node": "n0", "phase": "Running",
               "created": START, "gpus": 1.0}  # fmt: skip
        scaler = {"kind": "ScaledObject", "name": "chat", "target": "prod/chat"}
        image = {"node": "n0", "image": "chat:1", "size_gib": 1.0}
        beside = {"pods": [pod], "scalers": [scaler], "images": [image]}
        more = {table: table_from_rows(table, rows) for table, rows in beside.items()}
        return Collected(tables={**part.tables, **more}, meta=part.meta)

    merged = merge_clusters({"east": with_objects("GPU-0"), "west": with_objects("GPU-1")}).tables

    assert merged["pods"]["workload"].to_pylist() == ["prod/chat@east", "prod/chat@west"]
    assert merged["pods"]["node"].to_pylist() == ["n0@east", "n0@west"]
    assert merged["scalers"]["target"].to_pylist() == ["prod/chat@east", "prod/chat@west"]
    assert merged["images"]["node"].to_pylist() == ["n0@east", "n0@west"]
