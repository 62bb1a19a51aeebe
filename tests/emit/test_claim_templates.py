"""Workloads that claim their GPUs: new ResourceClaimTemplates instead of amounts, applied by the real kustomize."""

import json
import subprocess
from dataclasses import replace

import pytest
import yaml
from hypothesis import given, settings, strategies as st
from tests.emit.cluster_example import example_facts
from tests.emit.emitted import CHAT, PLAN, RUNS, knowing, of_action, text_of
from tests.emit.example import P3_SMALL
from tests.emit.test_sharing_manifests import PLAN as SHARING, SLICE, unisolated

from trimtab.catalog.kinds import Isolation
from trimtab.check.schemas import Schemas, schema_faults
from trimtab.deployment.effects import SetGpuCount, UseOffering
from trimtab.emit.manifests.claim_templates import ClaimChange, new_claims
from trimtab.emit.manifests.facts import GpuClaim, WorkloadFacts
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.plan.model import Change
from trimtab.provenance import Basis, Estimate

API = "resource.k8s.io/v1"
BETA = "resource.k8s.io/v1beta1"
SAME = Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.MEASURED)
ANA = "notebooks/ana"


def selecting(expression):
    return [{"cel": {"expression": expression}}]


def request(name="gpu", api=API, **body):
    body = {"deviceClassName": "gpu.nvidia.com", **body}
    return {"name": name, **body} if api == BETA else {"name": name, "exactly": body}


def claims(*requests, api=API, place=0, asking=("gpu",), **devices):
    spec = {"devices": {"requests": [*requests], **devices}}
    return (
        GpuClaim(
            place=place, name="gpus", template="four-gpus", api_version=api, requests=asking, spec=json.dumps(spec)
        ),
    )


def fewer_gpus(known):
    """Runs that are to claim 1 GPU and not 4."""
    effect = SetGpuCount(gpus=1, before=4, pool=P3_SMALL, gpus_per_node=1)
    return emit_plan(of_action("a3", Change(subject=RUNS, effect=effect)), knowing(RUNS, gpu_claims=known))


def templates(emission):
    return [yaml.safe_load(file.text) for file in emission.files if file.kind == "ResourceClaimTemplate"]


def devices(template):
    return template["spec"]["spec"]["devices"]


def built(kubectl, folder, emission, workload, pods, root="workloads"):
    """What `kubectl kustomize` makes of a Job that claims GPUs, beside the Component of a workload."""
    job = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "vision-exp-0412"},
        "spec": {"template": {"spec": pods}},
    }  # fmt: skip
    for file in emission.files:
        if file.path.startswith(f"{root}/{workload}/"):
            place = folder / "c" / file.path.rpartition("/")[2]
            place.parent.mkdir(exist_ok=True)
            place.write_text(file.text, encoding="utf-8")
    (folder / "m.yaml").write_text(yaml.safe_dump(job), encoding="utf-8")
    (folder / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": ["m.yaml"], "components": ["c"], "namespace": "research"}), encoding="utf-8"
    )
    run = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=True)
    return {body["kind"]: body for body in yaml.safe_load_all(run.stdout)}


@pytest.mark.parametrize("root", ["workloads", "rollback"])
def test_a_run_claims_fewer_gpus_by_a_new_template_and_goes_back_to_the_former(root, kubectl_bin, tmp_path):
    emission = fewer_gpus(claims(request(count=4), place=1))
    pods = {
        "containers": [{"name": "a", "image": "b", "resources": {"claims": [{"name": "gpus"}]}}],
        "resourceClaims": [
            {"name": "nic", "resourceClaimTemplateName": "one-nic"},
            {"name": "gpus", "resourceClaimTemplateName": "four-gpus"},
        ],
    }

    found = built(kubectl_bin, tmp_path, emission, RUNS, pods, root)

    named = [entry["resourceClaimTemplateName"] for entry in found["Job"]["spec"]["template"]["spec"]["resourceClaims"]]
    if root == "rollback":
        assert named == ["one-nic", "four-gpus"]
    else:
        made = found["ResourceClaimTemplate"]
        assert named == ["one-nic", made["metadata"]["name"]]
        assert made["metadata"]["namespace"] == "research"
        assert devices(made)["requests"][0]["exactly"]["count"] == 1


def test_no_container_is_patched_for_gpus_that_are_claimed():
    text = text_of(fewer_gpus(claims(request(count=4))), "workloads/research/vision-exp/kustomization.yaml")

    assert "nvidia.com~1gpu" not in text


