"""NodePools, budgets and overlays as Karpenter has them; services on several pools.

Expected results of `TestRules` are those of kubernetes-sigs/karpenter v1.9.1's own tests: pkg/cloudprovider/suite_test.go
(AdjustedPrice), pkg/apis/v1/nodepool_budgets_test.go, pkg/utils/nodepool/suite_test.go (OrderByWeight).
"""

import json
from itertools import pairwise

import numpy as np
import pytest
import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.test_manifests import hedged
from tests.review.test_review import (
    TOLERATES,
    bundle as bundle,
    hpa,
    nightly_runs as nightly_runs,
    on_pool,
    pods_metric,
    reviewed,
    stops,
)

from trimtab.review import kept_longer, read_objects
from trimtab.review.karpenter import adjusted_price, by_weight, duration_s, node_pool, shares_over, unread_parts
from trimtab.review.placing import Proposed, pools_of

WEEK = frozenset(range(168))


def pool_of(**spec):
    return node_pool(
        spec.pop("name", "gpus"), "pool.yaml", {"spec": {"template": {"spec": spec.pop("of", {})}, **spec}}
    )


def with_budgets(*budgets):
    return pool_of(disruption={"consolidateAfter": "1m", "budgets": list(budgets)})


def listed_of(budgets):
    """What of a pool's budgets is listed, and why."""
    body = {"spec": {"disruption": {"budgets": budgets}}}
    return [(what.removeprefix("NodePool gpus: "), why) for what, why in unread_parts("gpus", body)]


