"""Rules of taints, requirements, rollouts and disruption budgets against their projects' own tests.

kubernetes/kubernetes: staging/src/k8s.io/api/core/v1/toleration_test.go (19c6083b), pkg/controller/deployment/util/
deployment_util_test.go (00216e45), pkg/controller/disruption/disruption_test.go (003e8629). kubernetes-sigs/karpenter v1.9.1:
pkg/scheduling/requirement_test.go.
"""

import pytest

from trimtab.review.disruption import Rollout, budget_of
from trimtab.review.pools import Need, Taint

FOO, BAR = Taint(key="foo", effect="NoSchedule"), Taint(key="foo", value="bar", effect="NoSchedule")


def sla(value, effect="NoSchedule"):
    return Taint(key="node.kubernetes.io/sla", value=value, effect=effect)


def tolerates_sla(operator, value):
    return Taint(key="node.kubernetes.io/sla", operator=operator, value=value, effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "taint", "tolerated"),
    [
        (Taint(key="foo", operator="Exists", effect="NoSchedule"), FOO, True),
        (Taint(key="foo", operator="Exists", effect="NoSchedule"), BAR, True),
        (Taint(key="", operator="Exists", effect="NoSchedule"), BAR, True),
        (Taint(key="foo", value="bar", effect="NoSchedule"), BAR, True),
        (
            Taint(key="foo", value="value1", effect="NoSchedule"),
            Taint(key="foo", value="value2", effect="NoSchedule"),
            False,
        ),
        (Taint(key="foo", value="bar", effect="NoSchedule"), Taint(key="foo", value="bar", effect="NoExecute"), False),
        (tolerates_sla("Gt", "950"), sla("800"), False),
        (tolerates_sla("Gt", "750"), sla("950"), True),
        (tolerates_sla("Lt", "800"), sla("950"), False),
        (tolerates_sla("Lt", "950"), sla("800"), True),
        (tolerates_sla("Gt", "950"), sla("950"), False),
        (tolerates_sla("Gt", "950"), sla("high"), False),
        (tolerates_sla("Gt", "-100"), sla("-200"), False),
        (tolerates_sla("Gt", "9223372036854775806"), sla("100"), False),
    ],
)
def test_a_toleration_covers_a_taint_as_the_scheduler_has_it(toleration, taint, tolerated):
    """`TestTolerationToleratesTaint`."""
    assert toleration.tolerates(taint) == tolerated


NEEDS = {
    ("Exists",): "AB129", ("DoesNotExist",): "", ("In", "A"): "A", ("In", "B"): "B", ("In", "A", "B"): "AB",
    ("NotIn", "A"): "B129", ("In", "1"): "1", ("In", "9"): "9", ("In", "1", "9"): "19", ("NotIn", "1", "2"): "AB9",
    ("Gt", "1"): "29", ("Gt", "9"): "", ("Lt", "1"): "", ("Lt", "9"): "12", ("Gte", "2"): "29", ("Lte", "2"): "12",
}  # fmt: skip


@pytest.mark.parametrize("need", NEEDS, ids="-".join)
def test_a_requirement_has_the_values_that_karpenter_gives_it(need):
    """Table "should have the right values", and of Gte and Lte the cases that its values tell."""
    operator, *values = need

    assert (
        "".join(value for value in "AB129" if Need(key="key", operator=operator, values=tuple(values)).holds(value))
        == (NEEDS[need])
    )


@pytest.mark.parametrize(
    ("surge", "unavailable", "replicas", "steps"),
    [("0%", "0%", 0, (0, 1)), ("39%", "39%", 10, (4, 3)), (0, "39%", 10, (0, 3))],
)
def test_a_rollout_rounds_surge_up_and_unavailable_down(surge, unavailable, replicas, steps):
    """`TestResolveFenceposts`; what an object leaves out has its default before that is asked."""
    assert Rollout(surge=surge, unavailable=unavailable).steps(replicas) == steps


@pytest.mark.parametrize(
    ("spec", "pods", "healthy"),
    [
        # TestIntegerMaxUnavailableWithScaling, TestPercentageMaxUnavailableWithScaling
        ({"maxUnavailable": 2}, 7, 5), ({"maxUnavailable": 2}, 5, 3), ({"maxUnavailable": "30%"}, 7, 4),
        ({"maxUnavailable": "30%"}, 3, 2),
        # TestReplicaSet, TestReplicationController, TestTwoControllers
        ({"minAvailable": "20%"}, 10, 2), ({"minAvailable": "34%"}, 3, 2), ({"minAvailable": "28%"}, 11, 4),
        ({"minAvailable": "28%"}, 22, 7),
    ],
)  # fmt: skip
def test_a_budget_keeps_as_many_pods_as_the_controller_does(spec, pods, healthy):
    budget = budget_of("keep", "prod", "a.yaml", {"spec": spec})

    assert pods - budget.allowed(pods) == healthy
