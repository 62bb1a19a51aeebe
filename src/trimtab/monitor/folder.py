"""The folder of the monitoring: rules as one PrometheusRule, boards as JSON and ConfigMaps, one kustomization."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.emit.manifests.objects import MANAGED_BY, Plain, yaml_text
from trimtab.monitor.alerts import alert_rules
from trimtab.monitor.boards import boards
from trimtab.monitor.series import recording_rules, verified_rules
from trimtab.monitor.thresholds import Thresholds
from trimtab.monitor.watched import Watched

EVALUATED = "1m"
"""How often rules run: alerts look at ten minutes and more."""
NAMESPACE = "monitoring"
_RULES = "trimtab-fleet.rules.yaml"


def monitoring_files(watched: Watched, thresholds: Thresholds) -> dict[str, str]:
    """Return path -> text of what watches a cluster; the same facts give the same bytes."""
    pages = {f"trimtab-{board.uid}.dashboard.json": board.text for board in boards(watched, thresholds.runbooks)}
    rules = yaml_text(rule_object(watched, thresholds), comment="kubectl apply -k . ; no plan is needed for any of it")
    return {"kustomization.yaml": yaml_text(_kustomization(list(pages))), _RULES: rules, **pages}


def rule_object(watched: Watched, thresholds: Thresholds) -> dict[str, Plain]:
    """Return the PrometheusRule: a group that records, one that alerts, and what was verified where anything was."""
    records: list[Plain] = [{"record": name, "expr": expr} for name, expr in recording_rules(watched, thresholds)]
    alerts: list[Plain] = [rule.as_plain(thresholds.runbooks) for rule in alert_rules(watched, thresholds)]
    groups: list[Plain] = [
        {"name": "trimtab-fleet.records", "interval": EVALUATED, "rules": records},
        {"name": "trimtab-fleet.alerts", "interval": EVALUATED, "rules": alerts},
    ]
    if watched.verified is not None and watched.verified.rows:
        verified = list(verified_rules(watched.verified))
        groups.append({"name": "trimtab-fleet.verified", "interval": EVALUATED, "rules": verified})
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "trimtab-fleet",
            "namespace": NAMESPACE,
            "labels": {**MANAGED_BY, **watched.rule_labels},
        },
        "spec": {"groups": groups},
    }


def _kustomization(pages: list[str]) -> Mapping[str, Plain]:
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [_RULES],
        "configMapGenerator": [
            {
                "name": page.removesuffix(".dashboard.json"),
                "namespace": NAMESPACE,
                "files": [page],
                "options": {"disableNameSuffixHash": True, "labels": {"grafana_dashboard": "1"}},
            }
            for page in pages
        ],
    }
