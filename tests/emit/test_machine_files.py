"""Plans for machines that no Kubernetes runs: Slurm's nodes, instance groups, hosts whose GPUs are cut or shared."""

import re
import subprocess
from dataclasses import replace

import pytest
import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.example import example_audit
from tests.emit.validity import schema_faults

from trimtab.catalog.kinds import CapacityType, Isolation
from trimtab.catalog.pools import Pool, SharedPool
from trimtab.deployment.effects import SetCapacityType, SetGpuCount, SetReplicas, UseSlots
from trimtab.emit.manifests.facts import EmitFacts, NodeClass, NodeFacts, WorkloadFacts
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.plan.model import Change
from trimtab.provenance import Basis, Estimate

PLAN = example_audit().plan
AWS, OWNED = Pool("aws", "p4de.24xlarge", "us-east-1"), Pool("owned", "8x-A100-SXM4-80GB", "on-prem")
SAME = Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.CALIBRATED)
JOBS, API = "lab/alice-train", "aws/llm-api"


def job(kind="slurm", name=JOBS, pool=AWS):
    return WorkloadFacts(
        name=name, owner_kind=kind, replicas=2, gpus_per_pod=4.0, gpu="A100-SXM4-80GB", pool=pool, gpus_per_node=8
    )


def emitted(effect, known):
    nodes = tuple(NodeFacts(name=f"gpu0{at}", pool=known.pool, held_by=(known.name,)) for at in (1, 2))
    action = replace(PLAN.actions[0], lever="spot", changes=(Change(subject=known.name, effect=effect),))
    return emit_plan(replace(PLAN, actions=(action,)), EmitFacts(workloads=(known,), nodes=nodes))


def slices(isolation=None):
    shared = (
        SharedPool(AWS, 56, "1g.10gb") if isolation is None else SharedPool(AWS, 24, isolation=isolation, busy_frac=0.1)
    )
    return UseSlots(
        shared=shared,
        gpus_per_node=8,
        gpu="A100-SXM4-80GB",
        slots=1,
        memory_gib=9.5,
        speed=SAME,
        work_speed=SAME,
    )


ON_SPOT = SetCapacityType(pool=AWS.held_as(CapacityType.SPOT), loss_per_hr=0.05)
CASES = {
    "slurm-spot": (ON_SPOT, job()),
    "slurm-owned": (SetGpuCount(gpus=2, before=4, pool=OWNED, gpus_per_node=8), job(pool=OWNED)),
    "slurm-mig": (slices(), job()),
    "machines-mps": (slices(Isolation.MPS.value), job("machines", API)),
    "machines-replicas": (SetReplicas(replicas=1, before=2), job("machines", API)),
}


def files(name):
    return {
        file.path: file.text
        for file in emitted(*CASES[name]).files
        if file.path.startswith(("slurm/", "terraform/", "hosts/", "orders/"))
    }


@pytest.mark.parametrize("name", CASES)
def test_what_machines_need_is_as_its_golden_files(name, golden):
    for path, text in files(name).items():
        golden(f"machines/{name}/{path}", text)


@pytest.mark.parametrize("name", CASES)
def test_nothing_for_kubernetes_is_written_for_what_it_does_not_run(name):
    emission = emitted(*CASES[name])

    assert [file.path for file in emission.files if file.path.startswith(("nodes/", "workloads/", "templates/"))] == []
    assert emission.withheld == ()


@pytest.mark.parametrize("name", CASES)
def test_every_script_is_one_that_bash_reads(name, tmp_path):
    for path, text in files(name).items():
        if path.endswith(".sh"):
            script = tmp_path / path.replace("/", "-")
            script.write_text(text, encoding="utf-8")
            subprocess.run(["bash", "-n", str(script)], check=True)


def lines(text):
    """The lines of slurm.conf, by their first key."""
    kept = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.partition("=")[0]: dict(part.split("=", 1) for part in line.split()) for line in kept}


def test_nodes_of_a_cloud_are_started_and_stopped_by_slurm():
    """doc/man/man5/slurm.conf.5: nodes of state CLOUD, a partition's SuspendTime, programs of the whole cluster."""
    told = lines(next(text for path, text in files("slurm-spot").items() if path.endswith(".conf")))

    assert told["NodeName"]["State"] == "CLOUD"
    assert told["NodeName"]["Gres"] == "gpu:a100:8"
    assert told["PartitionName"]["Nodes"] == told["NodeName"]["NodeName"]
    assert int(told["PartitionName"]["SuspendTime"]) == 60
    assert {"SuspendProgram", "ResumeProgram"} <= told.keys()


def test_the_programs_know_every_node_that_the_lines_name():
    held = files("slurm-spot")
    told = lines(next(text for path, text in held.items() if path.endswith(".conf")))
    stem = told["NodeName"]["NodeName"].partition("[")[0]

    assert f"{stem}*)" in held["slurm/trimtab-resume.sh"]
    assert f"{stem}*)" in held["slurm/trimtab-suspend.sh"]