class TestRules:
    @pytest.mark.parametrize(
        ("change", "price", "expected"),
        [
            ("-10%", 10.0, 9.0), ("+10%", 10.0, 11.0), ("+100%", 10.0, 20.0), ("-100%", 10.0, 0.0), ("-200%", 10.0, 0.0),
            ("-25%", 1.5, 1.125), ("+0", 10.0, 10.0), ("+5", 10.0, 15.0), ("-2.5", 10.0, 7.5), ("-15", 10.0, 0.0),
            ("+0.75", 1.25, 2.0), ("+0.0001", 0.0001, 0.0002), ("80.0", 82781.0, 80.0),
        ],
    )  # fmt: skip
    def test_an_overlay_changes_a_price_as_karpenter_does(self, change, price, expected):
        assert adjusted_price(price, change) == pytest.approx(expected)

    def test_pools_are_tried_by_weight_then_by_the_later_name(self):
        pools = [pool_of(name=name, weight=weight) for name, weight in (("a", 10), ("c", 1), ("b", 10), ("d", None))]

        assert [pool.name for pool in by_weight(pools)] == ["b", "a", "c", "d"]

    @pytest.mark.parametrize(
        ("budgets", "elastic", "consolidates"),
        [
            ([], True, True),
            ([{"nodes": "10%"}], True, True),
            ([{"nodes": "0"}], False, False),
            ([{"nodes": "0", "reasons": ["Drifted"]}], True, True),
            ([{"nodes": "0", "reasons": ["Underutilized", "Drifted"]}, {"nodes": "100%", "reasons": ["Empty"]}], True, False),
            ([{"nodes": "0%", "reasons": ["Empty"]}], False, True),
            # "should return 0 for all reasons if a budget is active for all reasons"
            ([{"nodes": "10"}, {"nodes": "0", "schedule": "* * * * *", "duration": "1h"}], False, False),
        ],
    )  # fmt: skip
    def test_the_least_of_the_budgets_that_are_active_counts_for_each_reason(self, budgets, elastic, consolidates):
        pool = with_budgets(*budgets)

        assert (pool.elastic, pool.consolidates) == (elastic, consolidates)

    def test_a_schedule_holds_from_each_time_for_its_duration_in_utc(self):
        office = with_budgets({"nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "8h"})
        # "should return that a schedule is active when the duration is longer than the recurrence"
        always = with_budgets({"nodes": "0", "schedule": "@daily", "duration": "48h"})

        assert office.held_hours == frozenset(24 * day + hour for day in range(5) for hour in range(9, 17))
        assert always.held_hours == WEEK

    def test_a_schedule_that_is_not_on_the_hour_holds_through_the_hours_that_it_touches(self):
        # "should return that a schedule is inactive when the schedule hit is after the duration": not on Sunday at 0:00
        budgets = [{"nodes": "0", "schedule": "30 6 * * SUN", "duration": "6h"}]

        assert with_budgets(*budgets).held_hours == frozenset(24 * 6 + hour for hour in range(6, 13))
        assert listed_of(budgets) == [("budget at 30 6 * * SUN", "replayed over the whole hours that it touches")]

    @pytest.mark.parametrize(
        "budget",
        [
            # "should return zero values if a schedule is invalid"
            {"nodes": "10", "schedule": "@wrongly", "duration": "1h"},
            # "should return zero values if a nodes value is invalid"
            {"nodes": "1000a%", "schedule": "* * * * *", "duration": "1h"},
            # "should return an error indicating why the cron fails to parse"
            {"nodes": "10", "schedule": "0 0 * * tue-mon", "duration": "6h"},
        ],
    )
    def test_a_budget_that_karpenter_cannot_read_lets_no_node_go_for_any_reason(self, budget):
        """`GetAllowedDisruptionsByReason` fails for all reasons, and `MustGetAllowedDisruptions` makes 0 of that."""
        pool = with_budgets(budget | {"reasons": ["Drifted"]})

        assert (pool.elastic, pool.consolidates) == (False, False)
        ((_, why),) = listed_of([budget])
        assert why.endswith("Karpenter then removes no node of the pool by choice, and it is replayed so")

    def test_a_schedule_of_some_days_of_a_month_is_listed_and_not_guessed(self):
        # "should return that a schedule is inactive" (@yearly, in June)
        yearly = [{"nodes": "0", "schedule": "@yearly", "duration": "24h"}]

        assert with_budgets(*yearly).held_hours == frozenset()
        assert listed_of(yearly) == [
            ("budget at @yearly", "only times that are the same in every week are read: taken as if it never were")
        ]

    def test_how_many_nodes_go_at_once_is_listed(self):
        assert [what for what, _ in listed_of([{"nodes": "10%"}, {"nodes": "3"}, {"nodes": "100%"}])] == [
            "budget of 10%", "budget of 3",
        ]  # fmt: skip


@pytest.mark.parametrize(("types", "policy", "said"), [
    # "cannot replace spot with spot if less than minimum InstanceTypes flexibility": 15 cheaper ones are asked for
    (15, "WhenEmptyOrUnderutilized", False), (16, "WhenEmptyOrUnderutilized", True), (16, "WhenEmpty", False),
])  # fmt: skip
def test_spot_nodes_that_cheaper_spot_nodes_may_replace_are_listed(types, policy, said):
    """kubernetes-sigs/karpenter v1.9.1, pkg/controllers/disruption/consolidation_test.go."""
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [f"g{n}.xlarge" for n in range(types)]},
    ]
    template = {"spec": {"requirements": requirements}}
    body = {"spec": {"template": template, "disruption": {"consolidationPolicy": policy}}}

    listed = [what for what, _ in unread_parts("gpus", body)]

    assert listed == (["NodePool gpus: spot nodes replaced by cheaper spot nodes"] if said else [])


def test_a_pool_that_never_consolidates_gives_no_node_back():
    never, static = pool_of(disruption={"consolidateAfter": "Never"}), pool_of(replicas=3)

    assert (never.elastic, never.held_hours, never.consolidates) == (False, WEEK, False)
    assert (static.elastic, static.least_nodes, static.node_limit) == (False, 3, 3)


@pytest.mark.parametrize(("said", "elastic"), [("true", False), ("false", True)])
def test_nodes_that_their_pool_lets_nothing_disrupt_are_not_given_back(said, elastic):
    """kubernetes-sigs/karpenter v1.9.1, pkg/controllers/disruption/emptiness_test.go and consolidation_test.go."""
    template = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": said}}, "spec": {}}
    pool = node_pool("gpus", "pool.yaml", {"spec": {"template": template, "disruption": {"consolidateAfter": "1m"}}})

    assert (pool.elastic, pool.consolidates) == (elastic, elastic)
    assert pool.expires_s == 720 * 3600


def test_nodes_expire_after_thirty_days_unless_a_pool_says_otherwise():
    assert pool_of().expires_s == 720 * 3600
    assert pool_of(of={"expireAfter": "Never"}).expires_s is None
    assert pool_of(of={"expireAfter": "24h"}).expires_s == 24 * 3600
    assert duration_s("1h30m") == 5400


