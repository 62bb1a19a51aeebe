"""How many `nvidia.com/gpu` a cluster's nodes advertise: known where boards are whole and of known types, else unknown."""

from datetime import UTC, datetime

import pytest

from trimtab.catalog import load_catalog
from trimtab.sources.kubernetes.advertised_boards import whole_boards

POD = {"workload": "ml/train", "gpu_resource": "nvidia.com/gpu", "gpu_pieces": 2.0, "gpus": 2.0, "gpu_claims": None}


def node(name="n", gpu="A100-SXM4-80GB", count=8, labels=None, end=None):
    return {"node": name, "gpu": gpu, "gpu_count": count, "labels": labels, "end": end}


def boards(*nodes, pods=(POD,)):
    return whole_boards(nodes, pods, load_catalog())


def test_boards_of_living_nodes_are_counted_by_cluster_and_other_makers_are_none_of_them():
    nodes = [
        node("a@east"), node("b@east", count=4), node("c@west"), node("gone@west", end=datetime(2026, 9, 1, tzinfo=UTC)),
        node("amd@west", gpu="MI300X"), node("cpu@west", gpu=None, count=0),
    ]  # fmt: skip

    assert boards(*nodes) == {"east": 12.0, "west": 8.0}


@pytest.mark.parametrize(
    "labels",
    [
        {"nvidia.com/gpu.replicas": "4"},
        {"cloud.google.com/gke-gpu-partition-size": "1g.10gb"},
        {"nvidia.com/mig-1g.10gb.count": "7"},
        {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"},
    ],
)
def test_a_node_that_hands_out_boards_in_shares_or_parts_leaves_its_clusters_number_unknown(labels):
    assert boards(node("a@east", labels=labels), node("b@east"), node("c@west")) == {"west": 8.0}
    assert boards(node(labels={"nvidia.com/gpu.replicas": "1", "nvidia.com/mig.config": "all-disabled"})) == {"": 8.0}


@pytest.mark.parametrize(
    "told", [{"gpu_pieces": 2.0, "gpus": 0.5}, {"gpu_claims": "claim gpu", "gpu_resource": "gpu.nvidia.com"}]
)
def test_a_pod_with_a_share_or_a_claim_leaves_its_clusters_number_unknown(told):
    assert boards(node(), pods=[POD | told]) == {}


def test_a_board_of_unknown_type_leaves_its_clusters_number_unknown():
    assert boards(node(), node("b", gpu=None)) == {}
    assert boards(node(), node("b", gpu="X9000")) == {}
