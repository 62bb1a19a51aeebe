"""What runs trimtab in a cluster: chart and manifests are one, each passes the check, and the commands in it run."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml
from tests.e2e.conftest import RunningPrometheus, backfill_text
from tests.sources.kube_server import api_server, kubeconfig
from tests.test_docs import ROOT

from trimtab.catalog import load_catalog
from trimtab.check import check_folder
from trimtab.monitor import in_cluster_files
from trimtab.sources.kubernetes.api import rbac_manifest

STEP_S, DAYS = 300, 16
READINGS = {"DCGM_FI_PROF_SM_ACTIVE": 0.2, "DCGM_FI_DEV_FB_USED": 16_000, "DCGM_FI_DEV_FB_FREE": 24_000}
PODS = ("chat-7d9f8b6c5d-aaaaa", "chat-7d9f8b6c5d-bbbbb")


def written(folder, files):
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def deployed(tmp_path):
    """The folder as it is written without any setting."""
    return written(tmp_path / "deploy", in_cluster_files())


def output(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout


def by_name(text):
    documents = [document for document in yaml.safe_load_all(text) if document]
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


def rendered(helm, folder, *settings):
    return by_name(output(helm, "template", "trimtab", folder / "chart", "--namespace", "trimtab", *settings))


def pod_of(objects):
    return objects["CronJob", "trimtab"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def test_the_repository_holds_what_emit_writes():
    assert {path: (ROOT / "deploy" / path).read_text() for path in in_cluster_files()} == in_cluster_files(), (
        "write it again: trimtab emit --in-cluster --out deploy"
    )


def test_the_chart_renders_to_the_manifests(deployed, helm_bin, kubectl_bin):
    plain = by_name(output(kubectl_bin, "kustomize", deployed / "manifests"))
    charted = rendered(helm_bin, deployed)

    # helm makes the namespace itself, by --create-namespace
    del plain["Namespace", "trimtab"]
    assert charted == plain


@pytest.mark.parametrize("way", ["manifests", "chart"])
def test_every_object_passes_the_check(way, deployed, helm_bin, tmp_path):
    folder = deployed / "manifests"
    if way == "chart":
        text = output(helm_bin, "template", "trimtab", deployed / "chart", "--namespace", "trimtab")
        folder = written(tmp_path / "rendered", {"all.yaml": text})

    assert [str(fault) for fault in check_folder(folder, load_catalog()).faults] == []


def test_helm_finds_nothing_wrong(deployed, helm_bin):
    assert "0 chart(s) failed" in output(helm_bin, "lint", "--strict", deployed / "chart")


def test_settings_of_the_chart_reach_its_objects(deployed, helm_bin):
    objects = rendered(
        *(
            helm_bin,
            deployed,
            "--set",
            "image=registry.example/trimtab@sha256:0a",
            "--set",
            "history.storageClassName=gp3",
        ),
        *("--set-json", 'digest=["digest","fleet","-o","slack","--post"]'),
    )

    assert {container["image"] for container in pod_of(objects)["initContainers"]} == {
        "registry.example/trimtab@sha256:0a"
    }
    claim = objects["PersistentVolumeClaim", "trimtab-history"]["spec"]
    assert claim["storageClassName"] == "gp3"
    assert claim["resources"]["requests"]["storage"] == "10Gi"
    assert pod_of(objects)["containers"][0]["args"][-1] == "--post"


def test_it_may_read_what_collect_asks_for_and_no_more(deployed):
    objects = by_name((deployed / "manifests/trimtab.yaml").read_text())
    asked = by_name(rbac_manifest())
    role = objects["ClusterRole", "trimtab-reader"]

    assert {name: objects[name] for name in asked if name[0] != "Namespace"} == {
        name: asked[name] for name in asked if name[0] != "Namespace"
    }
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list"}


def test_pods_keep_to_the_restricted_standard_and_write_to_their_volumes_alone(deployed):
    pod = pod_of(by_name((deployed / "manifests/trimtab.yaml").read_text()))

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["initContainers"] + pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"]
        assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/history", "/tmp"}


def test_the_page_reads_the_volume_from_the_node_of_the_weekly_run_and_asks_the_cluster_nothing(deployed):
    objects = by_name((deployed / "manifests/trimtab.yaml").read_text())
    page = objects["Deployment", "trimtab-page"]["spec"]
    pod = page["template"]["spec"]
    (container,) = pod["containers"]
    together = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]

    assert pod["automountServiceAccountToken"] is False
    assert {mount["name"] for mount in container["volumeMounts"] if mount.get("readOnly")} == {"history", "token"}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    # the term selects the pods that bear it, so that the first of them finds a node
    run_labels = objects["CronJob", "trimtab"]["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    for labels in (page["template"]["metadata"]["labels"], run_labels):
        assert together[0]["labelSelector"]["matchLabels"].items() <= labels.items()
    assert pod_of(objects)["affinity"] == pod["affinity"]


def test_the_page_answers_its_own_pod_with_the_audits_on_the_volume(deployed, tmp_path):
    pod = by_name((deployed / "manifests/trimtab.yaml").read_text())["Deployment", "trimtab-page"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    arguments, probe = container["args"], container["livenessProbe"]["exec"]["command"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    here = [str(port) if part == "8080" else part for part in arguments]
    stated = {entry["name"]: entry["value"] for entry in container["env"]} | {"HOME": str(tmp_path)}
    run = [sys.executable, "-m", "trimtab"]
    env = stated | {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "XDG_CACHE_HOME": cache_folder(),
    }
    subprocess.run([*run, "audit", "--demo", "finetune-7b", "--no-report", "-q"], cwd=tmp_path, env=env, check=True)

    server = subprocess.Popen([*run, *here], cwd=tmp_path, env=env)
    try:
        asked = [sys.executable, *(part.replace("8080", str(port)) for part in probe[1:])]
        until = time.monotonic() + 60
        while subprocess.run(asked, capture_output=True, check=False).returncode and time.monotonic() < until:
            time.sleep(0.2)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/audits", timeout=30) as answer:
            audits = json.load(answer)["audits"]
    finally:
        server.terminate()
        server.wait(30)

    assert [audit["fleet"] for audit in audits] == ["demo finetune-7b"]
    assert "--host" not in arguments, "it listens to its own pod alone"


def test_history_outlives_upgrades(deployed, helm_bin):
    objects = rendered(helm_bin, deployed)
    claim = objects["PersistentVolumeClaim", "trimtab-history"]
    job = objects["CronJob", "trimtab"]["spec"]

    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert job["concurrencyPolicy"] == "Forbid", "two runs would write the same bundle"


def scraped(now_s):
    """Two GPUs' readings of some weeks, as OpenMetrics."""
    for name, value in READINGS.items():
        yield f"# TYPE {name} gauge"
        for number, pod in enumerate(PODS):
            labels = (
                f'gpu="{number}",UUID="GPU-{number}",modelName="NVIDIA A100-SXM4-40GB",Hostname="gpu-a",pod="{pod}",'
                'namespace="prod"'
            )
            for at_s in range(now_s - DAYS * 24 * 3600, now_s, STEP_S):
                yield f"{name}{{{labels}}} {value} {at_s}"


