"""A cluster whose GPUs are claimed, from its dump to the files: collect, audit, emit, check."""

import json
from dataclasses import replace

import pytest
import yaml
from tests.claimed_cluster import claimed_cluster
from tests.emit.test_sharing_manifests import PLAN, SLICE
from tests.kube_cluster import dump

from trimtab.catalog import load_catalog
from trimtab.catalog.pools import Pool
from trimtab.check import Cluster, check_folder
from trimtab.cli import main
from trimtab.emit.manifests.cluster_facts import with_cluster
from trimtab.emit.manifests.facts import EmitFacts, WorkloadFacts
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.plan.model import Change
from trimtab.tables.bundle import read_bundle

P4D_USD_MO = 16_029.08
"""On demand in us-east-1 (catalog, prices.csv): 21.957642 USD/h x 730 h."""


def run(*arguments):
    with pytest.raises(SystemExit) as exit_:
        main(list(arguments))
    return exit_.value.code


@pytest.fixture
def fleet(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # what an audit keeps lies in the working folder
    (tmp_path / "dump.json").write_text(json.dumps(dump(claimed_cluster())))
    assert run("collect", "--kube-dump", "dump.json", "--out", "fleet") == 0
    told = capsys.readouterr().err
    assert "1 x pods that wait for GPUs of their ResourceClaims" in told
    assert "1 x devices claimed with admin access, which holds none" in told
    return tmp_path / "fleet"


def test_an_audit_bills_claimed_gpus_to_those_who_hold_them_and_gives_back_the_node_that_nobody_does(fleet, capsys):
    assert run("audit", str(fleet), "-o", "json") == 0
    audit = json.loads(capsys.readouterr().out)

    gpu_usd_mo = P4D_USD_MO / 8
    assert {row["workload"]: row["usd_mo"] for row in audit["unjudged"]} == {
        "ml/chat": pytest.approx(4 * gpu_usd_mo, abs=0.01),
        "ml/lab-a": pytest.approx(gpu_usd_mo / 2, abs=0.01),
        "ml/lab-b": pytest.approx(gpu_usd_mo / 2, abs=0.01),
        "ml/rank": pytest.approx(gpu_usd_mo / 7, abs=0.01),
    }
    assert [row["where"] for row in audit["waste"] if row["kind"] == "unallocated nodes"] == [["gpu-c"]]
    assert [action["lever"] for action in audit["plan"]["actions"]] == ["idle-release"]
    assert audit["bill_usd_mo"] == pytest.approx(3 * P4D_USD_MO, abs=0.01)


def test_what_was_read_of_claims_is_enough_to_write_them_anew(fleet, tmp_path):
    bundle = read_bundle(fleet)
    pool = Pool("aws", "p4d.24xlarge", "us-east-1")
    known = WorkloadFacts(name="ml/chat", owner_kind="StatefulSet", replicas=4, pool=pool, gpus_per_node=8)
    facts = with_cluster(
        EmitFacts(workloads=(known,)), bundle.end,
        nodes=bundle.table("nodes").to_pylist(), held=bundle.table("allocations").to_pylist(),
        pods=bundle.table("pods").to_pylist(), scalers=(),
    )  # fmt: skip
    action = replace(PLAN.actions[0], changes=(Change(subject="ml/chat", effect=SLICE),))

    files = {file.path: file.text for file in emit_plan(replace(PLAN, actions=(action,)), facts).files}

    (made,) = (yaml.safe_load(text) for path, text in files.items() if path.endswith(".resourceclaimtemplate.yaml"))
    assert made["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "mig.nvidia.com"
    patch = yaml.safe_load(files["workloads/ml/chat/kustomization.yaml"])["patches"][-1]
    assert yaml.safe_load(patch["patch"]) == [
        {
            "op": "replace",
            "path": "/spec/template/spec/resourceClaims/0/resourceClaimTemplateName",
            "value": made["metadata"]["name"],
        }
    ]
    rollback = yaml.safe_load(files["rollback/ml/chat/kustomization.yaml"])["patches"][-1]
    assert yaml.safe_load(rollback["patch"])[0]["value"] == "single-gpu"

    for path, text in files.items():
        (tmp_path / "out" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / path).write_text(text, encoding="utf-8")
    cluster = Cluster(namespaces={"ml", "gpu-operator"}, workloads={"ml/chat": "StatefulSet"})
    for body in claimed_cluster():
        cluster.add(body)
    cluster.add({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"}})
    assert check_folder(tmp_path / "out", load_catalog(), cluster=cluster, build=False).errors == ()
