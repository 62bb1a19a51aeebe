"""Changes of manifests whose effect another simulator plays: what `trimtab review` says of each, beside what truly happens.

Run: python -m benchmarks.review [--changes N] [--seed S] [--spreads] [--hours]

Fleets are those of the proving ground (services, requests one by one). A change sets replicas, an autoscaler's target, least,
most, window or metric, the instance type, a node pool's limit or consolidation, a disruption budget, or leaves out a
toleration; with `--hours` it is a ScaledObject with a trigger by the hour beside that on load. The world plays it over the
whole history from the numbers that wrote the manifest, and never reads the manifest; the review reads the manifest and never
sees the numbers.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from benchmarks.proving.families import FAMILIES
from benchmarks.proving.fleet import G6E, P4D, USD_HR, Fleet, ServiceTruth
from benchmarks.proving.history import START, Machine
from benchmarks.proving.world import service as world_service
from benchmarks.proving.world.clock import HOUR_S
from benchmarks.proving.world.service import Nodes, Scaling, Start
from trimtab.pipeline import open_fleet, review
from trimtab.review import Review, read_objects
from trimtab.units import usd

FAMILY_NAMES = ("well-behaved", "slot-limited", "clustered-arrivals")
DAYS = 10
FLEETS = 6
COST_FRAC = 0.05
_RECORD = "team:load_per_pod"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The numbers of one change, before they are a manifest."""

    what: str
    replicas: int | None = None
    target_req_s: float | None = None
    target_sm_frac: float | None = None
    least: int = 2
    most: int = 32
    down_window_s: int = 300
    machine: Machine = P4D
    limit_gpus: int = 512
    tolerates: bool = True
    policy: str = "WhenEmptyOrUnderutilized"
    budget: bool = False
    """Whether a PodDisruptionBudget lets no pod go."""
    hours: tuple[int, int, int] | None = None
    """From and until which hour of each weekday (UTC) so many replicas are asked for, beside the load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of one change."""

    judged: bool
    cost_frac: float
    """The review's cost over the true one, less 1."""
    true_misses: bool
    reported: bool
    within_ends: bool | None = None
    """Whether the true cost lies between those that the review states where an estimated speed decides it; None elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What the world made of a change, over the whole history."""

    usd: float
    in_time_frac: float


