"""Boards that pods share, from a dump to the audit: who is billed for what, and which nodes are given back."""

import json

import pytest
from tests.kube_cluster import dump, pod
from tests.shared_cluster import MIB, fraction_pod, hami_node, hami_pod, kai_node, reservation, uuid

from trimtab.cli import main

P4D_USD_MO = 16_029.08
"""On demand in us-east-1 (catalog, prices.csv): 21.957642 USD/h x 730 h."""
GPU_USD_MO = P4D_USD_MO / 8


def run(*arguments):
    with pytest.raises(SystemExit) as exit_:
        main(list(arguments))
    return exit_.value.code


def shared_cluster():
    """A node of HAMi, one of KAI, one with nothing but what every node runs, and one of which no pod was read."""
    return [
        hami_node("gpu-a"),
        hami_pod("small-0", [(uuid(0), MIB / 4, 0)], owner=("StatefulSet", "small")),
        kai_node("gpu-b"),
        reservation("g1", uuid(1), node="gpu-b"),
        fraction_pod("half-0", "0.5", groups=["g1"], node="gpu-b", owner=("StatefulSet", "half")),
        kai_node("gpu-c"),
        kai_node("gpu-d"),
        *(
            pod(f"proxy-{name}", "kube-system", owner=("DaemonSet", "proxy"), gpus=0, node=f"gpu-{name}")
            for name in "abc"
        ),
    ]


def test_parts_of_boards_are_billed_and_only_the_node_that_is_known_to_be_empty_is_given_back(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dump.json").write_text(json.dumps(dump(shared_cluster())))
    assert run("collect", "--kube-dump", "dump.json", "--out", "fleet") == 0
    capsys.readouterr()

    assert run("audit", "fleet", "-o", "json") == 0

    audit = json.loads(capsys.readouterr().out)
    assert {row["workload"]: row["usd_mo"] for row in audit["unjudged"]} == {
        "ml/small": pytest.approx(GPU_USD_MO / 4, abs=0.01),
        "ml/half": pytest.approx(GPU_USD_MO / 2, abs=0.01),
    }
    assert [row["where"] for row in audit["waste"] if row["kind"] == "unallocated nodes"] == [["gpu-c"]]
    assert [row["where"] for row in audit["waste"] if row["kind"] == "holder unknown"] == [["gpu-d"]]
    (action,) = audit["plan"]["actions"]
    assert "gpu-c" in json.dumps(action)
    assert "gpu-d" not in json.dumps(action)