def test_nodes_stay_through_the_hours_in_which_none_may_go():
    held = np.isin(np.arange(6), [2, 3])

    assert kept_longer(np.array([5.0, 4.0, 1.0, 2.0, 1.0, 1.0]), 0, held).tolist() == [5, 4, 4, 4, 1, 1]


@pytest.mark.parametrize("kept_hr", [0.0, 0.25, 0.5, 1.0, 2.75])
def test_a_node_that_is_kept_for_part_of_an_hour_is_billed_for_that_part(kept_hr):
    used = np.array([0.0, 3600.0, 0.0, 0.0, 0.0, 0.0])

    kept = kept_longer(used, kept_hr, np.zeros(6, dtype=np.bool_))
    assert kept.sum() == used.sum() + kept_hr * 3600


TWO = """
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: {name}}}
spec:
  weight: {weight}
  template:
    metadata: {{labels: {{team: api}}}}
    spec:
      requirements:
      - {{key: node.kubernetes.io/instance-type, operator: In, values: [{types}]}}
      - {{key: karpenter.sh/capacity-type, operator: In, values: [{capacity}]}}
      {spread}
      taints: [{{key: nvidia.com/gpu, value: present, effect: NoSchedule}}]
  limits: {{nvidia.com/gpu: '{limit}'}}
"""


def two(name, types="g5.xlarge", capacity="on-demand", limit=40, weight=1, values=None):
    spread = "" if values is None else f"- {{key: share, operator: In, values: {values}}}"
    return TWO.format(name=name, types=types, capacity=capacity, limit=limit, weight=weight, spread=spread)


def service(replicas=8, spread=False):
    each = "topologySpreadConstraints: [{topologyKey: share, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]"
    selects = on_pool(f"replicas: {replicas}").partition("---")[0].replace("karpenter.sh/nodepool: gpus", "team: api")
    return selects.replace("      tolerations", f"      {each}\n      tolerations") if spread else selects


def cost(found):
    assert found.unjudged == ()
    return found.after_micro_usd


def test_the_heavier_pool_gets_the_pods_though_the_other_is_cheaper(bundle):
    dear, cheap = two("dear", "g5.12xlarge", weight=50), two("cheap", "g5.xlarge", weight=1)

    both = reviewed(bundle, service() + dear + cheap)

    assert cost(both) == cost(reviewed(bundle, service() + dear))
    assert cost(both) > cost(reviewed(bundle, service() + cheap))


def test_a_heavier_pool_without_room_leaves_the_rest_to_the_next(bundle):
    first, second = two("first", "g5.xlarge", limit=3, weight=9), two("second", "g6e.xlarge", weight=1)

    found = cost(reviewed(bundle, service(8) + first + second))

    # three replicas on the first, five on the second; each alone holds all eight
    one, other = (cost(reviewed(bundle, service(8) + two("only", types))) for types in ("g5.xlarge", "g6e.xlarge"))
    assert found == pytest.approx(one * 3 / 8 + other * 5 / 8, rel=0.01)


def test_evenly_spread_pods_are_billed_by_the_share_of_each_pool(bundle):
    pools = two("a", "g5.xlarge", values="['1']") + two("b", "g6e.xlarge", values="['2', '3', '4']")

    found = reviewed(bundle, service(8, spread=True) + pools)

    one, other = (cost(reviewed(bundle, service(8) + two("only", types))) for types in ("g5.xlarge", "g6e.xlarge"))
    assert cost(found) == pytest.approx(one / 4 + other * 3 / 4, rel=0.01)
    assert any("25% on a" in note for note in found.workloads[0].notes)


def test_two_pools_of_spot_and_on_demand_are_one_service_hedged_on_spot(bundle):
    spread = two("spot", capacity="spot, on-demand", values="['2', '3', '4']") + two("floor", values="['1']")

    found = reviewed(bundle, service(8, spread=True) + spread)

    assert found.unjudged == ()
    assert any("one replica in 4 on demand" in change for change in found.workloads[0].changes)


def test_a_spot_pool_leaves_to_the_next_pool_what_spot_does_not_give(bundle):
    behind = two("spot", capacity="spot", weight=10) + two("base", weight=1)

    both, alone = (reviewed(bundle, service(8) + pools) for pools in (behind, two("spot", capacity="spot")))

    assert any("spot" in change for change in both.workloads[0].changes)
    assert not any("spot alone" in fault.what for fault in both.findings)
    assert any("spot alone" in fault.what for fault in alone.findings)


