"""Emitted rules of demand, evaluated by Prometheus' own `promtool` on the series of every server that is known."""

import subprocess
from dataclasses import replace
from functools import cache
from math import gcd

import pytest
import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.emitted import CHAT, PLAN, kinds, of_action
from tests.emit.example import P4D

from trimtab.emit.manifests.demand_rules import DEMAND
from trimtab.emit.manifests.facts import SERVERS, ServiceFacts, WorkloadFacts
from trimtab.emit.manifests.plan_files import emit_plan

SCRAPES = 40
POD = 'namespace="prod",pod="chat-api-7d4b9c6f5-x2x9k"'


@cache
def demand_of(server, scrape_s):
    """The emitted rules of a service on some server, scraped so often, as text; a replica serves 10 requests a second."""
    known = WorkloadFacts(
        name=CHAT, pool=P4D, gpus_per_node=8, replicas=1,
        service=ServiceFacts(capacity_req_s=10.0, signals=SERVERS[server], server_is_known=True),
    )  # fmt: skip
    facts = replace(example_facts(), workloads=(known,), scrape_interval_s=scrape_s, scrape_is_known=True)
    scaling = next(change for action in PLAN.actions for change in action.changes if change.subject == CHAT)
    return yaml.safe_dump(kinds(emit_plan(of_action("a8", scaling), facts), "PrometheusRule")[0]["spec"])


def scraped(server, scrape_s, missed=(), back=0):
    """From scrape `back` on, 7 requests a second and an empty queue, as promtool spells samples; a failed scrape is stale."""
    signals = SERVERS[server]
    counter = signals.arrived or signals.completed

    def said(values):
        return " ".join("stale" if number in missed else str(value) for number, value in enumerate(values))

    pod = ",".join((POD, *(matcher for matcher in signals.only if "!~" not in matcher)))
    counts = [7 * scrape_s * (number - back + 1 if number >= back else number) for number in range(SCRAPES)]
    series = [{"series": f"{counter}{{{pod}}}", "values": said(counts)}]
    if signals.waiting is not None:
        series.append({"series": f"{signals.waiting}{{{pod}}}", "values": said(0 for _ in range(SCRAPES))})
    return series


def faults(server, scrapes_s, demand_at, promtool, folder, missed=(), beside=(), back=0):
    """What promtool says where the demand that Prometheus records at some scrapes is not that; `demand_at`: None for none.

    One run of promtool takes all the scrape intervals. No rule of demand reads what was recorded before, so it evaluates
    only where the tests look; a scrape of 10 s keeps Prometheus' usual 15 s, which are out of step with it.
    """
    for scrape_s in scrapes_s:
        (folder / f"rules-{scrape_s}s.yaml").write_text(demand_of(server, scrape_s), encoding="utf-8")
        series = [*scraped(server, scrape_s, missed, back), *beside]
        test = demand_test(scrape_s, series, demand_at)
        (folder / f"test-{scrape_s}s.yaml").write_text(yaml.safe_dump(test), encoding="utf-8")
    tests = [str(folder / f"test-{scrape_s}s.yaml") for scrape_s in scrapes_s]
    run = subprocess.run([promtool, "test", "rules", *tests], capture_output=True, text=True)
    said = run.stdout + run.stderr
    assert said.count("Unit Testing:") == len(tests), said
    return "" if run.returncode == 0 else said


def demand_test(scrape_s, series, demand_at):
    """The test as promtool reads it."""
    labels = '{namespace="prod",workload="chat-api"}'
    every_s = gcd(*demand_at) * scrape_s if scrape_s >= 15 else 15
    return {
        "rule_files": [f"rules-{scrape_s}s.yaml"],
        "evaluation_interval": f"{every_s}s",
        "tests": [
            {
                "interval": f"{scrape_s}s",
                "input_series": series,
                "promql_expr_test": [
                    {
                        "expr": f"round({DEMAND}, 0.001)",
                        "eval_time": f"{at_scrape * scrape_s}s",
                        "exp_samples": [] if demand is None else [{"labels": labels, "value": demand}],
                    }
                    for at_scrape, demand in demand_at.items()
                ],
            }
        ],
    }


def ready(scrapes):
    """What kube-state-metrics tells of the pod at every scrape."""
    values = " ".join(str(int(is_ready)) for is_ready in scrapes)
    return {"series": f'kube_pod_status_ready{{{POD},condition="true"}}', "values": values}


@pytest.mark.parametrize("server", sorted(SERVERS))
def test_demand_is_read_at_every_usual_scrape_interval(server, promtool_bin, tmp_path):
    assert faults(server, (10, 15, 30, 60), {20: 0.7}, promtool_bin, tmp_path) == ""


@pytest.mark.parametrize("away", [2, 10])
@pytest.mark.parametrize("server", sorted(SERVERS))
def test_what_comes_after_a_restart_is_not_spread_over_the_time_away(server, away, promtool_bin, tmp_path):
    missed = range(20 - away, 20)
    pod = ready(number not in missed for number in range(SCRAPES))

    found = faults(server, (15, 60), {20: 0.7, 21: 0.7}, promtool_bin, tmp_path, missed=missed, beside=(pod,), back=20)

    assert found == ""


@pytest.mark.parametrize("server", sorted(SERVERS))
def test_a_scrape_that_failed_makes_no_demand_of_nothing(server, promtool_bin, tmp_path):
    """At the failed scrape demand is unknown, and not 0; at the one after it, two samples of the window are a gap apart."""
    assert faults(server, (15, 30, 60), {19: None, 20: 0.7}, promtool_bin, tmp_path, missed=(19,)) == ""


@pytest.mark.parametrize("server", sorted(SERVERS))
def test_a_replica_that_is_ready_counts_on_while_its_scrape_fails(server, promtool_bin, tmp_path):
    pod = ready(True for _ in range(SCRAPES))

    found = faults(server, (15, 60), {19: 0.7}, promtool_bin, tmp_path, missed=(19,), beside=(pod,))

    assert found == "", "the demand of before, since it is there"


def test_rules_carry_the_label_that_kube_prometheus_stack_selects():
    """kube-prometheus-stack values.yaml: with `ruleSelectorNilUsesHelmValues` it selects `release: <name of the release>`."""
    rules = kinds(emit_plan(PLAN, example_facts()), "PrometheusRule")
    other = kinds(emit_plan(PLAN, replace(example_facts(), rule_labels={"role": "rules"})), "PrometheusRule")

    assert {rule["metadata"]["labels"]["release"] for rule in rules} == {"kube-prometheus-stack"}
    assert {rule["metadata"]["labels"]["role"] for rule in other} == {"rules"}
