"""ScaledObjects and autoscalers of several metrics: fallback, pauses, behaviours, and what is not guessed.

Replicas of a fallback are those of kedacore/keda v2.20.2, pkg/fallback/fallback_test.go (fallback of 10; 4, 6 and 15 current).
"""

from datetime import UTC, datetime

import pytest
import yaml
from tests.review.test_review import bundle as bundle, hpa, on_pool, pods_metric, reviewed

from trimtab.fleet.model import Window
from trimtab.policies.scaling import Tolerance, average_value
from trimtab.review.manifests import read_objects
from trimtab.review.scaling import PAUSED, PAUSED_REPLICAS, Fallback, Replica, hours_of, paused, paused_at, scaling_of

REPLICA = Replica(capacity_req_s=10.0, full_frac=1.0, signal="sm_active")
MONDAY = datetime(2026, 9, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("behavior", "current", "held"),
    [
        ("static", 15, 10), ("currentReplicas", 6, 6), ("currentReplicasIfHigher", 4, 10),
        ("currentReplicasIfHigher", 12, 12), ("currentReplicasIfLower", 4, 4), ("currentReplicasIfLower", 12, 10),
    ],
)  # fmt: skip
def test_a_fallback_holds_as_many_replicas_as_keda_asks_for(behavior, current, held):
    assert Fallback(failures=3, replicas=10, behavior=behavior).held(current) == held


def by_value(said):
    return said.replace("type: prometheus", "type: prometheus, metricType: Value")


def trigger(query='sum(rate(http_requests_total{pod=~"api-.+"}[1m]))', threshold=5, name="load", nulls="false"):
    return (
        f"{{type: prometheus, name: {name}, metadata: {{query: '{query}', threshold: '{threshold}', "
        f"ignoreNullValues: '{nulls}'}}}}"
    )


DEMAND = 'sum(rate(http_requests_total{pod=~"api-.+"}[1m])) + sum(http_requests_waiting{pod=~"api-.+"}) / 15'


def scaled(*triggers, more="", annotations="{}"):
    return f"""
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {{name: api, namespace: prod, annotations: {annotations}}}
spec:
  scaleTargetRef: {{name: api}}
  minReplicaCount: 2
  maxReplicaCount: 16
  {more}
  triggers: [{", ".join(triggers)}]
"""


def policy(*triggers, more="", annotations="{}"):
    (document,) = [one for one in yaml.safe_load_all(scaled(*triggers, more=more, annotations=annotations)) if one]
    (scaler,) = read_objects([("a.yaml", document)]).scalers["prod/api"]
    return scaling_of(scaler, REPLICA, ())


def test_of_two_triggers_on_load_the_lower_target_asks_for_more():
    high, low = trigger(DEMAND, 8, "high"), trigger(DEMAND, 4, "low")

    assert policy(high, low).policy == policy(low).policy == policy(low, high).policy


def test_demand_leads_and_what_saturates_stands_beside_it():
    activity = by_value(trigger("avg(avg_over_time(DCGM_FI_PROF_SM_ACTIVE[1m]))", 0.4, "activity"))

    found = policy(activity, trigger(DEMAND, 8)).policy

    assert found.target_frac == pytest.approx(0.8)
    assert found.others.duty_cycle_frac == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("query", "asks"),
    [
        ("avg(DCGM_FI_PROF_SM_ACTIVE{pod=~'api-.+'})", "3 replicas at most"),
        ("max(rate(http_requests_total{pod=~'api-.+'}[1m]))", "fewer replicas, the more there are"),
        ("avg(rate(vllm:request_success_total[1m])) / 2", "fewer replicas, the more there are"),
    ],
)
def test_a_mean_over_pods_with_an_average_value_asks_for_too_few_and_is_said(query, asks):
    """kubernetes/kubernetes v1.34, replica_calculator.go, GetExternalPerPodMetricReplicas: the usage over the average value."""
    found = policy(trigger(query.replace("'", '"'), 0.4))

    assert found.policy is None
    assert asks in found.never_asks


