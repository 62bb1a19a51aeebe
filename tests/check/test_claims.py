"""The check of claims: what a server refuses, what selects nothing, what refers to nothing."""

import pytest
import yaml
from tests.check.test_check import CATALOG
from tests.emit.test_claim_templates import RUNS, claims, fewer_gpus, request

pytest.importorskip("promql_parser", reason="the extra `check` is not installed whole")

from trimtab.check import Cluster, Severity, check_folder

API = "resource.k8s.io/v1"


def template(name="single-gpu", *, requests=None, api=API, **devices):
    requests = requests or [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
    return {
        "apiVersion": api,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"spec": {"devices": {"requests": requests, **devices}}},
    }


def exactly(**body):
    return [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", **body}}]


def selecting(expression):
    return exactly(selectors=[{"cel": {"expression": expression}}])


def deployment(entry=None, used=None):
    container = {"name": "a", "image": "b", "resources": {"claims": [used or {"name": "gpu"}]}}
    entry = {"name": "gpu", "resourceClaimTemplateName": "single-gpu"} if entry is None else entry
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "m", "namespace": "ml"},
        "spec": {
            "selector": {"matchLabels": {"app": "m"}},
            "template": {
                "metadata": {"labels": {"app": "m"}},
                "spec": {"containers": [container], "resourceClaims": [entry]},
            },
        },
    }  # fmt: skip


def checked(folder, *objects, cluster=None):
    (folder / "all.yaml").write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    return check_folder(folder, CATALOG, cluster=cluster, build=False)


def test_a_claim_as_published_has_no_fault(tmp_path):
    """NVIDIA/k8s-dra-driver-gpu, the shapes of demo/specs/quickstart/v1/gpu-test4.yaml and gpu-test6.yaml."""
    profile = "device.attributes['gpu.nvidia.com'].profile == '1g.5gb'"
    product = "device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*a100.*$')"
    small = {"deviceClassName": "mig.nvidia.com", "selectors": [{"cel": {"expression": profile}}]}
    parts = template(
        "parts", requests=[{"name": "a", "exactly": small}, {"name": "b", "exactly": small}],
        constraints=[{"requests": [], "matchAttribute": "gpu.nvidia.com/parentUUID"}],
    )  # fmt: skip

    found = checked(tmp_path, template(requests=selecting(product)), parts, deployment())

    assert found.faults == ()


SLIPS = [
    (template(requests=exactly(count=0)), "write 1 or more"),
    (template(requests=exactly(allocationMode="All", count=2)), "take it out"),
    (template(requests=exactly(allocationMode="Exact")), "write ExactCount"),
    (template(requests=[{"name": "gpu"}]), "state one of them"),
    (template(requests=[{"name": "gpu", "deviceClassName": "gpu.nvidia.com"}]), "deviceClassName"),
    (template(requests=exactly() * 2), "name each request once"),
    (template(config=[{"requests": ["gpus"], "opaque": {"driver": "d.io", "parameters": {}}}]), "write gpu"),
    (template(constraints=[{"requests": ["gpu"], "matchAttribute": "parentUUID"}]), "gpu.nvidia.com/parentUUID"),
    (template(requests=selecting("device.driver = 'gpu.nvidia.com'")), "write CEL"),
    (template(requests=selecting("device.attributes['gpu.nvidia.com'].productname == 'x'")), "write productName"),
    (template(requests=selecting("device.attributes['gpu.nvidia.com'].profile == '1g-10gb'")), "such as 1g.10gb"),
    (template(requests=selecting("device.attributes['gpu.nvidia.com'].type == 'migs'")), "write mig"),
    (template(api="resource.k8s.io/v2"), "resource.k8s.io/v1"),
    (deployment({"name": "gpu", "resourceClaimTemplateName": "single-gpus"}), "write single-gpu"),
    (deployment({"name": "gpu"}), "state one of them"),
    (deployment(used={"name": "gpus"}), "write gpu"),
    (deployment(used={"name": "gpu", "request": "gpus"}), "write gpu"),
]


@pytest.mark.parametrize(("wrong", "cure"), SLIPS, ids=[cure + str(at) for at, (_, cure) in enumerate(SLIPS)])
def test_a_slip_in_a_claim_is_an_error_that_names_its_cure(wrong, cure, tmp_path):
    objects = [wrong] if wrong["kind"] == "ResourceClaimTemplate" else [template(), wrong]

    errors = checked(tmp_path, *objects).errors

    assert any(cure in error.cure for error in errors), list(map(str, errors))


def test_a_template_that_nobody_knows_is_a_warning_until_the_cluster_was_read(tmp_path):
    pods = deployment({"name": "gpu", "resourceClaimTemplateName": "elsewhere"})
    cluster = Cluster()
    cluster.add(template())

    (unsure,) = checked(tmp_path, template(), pods).faults
    (sure,) = checked(tmp_path, pods, cluster=cluster).faults

    assert (unsure.severity, sure.severity) == (Severity.WARNING, Severity.ERROR)
    assert "is no ResourceClaimTemplate that is known" in sure.what


def test_a_device_class_that_is_not_there_is_told_and_those_of_the_driver_are_known(tmp_path):
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "large.example.com"}}]
    cluster = Cluster()
    cluster.add({"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "small.example.com"}, "spec": {}})

    (found,) = checked(tmp_path, template(requests=requests), cluster=cluster).faults

    assert "is no DeviceClass that is known" in found.what
    assert checked(tmp_path, template(), cluster=cluster).faults == ()


def test_what_emit_writes_for_claims_has_no_fault_and_a_name_that_slips_is_told(tmp_path):
    files = {file.path: file.text for file in fewer_gpus(claims(request(count=4))).files}
    patch = f"workloads/{RUNS}/kustomization.yaml"
    name = next(line.split()[-1] for line in files[patch].splitlines() if line.strip().startswith("value: trimtab-"))

    def errors(texts):
        for path, text in texts.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text, encoding="utf-8")
        return check_folder(tmp_path, CATALOG, cluster=None, build=False).errors

    assert errors(files) == ()
    (slip,) = errors({**files, patch: files[patch].replace(f"value: {name}", f"value: {name}x")})
    assert slip.cure == f"write {name}"