def test_what_else_a_claim_asks_for_stays():
    nic = request("nic", deviceClassName="rdma.example.com")
    near = [{"requests": ["gpu", "nic"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}]

    (made,) = templates(fewer_gpus(claims(request(count=4), nic, constraints=near)))

    assert devices(made)["requests"] == [request(count=1, allocationMode="ExactCount"), nic]
    assert devices(made)["constraints"] == near


def test_a_template_is_written_in_the_version_that_it_was_read_in():
    (made,) = templates(fewer_gpus(claims(request(api=BETA, count=4), api=BETA)))

    assert made["apiVersion"] == BETA
    assert devices(made)["requests"] == [request(api=BETA, count=1, allocationMode="ExactCount")]


def test_slices_are_claimed_by_their_profile_and_without_settings_for_whole_boards():
    config = [{"requests": ["gpu"], "opaque": {"driver": "gpu.nvidia.com", "parameters": {"kind": "GpuConfig"}}}]
    known = claims(request(selectors=selecting("device.attributes['gpu.nvidia.com'].index == 0")), config=config)
    facts = knowing(ANA, gpu_claims=known)

    (made,) = templates(emit_plan(replace(SHARING, actions=SHARING.actions[:1]), facts))

    (asked,) = devices(made)["requests"]
    assert asked["exactly"] == {
        "deviceClassName": "mig.nvidia.com",
        "selectors": selecting("device.attributes['gpu.nvidia.com'].profile == '1g.20gb'"),
        "allocationMode": "ExactCount",
        "count": SLICE.slots,
    }
    assert "config" not in devices(made)


def moved(known):
    """A chat service that goes to L40S nodes."""
    effect = UseOffering(
        pool=replace(P3_SMALL, instance_type="g6e.xlarge"), gpu="L40S", gpus_per_node=1, speed=SAME, work_speed=SAME
    )
    facts = replace(knowing(CHAT, gpu="A100-SXM4-40GB", gpu_claims=known), gpu_products={"L40S": "NVIDIA L40S"})
    return emit_plan(of_action("a8", Change(subject=CHAT, effect=effect)), facts)


def test_selectors_that_rule_the_new_gpus_out_give_way_to_one_for_them():
    old = selecting("device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*a100.*$')")

    (made,) = templates(moved(claims(request(selectors=old))))

    (asked,) = devices(made)["requests"]
    assert asked["exactly"]["selectors"] == selecting(
        "device.attributes['gpu.nvidia.com'].productName == 'NVIDIA L40S'"
    )


def test_a_claim_of_any_gpu_goes_along_as_it_is():
    emission = moved(claims(request()))

    assert templates(emission) == []
    assert "resourceClaims" not in text_of(emission, "workloads/prod/chat-api/kustomization.yaml")


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ((GpuClaim(place=0, name="gpus", claim="shared", requests=("gpu",), spec="{}"),), "share ResourceClaim shared"),
        ((GpuClaim(place=0, name="gpus", template="gone"),), "ResourceClaimTemplate gone was not read"),
        (claims(request("gpu"), request("b"), asking=("gpu", "b")), "in 2 requests"),
    ],
)
def test_claims_that_no_template_can_change_are_left_to_a_person(known, why):
    emission = fewer_gpus(known)

    (reason,) = {left.reason for left in emission.withheld if left.subject == RUNS and "set in" in left.reason}
    assert why in reason
    assert "a ResourceClaimTemplate with deviceClassName gpu.nvidia.com, count 1" in reason
    assert not [file for file in emission.files if file.path.startswith("workloads/research")]


def test_mig_instances_are_not_turned_into_boards_by_a_move():
    emission = moved(claims(request(deviceClassName="mig.nvidia.com")))

    assert templates(emission) == []
    assert any("claim MIG instances" in left.reason for left in emission.withheld)


def test_sharing_without_isolation_is_left_to_a_person_where_gpus_are_claimed():
    action = replace(
        SHARING.actions[0],
        changes=(Change(subject=ANA, effect=unisolated(Isolation.TIME_SLICING, 4, 1, busy_frac=0.2)),),
    )

    emission = emit_plan(replace(SHARING, actions=(action,)), knowing(ANA, gpu_claims=claims(request())))

    assert templates(emission) == []
    assert any("name one ResourceClaim with a GpuConfig" in left.reason for left in emission.withheld)


def test_what_claiming_pods_need_of_karpenter_and_the_driver_is_said():
    text = text_of(emit_plan(SHARING, knowing(ANA, gpu_claims=claims(request()))), "APPLY.md")

    assert "IGNORE_DRA_REQUESTS=false" in text
    assert "restart its kubelet plugin" in text
    assert "IGNORE_DRA_REQUESTS" not in text_of(emit_plan(SHARING, example_facts()), "APPLY.md")


@given(
    count=st.none() | st.integers(1, 16),
    profile=st.none() | st.sampled_from(["1g.10gb", "3g.40gb"]),
    product=st.none() | st.just("NVIDIA L40S"),
    api=st.sampled_from([API, BETA]),
    before=st.integers(1, 8),
    selects=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_templates_are_valid_and_named_by_what_they_say(count, profile, product, api, before, selects):
    more = {"selectors": selecting("true")} if selects else {}
    known = WorkloadFacts(name=RUNS, gpu_claims=claims(request(api=api, count=before, **more), api=api))
    change = ClaimChange(count=count, profile=profile, product=product)

    once, again = new_claims(known, change, ()), new_claims(known, change, ())

    assert once == again
    for made in once:
        schema = Schemas().of(api, "ResourceClaimTemplate")
        assert schema is None or list(schema_faults(schema, made.template)) == []
        assert len(made.name) <= 63
        # what it asks for is a fixed point: the plan carried out asks for nothing new
        done = replace(made.claim, template=made.name, spec=json.dumps(made.template["spec"]["spec"]))
        assert new_claims(replace(known, gpu_claims=(done,)), change, ()) == ()


def test_placeholders_claim_what_the_runs_that_they_wait_for_will_claim():
    facts = knowing("eval/weekly-eval", gpu_claims=claims(request(count=8)))
    warm = [file for file in emit_plan(PLAN, facts).files if file.path.endswith(".warm-nodes.yaml")]

    pods = [body["spec"]["jobTemplate"]["spec"]["template"]["spec"] for body in yaml.safe_load_all(warm[0].text)]

    assert [pod["resourceClaims"] for pod in pods] == [
        [{"name": "gpus", "resourceClaimTemplateName": "four-gpus"}] for _ in pods
    ]
    assert all(pod["containers"][0]["resources"]["claims"] == [{"name": "gpus"}] for pod in pods)
    assert "nvidia.com/gpu:" not in warm[0].text