def test_a_mean_over_pods_with_a_value_is_what_a_sum_with_an_average_value_is():
    arriving = 'rate(http_requests_total{pod=~"api-.+"}[1m]) + http_requests_waiting{pod=~"api-.+"} / 15'
    mean, total = trigger(f"avg({arriving})", 4), trigger(f"sum({arriving})", 4)

    assert policy(by_value(mean)).policy == policy(total).policy
    assert "not an average value" in policy(by_value(total)).refused


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ('sum(rate(http_requests_total{status=~"5.."}[1m]))', "only what has status=~5.."),
        ('sum(rate(http_requests_total{pod=~"web-.+"}[1m]))', "of other pods, web-.+"),
        ("sum(rate(http_requests_total[1m])) / sum(rate(http_errors_total[1m]))", "a ratio"),
    ],
)
def test_a_query_that_tells_of_something_else_is_not_taken_for_the_requests(query, why):
    assert why in policy(trigger(query)).refused


def test_requests_of_pods_that_are_named_and_that_end_well_are_its_requests():
    named = 'sum(rate(http_requests_total{pod=~"api-[a-z0-9]{5,10}-.+",status=~"2..",service="api"}[1m]))'

    assert policy(trigger(named)).policy == policy(trigger()).policy


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ('sum(rate(http_requests_total{pod=~"api-.+",method="POST"}[1m]))', "only those of method=POST"),
        ('max_over_time(sum(rate(http_requests_total{pod=~"api-.+"}[1m]))[10m:1m])', "looks back over 10m"),
    ],
)
def test_what_a_query_leaves_out_or_remembers_is_noted(query, said):
    found = policy(trigger(query))

    assert found.policy is not None
    assert any(said in note for note in found.notes)


def test_requests_that_a_proxy_counts_are_requests():
    ingress = 'sum(rate(nginx_ingress_controller_requests{ingress="api",status!~"5.."}[1m]))'

    found = policy(trigger(ingress))

    assert found.policy == policy(trigger()).policy
    assert found.outlives


def test_requests_over_a_window_are_as_many_a_second_as_they_are_in_it():
    counted = policy(trigger('sum(increase(http_requests_total{pod=~"api-.+"}[1m]))', 300)).policy

    assert counted == policy(trigger(threshold=5)).policy


def test_requests_over_the_number_of_pods_are_their_mean():
    ratio = 'sum(rate(http_requests_total{pod=~"api-.+"}[1m])) / count(kube_pod_info{pod=~"api-.+"})'

    assert "as if it were their sum" in policy(trigger(ratio)).never_asks
    assert policy(by_value(trigger(ratio))).policy == policy(trigger()).policy


def test_a_series_for_each_pod_fails_with_two_of_them():
    """pkg/scalers/prometheus_scaler.go, ExecutePromQuery: "returned multiple elements"."""
    assert (
        "a series for each pod"
        in policy(trigger('sum by (pod) (rate(http_requests_total{pod=~"api-.+"}[1m]))')).never_asks
    )


def test_a_target_of_zero_is_not_replayed():
    assert "a target of 0" in policy(trigger(DEMAND, 0)).refused


def test_the_deepest_of_one_queue_that_several_exporters_tell_of_is_no_mean_over_pods():
    queue = trigger("max(gateway_requests_waiting)", 8, "queue")

    assert policy(trigger(DEMAND, 4), queue).policy.others.queue_replica_s == pytest.approx(0.8)


def test_metrics_over_different_windows_are_noted():
    slow = trigger(DEMAND.replace("1m", "5m"), 4, "slow")

    assert any("slow averages over 300 s" in note for note in policy(trigger(DEMAND, 3), slow).notes)


def cron(start="0 8 * * 1-5", end="0 18 * * 1-5", timezone="Etc/UTC", replicas=10):
    return (
        f"{{type: cron, metadata: {{timezone: {timezone}, start: '{start}', end: '{end}', "
        f"desiredReplicas: '{replicas}'}}}}"
    )


def timed(*triggers, start=MONDAY, days=7, more=""):
    notes = []
    (document,) = [one for one in yaml.safe_load_all(scaled(*triggers, more=more)) if one]
    (scaler,) = read_objects([("a.yaml", document)]).scalers["prod/api"]
    return hours_of(scaler, Window(start=start, hours=24 * days), notes), notes


def active(spans):
    """The minutes of the week in which a trigger asks for replicas."""
    return {(span.begin_min + minute) % WEEK_MIN for span in spans for minute in range(span.length_min)}


WEEK_MIN = 7 * 24 * 60