def test_pools_named_by_affinity_are_the_ones_that_count(bundle):
    terms = [{"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["a", "b"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    affinity = f"affinity: {json.dumps({'nodeAffinity': required})}"
    pods = service(8).replace("nodeSelector: {team: api}", affinity)

    found = reviewed(bundle, pods + two("a", "g5.xlarge", weight=2) + two("b", "g6e.xlarge") + two("c", "g5.12xlarge"))

    assert cost(found) == cost(reviewed(bundle, service(8) + two("only", "g5.xlarge")))


def test_labels_of_instances_say_which_types_a_pool_starts(bundle):
    family = "- {key: karpenter.k8s.aws/instance-family, operator: In, values: [g6e]}\n"
    count = "      - {key: karpenter.k8s.aws/instance-gpu-count, operator: Lt, values: ['2']}\n"
    by_family = on_pool("replicas: 8").replace(
        "- {key: node.kubernetes.io/instance-type, operator: In, values: [g5.xlarge]}\n", family + count
    )

    found = reviewed(bundle, by_family)

    assert found.unread == ()
    assert (
        found.workloads[0].changes[0]
        == reviewed(bundle, on_pool("replicas: 8", types="g6e.xlarge")).workloads[0].changes[0]
    )


OVERLAY = """
---
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: paid-for}
spec:
  requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [g6e.xlarge]}]
  price: "0.01"
"""


def test_an_overlay_decides_which_type_is_started_and_not_what_is_billed(bundle):
    either = on_pool("replicas: 8", types="g5.xlarge, g6e.xlarge")

    plain, overlaid = reviewed(bundle, either), reviewed(bundle, either + OVERLAY)

    assert cost(plain) == cost(reviewed(bundle, on_pool("replicas: 8")))
    assert cost(overlaid) == cost(reviewed(bundle, on_pool("replicas: 8", types="g6e.xlarge")))


@pytest.mark.parametrize(
    ("selects", "given", "stays_pending"),
    [
        ("team: api", "", True),
        ("team: api", "- {key: team, operator: Exists}\n      ", False),
        ("team: api", "- {key: team, operator: In, values: [api]}\n      ", False),
        ("topology.kubernetes.io/zone: us-east-1a", "", False),
    ],
)
def test_a_label_that_no_pool_gives_keeps_pods_pending_unless_it_is_well_known(bundle, selects, given, stays_pending):
    """kubernetes-sigs/karpenter v1.9.1, pkg/scheduling/requirements.go, Compatible."""
    text = on_pool("replicas: 7").replace("karpenter.sh/nodepool: gpus}", f"karpenter.sh/nodepool: gpus, {selects}}}")

    found = reviewed(bundle, text.replace("- {key: karpenter.sh/cap", f"{given}- {{key: karpenter.sh/cap"))

    assert any("stay pending" in what for what in stops(found)) == stays_pending


def test_a_limit_is_compared_with_whole_nodes(bundle):
    # nodes of four GPUs: a third one would exceed eleven
    found = reviewed(bundle, on_pool(types="g5.12xlarge", limit=11) + hpa(pods_metric("team_load", 4)) + RULED)

    assert any("has room for 8 " in fault.what for fault in found.findings)


RULED = """
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: load, namespace: prod}
spec:
  groups:
  - name: load
    rules: [{record: "team:load", expr: "rate(http_requests_total[1m]) + http_requests_waiting / 15"}]
"""


def scaled(disruption):
    pool = on_pool(types="g5.12xlarge").replace("  limits:", f"  disruption: {disruption}\n  limits:")
    return pool + hpa(pods_metric("team_load", 4), high=16) + RULED


def test_nodes_that_are_never_given_back_stay_billed(bundle):
    moves, never = (
        reviewed(bundle, scaled(f"{{consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: {after}}}"))
        for after in ("10m", "Never")
    )

    assert cost(never) > 1.2 * cost(moves)


def test_nodes_are_kept_as_long_as_their_pool_says(bundle):
    costs = [
        cost(reviewed(bundle, scaled(f"{{consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: {after}}}")))
        for after in ("0s", "10m", "25m", "50m")
    ]

    assert all(sooner < later for sooner, later in pairwise(costs))


def test_nodes_that_only_go_when_empty_are_billed_as_scattered(bundle):
    moves, waits = (
        reviewed(bundle, scaled(f"{{consolidationPolicy: {policy}, consolidateAfter: 10m}}"))
        for policy in ("WhenEmptyOrUnderutilized", "WhenEmpty")
    )

    assert cost(waits) > 1.2 * cost(moves)
    assert any("stays until the last of them goes" in fault.what for fault in waits.findings)


TOGETHER = """
      affinity:
        podAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: api}}}
"""
OVER_ZONES = """
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}
"""


def packed(text, what):
    """The manifests with what their pods say of each other."""
    return labelled(text).replace("      containers:", f"{what.strip(chr(10))}\n      containers:")


def test_pods_that_do_not_prefer_the_nodes_of_their_own_are_spread_and_cost_more(bundle):
    # a window of a minute, so that replicas come and go all the time
    text = scaled("{consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 10m}").replace(
        "  metrics:", "  behavior: {scaleDown: {stabilizationWindowSeconds: 60}}\n  metrics:"
    )
    spread, together = (reviewed(bundle, packed(text, what)) for what in ("", TOGETHER + OVER_ZONES))

    assert cost(spread) > cost(together)
    assert any("on the emptiest node" in note for note in spread.workloads[0].notes)
    assert not any("on the emptiest node" in note for note in together.workloads[0].notes)


@pytest.mark.parametrize(
    ("says", "fills"),
    [
        (TOGETHER + OVER_ZONES, True),
        # the scheduler's own spread over nodes outweighs it where pods state none
        (TOGETHER, False),
        (TOGETHER + OVER_ZONES.replace("topology.kubernetes.io/zone", "kubernetes.io/hostname"), False),
        (TOGETHER.replace("app: api", "app: other") + OVER_ZONES, False),
        (TOGETHER.replace("kubernetes.io/hostname", "topology.kubernetes.io/zone") + OVER_ZONES, False),
        ("      schedulerName: gke.io/optimize-utilization-scheduler", True),
        ("      schedulerName: gpu-packing", True),
    ],
)
def test_pods_fill_nodes_where_what_they_say_outweighs_the_default_scores(says, fills):
    (pods,) = read_objects([("a.yaml", yaml.safe_load(packed(on_pool().split("---")[0], says)))]).pods.values()

    assert pods.fills_nodes is fills


BUDGET = """
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: keep, namespace: prod}
spec: {selector: {matchLabels: {app: api}}, %s}
"""


def labelled(text):
    spec = "    spec:\n      nodeSelector"
    return text.replace(f"template:\n{spec}", f"template:\n    metadata: {{labels: {{app: api}}}}\n{spec}")


@pytest.mark.parametrize(
    ("allows", "blocked"),
    [
        ("maxUnavailable: 0", True),
        ("minAvailable: 100%", True),
        ("minAvailable: 16", True),
        ("maxUnavailable: 1", False),
    ],
)
def test_a_budget_that_lets_no_pod_go_keeps_its_nodes_billed(bundle, allows, blocked):
    moves = "{consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 10m}"
    free = reviewed(bundle, labelled(scaled(moves)))

    found = reviewed(bundle, labelled(scaled(moves)) + BUDGET % allows)

    assert any("never lets a pod go" in fault.what for fault in found.findings) == blocked
    assert (cost(found) > 1.2 * cost(free)) == blocked


def test_a_budget_of_no_pods_that_are_known_says_nothing_of_these_and_is_listed(bundle):
    text = labelled(on_pool("replicas: 7"))
    strict, loose = (
        reviewed(bundle, text + (BUDGET % allows).replace("app: api", "app: other"))
        for allows in ("maxUnavailable: 0", "maxUnavailable: 1")
    )

    assert not any("PodDisruptionBudget" in fault.what for fault in strict.findings)
    assert [one.what for one in strict.unread] == ["PodDisruptionBudget prod/keep"]
    assert loose.unread == ()


@pytest.mark.parametrize(
    ("strategy", "ends"),
    [
        ("", False),
        ("strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}", True),
        ("strategy: {type: Recreate}", True),
        ("strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}", False),
    ],
)
def test_a_rollout_without_room_for_its_surge_never_ends(bundle, strategy, ends):
    text = on_pool(f"replicas: 3\n  {strategy}", limit=3)

    assert (not any("never ends" in what for what in stops(reviewed(bundle, text)))) == ends


def test_pods_without_a_taint_tolerated_are_said_on_the_pool_that_comes_first(bundle):
    text = service(8).replace(TOLERATES, "") + two("only")

    assert any("does not tolerate" in what for what in stops(reviewed(bundle, text)))


def test_taints_that_keep_pods_off_every_pool_are_told_of_the_one_that_comes_first(bundle):
    text = service(8).replace(TOLERATES, "") + two("first", limit=3, weight=9) + two("second", limit=9)

    assert [("of node pool first" in what) for what in stops(reviewed(bundle, text))] == [True]


def test_shares_over_values_go_to_the_first_pool_that_gives_them():
    def pool(name, *values):
        return pool_of(name=name, of={"requirements": [{"key": "share", "operator": "In", "values": list(values)}]})

    assert shares_over([pool("a", "1"), pool("b", "2", "3", "4")], "share") == (0.25, 0.75)
    assert shares_over([pool("a", "1"), pool_of(name="b")], "share") == ()


RUNS = """
apiVersion: batch/v1
kind: Job
metadata: {name: nightly, namespace: lab}
spec:
  template:
    metadata: {annotations: {%s}}
    spec:
      nodeSelector: {karpenter.sh/nodepool: gpus}
      tolerations: [{key: nvidia.com/gpu, operator: Exists}]
      containers: [{name: train, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
STAYS = "karpenter.sh/do-not-disrupt: 'true'"


@pytest.mark.parametrize(
    ("annotation", "template", "drained"),
    [
        ("", "expireAfter: 3h", 7), ("", "expireAfter: 5h", 0), ("", "expireAfter: Never", 0), (STAYS, "expireAfter: 3h", 0),
        (STAYS, "{expireAfter: 2h, terminationGracePeriod: 1h}", 7),
    ],
)  # fmt: skip
def test_runs_that_outlive_their_node_are_counted(nightly_runs, annotation, template, drained):
    stated = template.strip("{}").replace(", ", "\n      ")
    pool = on_pool().partition("---")[2].replace("      taints", f"      {stated}\n      taints")

    found = reviewed(nightly_runs, RUNS % annotation + "---" + pool)

    said = [fault.what for fault in found.findings if "older than" in fault.what]
    assert bool(said) == bool(drained)
    assert all(f"{drained} of 7 runs" in what for what in said)


def test_runs_that_karpenter_may_move_are_said(nightly_runs):
    pool = "---" + on_pool().partition("---")[2]

    free, held = (reviewed(nightly_runs, RUNS % annotation + pool) for annotation in ("", STAYS))

    assert [any("may drain" in fault.what for fault in found.findings) for found in (free, held)] == [True, False]


def test_runs_that_have_room_on_the_first_pool_run_there_and_others_are_not_judged(nightly_runs):
    runs = RUNS.replace("karpenter.sh/nodepool: gpus", "team: api") % ""
    first, second = (two("first", "g5.xlarge", limit=limit, weight=9) for limit in (1, 0))
    behind = two("behind", "g5.12xlarge")

    roomy, full = (reviewed(nightly_runs, runs + pools) for pools in (first + behind, second + behind))

    assert cost(roomy) == cost(reviewed(nightly_runs, runs + first))
    assert full.unjudged == ("lab/nightly",)
    assert "first has no room for all that ran at once" in full.workloads[0].unjudged


@pytest.mark.parametrize("one_in", [2, 4])
def test_a_hedge_that_emit_wrote_is_read_as_one_service_with_its_floor_on_demand(one_in):
    documents = [("plan.yaml", document) for document in hedged(one_in).values()]
    manifests = read_objects(documents).laid_on(["prod/chat-api"])
    (workload,) = (known for known in example_facts().workloads if known.name == "prod/chat-api")
    found = Proposed()

    (share,) = pools_of(manifests.pods["prod/chat-api"], workload, manifests, found)

    assert (share.frac, share.pool.one_in, share.pool.capacity_types) == (1.0, one_in, ("spot", "on-demand"))
    assert (found.refused, found.findings) == ("", [])
