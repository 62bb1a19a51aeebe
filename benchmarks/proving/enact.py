"""A plan enacted in the world over the proof window: what it costs there, and what each target attains.

What is not changed runs on as history had it. What the world cannot play is said, never guessed: `NotPlayed`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import cast

import numpy as np
import numpy.typing as npt

from benchmarks.proving.claims import (
    Autoscaler,
    Claim,
    Json,
    NodePool,
    Target,
    autoscaler,
    changes_of,
    node_pools,
    patched_replicas,
)
from benchmarks.proving.fleet import Fleet, Lives, RunsTruth, ServiceTruth, kind_of
from benchmarks.proving.history import Machine
from benchmarks.proving.world import service as world_service
from benchmarks.proving.world.billing import HOME_REGION, Committed, Kind, bill_usd, node_hours
from benchmarks.proving.world.clock import HOUR_S, MINUTE_S, TICK_S
from benchmarks.proving.world.promql import NotUnderstood
from benchmarks.proving.world.rules import Monitoring
from benchmarks.proving.world.runs import Ended, Ground, Run, Story, play_runs, taken_over
from benchmarks.proving.world.service import NO_QUOTA, Nodes, Scaling, Start
from trimtab.catalog import BuyingOption, load_catalog

Floats = npt.NDArray[np.float64]
WARM_UP_S = 6 * HOUR_S
"""A service's plan is in force for so long before the proof window, so that it does not begin with history's replicas."""


class NotPlayed(Exception):
    """A plan that this world has no means to play, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enacted:
    """What the plan came to in the world."""

    before_usd: float
    after_usd: float
    fit_bill_usd: float
    attained: Mapping[Target, float]


@dataclass(slots=True)
class _Played:
    """One workload as the plan has it."""

    lives: Lives = field(default_factory=dict)
    arrival_s: Floats = field(default_factory=lambda: np.zeros(0))
    latency_s: Floats = field(default_factory=lambda: np.zeros(0))
    ended: Sequence[Ended] = ()


def enact(fleet: Fleet, claim: Claim) -> Enacted:
    """Enact a plan; raises NotPlayed."""
    history = fleet.lives()
    lives = dict(history)
    subjects = {subject for subject, kind, _ in claim.changes if kind != "BuyCommitment" and kind != "ReleaseNodes"}
    known = {service.name for service in fleet.services} | {one.name for one in fleet.runs}
    if subjects - known:
        raise NotPlayed(f"the plan changes what the world does not have: {sorted(subjects - known)}")
    played: dict[str, _Played] = {}
    for service in fleet.services:
        played[service.name] = _service(fleet, service, claim)
    for one in fleet.runs:
        played[one.name] = _runs(fleet, one, claim)
    lives |= {name: one.lives for name, one in played.items()}
    for _, kind, settings in claim.changes:
        if kind == "ReleaseNodes":
            _release(fleet, lives, cast("Sequence[str]", settings["nodes"]))
    proof = (claim.proof_start_hr, claim.proof_hours)
    return Enacted(
        before_usd=_bill(fleet, history, *proof, committed=fleet.owned, today=True),
        after_usd=_bill(fleet, lives, *proof, committed=[*fleet.owned, *_committed(claim)], today=True),
        fit_bill_usd=_bill(fleet, history, claim.fit_start_hr, claim.fit_hours, fleet.owned),
        attained={target: _attained(fleet, played[target.workload], target, claim) for target in claim.targets},
    )


def _bill(
    fleet: Fleet,
    lives: Mapping[str, Lives],
    start_hr: int,
    hours: int,
    committed: Sequence[Committed] = (),
    *,
    today: bool = False,
) -> float:
    """Return what nodes cost at the prices of their days, or `today`, at those of the history's last hour.

    An audit states history's bill at the former, the plan and its proof at the latter, and says so where they differ.
    """
    used: dict[Kind, Floats] = {}
    for one in lives.values():
        for kind, spans in one.items():
            counted = node_hours(spans, start_s=start_hr * HOUR_S, hours=hours)
            used[kind] = used.get(kind, np.zeros(hours)) + counted
    rates = {kind: _rate(fleet, kind, start_hr, hours, today=today) for kind in used}
    return bill_usd(used, rates, committed)


