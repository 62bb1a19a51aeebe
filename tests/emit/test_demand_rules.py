"""Demand in replicas, from what a server exports."""

import re
from dataclasses import replace
from datetime import UTC, datetime

from tests.emit.cluster_example import example_facts, service

from trimtab.emit.manifests.cluster_facts import with_cluster
from trimtab.emit.manifests.demand_rules import demand_rules, pods_of
from trimtab.emit.manifests.facts import SERVERS, EmitFacts, WorkloadFacts
from trimtab.emit.manifests.latency_guards import guard_query, latency_guards
from trimtab.policies.scaling import Metric

CHAT = service("prod/chat-api", "vllm", 3.2, 4)


def test_a_duty_cycle_is_answers_alone():
    rules = demand_rules(CHAT, EmitFacts(), Metric.DUTY_CYCLE)

    assert "waiting" not in rules.per_replica
    assert "waiting" in demand_rules(CHAT, EmitFacts(), Metric.DEMAND).per_replica


def test_what_arrives_is_without_the_queue():
    rules = demand_rules(CHAT, EmitFacts(), Metric.SIGNAL)

    assert "idelta" in rules.load
    of_queue = 2  # what waits now, and what waited when a pod was last read
    assert rules.per_replica.count("num_requests_waiting") == rules.load.count("num_requests_waiting") + of_queue


def test_a_server_that_counts_arrivals_needs_no_growth_of_the_queue():
    rules = demand_rules(service("prod/tgi", "tgi", 3.2, 4), EmitFacts(), Metric.DEMAND)

    assert "tgi_request_count" in rules.total
    assert "idelta(tgi_queue_size" not in rules.total


def test_a_server_without_a_queue_metric_is_judged_by_its_answers():
    bare = replace(CHAT, service=replace(CHAT.service, signals=replace(SERVERS["vllm"], waiting=None)))

    assert "waiting" not in demand_rules(bare, EmitFacts(), Metric.DEMAND).total


def test_a_pattern_of_pods_leaves_out_siblings_with_longer_names():
    pattern = re.compile(pods_of(CHAT))
    assert pattern.fullmatch("chat-api-7d4b9c6f5-x2x9k")
    assert not pattern.fullmatch("chat-api-v2-7d4b9c6f5-x2x9k")
    assert re.fullmatch(pods_of(replace(CHAT, owner_kind="StatefulSet")), "chat-api-0")


def test_activity_is_read_under_the_labels_of_the_scrape():
    facts = replace(example_facts(), pod_label="exported_pod", namespace_label="exported_namespace")

    expression = demand_rules(WorkloadFacts(name="prod/embed-api"), facts, Metric.DEMAND).per_replica

    assert 'exported_namespace="prod",exported_pod=~"embed-api-' in expression
    assert expression.startswith("max by (namespace, pod) (label_replace(")


def test_a_service_that_two_jobs_scrape_is_read_by_its_rules_from_one():
    row = {"workload": CHAT.name, "server": "vllm", "scrape_interval_s": 30.0, "scrape_job": 'ml/"chat"'}
    facts = with_cluster(
        replace(EmitFacts(), workloads=(CHAT,)), datetime(2026, 1, 1, tzinfo=UTC),
        nodes=[], held=[], pods=[], scalers=[], served=[row],
    )  # fmt: skip
    (known,) = facts.workloads

    rules = demand_rules(known, facts, Metric.DEMAND)
    expressions = [rules.total, rules.load, *(guard_query(known, guard) for guard in latency_guards(known))]

    text = " ".join(expressions)
    assert text.count("vllm:") == text.count('job="ml/\\"chat\\""') > 0
    # what kube-state-metrics says of the pods is of another job
    assert "job" not in rules.ready + rules.current


def test_a_slower_scrape_widens_the_window():
    rules = demand_rules(CHAT, replace(EmitFacts(), scrape_interval_s=30), Metric.DEMAND)

    assert "[120s]" in rules.total
    assert "/ 30)" in rules.total


def test_activity_without_profiling_fields_is_gpu_util_as_a_share():
    known = WorkloadFacts(name="prod/embed-api", activity_signal="gpu_util")

    assert demand_rules(known, EmitFacts(), Metric.DEMAND).per_replica.endswith("[300s])) / 100")