@pytest.mark.prometheus
def test_the_commands_of_the_cron_job_run_in_their_order(prometheus_bin, promtool_bin, tmp_path):
    backfill_text("\n".join(scraped(int(time.time()) // STEP_S * STEP_S)) + "\n", promtool_bin, tmp_path / "blocks")
    history, home, server_folder = tmp_path / "history", tmp_path / "home", tmp_path / "prometheus"
    for folder in (history, home, server_folder):
        folder.mkdir()
    server = RunningPrometheus(prometheus_bin, tmp_path / "blocks", server_folder)
    server.start()
    said = {}

    try:
        with api_server() as (_, url):
            # the pod's own account stands in its file system; here a kubeconfig is in its place
            outside = {"KUBECONFIG": str(kubeconfig(tmp_path, url)), "PATH": os.environ["PATH"]}
            outside |= {"PYTHONPATH": os.pathsep.join(sys.path), "XDG_CACHE_HOME": cache_folder()}
            pod = pod_of(by_name(in_cluster_files(prometheus=server.url)["manifests/trimtab.yaml"]))
            for container in pod["initContainers"] + pod["containers"]:
                stated = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
                run = subprocess.run(
                    [sys.executable, "-m", "trimtab", *container["args"]],
                    cwd=history,
                    env=stated | outside | {"HOME": str(home)},
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert run.returncode == 0, run.stderr
                said[container["name"]] = run.stdout
    finally:
        server.stop()

    assert "100 % of 2 GPUs" in said["collect"]
    assert "prod/chat" in said["audit"]
    assert said["digest"].startswith("# GPU cost of week")
    assert "| assistants |" in said["digest"]
    assert {path.name for path in history.iterdir()} == {".trimtab", "fleet"}


def cache_folder():
    """Where compiled code is kept, so that it is not compiled once more."""
    return os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
