"""Pods that ask for parts of GPUs: read from the pod, the node's label and the device plugin's configuration together."""

import pytest
from tests.review.test_review import ON_POOL, POOL, TOLERATES, bundle, reviewed  # noqa: F401 - a fixture

CONFIG = """
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: any-name, namespace: gpu-operator}}
data:
  halves: |
    version: v1
    sharing:
      {how}:
        renameByDefault: {renamed}
        resources: [{{name: nvidia.com/gpu, replicas: 2}}]
"""
LABEL = "\n    metadata: {labels: {nvidia.com/device-plugin.config: halves}}"


def shared(resource="nvidia.com/gpu.shared", how="mps", renamed="true", label=LABEL, limit=40, replicas=8):
    pods = ON_POOL.format(replicas=f"replicas: {replicas}", tolerations=TOLERATES).replace(
        "nvidia.com/gpu: 1", f"{resource}: 1"
    )
    pool = POOL.format(types="g5.xlarge", capacity="on-demand", limit=40).replace("  template:", f"  template:{label}")
    return (
        pods
        + pool.replace("nvidia.com/gpu: '40'", f"nvidia.com/gpu.shared: '{limit}'")
        + CONFIG.format(how=how, renamed=renamed)
    )


@pytest.mark.parametrize("how", ["mps", "timeSlicing"])
@pytest.mark.parametrize(("resource", "renamed"), [("nvidia.com/gpu.shared", "true"), ("nvidia.com/gpu", "false")])
def test_two_shares_of_a_gpu_cost_half_of_it(bundle, how, resource, renamed):  # noqa: F811
    found = reviewed(bundle, shared(resource, how, renamed))

    assert found.unjudged == ()
    assert "share g5.xlarge without hardware isolation: 1 of 2" in found.workloads[0].changes[0]
    assert found.after_micro_usd == found.before_micro_usd / 2


def test_those_that_take_turns_and_are_at_work_for_most_of_the_hour_are_warned_of(bundle):  # noqa: F811
    found = reviewed(bundle, shared(how="timeSlicing"))

    assert any("takes turns on GPUs" in fault.what for fault in found.findings)
    assert not any("takes turns" in fault.what for fault in reviewed(bundle, shared()).findings)


def test_a_pool_has_room_for_so_many_shares(bundle):  # noqa: F811
    found = reviewed(bundle, shared(limit=4, replicas=6))

    assert any("has room for 4 (limit 4 x nvidia.com/gpu.shared)" in fault.what for fault in found.findings)


@pytest.mark.parametrize(
    "change",
    [
        {"label": ""},
        {"label": LABEL.replace("halves", "thirds")},
        {"resource": "nvidia.com/mig-1g.5gb"},  # an A10G has none
    ],
)
def test_what_a_share_is_that_no_object_says_is_not_guessed(bundle, change):  # noqa: F811
    found = reviewed(bundle, shared(**change))

    assert found.unjudged == ("prod/api",)