def changes(rng: np.random.Generator, service: ServiceTruth, count: int, *, hours: bool = False) -> Iterator[Change]:
    """Yield changes of one service, of every kind in turn; or of triggers by the `hours` alone."""
    before = sum(site.replicas for site in service.sites)
    busiest = np.bincount((service.arrival_s // 300).astype(np.int64)).max() / 300 / before
    made: tuple[Callable[[], Change], ...] = (
        lambda: Change(what="replicas", replicas=int(rng.integers(max(2, before // 3), before * 2))),
        lambda: Change(what="target", target_req_s=busiest * rng.uniform(0.4, 1.2)),
        lambda: Change(what="least", target_req_s=busiest * 0.7, least=int(rng.integers(2, before))),
        lambda: Change(what="window", target_req_s=busiest * 0.7, down_window_s=int(rng.choice([60, 900, 1800, 3600]))),
        lambda: Change(what="instance type", target_req_s=busiest * 0.5, machine=G6E),
        lambda: Change(what="metric", target_sm_frac=float(rng.uniform(0.2, 0.6))),
        lambda: Change(what="limit", target_req_s=busiest * 0.6, limit_gpus=8),
        lambda: Change(what="toleration", replicas=before, tolerates=False),
        lambda: Change(what="only empty", target_req_s=busiest * 0.6, policy="WhenEmpty"),
        lambda: Change(what="budget", target_req_s=busiest * 0.6, budget=True),
    )
    if hours:

        def timed(begin: int, end: int) -> Change:
            held = begin, end, int(rng.integers(before, before * 2))
            return Change(what=f"hours {begin}-{end}", target_req_s=busiest * rng.uniform(0.5, 1.0), hours=held)

        made = (lambda: timed(8, 18), lambda: timed(22, 6), lambda: timed(0, 12), lambda: timed(11, 13))
    for number in range(count):
        yield made[(number + int(rng.integers(0, len(made)))) % len(made)]()


def manifest(
    change: Change, name: str, server_metric: str = "vllm", *, spreads: bool = False
) -> list[dict[str, object]]:
    """Return a change as Kubernetes objects; pods that do not `spread` prefer the nodes of their own."""
    namespace, short = name.split("/")
    meta = {"name": short, "namespace": namespace}
    pod: dict[str, object] = {
        "nodeSelector": {"karpenter.sh/nodepool": "gpus"},
        "containers": [{"name": "server", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
    }
    if not spreads:
        own = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": short}}}
        preferred = [{"weight": 100, "podAffinityTerm": own}]
        pod["affinity"] = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
        zones = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
        pod["topologySpreadConstraints"] = [{**zones, "labelSelector": {"matchLabels": {"app": short}}}]
    if change.tolerates:
        pod["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    deployment: dict[str, object] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta,
        "spec": {"template": {"metadata": {"labels": {"app": short}}, "spec": pod}},
    }
    if change.replicas is not None:
        deployment["spec"] = {"replicas": change.replicas, "template": {"spec": pod}}
    pool: dict[str, object] = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "gpus"},
        "spec": {
            "template": {
                "spec": {
                    "requirements": [
                        {
                            "key": "node.kubernetes.io/instance-type",
                            "operator": "In",
                            "values": [change.machine.instance_type],
                        },
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    ],
                    "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
                }
            },
            "limits": {"nvidia.com/gpu": str(change.limit_gpus)},
            "disruption": {"consolidationPolicy": change.policy, "consolidateAfter": "10m"},
        },
    }
    found: list[dict[str, object]] = [deployment, pool]
    if change.budget:
        found.append(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": meta,
                "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": short}}},
            }
        )
    if change.target_req_s is not None or change.target_sm_frac is not None:
        found += [*_scaler(change, meta, server_metric)]
    return found


def _scaler(change: Change, meta: dict[str, str], server: str) -> Iterator[dict[str, object]]:
    pods = f'{{namespace="{meta["namespace"]}",pod=~"{meta["name"]}-.+"}}'
    waiting = f"sum by (namespace, pod) ({server}:num_requests_waiting{pods})"
    answered = f"sum by (namespace, pod) (irate({server}:request_success_total{pods}[30s]))"
    growth = f"sum by (namespace, pod) (idelta({server}:num_requests_waiting{pods}[30s])) / 15"
    activity = f"avg by (namespace, pod) (avg_over_time(DCGM_FI_PROF_SM_ACTIVE{pods}[5m]))"
    load = f"{answered} + {growth} + {waiting} / 15"
    yield {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": meta,
        "spec": {
            "groups": [
                {"name": "load", "rules": [{"record": _RECORD, "expr": load if change.target_req_s else activity}]}
            ]
        },
    }
    if change.hours is not None:
        yield _timed_scaler(change, change.hours, meta, pods)
        return
    follows = _RECORD.replace(":", "_")
    value = change.target_req_s or change.target_sm_frac or 0.0
    metric = {"metric": {"name": follows}, "target": {"type": "AverageValue", "averageValue": f"{1000 * value:.0f}m"}}
    yield {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": meta,
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": meta["name"]},
            "minReplicas": change.least,
            "maxReplicas": change.most,
            "metrics": [{"type": "Pods", "pods": metric}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": change.down_window_s}},
        },
    }


def _timed_scaler(change: Change, hours: tuple[int, int, int], meta: dict[str, str], pods: str) -> dict[str, object]:
    begin, end, replicas = hours
    # what begins late on a weekday ends on the morning after
    last_days = "1-5" if begin < end else "2-6"
    cron = {"timezone": "Etc/UTC", "start": f"0 {begin} * * 1-5", "end": f"0 {end} * * {last_days}"}
    load = {"query": f"sum({_RECORD}{pods})", "threshold": f"{change.target_req_s:.3f}", "ignoreNullValues": "false"}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": meta,
        "spec": {
            "scaleTargetRef": {"name": meta["name"]},
            "minReplicaCount": change.least,
            "maxReplicaCount": change.most,
            "triggers": [
                {"type": "prometheus", "metadata": load},
                {"type": "cron", "metadata": {**cron, "desiredReplicas": str(replicas)}},
            ],
        },
    }


def _timed(hours: tuple[int, int, int], days: int) -> list[tuple[float, float, int]]:
    """Return the hours of each weekday in seconds from the start, those of the Friday before it included."""
    begin, end, replicas = hours
    length_s = (end - begin) % 24 * HOUR_S
    starts = [(day, (day * 24 + begin) * HOUR_S) for day in range(-1, days)]
    weekdays = [start_s for day, start_s in starts if (START.weekday() + day) % 7 < 5]
    return [(start_s, start_s + length_s, replicas) for start_s in weekdays]


def played(fleet: Fleet, service: ServiceTruth, change: Change, limit_s: float, *, spreads: bool = False) -> Truth:
    """Return what the world makes of a change."""
    scaling = None
    before = sum(site.replicas for site in service.sites)
    start = before if change.replicas is None else change.replicas
    if change.replicas is None:
        value = change.target_req_s or change.target_sm_frac or 0.0
        scaling = Scaling(
            minimum=change.least,
            maximum=change.most,
            target_frac=round(1000 * value) / 1000,
            follows=0 if change.target_req_s else 1,
            down_window_s=change.down_window_s,
            timed=() if change.hours is None else _timed(change.hours, DAYS),
        )
        start = min(max(before, change.least), change.most)
    per_node = change.machine.gpus
    quota = max(1, change.limit_gpus // per_node)
    speed = service.speed(change.machine.gpu) or 1.0
    found = world_service.play(
        service.arrival_s,
        service.work_s,
        server=service.server,
        nodes=Nodes(
            replicas_per_node=per_node,
            boot_s=service.boot_s,
            load_s=service.load_s,
            consolidates=change.policy != "WhenEmpty" and not change.budget,
            spreads=spreads,
            quota=quota,
            speed=speed,
        ),
        start=Start.packed(min(start, quota * per_node), per_node, speed),
        horizon_s=fleet.horizon_s,
        scaling=scaling,
        gives_up_s=service.gives_up_s,
    )
    hours = float((found.nodes[:, 1] - found.nodes[:, 0]).sum()) / HOUR_S
    answered = ~np.isnan(found.latency_s)
    return Truth(
        usd=hours * USD_HR[change.machine.instance_type],
        in_time_frac=float((found.latency_s[answered] <= limit_s).mean()),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=50, metavar="N", help="changes in all")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first fleet")
    parser.add_argument(
        "--spreads",
        action="store_true",
        help="new pods take the emptiest node, as kube-scheduler scores by default, not the fullest",
    )
    parser.add_argument("--hours", action="store_true", help="changes are triggers by the hour beside one on load")
    arguments = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(FLEETS):
            name = FAMILY_NAMES[number % len(FAMILY_NAMES)]
            make = next(family.make for family in FAMILIES if family.name == name)
            fleet = make(arguments.seed + number, DAYS)
            count = arguments.changes // FLEETS + (number < arguments.changes % FLEETS)
            made = changes(
                np.random.default_rng(arguments.seed + number), fleet.services[0], count, hours=arguments.hours
            )
            rows += list(_of_fleet(fleet, Path(folder) / str(number), made, spreads=arguments.spreads))
    errors = [abs(row.cost_frac) for row in rows if row.judged]
    known = [abs(row.cost_frac) for row in rows if row.judged and row.within_ends is None]
    ends = [row.within_ends for row in rows if row.judged and row.within_ends is not None]
    missed = [row for row in rows if row.true_misses]
    print(
        json.dumps(
            {
                "benchmark": "review",
                "changes": len(rows),
                "judged": len(errors),
                "cost_within_5_percent_frac": float(np.mean([error <= COST_FRAC for error in errors])),
                "median_cost_error_frac": float(np.median(errors)),
                "worst_cost_error_frac": float(np.max(errors)),
                "worst_where_no_speed_is_estimated_frac": float(np.max(known)),
                "estimated_speed": len(ends),
                "estimated_speed_within_stated": sum(ends),
                "true_misses": len(missed),
                "true_misses_unreported": sum(not row.reported for row in missed),
                "reported_and_kept": sum(row.reported and not row.true_misses for row in rows),
            }
        )
    )


def _of_fleet(fleet: Fleet, folder: Path, made: Iterator[Change], *, spreads: bool) -> Iterator[Row]:
    bundle = open_fleet(fleet.write(folder))
    (service,) = fleet.services
    targets = service.declared["targets"]
    assert isinstance(targets, list)
    limit_s, quantile = float(targets[0]["limit_s"]), float(targets[0]["quantile"])
    for change in made:
        truth = played(fleet, service, change, limit_s, spreads=spreads)
        documents = yaml.safe_load_all(yaml.safe_dump_all(manifest(change, service.name, spreads=spreads)))
        found = review(bundle, read_objects(("change.yaml", one) for one in documents))
        yield _row(fleet, change, truth, found, quantile)


def _row(fleet: Fleet, change: Change, truth: Truth, found: Review, quantile: float) -> Row:
    stops = any(one.weight.value == "stops" for one in found.findings)
    judged = not found.unjudged and not stops
    cost = usd(found.after_micro_usd)
    stated = [usd(found.before_micro_usd + end) for workload in found.workloads for end in workload.ends_micro_usd]
    row = Row(
        judged=judged,
        cost_frac=cost / truth.usd - 1,
        true_misses=truth.in_time_frac < quantile or not change.tolerates,
        reported=bool(found.broken) or stops or bool(found.unjudged),
        within_ends=min(stated) <= truth.usd <= max(stated) if stated else None,
    )
    said = "; ".join((*found.unjudged, *(one.what for one in found.findings)))
    between = f"between ${min(stated):,.0f} and ${max(stated):,.0f} " if stated else ""
    print(
        f"{fleet.family} {fleet.seed} {change.what:14s} true ${truth.usd:9,.0f} {truth.in_time_frac:7.2%}  "
        f"review ${cost:9,.0f} ({row.cost_frac:+.1%}) {'breaks' if found.broken else 'keeps'}  {between}{said[:90]}",
        flush=True,
    )
    return row


if __name__ == "__main__":
    main()