@pytest.mark.parametrize(
    ("start", "end", "is_active"),
    [
        # kedacore/keda v2.20.2, pkg/scalers/cron_scaler_test.go: validCronMetadata is active on Thursday, the second one in
        # even hours, the third in the first and third quarter of each hour
        ("0 0 * * Thu", "59 23 * * Thu", lambda minute: minute // 1440 == 3 and minute % 1440 < 1439),
        ("0 */2 * * *", "0 1-23/2 * * *", lambda minute: minute // 60 % 2 == 0),
        ("0,30 * * * *", "15,45 * * * *", lambda minute: minute % 30 < 15),
        # "30-33": the next start is before the next end until the last of them (GetMetricsAndActivity)
        ("30-33 * * * *", "45 * * * *", lambda minute: 33 <= minute % 60 < 45),
        ("30 * * * *", "45-50 * * * *", lambda minute: 30 <= minute % 60 < 50),
        ("0 22 * * *", "0 6 * * *", lambda minute: not 360 <= minute % 1440 < 1320),
    ],
)
def test_a_cron_trigger_is_active_when_it_is_in_keda(start, end, is_active):
    (spans, _) = timed(trigger(), cron(start, end))

    assert active(spans) == {minute for minute in range(WEEK_MIN) if is_active(minute)}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        # the faults of the same file's testCronMetadata
        (cron(timezone="''"), "no time zone"),
        (cron("-30 * * * *", "45 * * * *"), "is not a timetable"),
        (cron("30 * * * *", "-50 * * * *"), "is not a timetable"),
        (cron("30 * * * *", "50 * * -3 *"), "is not a timetable"),
        (cron("30 * * * *", "30 * * * *"), "its start is its end"),
        (cron(replicas=""), "no desiredReplicas"),
        (cron(replicas=0), "no desiredReplicas"),
        (cron(timezone="Mars/Olympus"), "no time zone"),
        (cron("0 8 1 * *"), "not those of every week"),
        (cron().replace("type: cron", "type: cron, metricType: Value"), "no average value"),
    ],
)
def test_a_cron_trigger_that_keda_refuses_or_that_is_not_of_every_week_is_told(said, why):
    assert why in timed(trigger(), said)[0]


def test_hours_are_those_of_their_time_zone():
    kolkata, _ = timed(trigger(), cron("0 9 * * 1", "0 10 * * 1", "Asia/Kolkata"))

    # UTC+5:30 all year
    assert active(kolkata) == set(range(3 * 60 + 30, 4 * 60 + 30))


def test_clocks_that_are_put_back_within_a_history_are_noted():
    berlin = cron("0 9 * * 1", "0 10 * * 1", "Europe/Berlin")
    autumn = MONDAY.replace(month=10, day=19)

    kept, quiet = timed(trigger(), berlin)
    mostly_winter, said = timed(trigger(), berlin, start=autumn, days=28)

    assert (min(active(kept)), quiet) == (7 * 60, [])
    assert min(active(mostly_winter)) == 8 * 60
    assert any("put forward or back" in note for note in said)


def test_a_cron_trigger_outside_of_the_formula_asks_for_nothing():
    assert timed(trigger(), cron(), more=modifiers("load", 5))[0] == ()


def test_a_cron_trigger_holds_replicas_in_its_hours_beside_the_load(bundle):
    alone, timed_too, always = (
        reviewed(bundle, scaled(*triggers))
        for triggers in (
            [trigger(DEMAND, 8)], [trigger(DEMAND, 8), cron()], [trigger(DEMAND, 8), cron("0 0 * * *", "59 23 * * *")]
        )
    )  # fmt: skip

    assert not timed_too.unjudged
    assert alone.after_micro_usd < timed_too.after_micro_usd < always.after_micro_usd
    assert "10 at least for 50 h of the week" in timed_too.workloads[0].changes[0]


def modifiers(formula, target, more=""):
    return f"advanced: {{scalingModifiers: {{formula: '{formula}', target: '{target}'{more}}}}}"


ARRIVING, WAITING = 'sum(rate(http_requests_total{pod=~"api-.+"}[1m]))', 'sum(http_requests_waiting{pod=~"api-.+"})'


