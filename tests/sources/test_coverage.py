from tests.tables.bundles import META, allocation, device, node, tables, usage

from trimtab.sources.bundle_doctor import bundle_coverage
from trimtab.tables.bundle import memory_bundle


def covered(devices, seen):
    rows = {
        "nodes": [node()],
        "devices": [device(name, mig_profile=profile) for name, profile in devices.items()],
        "allocations": [allocation(device=None)],
        "gpu_usage": [usage(device=name) for name in seen],
    }
    return bundle_coverage(memory_bundle(tables(**rows), META))


def test_boards_without_a_uuid_are_counted_each():
    found = covered({f"n0/gpu{number}": None for number in range(8)}, seen=["n0/gpu0", "n0/gpu1"])

    assert (found.gpus, found.gpus_seen) == (8, 2)


def test_mig_instances_count_as_the_board_that_they_are_cut_from():
    found = covered({"GPU-a/1": "1g.10gb", "GPU-a/2": "1g.10gb", "GPU-b": None}, seen=["GPU-a/1", "GPU-a/2", "GPU-b"])

    assert found.gpus_seen == 2
