"""Alerts that fire when they should, and every expression outside a rule, held against Prometheus's own parser and engine."""

import json
import subprocess

import pytest
import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.example import example_audit

from trimtab.emit.manifests.plan_files import emit_plan

EMISSION = emit_plan(example_audit().plan, example_facts())
POD = 'namespace="prod",pod="chat-api-7d4b9c6f5-x2x9k"'


def text_of(path):
    return next(file.text for file in EMISSION.files if file.path == path)


RULES = yaml.safe_load(text_of("monitoring/prod/chat-api.rules.yaml"))["spec"]


def chat(*, completed, waiting="0", ready="1", replicas="1"):
    """Series of one pod of prod/chat-api, in promtool's notation, every 15 s."""
    return [
        {"series": f"vllm:request_success_total{{{POD}}}", "values": completed},
        {"series": f"vllm:num_requests_waiting{{{POD}}}", "values": f"{waiting}x400"},
        {"series": f'kube_pod_status_ready{{{POD},condition="true"}}', "values": f"{ready}x400"},
        {
            "series": 'kube_deployment_status_replicas{namespace="prod",deployment="chat-api"}',
            "values": f"{replicas}x400",
        },
    ]


def firing(alert, labels):
    rule = next(rule for rule in RULES["groups"][1]["rules"] if rule["alert"] == alert)
    return [{"exp_labels": {**rule["labels"], **labels}, "exp_annotations": rule["annotations"]}]


SERVICE = {"namespace": "prod", "workload": "chat-api"}


@pytest.mark.parametrize(
    ("alert", "series", "at", "labels"),
    [
        ("TrimtabDemandAbsent", [], "6m", SERVICE),
        ("TrimtabDemandAbsent", chat(completed="0+30x400"), "30m", None),
        ("TrimtabReplicasAbsent", [], "6m", SERVICE),
        ("TrimtabOverloaded", chat(completed="0+30x400", waiting="60"), "20m", SERVICE),
        ("TrimtabOverloaded", chat(completed="0+30x400"), "20m", None),
        ("TrimtabAtCeiling", chat(completed="0+1200x400", ready="30", replicas="30"), "20m", SERVICE),
        ("TrimtabAtCeiling", chat(completed="0+1200x400", ready="29", replicas="29"), "20m", None),
    ],
)
def test_an_alert_fires_when_it_should_and_not_else(alert, series, at, labels, promtool_bin, tmp_path):
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES), encoding="utf-8")
    expected = {"eval_time": at, "alertname": alert, "exp_alerts": firing(alert, labels) if labels else []}
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "15s",
        "tests": [{"interval": "15s", "input_series": series, "alert_rule_test": [expected]}],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test), encoding="utf-8")

    run = subprocess.run([promtool_bin, "test", "rules", str(tmp_path / "test.yaml")], capture_output=True, text=True)

    assert run.returncode == 0, run.stdout + run.stderr


def queries():
    for panel in json.loads(text_of("monitoring/trimtab.dashboard.json"))["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for file in EMISSION.files:
        if file.kind == "ScaledObject":
            triggers = yaml.safe_load(file.text)["spec"]["triggers"]
            yield from (one["metadata"]["query"] for one in triggers if one["type"] == "prometheus")


def test_prometheus_parses_every_query_of_dashboard_and_triggers(promtool_bin, tmp_path):
    rules = [{"record": f"query_{number}", "expr": query} for number, query in enumerate(queries())]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))

    run = subprocess.run([promtool_bin, "check", "rules", str(tmp_path / "rules.yaml")], capture_output=True, text=True)

    assert len(rules) > 10
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_dashboard_is_classic_json_with_timeseries_panels_that_do_not_overlap():
    dashboard = json.loads(text_of("monitoring/trimtab.dashboard.json"))

    assert dashboard["schemaVersion"] == 39
    assert {panel["type"] for panel in dashboard["panels"]} == {"timeseries"}
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]}
    assert len(places) == len(dashboard["panels"])