@pytest.mark.parametrize(
    ("formula", "target", "alone"),
    [
        ("load", 5, trigger(ARRIVING, 5)),
        ("load * 2", 10, trigger(ARRIVING, 5)),
        ("2 * load", 10, trigger(ARRIVING, 5)),
        ("load / 4", 1, trigger(ARRIVING, 4)),
        ("load + waiting / 15", 5, trigger(DEMAND, 5)),
        ("(load + waiting / 15) / 5", 1, trigger(DEMAND, 5)),
    ],
)
def test_a_formula_scales_as_the_query_that_it_amounts_to(formula, target, alone):
    triggers = trigger(ARRIVING, 1000), trigger(WAITING, 1000, "waiting")

    assert policy(*triggers, more=modifiers(formula, target)).policy == policy(alone).policy


def test_requests_that_wait_are_counted_as_their_query_divides_them():
    tenth = trigger(f"{WAITING} / 10", 5, "waiting")

    assert policy(trigger(ARRIVING, 5), tenth).policy == policy(trigger(ARRIVING, 5), trigger(WAITING, 50, "w")).policy


def test_of_the_parts_of_a_maximum_each_stands_for_a_trigger():
    triggers = trigger(ARRIVING, 1000), trigger(WAITING, 1000, "waiting")

    found = policy(*triggers, more=modifiers("max([load, waiting / 10])", 5)).policy

    assert found == policy(trigger(ARRIVING, 5), trigger(WAITING, 50, "waiting")).policy
    assert found.others.queue_replica_s == pytest.approx(5.0)


@pytest.mark.parametrize(("values", "replicas"), [((3, 2), 3), ((2, 2), 2)])
def test_a_formula_asks_for_as_many_replicas_as_keda_does(values, replicas):
    """kedacore/keda v2.20.2, tests/internals/scaling_modifiers: two triggers are summed, and the target is 2."""
    triggers = trigger(ARRIVING, 1000), trigger(ARRIVING.replace("total", "count"), 1000, "other")
    hpa = policy(*triggers, more=modifiers("load + other", 2)).policy
    # a replica here serves 10 requests a second
    wanted = sum(values) / REPLICA.capacity_req_s / hpa.target_frac

    assert average_value(wanted, 1, Tolerance(0.1, 0.1)) == replicas


def test_a_formula_is_active_above_its_own_target():
    found = policy(trigger(ARRIVING), more=modifiers("load / 10", 1, ", activationTarget: '2'"))

    assert found.activation.load == pytest.approx(2.0)


@pytest.mark.parametrize(
    "formula",
    # the second is that of KEDA's own test
    ["load > 5 ? load : 2", "count([load,waiting],{#>1}) > 1 ? 5 : 0", "load + 1", "load - waiting", "load * waiting", "other",
     "load * 1e999", "load * 1" + "0" * 400, " + ".join(["load"] * 20_000), "(" * 500 + "load" + ")" * 500],
    ids=str.__len__,
)  # fmt: skip
def test_a_formula_of_another_form_is_not_guessed(formula):
    triggers = trigger(ARRIVING), trigger(WAITING, 5, "waiting")

    assert f"of the formula {formula} (scalingModifiers)" in policy(*triggers, more=modifiers(formula, 5)).refused


def test_what_is_passed_over_is_noted():
    assert any("idleReplicaCount" in note for note in policy(trigger(DEMAND), more="idleReplicaCount: 1").notes)
    assert any(
        "initialCooldownPeriod" in note for note in policy(trigger(DEMAND), more="initialCooldownPeriod: 60").notes
    )
    cached = trigger(DEMAND).replace("name: load", "name: load, useCachedMetrics: true")
    assert any("useCachedMetrics" in note for note in policy(cached).notes)


@pytest.mark.parametrize(
    ("annotation", "down", "up"),
    [("paused-scale-in: 'true'", 0.0, 1.0), ("paused-scale-out: ''", 1.0, 0.0), ("paused-scale-in: 'false'", 1.0, 1.0)],
)
def test_a_pause_of_one_direction_disables_it(annotation, down, up):
    found = policy(trigger(DEMAND), annotations=f"{{autoscaling.keda.sh/{annotation}}}").policy

    assert (found.down_frac, found.up_frac) == (down, up)


BEHAVIOR = "advanced: {horizontalPodAutoscalerConfig: {behavior: {scaleUp: {%s}}}}"


