"""A Grafana dashboard (Classic JSON, which every version imports): spend, activity, replicas against demand, targets."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping, Sequence

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.emit.manifests.demand_rules import DEMAND, READY, series
from trimtab.emit.manifests.emission import ACTION, SAVING, Plain, action_notes
from trimtab.emit.manifests.facts import EmitFacts, WorkloadFacts
from trimtab.emit.manifests.latency_guards import latency_quantile
from trimtab.plan.model import Action
from trimtab.units import usd

_SCHEMA_VERSION = 39
DATASOURCE: Mapping[str, Plain] = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24
_HEIGHT = 8
_INSTANCE_TYPE = "label_node_kubernetes_io_instance_type"
_REGION = "label_topology_kubernetes_io_region"
_CAPACITY_TYPE = "label_karpenter_sh_capacity_type"


def dashboard(actions: Sequence[Action], facts: EmitFacts, recorded: Container[str]) -> str:
    """Return the dashboard as JSON text: fleet panels first, then two for each scaled service that has recording rules."""
    panels = [*_fleet_panels(facts), *_service_panels(actions, facts, recorded)]
    return board_text("trimtab", "trimtab: plan in effect", _description(actions), panels)


def board_text(
    uid: str,
    title: str,
    description: str,
    panels: Sequence[Mapping[str, Plain]],
    variables: Sequence[Plain] = (),
    links: Sequence[Plain] = (),
) -> str:
    """Return a board as JSON text; its panels stand two in a row, in their order."""
    source: Plain = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}
    body: dict[str, Plain] = {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["trimtab", "gpu", "cost"],
        "schemaVersion": _SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "timezone": "utc",
        "refresh": "1m",
        "time": {"from": "now-7d", "to": "now"},
        "templating": {"list": [source, *variables]},
        "annotations": {"list": []},
        **({"links": links} if links else {}),
        "panels": [_placed(panel, number) for number, panel in enumerate(panels)],
    }
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def _description(actions: Sequence[Action]) -> str:
    notes = action_notes(actions)
    return f"{ACTION}: {notes[ACTION]}; {SAVING}: {notes[SAVING]}"


def _fleet_panels(facts: EmitFacts) -> Iterator[dict[str, Plain]]:
    spend: dict[str, str] = {}
    for pool in sorted(facts.pools, key=lambda pool: pool.pool.capacity_type is not CapacityType.ON_DEMAND):
        # reserved and booked nodes carry the labels of on-demand ones: each node is counted once, on demand
        held = CapacityType.SPOT if pool.pool.capacity_type is CapacityType.SPOT else CapacityType.ON_DEMAND
        if pool.rate_micro_usd_hr is not None:
            spend.setdefault(str(pool.pool.held_as(held)), _spend(pool.pool, pool.rate_micro_usd_hr))
    if spend:
        yield panel("Spend per hour, at list rates", "currencyUSD", spend, stack=True)
    namespace = facts.namespace_label
    yield panel(
        "GPU activity (SM_ACTIVE) by namespace",
        "percentunit",
        {"{{" + namespace + "}}": f"avg by ({namespace}) (DCGM_FI_PROF_SM_ACTIVE)"},
    )
    yield panel(
        "GPUs held, of those there are",
        "short",
        {
            "requested": 'sum(kube_pod_container_resource_requests{resource="nvidia_com_gpu"})',
            "there": 'sum(kube_node_status_allocatable{resource="nvidia_com_gpu"})',
        },
    )


def _spend(pool: Pool, rate_micro_usd_hr: int) -> str:
    """Return PromQL of a pool's nodes times its rate; kube-state-metrics must show these two labels of nodes."""
    how = "=" if pool.capacity_type is CapacityType.SPOT else "!="
    where = f'{_INSTANCE_TYPE}="{pool.instance_type}",{_REGION}="{pool.region}"'
    nodes = f'kube_node_labels{{{where},{_CAPACITY_TYPE}{how}"spot"}}'
    return f"count({nodes}) * {usd(rate_micro_usd_hr):.6f}"


def _service_panels(
    actions: Sequence[Action], facts: EmitFacts, recorded: Container[str]
) -> Iterator[dict[str, Plain]]:
    for action in actions:
        for change in action.changes:
            known = facts.workload(change.subject)
            if isinstance(change.effect, SetReplicaPolicy) and known is not None and known.name in recorded:
                yield _replica_panel(change.effect, known)
                yield from _target_panels(known)


def _replica_panel(effect: SetReplicaPolicy, known: WorkloadFacts) -> dict[str, Plain]:
    policy, demand = effect.hpa, series(DEMAND, known)
    return panel(
        f"{known.name}: replicas against demand",
        "short",
        {
            "demand, in full replicas": demand,
            f"demand at {policy.target_frac:.0%} load": f"{demand} / {policy.target_frac:g}",
            "ready": series(READY, known),
            "floor": f"vector({policy.min_replicas})",
            "ceiling": f"vector({policy.max_replicas})",
        },
    )


def _target_panels(known: WorkloadFacts) -> Iterator[dict[str, Plain]]:
    for target in known.service.targets if known.service else ():
        quantile = latency_quantile(known.service, target, known) if known.service else None
        if quantile is not None and target.limit_s is not None:
            yield panel(
                f"{known.name}: {target.describe()}",
                "s",
                {"measured": quantile, "target": f"vector({target.limit_s:.6g})"},
            )


def panel(
    title: str, unit: str, queries: Mapping[str, str], *, stack: bool = False, signed: bool = False
) -> dict[str, Plain]:
    """Return a panel of curves: `queries` are legend -> PromQL, `unit` is Grafana's name of one; `signed`: may be below 0."""
    targets: list[Plain] = [
        {"refId": f"Q{number}", "expr": query, "legendFormat": legend, "datasource": DATASOURCE}
        for number, (legend, query) in enumerate(queries.items())
    ]
    custom: Mapping[str, Plain] = {
        "fillOpacity": 20 if stack else 0,
        "stacking": {"mode": "normal" if stack else "none"},
    }
    least: Mapping[str, Plain] = {} if signed else {"min": 0}
    return {
        "type": "timeseries",
        "title": title,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": {"unit": unit, **least, "custom": custom}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": targets,
    }


def _placed(panel: Mapping[str, Plain], number: int) -> dict[str, Plain]:
    width = _COLUMNS // 2
    place = {"h": _HEIGHT, "w": width, "x": number % 2 * width, "y": number // 2 * _HEIGHT}
    return {"id": number + 1, "gridPos": place, **panel}