def _rate(fleet: Fleet, kind: Kind, start_hr: int, hours: int, *, today: bool) -> float | Floats:
    """Return the world's own rate; a kind that only the plan brought in costs what the price list says."""
    at_home = kind.capacity == "on-demand" and kind.region == HOME_REGION
    own = fleet.usd_hr.get(kind.instance_type) if at_home else None
    if own is None:
        option = BuyingOption(kind.capacity)
        return load_catalog().prices.price("aws", kind.instance_type, kind.region, option).usd_hr
    if isinstance(own, float):
        return own
    return float(own[-1]) if today else own[start_hr : start_hr + hours]


def _committed(claim: Claim) -> list[Committed]:
    found = []
    for subject, kind, settings in claim.changes:
        if kind == "BuyCommitment":
            pool = cast("Json", settings["pool"])
            rate = cast("float", settings["rate_micro_usd_hr"]) / 1e6
            count = cast("float", settings["count"])
            found.append(Committed(instance_type=str(pool["instance_type"]), nodes=count, usd_hr=rate))
        elif kind == "BuySpendPlan":
            raise NotPlayed(f"{subject}: spend plans are not played yet")
    return found


def _release(fleet: Fleet, lives: dict[str, Lives], nodes: Sequence[str]) -> None:
    for stray in fleet.strays:
        if stray.name in nodes:
            lives[stray.name] = {}


def _place(changes: Mapping[str, Json], played: frozenset[str], name: str, home: Machine) -> Machine | None:
    """Return the kind of node that a plan moves a workload to; raises NotPlayed for what is not played."""
    unknown = set(changes) - played
    if unknown:
        raise NotPlayed(f"{name}: {', '.join(sorted(unknown))} is not played yet")
    offering = changes.get("UseOffering")
    if offering is None:
        return None
    pool = cast("Json", offering["pool"])
    return replace(
        home,
        instance_type=str(pool["instance_type"]),
        gpu=str(offering["gpu"]),
        gpus=cast("int", offering["gpus_per_node"]),
        region=str(pool["region"]),
    )


def _pool(claim: Claim, instance_type: str, use: str) -> NodePool | None:
    """Return the emitted pool of an instance type for services or runs."""
    fitting = [pool for pool in node_pools(claim) if instance_type in pool.instance_types]
    return next((pool for pool in fitting if use in pool.name), fitting[0] if fitting else None)


