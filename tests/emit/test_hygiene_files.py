"""Patches of what is untidy stand in a folder of their own, pass the check, and say what they leave unschedulable."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.example import example_audit
from tests.sources.answering_server import answering

from trimtab.catalog import load_catalog
from trimtab.check import check_folder
from trimtab.diagnose.broken import Breakage
from trimtab.diagnose.cluster_records import Call
from trimtab.diagnose.findings import Offence, OffenceKind, WasteKind
from trimtab.diagnose.untidy import Cost, CostlyBreakage, CostlyOffence, Untidy
from trimtab.emit.audit_document import audit_document
from trimtab.emit.manifests.emission import ApplyStage
from trimtab.emit.manifests.facts import KueueFlavor
from trimtab.emit.manifests.hygiene_files import SCRIPT, hygiene_files
from trimtab.emit.sections.audit import audit_page
from trimtab.emit.writers import html, markdown


def cost(usd, usd_hr=None):
    return Cost(micro_usd=round(usd * 1e6), gpu_hours=usd / 2, usd_hr=usd_hr)


def offence(kind, subject, usd=0.0, **more):
    told = {"owner_kind": "", "nodes": (), "items": (), "call": Call.OWNER, "evidence": "seen", "counted_in": None}
    return CostlyOffence(offence=Offence(kind=kind, subject=subject, **{**told, **more}), cost=cost(usd))


AUDIT = example_audit()
FACTS = example_facts()
BARE = tuple(node.name for node in FACTS.nodes if node.group and node.group[1] == "gpu-p4d")
UNTIDY = Untidy(
    hours=1008,
    broken=(
        CostlyBreakage(
            breakage=Breakage(
                kind=WasteKind.FAILED_RUNS,
                what="container in a crash loop",
                subject="prod/chat-api",
                nodes=("a",),
                items=("chat-api-x",),
                call=Call.OWNER,
                evidence="pod chat-api-x: 400 restarts, last with OOMKilled; it holds 2 GPUs",
                ongoing=True,
            ),
            cost=cost(700.0, 5.5),
            retried="1.0% of what prod/chat-api cost",
        ),
    ),
    offences=(
        offence(
            OffenceKind.STRAY, "web/cache", 300.0, owner_kind="Deployment", items=("cache-x",),
            counted_in=WasteKind.HOURS_NOT_USED,
        ),
        offence(OffenceKind.STRAY, "web/unknown", 0.0),
        offence(
            OffenceKind.NO_TAINT, "gpu-p4d", nodes=BARE, call=Call.PLATFORM, unschedulable=("prod/chat-api",),
            daemons=("monitoring/exporter",),
        ),
        offence(OffenceKind.NOTEBOOK, "notebooks/ana", 90.0, owner_kind="StatefulSet", counted_in=WasteKind.IDLE),
        offence(OffenceKind.NOTEBOOK, "notebooks/bo", 80.0, owner_kind="Notebook", counted_in=WasteKind.IDLE),
        offence(OffenceKind.UNUSED, "prod/embed-api", 70.0, owner_kind="StatefulSet", items=("embed-0",)),
        offence(OffenceKind.OVER_ASKED, "research/vision-exp", 60.0, owner_kind="Job"),
        offence(
            OffenceKind.SCATTERED, "gpu-p4d", 50.0, nodes=BARE[:1], items=("chat-api-1",), call=Call.PLATFORM,
            counted_in=WasteKind.HOURS_NOT_USED,
        ),
        offence(OffenceKind.PENDING, "prod/new", owner_kind="Deployment", call=Call.PLATFORM, items=("new-0",)),
    ),
)  # fmt: skip
DOCUMENT = audit_document(replace(AUDIT, untidy=UNTIDY))


def read_facts():
    known = tuple(replace(workload, pods_were_read=True) for workload in FACTS.workloads)
    return replace(FACTS, workloads=known)


def files():
    return {file.path: file for file in hygiene_files(DOCUMENT, read_facts())}


def test_what_is_untidy_has_a_folder_and_a_stage_of_its_own():
    found = files()

    assert all(path.startswith("hygiene/") for path in found)
    assert {file.stage for file in found.values()} == {ApplyStage.TIDY}
    assert {"hygiene/README.md", "hygiene/taints/gpu-p4d.sh", "hygiene/notebooks/notebooks.reaper.yaml"} <= set(found)


def test_a_tidy_fleet_gets_no_folder():
    assert hygiene_files(audit_document(replace(AUDIT, untidy=Untidy())), FACTS) == ()


def test_the_patches_pass_the_check(tmp_path):
    flavors = (KueueFlavor(name="p4d", levels=(), nodes=BARE[:1]),)
    for file in hygiene_files(DOCUMENT, replace(read_facts(), kueue_flavors=flavors)):
        (tmp_path / file.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file.path).write_text(file.text)

    checked = check_folder(tmp_path, load_catalog(), build=False)
    assert [str(fault) for fault in checked.faults] == []


def test_the_page_says_what_each_costs_where_it_is_counted_and_what_it_leaves_unschedulable():
    page = files()["hygiene/README.md"].text

    assert "`web/cache` ($217 a month, counted in “held hours not used”; workload owner)" in page
    assert "leaves unschedulable: `prod/chat-api`" in page
    assert "DaemonSets stay where they tolerate the taint: `monitoring/exporter`" in page
    assert "no patch: the owner of its pods is not known" in page
    assert "kubectl scale deployment/chat-api -n prod --replicas=0" in page
    assert "400 restarts" in page


def test_a_stray_workload_is_kept_off_the_types_of_gpu_nodes():
    component = yaml.safe_load(files()["hygiene/strays/web/cache/kustomization.yaml"].text)

    (patch,) = component["patches"]
    pod = yaml.safe_load(patch["patch"])["spec"]["template"]["spec"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert patch["target"] == {"kind": "Deployment", "name": "cache"}
    assert term["matchExpressions"][0]["operator"] == "NotIn"
    assert "p4d.24xlarge" in term["matchExpressions"][0]["values"]


def test_a_taint_is_put_where_nodes_are_made_and_on_those_that_stand():
    script = files()["hygiene/taints/gpu-p4d.sh"].text

    assert "aws eks update-nodegroup-config" in script
    assert f"kubectl taint nodes {' '.join(BARE)} nvidia.com/gpu=present:NoSchedule" in script
    assert "# First: prod/chat-api must tolerate it" in script


def test_a_workload_that_a_taint_would_keep_off_gets_its_toleration_beside_those_that_it_has():
    component = yaml.safe_load(files()["hygiene/tolerations/prod/chat-api/kustomization.yaml"].text)

    pod = yaml.safe_load(component["patches"][0]["patch"])["spec"]["template"]["spec"]
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]


def test_tolerations_of_pods_that_were_not_read_are_left_alone():
    paths = {file.path for file in hygiene_files(DOCUMENT, FACTS)}

    assert not any(path.startswith("hygiene/tolerations") for path in paths)


def test_every_form_names_the_offenders_with_their_dollars():
    page = audit_page(DOCUMENT)

    for text in (markdown.write_page(page), html.write_page(page)):
        assert "web/cache" in text
        assert "400 restarts" in text
        assert "$5.50 an hour while it lasts" in text


def test_nodes_are_emptied_in_their_order_and_none_takes_what_another_loses():
    script = files()["hygiene/packing/gpu-p4d.sh"].text

    assert "# To move, in this order: chat-api-1." in script
    assert script.index(f"kubectl cordon {BARE[0]}") < script.index(f"kubectl drain {BARE[0]} --ignore-daemonsets")


def test_the_packing_script_runs_as_it_stands(tmp_path):
    called = tmp_path / "kubectl"
    called.write_text('#!/usr/bin/env bash\necho "$@"\n')
    called.chmod(0o755)

    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = files()["hygiene/packing/gpu-p4d.sh"].text
    ran = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)

    assert ran.stdout.splitlines() == [
        f"cordon {BARE[0]}",
        f"drain {BARE[0]} --ignore-daemonsets --delete-emptydir-data --timeout=30m",
        "get pods --all-namespaces --field-selector status.phase=Pending",
    ]


def test_the_scheduler_fills_nodes_with_gpus_before_it_opens_others():
    file = yaml.safe_load(files()["hygiene/packing/scheduler.yaml"].text)

    configuration = yaml.safe_load(file["data"]["config.yaml"])
    (profile,) = configuration["profiles"]
    arguments = {each["name"]: each["args"] for each in profile["pluginConfig"]}
    strategy = arguments["NodeResourcesFit"]["scoringStrategy"]
    assert (configuration["kind"], strategy["type"]) == ("KubeSchedulerConfiguration", "MostAllocated")
    assert strategy["resources"][0] == {"name": "nvidia.com/gpu", "weight": 5}
    assert arguments["PodTopologySpread"]["defaultConstraints"] == []


def test_kueue_gets_a_topology_of_the_flavors_whose_nodes_stand_half_empty():
    block = "cloud.provider.com/topology-block"
    flavors = (
        KueueFlavor(name="p4d", levels=(block,), nodes=BARE[:1]),
        KueueFlavor(name="cpu", levels=(), nodes=("other",)),
    )

    found = {file.path: file for file in hygiene_files(DOCUMENT, replace(read_facts(), kueue_flavors=flavors))}
    file = found["hygiene/packing/kueue-p4d.yaml"]

    assert yaml.safe_load(file.text) == {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": "trimtab-p4d"},
        "spec": {"levels": [{"nodeLabel": block}, {"nodeLabel": "kubernetes.io/hostname"}]},
    }
    assert """kubectl patch resourceflavor p4d --type=merge -p '{"spec":{"topologyName":"trimtab-p4d"}}'""" in file.text
    assert "hygiene/packing/kueue-cpu.yaml" not in found
    assert "`hygiene/packing/kueue-p4d.yaml`" in found["hygiene/README.md"].text


# The reaper is run as the CronJob would run it, against a server that is Prometheus and the API server at once.


def reap(most, dry_run):
    """Run the script over one notebook of each kind whose GPU did so much at most; return what it patched and said."""

    def answer(asked):
        if asked.method == "PATCH":
            return 200, {}, b"{}"
        value = "240" if "count_over_time" in asked.query["query"] else str(most)
        result = [] if most is None else [{"metric": {"pod": "ana-0"}, "value": [0, value]}]
        return 200, {}, json.dumps({"data": {"result": result}}).encode()

    targets = [
        {"namespace": "notebooks", "name": "ana", "kind": "Notebook", "path": "kubeflow.org/v1/notebooks"},
        {"namespace": "notebooks", "name": "ana", "kind": "StatefulSet", "path": "apps/v1/statefulsets"},
    ]
    with answering(answer) as (script, address):
        settings = {
            "PROMETHEUS": address, "API": address, "DRY_RUN": dry_run, "HOURS": "4", "ACTIVE_PERCENT": "2",
            "METRIC": "DCGM_FI_DEV_GPU_UTIL", "POD_LABEL": "pod", "NAMESPACE_LABEL": "namespace",
            "TARGETS": json.dumps(targets),
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env={**os.environ, **settings}, capture_output=True, text=True, check=True
        )
    return [(asked.path, json.loads(asked.body)) for asked in script.seen if asked.method == "PATCH"], done.stdout


def test_the_reaper_stops_a_notebook_by_its_annotation_and_a_stateful_set_by_its_replicas():
    patched, said = reap(0.0, "0")

    assert [path for path, _ in patched] == [
        "/apis/kubeflow.org/v1/namespaces/notebooks/notebooks/ana",
        "/apis/apps/v1/namespaces/notebooks/statefulsets/ana",
    ]
    assert "kubeflow-resource-stopped" in patched[0][1]["metadata"]["annotations"]
    assert patched[1][1] == {"spec": {"replicas": 0}}
    assert "stopped" in said


def test_a_dry_run_of_the_reaper_only_says_what_it_would_stop():
    patched, said = reap(0.0, "1")

    assert patched == []
    assert "idle Notebook notebooks/ana left as it is" in said


@pytest.mark.parametrize("most", [40.0, None], ids=["works", "was not read"])
def test_the_reaper_leaves_what_works_and_what_was_not_read(most):
    patched, said = reap(most, "0")

    assert (patched, said) == ([], "")