def test_owned_nodes_are_those_that_are_there_and_are_not_stopped():
    (text,) = [text for path, text in files("slurm-owned").items() if path.endswith(".conf")]

    assert "CLOUD" not in text
    assert "Suspend" not in text
    assert set(lines(text)["PartitionName"]["Nodes"].split(",")) <= {"gpu01", "gpu02"}


def test_machines_that_a_group_goes_on_with_are_not_given_back():
    (page,) = [text for path, text in files("machines-replicas").items() if path.startswith("orders/give-back")]

    assert [name for name in ("gpu01", "gpu02") if f"`{name}`" in page] == ["gpu01"], (
        "one replica goes, and one machine"
    )


def test_slices_are_a_type_of_gres_that_is_part_of_the_profiles_name():
    """doc/html/gres.shtml, "MIG Management": the type is a substring of the MIG profile, `nvidia_a100_3g.20gb` there."""
    told = lines(next(text for path, text in files("slurm-mig").items() if path.endswith(".conf")))
    kind, count = re.fullmatch(r"gpu:(.+):(\d+)", told["NodeName"]["Gres"]).groups()

    assert kind in "nvidia_a100_1g.10gb"
    assert int(count) == 56


NVIDIA_SMI = r"""#!/usr/bin/env bash
# a stand-in: counts the slices that are asked for, and lists them
state="$(dirname "$0")/slices"
touch "$state"
case "$*" in
  *-cgi*) for slice in $(echo "$5" | tr , ' '); do echo "$slice" >> "$state"; done ;;
  *-dgi*) : > "$state.next"; grep -v x "$state" > "$state.next"; exit 6 ;;
  -L) n=0; while read -r slice; do n=$((n+1)); echo "  MIG $slice Device 0: (UUID: MIG-$n)"; done < "$state" ;;
  *compute-apps*) cat "$(dirname "$0")/held" 2>/dev/null || true ;;
esac
"""


def run_host(tmp_path, verb):
    (path,) = [path for path in files("slurm-mig") if path.startswith("hosts/")]
    (tmp_path / "nvidia-smi").write_text(NVIDIA_SMI, encoding="utf-8")
    (tmp_path / "nvidia-smi").chmod(0o755)
    (tmp_path / "host.sh").write_text(files("slurm-mig")[path], encoding="utf-8")
    return subprocess.run(
        ["bash", str(tmp_path / "host.sh"), verb],
        capture_output=True,
        text=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )


def test_a_host_is_cut_verified_and_its_slices_are_named(tmp_path):
    assert run_host(tmp_path, "verify").returncode == 1, "nothing is there yet"
    assert run_host(tmp_path, "create").returncode == 0

    assert run_host(tmp_path, "verify").stdout == "all 56 slices are there\n"
    told = run_host(tmp_path, "map").stdout
    assert "Environment=CUDA_VISIBLE_DEVICES=MIG-56" in told
    assert "--gpus device=MIG-1 " in told


def test_a_host_that_somebody_uses_is_not_cut(tmp_path):
    (tmp_path / "held").write_text("4711\n", encoding="utf-8")

    refused = run_host(tmp_path, "create")

    assert refused.returncode == 1
    assert "4711" in refused.stderr


def test_the_order_from_host_to_host_warns_of_gpus_by_number():
    (page,) = [text for path, text in files("slurm-mig").items() if path.startswith("orders/hosts-")]

    assert page.index("Empty the host") < page.index("Change the layout") < page.index("Take the host back")
    assert "cuda:0" in page


def test_machines_that_are_left_are_given_back_by_name():
    (page,) = [text for path, text in files("slurm-spot").items() if path.startswith("orders/give-back")]

    assert "NodeName=gpu01,gpu02 State=DRAIN" in page


def test_group_sizes_are_those_of_the_plan():
    (text,) = [text for path, text in files("machines-replicas").items() if path.endswith(".tf")]
    sizes = {key: int(value) for key, value in re.findall(r"(min_size|max_size) += (\d+)", text)}

    assert sizes == {"min_size": 1, "max_size": 2}, "one replica fills half a machine; one more for a rollout"


def test_templates_of_node_classes_are_valid_but_for_what_a_site_fills_in(shared_dir):
    folder = shared_dir / "data" / "k8s-schemas"
    for pool in (AWS, Pool("azure", "nc24", "eastus"), Pool("gcp", "a2-highgpu-8g", "us-central1")):
        effect = SetCapacityType(pool=pool.held_as(CapacityType.SPOT), loss_per_hr=0.05)
        (template,) = [
            file for file in emitted(effect, job("Job", pool=pool)).files if file.path.startswith("templates/")
        ]

        one = yaml.safe_load(template.text)
        assert schema_faults(one, folder) == [], pool.provider


def test_no_template_where_the_class_is_said_to_be_there():
    there = NodeClass(group="karpenter.k8s.aws", kind="EC2NodeClass", name="gpu")
    declared = replace(example_facts(), node_classes={"aws": there})

    assert [file for file in emit_plan(PLAN, declared).files if file.path.startswith("templates/")] == []
