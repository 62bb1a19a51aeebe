"""Manifests that scale to zero: replayed where something wakes the service and holds requests, stopped where nothing does."""

import pytest
import yaml
from tests.levers.test_scale_to_zero import ALLOWED, MOSTLY, bundle

from trimtab.pipeline import review
from trimtab.review import read_objects
from trimtab.review.placing import Weight

ARRIVING = "sum(rate(gateway_requests_total[2m]))"
ANSWERED = "sum(rate(vllm:request_success_total[2m]))"
FILES = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: assistant, namespace: office}
spec:
  template:
    spec:
      nodeSelector: {karpenter.sh/nodepool: gpus}
      containers: [{name: server, resources: {limits: {nvidia.com/gpu: 8}}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: gpus}
spec:
  template:
    spec:
      requirements:
      - {key: node.kubernetes.io/instance-type, operator: In, values: [p4d.24xlarge]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: assistant, namespace: office}
spec:
  scaleTargetRef: {name: assistant}
  minReplicaCount: LEAST
  maxReplicaCount: 2
  MORE
  cooldownPeriod: 540
  triggers:
  - {type: prometheus, name: demand, metadata: {query: "QUERY", threshold: "0.15"}}
"""


def reviewed(query, least=0, more="", annotation="trimtab.dev/none", active_above="0", **declared):
    text = FILES.replace("QUERY", query).replace("LEAST", str(least)).replace("MORE", more)
    text = text.replace('"0.15"', f'"0.15", activationThreshold: "{active_above}"')
    text = text.replace(
        "{name: assistant, namespace: office}\nspec:\n  scale",
        f"{{name: assistant, namespace: office, annotations: {{{annotation}: 'true'}}}}\nspec:\n  scale",
    )
    objects = read_objects(("change.yaml", one) for one in yaml.safe_load_all(text))
    return review(bundle(targets=MOSTLY, **declared), objects)


def stops(found):
    return [one.what for one in found.findings if one.weight is Weight.STOPS]


def test_it_is_replayed_with_the_wait_of_who_comes_first_where_requests_are_held():
    asleep, awake = reviewed(ARRIVING, **ALLOWED), reviewed(ARRIVING, least=1, **ALLOWED)

    assert not stops(asleep)
    assert not asleep.unjudged
    # the cooldown, from when two minutes of requests are forgotten
    assert "none after 11 min" in asleep.workloads[0].changes[0]
    assert asleep.after_micro_usd < 0.6 * awake.after_micro_usd


def test_where_nobody_said_what_holds_requests_one_replica_is_replayed_and_that_is_said():
    found = reviewed(ARRIVING, min_replicas=1, cold_start_s=180.0)

    assert any("wakes_on" in note for note in found.workloads[0].notes)
    assert "scale 1..2" in found.workloads[0].changes[0]


@pytest.mark.parametrize("declared", [{}, ALLOWED])
def test_what_reads_only_its_pods_never_comes_back(declared):
    (found,) = stops(reviewed(ANSWERED, **declared))

    assert "never comes back" in found


def test_an_idle_count_of_zero_goes_to_none_although_its_autoscaler_keeps_two():
    asleep, awake = (reviewed(ARRIVING, least=2, more=more, **ALLOWED) for more in ("idleReplicaCount: 0", ""))

    assert "scale 2..2 replicas" in asleep.workloads[0].changes[0]
    assert "none after 11 min" in asleep.workloads[0].changes[0]
    assert asleep.after_micro_usd < 0.6 * awake.after_micro_usd


def test_an_idle_count_that_is_not_below_the_least_is_refused_as_keda_refuses_it():
    """`TestCheckReplicaCountBoundsAreValid` of kedacore/keda v2.20.2, apis/keda/v1alpha1/scaledobject_types_test.go."""
    for least, idle in ((1, 1), (1, 2), (0, 0)):
        assert reviewed(ARRIVING, least=least, more=f"idleReplicaCount: {idle}", **ALLOWED).unjudged


@pytest.mark.parametrize("annotation", ["autoscaling.keda.sh/force-activation", "autoscaling.keda.sh/paused-scale-in"])
def test_what_keeps_it_active_or_lets_nothing_scale_in_keeps_one_replica(annotation):
    held = reviewed(ARRIVING, annotation=annotation, **ALLOWED)

    assert not stops(held)
    assert "scale 1..2" in held.workloads[0].changes[0]


def test_a_pause_of_scaling_out_lets_nothing_wake_it():
    (found,) = stops(reviewed(ARRIVING, annotation="autoscaling.keda.sh/paused-scale-out", **ALLOWED))

    assert "never comes back" in found


def test_a_threshold_above_what_comes_at_night_leaves_who_asks_then_waiting():
    # one request of a minute in the night is 1/120 a second of two minutes; by day ten a minute come
    woken, left = (reviewed(ARRIVING, active_above=level, **ALLOWED) for level in ("0.005", "0.05"))

    assert woken.after_micro_usd > left.after_micro_usd