@pytest.mark.parametrize(
    ("select", "percent", "frac", "pods"),
    # at the two replicas that there are at least, 200 % are four more, as many as the other policy allows
    [("Max", 50, 0.5, 4), ("Min", 200, 0.0, 4), ("Min", 100, 1.0, 0), ("Disabled", 200, 0.0, 0)],
)
def test_of_several_policies_the_largest_or_smallest_move_counts(select, percent, frac, pods):
    limits = f"{{type: Percent, value: {percent}, periodSeconds: 15}}, {{type: Pods, value: 4, periodSeconds: 15}}"

    found = policy(trigger(DEMAND), more=BEHAVIOR % f"selectPolicy: {select}, policies: [{limits}]").policy

    assert (found.up_frac, found.up_pods) == (frac, pods)


def test_policies_over_different_periods_are_noted():
    limits = "[{type: Percent, value: 50, periodSeconds: 15}, {type: Pods, value: 4, periodSeconds: 60}]"

    assert any(
        "different periods" in note for note in policy(trigger(DEMAND), more=BEHAVIOR % f"policies: {limits}").notes
    )


def test_a_fallback_below_what_the_busiest_hour_took_is_said(bundle):
    # forty requests a second in office hours, of which one replica is granted 6.25
    low, enough = (
        reviewed(
            bundle, on_pool() + scaled(trigger(DEMAND), more=f"fallback: {{failureThreshold: 3, replicas: {count}}}")
        )
        for count in (2, 12)
    )

    assert any("fallback (static) holds 2 replicas" in fault.what for fault in low.findings)
    assert not any("fallback" in fault.what for fault in enough.findings)


def test_a_fallback_behind_a_trigger_that_reads_absence_as_zero_never_holds(bundle):
    text = scaled(trigger(DEMAND, nulls="true"), more="fallback: {failureThreshold: 3, replicas: 12}")

    found = reviewed(bundle, on_pool() + text)

    assert any("an absent series is 0" in fault.what and "never holds" in fault.what for fault in found.findings)


def test_a_paused_autoscaler_holds_what_it_is_paused_at(bundle):
    text = scaled(trigger(DEMAND), annotations="{autoscaling.keda.sh/paused-replicas: '3'}")

    paused, static = reviewed(bundle, on_pool() + text), reviewed(bundle, on_pool("replicas: 3"))

    assert paused.after_micro_usd == static.after_micro_usd


@pytest.mark.parametrize(
    ("annotations", "is_paused"),
    [
        ({}, False), ({PAUSED: "true"}, True), ({PAUSED: "false"}, False), ({PAUSED: "invalid"}, True),
        ({PAUSED_REPLICAS: "5"}, True), ({PAUSED: "true", PAUSED_REPLICAS: "5"}, True),
        ({PAUSED: "false", PAUSED_REPLICAS: "5"}, True),
    ],
)  # fmt: skip
def test_annotations_pause_it_as_in_keda(annotations, is_paused):
    """`TestNeedToBePausedByAnnotation`, kedacore/keda v2.20.2, apis/keda/v1alpha1/scaledobject_types_test.go."""
    (document,) = [one for one in yaml.safe_load_all(scaled(trigger(DEMAND))) if one]
    document["metadata"]["annotations"] = annotations
    (scaler,) = read_objects([("a.yaml", document)]).scalers["prod/api"]

    assert paused(scaler) == is_paused


@pytest.mark.parametrize(
    ("said", "held"),
    [({}, None), ({PAUSED_REPLICAS: "5"}, 5), ({PAUSED_REPLICAS: "0"}, 0), ({PAUSED_REPLICAS: "no"}, None)],
)
def test_it_is_paused_at_the_stated_replicas(said, held):
    """`TestGetPausedReplicaCount`; what is not a number is an error there, and here at those that there are."""
    (document,) = [one for one in yaml.safe_load_all(scaled(trigger(DEMAND))) if one]
    document["metadata"]["annotations"] = said
    (scaler,) = read_objects([("a.yaml", document)]).scalers["prod/api"]

    assert paused_at(scaler) == held


def test_what_is_paused_at_no_replica_serves_nobody(bundle):
    found = reviewed(
        bundle, on_pool() + scaled(trigger(DEMAND), annotations="{autoscaling.keda.sh/paused-replicas: '0'}")
    )

    assert found.broken or found.unjudged


def test_an_autoscaler_of_a_cpu_metric_beside_load_is_not_judged(bundle):
    cpu = "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}"

    found = reviewed(bundle, on_pool() + hpa(f"{pods_metric('http_requests_per_second', 4)}, {cpu}"))

    assert found.unjudged == ("prod/api",)
