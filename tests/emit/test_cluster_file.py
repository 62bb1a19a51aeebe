"""What people declare of their cluster goes over what the history told."""

import pytest
from tests.emit.cluster_example import example_facts

from trimtab.emit.manifests.cluster_file import parse_cluster_file, with_cluster_file
from trimtab.emit.manifests.facts import Autoscaler, NodeClass
from trimtab.errors import BundleError, UnknownName

FACTS = example_facts()


def declared(text):
    return with_cluster_file(FACTS, parse_cluster_file(text, where="cluster.yaml"), where="cluster.yaml")


def test_an_empty_file_changes_nothing():
    assert declared("{}") == FACTS


def test_single_settings_node_classes_and_quotas_are_taken():
    facts = declared(
        """
autoscaler: hpa
prometheus_url: http://prom:9090
node_classes:
  aws: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}
quota_nodes: {p4d.24xlarge: 3}
"""
    )

    assert facts.autoscaler is Autoscaler.HPA
    assert facts.prometheus_url == "http://prom:9090"
    assert facts.node_classes["aws"] == NodeClass(group="karpenter.k8s.aws", kind="EC2NodeClass", name="gpu")
    assert {one.pool.instance_type: one.quota_nodes for one in facts.pools}["p4d.24xlarge"] == 3


def test_a_workload_takes_its_labels_server_and_owner():
    facts = declared(
        """
workloads:
  prod/chat-api:
    server: sglang
    capacity_req_s: 7.5
    pod_labels: {app: chat}
    owner_kind: StatefulSet
"""
    )

    chat = facts.workload("prod/chat-api")
    assert chat.service.signals.server == "sglang"
    assert chat.service.server_is_known
    assert chat.service.capacity_req_s == 7.5
    assert (chat.pod_labels, chat.owner_kind, chat.replicas) == ({"app": "chat"}, "StatefulSet", 24)


def test_a_server_of_ones_own_is_read_by_the_names_that_are_declared():
    facts = declared(
        """
workloads:
  prod/chat-api:
    metrics: {completed: infer_done_total, waiting: infer_queue, latency: infer_seconds}
"""
    )

    service = facts.workload("prod/chat-api").service
    assert (service.signals.completed, service.signals.waiting, service.signals.kv_cache) == (
        "infer_done_total",
        "infer_queue",
        None,
    )
    assert service.server_is_known


def test_a_metric_that_no_series_can_be_called_is_refused():
    with pytest.raises(BundleError, match="completed"):
        parse_cluster_file("workloads: {prod/chat-api: {metrics: {completed: 'rate(x[1m])'}}}", where="cluster.yaml")


def test_a_misspelt_workload_is_answered_with_the_nearest():
    with pytest.raises(UnknownName, match="prod/chat-api"):
        declared("workloads: {prod/chat-ap: {replicas: 2}}")


def test_a_misspelt_server_is_answered_with_the_nearest():
    with pytest.raises(UnknownName, match="vllm"):
        declared("workloads: {prod/chat-api: {server: vlm}}")


def test_a_misspelt_kind_is_answered_with_the_nearest_and_an_unknown_one_is_taken():
    with pytest.raises(UnknownName, match="StatefulSet"):
        declared("workloads: {prod/chat-api: {owner_kind: StatefullSet}}")

    assert (
        declared("workloads: {prod/chat-api: {owner_kind: TrainJob}}").workload("prod/chat-api").owner_kind
        == "TrainJob"
    )


def test_every_fault_is_told_at_once():
    with pytest.raises(BundleError) as told:
        parse_cluster_file("autoscaler: kpa\nscrape_interval_s: -1\npod_lable: x\n", where="cluster.yaml")

    assert len(told.value.faults) == 3


def test_metrics_of_a_proxy_are_read_and_no_rule_goes_by_them():
    declared = parse_cluster_file(
        "workloads: {prod/chat-api: {metrics: {completed: hits_total, latency: ms, unit: milliseconds, "
        "labels: {svc: 'a\"b'}}}}",
        where="cluster.yaml",
    )
    facts = with_cluster_file(example_facts(), declared, where="cluster.yaml")

    metrics = declared.workloads["prod/chat-api"].metrics.as_metrics()
    service = next(known for known in facts.workloads if known.name == "prod/chat-api").service
    assert (metrics.only, metrics.bucket_s) == (('svc="a\\"b"',), 0.001)
    assert metrics.target is not None
    assert service.signals.completed == "vllm:request_success_total"


@pytest.mark.parametrize(
    "key", ["failed: 'code=~\"5..\"} or vector(1)'", "labels: {'a-b': c}", "completed: 'x{y=\"z\"}'"]
)
def test_metrics_that_are_no_names_are_refused(key):
    rest = "" if key.startswith("completed") else "completed: hits_total, "

    with pytest.raises(BundleError):
        parse_cluster_file(f"workloads: {{prod/chat-api: {{metrics: {{{rest}{key}}}}}}}", where="cluster.yaml")