def _service(fleet: Fleet, service: ServiceTruth, claim: Claim) -> _Played:
    changes = changes_of(claim, service.name)
    if not changes:
        history = fleet.played[service.name]
        return _Played(lives=fleet.lives()[service.name], arrival_s=service.arrival_s, latency_s=history.latency_s)
    machine = _place(changes, frozenset({"UseOffering", "SetReplicaPolicy", "SetReplicas"}), service.name, service.home)
    if machine is None:
        machine = _stays_on(service, claim)
    speed = service.speed(machine.gpu)
    if speed is None:
        raise NotPlayed(f"{service.name}: the world has no data sheet of {machine.gpu}")
    scaling, replicas = None, patched_replicas(claim, service.name) or sum(site.replicas for site in service.sites)
    if "SetReplicaPolicy" in changes:
        rule = autoscaler(claim, service.name)
        if isinstance(rule, str):
            raise NotPlayed(rule)
        scaling = _scaling(rule, service)
        replicas = min(max(replicas, rule.minimum), rule.maximum)
    pool = _pool(claim, machine.instance_type, "services")
    begin_s = max(claim.proof_start_hr * HOUR_S - WARM_UP_S, 0)
    end_s = (claim.proof_start_hr + claim.proof_hours) * HOUR_S
    inside = (service.arrival_s >= begin_s) & (service.arrival_s < end_s)
    replicas_per_node = max(1, machine.gpus // service.gpus_per_replica)
    played = world_service.play(
        service.arrival_s[inside] - begin_s,
        service.work_s[inside],
        server=service.server,
        nodes=Nodes(
            replicas_per_node=replicas_per_node,
            boot_s=service.boot_s,
            load_s=service.load_s,
            empty_kept_s=pool.consolidate_after_s if pool else 600.0,
            consolidates=pool.when_underutilized if pool else False,
            quota=_most_nodes(fleet, machine.instance_type, pool, machine.gpus),
            refusals=[(a - begin_s, b - begin_s) for a, b in fleet.refusals],
            speed=speed,
        ),
        start=Start.packed(replicas, replicas_per_node, speed),
        horizon_s=float(end_s - begin_s),
        scaling=scaling,
        gives_up_s=service.gives_up_s,
    )
    spans = [(float(a) + begin_s, float(b) + begin_s) for a, b in played.nodes]
    return _Played(
        lives={kind_of(machine): spans},
        arrival_s=service.arrival_s[inside],
        latency_s=played.latency_s,
    )


def _stays_on(service: ServiceTruth, claim: Claim) -> Machine:
    """Return the nodes of a service that no action moves: of several kinds the one that the emitted pool names."""
    pools = [pool for pool in node_pools(claim) if "services" in pool.name]
    named = pools[0].instance_types[0] if pools and len(service.sites) > 1 else ""
    return next((site.machine for site in service.sites if site.machine.instance_type == named), service.home)


def _most_nodes(fleet: Fleet, instance_type: str, pool: NodePool | None, per_node: int) -> int:
    limits = [fleet.quotas.get(instance_type, NO_QUOTA)]
    if pool is not None and pool.gpu_limit is not None:
        limits.append(pool.gpu_limit // per_node)
    return min(limits)


def _monitoring(rule: Autoscaler, service: ServiceTruth) -> Monitoring | None:
    """Return what evaluates the emitted rules from the moment on at which the plan is in force.

    None for rules on demand as it is, or as it was on average: the world knows what those come to.
    """
    if rule.follows == "trimtab:scaling_demand":
        return None
    namespace, deployment = service.name.split("/")
    try:
        return Monitoring(namespace, deployment, rule.rules, rule.query)
    except NotUnderstood as error:
        raise NotPlayed(f"{service.name}: not understood: {error}") from error


def _scaling(rule: Autoscaler, service: ServiceTruth) -> Scaling:
    monitoring = _monitoring(rule, service)
    return Scaling(
        minimum=rule.minimum,
        maximum=rule.maximum,
        target_frac=rule.threshold,
        capacity_req_s=rule.capacity_req_s or 1.0,
        follows=2 if monitoring else 0 if rule.capacity_req_s else 1,
        monitoring=monitoring,
        mean_ticks=rule.mean_s // TICK_S + 1,
        up_window_s=rule.up_window_s,
        down_window_s=rule.down_window_s,
        up_percent=rule.up_percent,
        up_pods=rule.up_pods,
        down_percent=rule.down_percent,
        down_pods=rule.down_pods,
        period_s=rule.period_s,
        tolerance_up_frac=rule.tolerance_up_frac,
        tolerance_down_frac=rule.tolerance_down_frac,
        guards=rule.guards,
        cooldown_s=rule.cooldown_s,
        polling_s=rule.polling_s,
        wake_window_s=_wake_window_s(rule, service),
    )


def _wake_window_s(rule: Autoscaler, service: ServiceTruth) -> float:
    """Return the window of the rate by which the gateway before a service tells arrivals; 0 where its rule reads else."""
    declared = cast("Mapping[str, object]", service.declared.get("wakes_on") or {})
    query = str(declared.get("query", ""))
    if not query or rule.wakes_on != f"clamp_max(ceil(sum({query})), 1)":
        return 0.0
    found = re.search(r"\[(\d+)m\]", query)
    return float(found[1]) * MINUTE_S if found else 0.0


_RUN_EFFECTS = frozenset({"UseOffering", "SetGpuCount", "ReleaseIdle", "SetCapacityType"})


def _runs(fleet: Fleet, one: RunsTruth, claim: Claim) -> _Played:
    changes = changes_of(claim, one.name)
    if not changes:
        return _Played(lives=fleet.lives()[one.name], ended=fleet.stories[one.name].ended)
    moved = _place(changes, _RUN_EFFECTS, one.name, one.machine)
    machine = moved or one.machine
    count = changes.get("SetGpuCount")
    most = inf
    if count is not None:
        most = cast("int", count["gpus"])
        pool = cast("Json", count["pool"])
        if moved is None:
            machine = replace(
                machine, instance_type=str(pool["instance_type"]), gpus=cast("int", count["gpus_per_node"])
            )
    speed = one.speed(machine.gpu)
    if speed is None:
        raise NotPlayed(f"{one.name}: the world has no data sheet of {machine.gpu}")
    runs = [_narrowed(run, most, one.scaling) for run in one.runs]
    spot = changes.get("SetCapacityType")
    elastic = "ReleaseIdle" in changes
    nodes = _pool(claim, machine.instance_type, "spot" if spot else "runs")
    share = sum(run.gpus for run in runs) / max(sum(run.gpus for run in one.runs), 1)
    standing = 0 if elastic else ceil(one.standing * one.machine.gpus * share / machine.gpus - 1e-9)
    quota = _most_nodes(fleet, machine.instance_type, nodes, machine.gpus)
    story = play_runs(
        runs,
        Ground(
            gpus_per_node=machine.gpus,
            standing=standing,
            elastic=elastic,
            boot_s=one.boot_s,
            empty_kept_s=nodes.consolidate_after_s if nodes else 60.0,
            quota=quota,
            refusals=fleet.refusals,
            speed=speed,
            spot=spot is not None,
            loss_per_hr=1 / 12 if spot else 0.0,
            droughts=fleet.droughts if spot else (),
        ),
        horizon_s=fleet.horizon_s,
        checkpoints=one.checkpoints,
        seed=fleet.seed,
        # before the window runs went as history had them: what a plan did there would cost nothing
        taken=taken_over(fleet.stories[one.name], claim.proof_start_hr * HOUR_S),
    )
    return _Played(lives=_lives(story, machine), ended=story.ended)


def _narrowed(run: Run, most: float, scaling: float) -> Run:
    """Return a run whose pods ask for no more GPUs each than the plan's patch says, and what it then takes."""
    gpus = int(min(run.pod_gpus, most))
    slower = (run.pod_gpus / gpus) ** scaling
    return Run(
        name=run.name,
        workload=run.workload,
        submit_s=run.submit_s,
        pods=run.pods,
        pod_gpus=gpus,
        work_s=run.work_s * slower,
    )


def _lives(story: Story, machine: Machine) -> Lives:
    lives: Lives = {}
    for node in story.nodes:
        kind = replace(kind_of(machine), capacity="spot" if node.spot else "on-demand")
        lives.setdefault(kind, []).append((node.start_s, node.end_s))
    return lives


def _attained(fleet: Fleet, played: _Played, target: Target, claim: Claim) -> float:
    begin_s, end_s = claim.proof_start_hr * HOUR_S, (claim.proof_start_hr + claim.proof_hours) * HOUR_S
    if target.metric in {"latency", "ttft"}:
        inside = (played.arrival_s >= begin_s) & (played.arrival_s < end_s) & ~np.isnan(played.latency_s)
        limit = inf if target.limit_s is None else target.limit_s
        return float((played.latency_s[inside] <= limit).mean()) if inside.any() else 1.0
    if target.metric == "throughput" and len(played.arrival_s):
        inside = (played.arrival_s >= begin_s) & (played.arrival_s < end_s) & ~np.isnan(played.latency_s)
        history = fleet.played[target.workload].latency_s
        then = next(one.arrival_s for one in fleet.services if one.name == target.workload)
        answered = np.isfinite(history) & (then >= begin_s) & (then < end_s)
        return min(1.0, float(np.isfinite(played.latency_s[inside]).sum() / max(answered.sum(), 1)))
    inside_runs = [ended for ended in played.ended if begin_s <= ended.run.submit_s < end_s]
    if target.metric == "queue_wait":
        waits = [ended.start_s - ended.run.submit_s for ended in inside_runs]
        limit = inf if target.limit_s is None else target.limit_s
        return sum(wait <= limit + 1 for wait in waits) / len(waits) if waits else 1.0
    if target.metric == "throughput":
        return _run_speed(fleet, target.workload, inside_runs)
    raise NotPlayed(f"{target.workload}: {target.metric} is not judged")


def _run_speed(fleet: Fleet, workload: str, inside: Sequence[Ended]) -> float:
    """Return the time that runs took in history over what they take now, of those that ended in both."""
    before = {
        ended.run.name: ended.end_s - ended.start_s for ended in fleet.stories[workload].ended if ended.end_s < inf
    }
    now = {ended.run.name: ended.end_s - ended.start_s for ended in inside if ended.start_s < inf and ended.end_s < inf}
    never = [ended for ended in inside if ended.start_s == inf and ended.run.name in before]
    both = [name for name in now if name in before]
    if not both:
        return 0.0 if never else 1.0
    spent = sum(now[name] for name in both)
    return sum(before[name] for name in both) / spent * len(both) / (len(both) + len(never))
