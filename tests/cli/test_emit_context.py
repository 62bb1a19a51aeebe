"""`trimtab emit --check` and `--diff` against a live cluster: kubectl asks an API server on loopback."""

import json
import os
from pathlib import Path

import pytest
from tests.cli.kube_answers import BUILT_IN, Cluster, answering
from tests.cli.test_emit_check import POOL, folder
from tests.sources.kube_server import kubeconfig

__all__ = ["folder"]

pytest.importorskip("promql_parser", reason="the extra `check` is not installed whole")

TYPES = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "nodepools.karpenter.sh"},
    "spec": {
        "group": "karpenter.sh", "scope": "Cluster", "names": {"kind": "NodePool", "plural": "nodepools"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": {
                "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "limits": {"type": "object", "additionalProperties": {"type": "string"}},
            }}},
        }}}],
    },
}  # fmt: skip


@pytest.fixture
def asked(kubectl_bin, tmp_path, monkeypatch):
    """Make kubectl ask a server by the context `here`; its cache is this test's own."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "kubectl").symlink_to(Path(kubectl_bin).resolve())
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KUBECACHEDIR", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    def at(url):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, url)))

    return at


def pool(**spec):
    return {**POOL, "spec": {**POOL["spec"], **spec}}


def test_the_types_of_the_cluster_itself_judge_a_folder(program, folder, asked):
    wrong = pool(disruption={"consolidationPolicy": "WhenEmpty"})
    cluster = Cluster(objects=[TYPES])

    with answering(cluster) as url:
        asked(url)
        code, out, err = program("emit", "--check", folder("mine", wrong), "--context", "here", "-o", "json")

    assert code == 4, err
    (error,) = [row for row in json.loads(out)["rows"] if row["severity"] == "error"]
    assert (error["object"], error["field"]) == ("NodePool gpus", "spec.disruption")


def test_what_the_cluster_has_is_no_reference_to_nothing(program, folder, asked):
    role = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "chat", "namespace": "prod"},
            "spec": {"ports": [{"port": 80}]}}  # fmt: skip
    there = Cluster(objects=[{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "prod"}}])
    gone = Cluster(objects=[{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}])
    said = []

    for cluster in (there, gone):
        with answering(cluster) as url:
            asked(url)
            said.append(program("emit", "--check", folder("mine", role), "--context", "here")[1])

    assert "prod" not in said[0].partition("objects and")[0]
    assert "namespace" in said[1]


def test_a_difference_to_the_live_cluster_ends_with_one_and_none_with_zero(program, folder, asked):
    live = {**pool(limits={"nvidia.com/gpu": "4"}), "status": {"resources": {"nvidia.com/gpu": "2"}}}

    with answering(Cluster(objects=[POOL])) as url:
        asked(url)
        same, _, _ = program("emit", "--diff", folder("mine", POOL), "--context", "here")
    with answering(Cluster(objects=[live])) as url:
        asked(url)
        differs, out, _ = program("emit", "--diff", folder("mine", POOL), "--context", "here", "-o", "json")
    with answering(Cluster()) as url:
        asked(url)
        new, listed, _ = program("emit", "--diff", folder("mine", POOL), "--context", "here", "-o", "json")

    assert (same, differs, new) == (0, 1, 1)
    (row,) = json.loads(out)["rows"]
    assert (row["field"], row["before"], row["after"]) == ("spec.limits['nvidia.com/gpu']", "4", "8")
    assert json.loads(listed)["rows"][0]["change"] == "new"


def test_a_kind_that_the_cluster_does_not_know_is_new_there(program, folder, asked):
    with answering(Cluster(served=BUILT_IN)) as url:
        asked(url)
        code, out, err = program("emit", "--diff", folder("mine", POOL), "--context", "here", "-o", "json")

    assert code == 1, err
    assert json.loads(out)["rows"][0]["change"] == "new"


def test_nothing_is_written_to_the_cluster(program, folder, asked):
    cluster = Cluster(objects=[POOL, TYPES])

    with answering(cluster) as url:
        asked(url)
        program("emit", "--check", folder("mine", POOL), "--context", "here")

    assert {"/api", "/apis/karpenter.sh/v1/nodepools"} <= set(cluster.seen), "only GETs are answered"


def test_what_may_not_be_listed_is_named_all_at_once_with_who_could_allow_it(program, folder, asked):
    for mode in ("--check", "--diff"):
        with answering(Cluster(objects=[POOL], forbidden=("nodepools", "services"))) as url:
            asked(url)
            code, _, err = program("emit", mode, folder("mine", POOL), "--context", "here")

        assert code == 3
        assert "may not list services, NodePool.karpenter.sh" in err
        assert "kubectl create clusterrole" in err
        assert "--verb=list" in err
        assert "--against" in err


def test_types_that_may_not_be_listed_are_refused_with_the_way_round_them(program, folder, asked):
    with answering(Cluster(forbidden=("customresourcedefinitions",))) as url:
        asked(url)
        code, _, err = program("emit", "--check", folder("mine", POOL), "--context", "here")

    assert code == 3
    assert "may not list customresourcedefinitions" in err


def test_credentials_that_are_no_longer_good_are_told_from_a_server_that_is_away(program, folder, asked):
    with answering(Cluster(signed_in=False)) as url:
        asked(url)
        stale, _, unauthorized = program("emit", "--diff", folder("mine", POOL), "--context", "here")
    asked(url)
    away, _, refused = program("emit", "--diff", folder("mine", POOL), "--context", "here")

    assert (stale, away) == (3, 1)
    assert "not signed in" in unauthorized
    assert "renew" in unauthorized
    assert "does not answer" in refused
    assert "kubectl --context here get namespaces" in refused, "the cure"
    assert "--against" in refused


def test_a_context_that_is_not_there_is_said_with_the_command_that_lists_them(program, folder, asked):
    asked("http://127.0.0.1:9")

    code, _, err = program("emit", "--diff", folder("mine", POOL), "--context", "elsewhere")

    assert code == 2
    assert "elsewhere" in err
    assert "kubectl config get-contexts" in err


def test_without_kubectl_a_dump_is_asked_for(program, folder, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    code, _, err = program("emit", "--diff", folder("mine", POOL), "--context", "here")

    assert code == 2
    assert "give dumps with --against" in err
