"""What manifests make of one workload: its deployment, the hours that a clock holds it, and what would stop its pods.

Timetables are a ScaledObject of KEDA's cron triggers, or CronJobs of a Notebook. As KEDA has it (keda.sh, scalers/cron):
between `start` and `end`, which are cron expressions, a trigger asks for `desiredReplicas`; the highest trigger counts. A
Notebook is there from each start to the next stop. Read are times on the hour, in UTC, on any days of the week.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import (
    DeferRuns,
    OverflowTo,
    ReleaseIdle,
    SetGpuCount,
    SetSchedule,
    StartBeforeRuns,
    UseOffering,
    WorkloadEffect,
)
from trimtab.deployment.fitting import as_offering
from trimtab.deployment.placement import resolve
from trimtab.fleet.market import Market
from trimtab.fleet.model import RUN_KINDS, Workload
from trimtab.fleet.starts import run_startup_s
from trimtab.ledger.arrays import FloatArray
from trimtab.levers import gpu_count, idle_release, overflow, schedule, sharing
from trimtab.policies.deferral import start_s
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.replay.outcomes.jobs_outcome import nodes_of_runs, pod_gpus_of_runs
from trimtab.replay.outcomes.outcome import Case
from trimtab.replay.outcomes.replica_law import leaves_enough
from trimtab.review.halves import halves_of
from trimtab.review.karpenter import NODE_POOL, joined, most_gpus
from trimtab.review.manifests import NOTEBOOK_TIMETABLE, DeclaredPods, Manifests, Scaler
from trimtab.review.placing import (
    ManifestFault,
    Proposed,
    Weight,
    asked_share,
    place_pods,
    pools_of,
    selected_pools,
    types_of,
    with_fewer_gpus,
)
from trimtab.review.pools import GPU, INSTANCE_TYPE_LABELS, NodePool
from trimtab.review.queues import Admission, AdmittedRuns, ClusterQueue, QueuedRuns, admit, deferral_of, only_flavor
from trimtab.review.replicas import most_wanted, room_on, scale_replicas
from trimtab.review.timetables import active_spans, moments
from trimtab.sources.kubernetes.objects import Object, at, listed, number, text
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import HR_PER_WEEK, S_PER_HR, S_PER_MIN

_UTC = frozenset({"UTC", "Etc/UTC", "Etc/GMT", "GMT"})


def is_timetable(scaler: Scaler) -> bool:
    """Return whether an autoscaler follows the clock and nothing else."""
    triggers = listed(scaler.spec, "triggers")
    return scaler.kind == NOTEBOOK_TIMETABLE or (
        bool(triggers) and all(text(trigger, "type") == "cron" for trigger in triggers)
    )


def held_hours(scaler: Scaler) -> tuple[int, ...] | str:
    """Return the hours of the week (Monday 00:00 UTC is 0) in which a timetable holds replicas, or why it cannot be read."""
    if scaler.kind == NOTEBOOK_TIMETABLE:
        return _notebook_hours(scaler)
    if number(scaler.spec, "minReplicaCount"):
        return "it keeps replicas outside its hours"
    held: set[int] = set()
    for trigger in listed(scaler.spec, "triggers"):
        if text(trigger, "metadata", "timezone") not in _UTC:
            return f"its hours are those of {text(trigger, 'metadata', 'timezone')}, and only UTC is read"
        hours = _hours(trigger)
        if hours is None:
            return "its hours are not whole hours of days of the week"
        held |= hours
    return tuple(sorted(held))


def _notebook_hours(scaler: Scaler) -> tuple[int, ...] | str:
    starts, stops, zones = ([str(item) for item in _list(scaler.spec, key)] for key in ("starts", "stops", "zones"))
    if not set(zones) <= _UTC:
        return f"its hours are those of {', '.join(sorted(set(zones) - _UTC)) or 'the cluster'}, and only UTC is read"
    turns = [[moments(cron) for cron in crons] for crons in (starts, stops)]
    if not all(turns) or any(turn is None for part in turns for turn in part):
        return "its hours are not whole hours of days of the week, or it is only started, or only stopped"
    begins, ends = ([hour for part in parts for hour in part or ()] for parts in turns)
    return tuple(sorted(_between(begins, ends)))


def _list(spec: Object, key: str) -> list[object]:
    found = at(spec, key)
    return found if isinstance(found, list) else []


def _hours(trigger: Object) -> set[int] | None:
    """Return the hours of the week in which a trigger is active; None where they cannot be read."""
    starts, ends = (moments(text(trigger, "metadata", name)) for name in ("start", "end"))
    if not starts or not ends:
        return None
    spans = active_spans(starts, ends, HR_PER_WEEK)
    return {(begin + hour) % HR_PER_WEEK for begin, length in spans for hour in range(length)}


def _between(starts: list[int], ends: list[int]) -> set[int]:
    """Return the hours of the week from each start to the end that comes next."""
    found = set[int]()
    for start in starts:
        length = min((end - start) % HR_PER_WEEK or HR_PER_WEEK for end in ends)
        found |= {(start + hour) % HR_PER_WEEK for hour in range(length)}
    return found


def proposed_deployments(cases: Mapping[str, Case], market: Market, manifests: Manifests) -> dict[str, Proposed]:
    """Return what manifests make of some workloads, by name; as they are where they say nothing of them.

    No object says for how long those that take turns on GPUs are busy: they are replayed beside the least busy neighbours
    that all of them are, with the replicas that they then have.
    """
    found = {name: _proposed(case, market, manifests, 0.0) for name, case in cases.items()}
    taking_turns: dict[tuple[Pool, int], list[str]] = defaultdict(list)
    for name, proposed in found.items():
        slots = proposed.deployment.sharing
        if slots is not None and slots.others:
            taking_turns[slots.pool, slots.shared.slots_per_node].append(name)
    for names in taking_turns.values():
        found |= _beside_one_another({name: cases[name] for name in names}, market, manifests)
    _admit(cases, manifests, found)
    _within_limits(cases, found)
    return found


def _admit(cases: Mapping[str, Case], manifests: Manifests, found: Mapping[str, Proposed]) -> None:
    """Say how long runs wait for the quota of their ClusterQueues, beside one another, and which never get it."""
    admissions = manifests.queues.admissions()
    queues = {
        name: _queue_of(name, manifests)
        for name, case in cases.items()
        if case.workload.jobs is not None and not found[name].refused
    }
    names = [name for name, queue in queues.items() if queue in admissions and admissions[queue].quotas]
    capacities = {queue: [quota.available() for quota in admission.quotas] for queue, admission in admissions.items()}
    made = admit([(_queued_runs(cases[name], manifests, found[name]), admissions[queues[name]]) for name in names])
    for name, part in zip(names, made, strict=True):
        queue = manifests.queues.cluster[queues[name]]
        _say_waits(name, part, queue, capacities[queue.name], manifests, found[name])
        _say_priority(name, queue, manifests, found[name])


def _say_priority(name: str, queue: ClusterQueue, manifests: Manifests, found: Proposed) -> None:
    pods = manifests.pods[name]
    if queue.preempts != "Never" and manifests.queue_priority_of(pods) is None:
        found.notes.append(
            f"priority class {pods.queue_priority or pods.priority_class} is not among these objects: taken as 0 in its queue"
        )


def _say_waits(
    name: str,
    made: AdmittedRuns,
    queue: ClusterQueue,
    capacities: Sequence[float],
    manifests: Manifests,
    found: Proposed,
) -> None:
    waits = made.waits_s
    found.waits_s = tuple(waits.tolist())
    never, longest = int(np.isinf(waits).sum()), waits[np.isfinite(waits)].max(initial=0.0)
    files = (*manifests.pods[name].files, queue.file)
    if never:
        found.stop(
            name, files,
            f"{never} of {len(waits)} runs never get the quota of ClusterQueue {queue.name} (flavors of "
            f"{', '.join(f'{gpus:g}' for gpus in capacities)} GPUs): they, or older runs that block them, ask for more",
            "raise the quota, or ask for fewer GPUs",
        )  # fmt: skip
    if longest:
        waiting = waits[np.isfinite(waits) & (waits > 0)]
        found.warn(
            name, files,
            f"{len(waiting)} of {len(waits)} runs wait for the quota of ClusterQueue {queue.name}: "
            f"{waiting.mean() / S_PER_HR:.2g} h on average, {longest / S_PER_HR:.2g} h at most. They are billed as if they "
            "had not: later, and as much",
            "raise the quota if their targets need it",
        )  # fmt: skip
    if lost := int((made.lost_s > 0).sum()):
        found.warn(
            name, files,
            f"{lost} of {len(waits)} runs are preempted for others of ClusterQueue {queue.name} "
            f"(withinClusterQueue: {queue.preempts}) after {made.lost_s.sum() / S_PER_HR:.2g} h of work in all, which is lost "
            "unless they save it, and is not billed here",
            "save and resume, raise the quota, or set withinClusterQueue: Never",
        )  # fmt: skip


def _within_limits(cases: Mapping[str, Case], found: Mapping[str, Proposed]) -> None:
    """Say how long runs wait for the limits of the node pools that make their nodes, first come, first served."""
    asked: dict[str, list[str]] = defaultdict(list)
    for name, proposed in found.items():
        if proposed.run_nodes is not None and not proposed.refused and cases[name].workload.jobs is not None:
            asked[proposed.run_nodes.name].append(name)
    for names in asked.values():
        pool = found[names[0]].run_nodes
        per_node = max(resolve(cases[name].workload, found[name].deployment).gpus_per_node for name in names)
        most = None if pool is None else most_gpus(pool, per_node)
        if pool is None or most is None:
            continue
        limit = Admission.of([float(most)], strict=True)
        made = admit([(_on_nodes(cases[name], found[name]), limit) for name in names])
        for name, part in zip(names, made, strict=True):
            _say_limit(name, part.waits_s, pool, most, found[name])


def _on_nodes(case: Case, found: Proposed) -> QueuedRuns:
    """Return the runs of a workload as they come to a node pool: with the GPUs of whole nodes, or of pods that share nodes."""
    jobs = case.workload.jobs
    if jobs is None:
        raise ValueError(f"{case.workload.name} has no runs")
    jobs = jobs.unqueued or jobs
    place = resolve(case.workload, found.deployment)
    gpus = np.where(
        place.pods_per_node > 1,
        jobs.pods * pod_gpus_of_runs(jobs, place),
        nodes_of_runs(jobs, place) * place.gpus_per_node,
    )
    run_s = (jobs.end_s - jobs.start_s) / place.speed.value + run_startup_s(case.workload, case.settings.assumptions)
    return QueuedRuns(jobs.submit_s, run_s, gpus, 0.0)


def _say_limit(name: str, waits_s: FloatArray, pool: NodePool, most: int, found: Proposed) -> None:
    if not waits_s.any():
        return
    # who waits for both has its quota before it asks for nodes
    found.waits_s = tuple(np.maximum(waits_s, found.waits_s or 0.0).tolist())
    never, waiting = int(np.isinf(waits_s).sum()), waits_s[np.isfinite(waits_s) & (waits_s > 0)]
    what = f"the limit of {pool.kind} {pool.name} ({most} GPUs on whole nodes)"
    if never:
        found.stop(
            name, (pool.file,), f"{never} of {len(waits_s)} runs never fit within {what}", "raise the limit"
        )  # fmt: skip
    if len(waiting):
        found.warn(
            name, (pool.file,),
            f"{len(waiting)} of {len(waits_s)} runs wait for {what}: {waiting.mean() / S_PER_HR:.2g} h on average, "
            f"{waiting.max() / S_PER_HR:.2g} h at most. They are billed as if they had not: later, and as much",
            "raise the limit if their targets need it",
        )  # fmt: skip


def _queue_of(name: str, manifests: Manifests) -> str:
    """Return the ClusterQueue that a workload waits in; empty where it waits in none that is known."""
    pods = manifests.pods.get(name)
    if pods is None or not pods.queue:
        return ""
    local = manifests.queues.local.get(f"{name.partition('/')[0]}/{pods.queue}")
    return "" if local is None else local.cluster_queue


def _queued_runs(case: Case, manifests: Manifests, found: Proposed) -> QueuedRuns:
    """Return the runs of a workload as they come into its queue, once a clock that holds them has let them go."""
    jobs = case.workload.jobs
    if jobs is None:
        raise ValueError(f"{case.workload.name} has no runs")
    jobs = jobs.unqueued or jobs
    submit_s, midnight_s = jobs.submit_s, case.window.first_week_hour * S_PER_HR
    deferred = next((effect.policy for _, effect in found.changes if isinstance(effect, DeferRuns)), None)
    if deferred is not None:
        submit_s = np.array([start_s(deferred, midnight_s + float(at_s)) - midnight_s for at_s in submit_s])
    pods = manifests.pods[case.workload.name]
    gpus = np.asarray(jobs.gpus if pods.gpus is None else jobs.pods * float(pods.gpus), dtype=np.float64)
    priority = manifests.queue_priority_of(pods) or 0.0
    return QueuedRuns(submit_s, np.nan_to_num(jobs.end_s - jobs.start_s), gpus, priority)


def _beside_one_another(cases: Mapping[str, Case], market: Market, manifests: Manifests) -> dict[str, Proposed]:
    found: dict[str, Proposed] = {}
    for busy_frac in sharing.BUSY_CLASSES:
        found = {name: _proposed(case, market, manifests, busy_frac) for name, case in cases.items()}
        if all(_leaves_others_time(case, found[name].deployment) for name, case in cases.items()):
            return found
    for name, proposed in found.items():
        proposed.warn(
            name, (),
            f"takes turns on GPUs, and those that do are busy for more than {sharing.BUSY_CLASSES[-1]:.0%} of an hour: it "
            "will wait for longer than replayed",
            "make fewer shares of a GPU, or use MIG or nodes of its own",
        )  # fmt: skip
    return found


def _leaves_others_time(case: Case, deployment: Deployment) -> bool:
    evaluator = Evaluator(case=case)
    return leaves_enough(case, evaluator.place(deployment), evaluator.outcome(deployment))


def _proposed(case: Case, market: Market, manifests: Manifests, busy_frac: float) -> Proposed:
    """Return what manifests make of a workload, in time slices beside others that are busy for `busy_frac` of an hour."""
    if (apart := halves_of(case, market, manifests)) is not None:
        return apart
    found, pods = Proposed(), manifests.pods.get(case.workload.name)
    if pods is not None and pods.queue:
        _through_queue(pods, case, manifests, found)
    shares = () if pods is None else pools_of(_as_admitted(pods, manifests), case.workload, manifests, found)
    if found.refused:
        return found
    on_pool = _OnPool(case=case, market=market, manifests=manifests, busy_frac=busy_frac)
    if pods is None or len(shares) <= 1:
        return on_pool.made(shares[0].pool if shares else None, found)
    if case.workload.kind in RUN_KINDS or case.law is None:
        first, there = shares[0].pool, Proposed()
        on_pool.place(pods, first, there)
        if (
            shares[0].frac is None
            and not there.refused
            and room_on(pods, first, case, there) >= _most_pods(case, there)
        ):
            return on_pool.made(_before_others([share.pool for share in shares]), found)
        names = ", ".join(share.pool.name for share in shares)
        found.refused = (
            f"may run on nodes of {names}, and {first.name} has no room for all that ran at once: how runs divide over "
            "several node pools is not modelled"
        )
        return found
    if shares[0].frac is not None:
        ways = [(share.frac or 0.0, on_pool.made(share.pool, Proposed())) for share in shares]
        return _mixed(found, ways)
    return _overflowing(on_pool, [share.pool for share in shares], pods, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OnPool:
    """A workload on one pool of nodes, or another."""

    case: Case
    market: Market
    manifests: Manifests
    busy_frac: float

    def made(
        self,
        pool: NodePool | None,
        found: Proposed,
        *,
        most: int | None = None,
        besides: Sequence[tuple[str, WorkloadEffect]] = (),
    ) -> Proposed:
        """Return what manifests make of it there, all of it, or `most` replicas at most.

        `besides` are effects on where it runs that its pool alone does not say.
        """
        case, manifests, name = self.case, self.manifests, self.case.workload.name
        pods, scalers = manifests.pods.get(name), manifests.scalers.get(name, [])
        if pods is not None:
            pods = _as_admitted(pods, manifests)
            self.place(pods, pool, found)
            found.changes += besides
        if not found.refused and len(scalers) == 1 and is_timetable(scalers[0]):
            _timetable(scalers[0], case, found)
        elif not found.refused and case.workload.kind in RUN_KINDS and pods is not None:
            _runs(pods, pool, case, self.market, manifests, found)
            _warm(pods, case, manifests, found)
        elif not found.refused and case.law is not None:
            scale_replicas(pods, scalers, pool, case, case.law, manifests, found, most=most)
        if not found.refused:
            found.deployment = Deployment.of(*found.changes)
            _spread(pods, case, found)
        return found

    def place(self, pods: DeclaredPods, pool: NodePool | None, found: Proposed) -> None:
        """Say on which of a pool's nodes its pods run."""
        share = asked_share(pods, pool, self.case.workload, self.manifests, found)
        place_pods(pods, pool, share, self.busy_frac, self.case, self.market, self.manifests, found)


def _spread(pods: DeclaredPods | None, case: Case, found: Proposed) -> None:
    """Say that new replicas of a scaled service go to the emptiest node with room, where its pods do not say otherwise."""
    place = resolve(case.workload, found.deployment)
    if not (place.comes_and_goes and place.holds_several) or (pods is not None and pods.fills_nodes):
        return
    found.spreads = True
    found.notes.append(
        f"kube-scheduler puts a new replica on the emptiest node, and a node here has room for {place.pods_per_node}: fewer "
        "become empty than if its pods preferred the fullest, and it is billed so"
    )


def _mixed(found: Proposed, ways: Sequence[tuple[float, Proposed]]) -> Proposed:
    """Return a workload whose node-seconds are those of several ways to place it, times their factors."""
    made = [way for _, way in ways]
    refused = next((way.refused for way in made if way.refused), "")
    return replace(
        made[0],
        refused=refused,
        # a bill looks at what changes: on one of its pools it may stay as it is
        deployment=next((way.deployment for way in made if way.deployment.changes), made[0].deployment),
        mix=() if refused else tuple((factor, way.deployment) for factor, way in ways),
        gives_nodes_back=all(way.gives_nodes_back for way in made),
        moved=all(way.moved for way in made),
        spreads=any(way.spreads for way in made),
        held_hours=frozenset().union(*(way.held_hours for way in made)),
        findings=[*found.findings, *dict.fromkeys(finding for way in made for finding in way.findings)],
        notes=[*found.notes, *(note for way in made for note in way.notes)],
        changes=[change for way in made for change in way.changes],
        at_ends=(),
    )


def _overflowing(on_pool: _OnPool, pools: Sequence[NodePool], pods: DeclaredPods, found: Proposed) -> Proposed:
    """Return a service on pools of which each takes what has no room in those before it.

    Two pools of nodes on demand are one deployment. Otherwise a pool's own share is what the service would hold there with as
    many replicas as all pools up to it have room for, less what it would hold with those of the pools before.
    """
    wanted = most_wanted(on_pool.manifests, on_pool.case, pods)
    placed = [Proposed() for _ in pools]
    for pool, there in zip(pools, placed, strict=True):
        on_pool.place(pods, pool, there)
        if there.refused:
            return replace(found, refused=there.refused)
    unlimited = [replace(pool, gpu_limit=None, node_limit=None, part_limits={}) for pool in pools]
    rooms = [room_on(pods, pool, on_pool.case, there) for pool, there in zip(pools, placed, strict=True)]
    if rooms[0] >= wanted:
        return on_pool.made(_before_others(pools), Proposed(findings=list(found.findings)))
    together = min(wanted, sum(rooms))
    if together < wanted:
        found.warn(
            on_pool.case.workload.name, (*pods.files, *(pool.file for pool in pools)),
            f"may have {wanted} replicas, and its node pools have room for {together} together",
            "raise a pool's limit, or lower the maximum replicas",
        )  # fmt: skip
    effect = _overflow(placed, rooms[0], on_pool.case.workload) if all(rooms) else None
    if effect is not None:
        return on_pool.made(unlimited[0], found, most=together, besides=[(overflow.NAME, effect)])
    ways: list[tuple[float, Proposed]] = []
    before = 0
    for pool, room in zip(unlimited, rooms, strict=True):
        if before < together and room:
            up_to = min(together, before + room)
            ways.append((1.0, on_pool.made(pool, Proposed(), most=up_to)))
            if before:
                ways.append((-1.0, on_pool.made(pool, Proposed(), most=before)))
            before = up_to
    used = [pool for pool, room in zip(unlimited, rooms, strict=True) if room]
    everywhere = tuple(on_pool.made(pool, Proposed(), most=together).deployment for pool in used)
    return replace(_mixed(found, ways), judged=everywhere)


def _before_others(pools: Sequence[NodePool]) -> NodePool:
    """Return the first of several pools as one that has room for all: what spot does not give goes to those behind it."""
    unlimited = replace(pools[0], gpu_limit=None, node_limit=None, part_limits={})
    return joined([unlimited, *(replace(other, weight=-1) for other in pools[1:])], ()) or unlimited


def _most_pods(case: Case, found: Proposed) -> float:
    """Return the most pods that runs have at once on the nodes that were found for it; no number where no run is known.

    Each takes as long as its speed there says at worst, and its start in addition.
    """
    jobs = case.workload.jobs
    if jobs is None:
        return math.inf
    speed = resolve(case.workload, Deployment.of(*found.changes)).speed.low
    return jobs.most_pods(times=1 / speed, startup_s=run_startup_s(case.workload, case.settings.assumptions))


def _overflow(placed: Sequence[Proposed], room: int, workload: Workload) -> OverflowTo | None:
    """Return what two pools come to, the first of `room` replicas; None where they are not both whole nodes on demand."""
    nodes = [_whole_node(there, workload) for there in placed]
    places = [resolve(workload, Deployment.of(*there.changes)) for there in placed]
    if len(nodes) != 2 or nodes[0] is None or nodes[1] is None or any(place.nodes_per_pod > 1 for place in places):
        return None
    return OverflowTo(pool=nodes[0].pool, first_nodes=room // places[0].pods_per_node, further=nodes[1])


def _whole_node(placed: Proposed, workload: Workload) -> UseOffering | None:
    """Return the nodes on demand that its pods were placed on; None where they are held, or shared, in another way."""
    match [effect for _, effect in placed.changes]:
        case [UseOffering() as offering]:
            return offering
        case [] if workload.pool.capacity_type is CapacityType.ON_DEMAND:
            return as_offering(workload)
        case _:
            return None


def _lifetimes(pods: DeclaredPods, pool: NodePool, case: Case, found: Proposed) -> None:
    """Say which runs Karpenter drains before they end: those older than a node may become, or moved to save nodes.

    Expiry keeps to no budget. Pods that forbid disruption hold it up until the pool's grace period ends
    (karpenter.sh/docs/concepts/disruption, "Expiration"; kubernetes-sigs/karpenter v1.9.1, NodePool.terminationGracePeriod).
    """
    if pool.kind != NODE_POOL:
        return
    files = (*pods.files, pool.file)
    jobs = case.workload.jobs
    lives_s = math.inf if pool.expires_s is None else pool.expires_s
    if pods.stays_put:
        lives_s += math.inf if pool.drains_s is None else pool.drains_s
    over = 0 if jobs is None else int((jobs.end_s - jobs.start_s > lives_s).sum())
    if jobs is not None and over:
        found.warn(
            case.workload.name, files,
            f"{over} of {jobs.count} runs became older than {lives_s / S_PER_HR:.3g} h, after which node pool {pool.name} "
            "drains their node, finished or not",
            "set expireAfter: Never for runs, or save and resume",
        )  # fmt: skip
    if pool.consolidates and not pods.stays_put:
        found.warn(
            case.workload.name, files,
            f"node pool {pool.name} may drain nodes on which runs are active (WhenEmptyOrUnderutilized): not replayed",
            "set consolidationPolicy: WhenEmpty, or annotate the pods with karpenter.sh/do-not-disrupt",
        )  # fmt: skip


def _width_unknown(pods: DeclaredPods, workload: Workload) -> str:
    """Say why it is not known how fast runs would be on as many GPUs as their pods ask for."""
    held = round(workload.gpus_per_pod)
    used = max((size.used_gpus or 0.0 for size in workload.pod_sizes if round(size.gpus) == held), default=0.0)
    why = f"some of its pods used {used:g}" if used else "how many they used was not measured"
    return f"asks for {pods.gpus} GPU(s) a pod, and they hold {held}: how fast it would run is not known, since {why}"


def _warm(pods: DeclaredPods, case: Case, manifests: Manifests, found: Proposed) -> None:
    """Start its nodes ahead of its runs, where placeholders of the lowest priority come to its pool just before them."""
    namespace, pools = case.workload.name.partition("/")[0], selected_pools(pods, manifests)
    beside = [
        other
        for other in manifests.pods.values()
        if manifests.is_placeholder(other)
        and other.workload.partition("/")[0] == namespace
        and pools
        and selected_pools(other, manifests) == pools
    ]
    room = _node_gpus(case, found)
    for other in beside:
        if (other.gpus or 0) > room:
            found.warn(
                case.workload.name, other.files,
                f"placeholder {other.workload} asks for {other.gpus} GPUs and the nodes it waits for have {room}: it stays "
                "pending, and no node is ready when the run begins",
                f"ask for {room} at most",
            )  # fmt: skip
    minutes = [other.cron.partition(" ")[0] for other in beside if (other.gpus or 0) <= room]
    settings = case.settings
    ways = schedule.propose(case.workload, case.window, settings.bands, settings.assumptions, required_frac=1.0)
    for way in ways if minutes else ():
        # runs begin on the hour: a placeholder comes so many minutes earlier
        if isinstance(way, StartBeforeRuns) and str(round(-way.lead_s % S_PER_HR / S_PER_MIN)) in minutes:
            others = [change for change in found.changes if not isinstance(change[1], ReleaseIdle)]
            found.changes = [*others, (schedule.NAME, way)]
            return
    if minutes:
        found.notes.append("its placeholders do not come just before its runs: not counted")


def _node_gpus(case: Case, found: Proposed) -> int:
    """Return how many GPUs the nodes have that it runs on."""
    moved = [effect.gpus_per_node for _, effect in found.changes if isinstance(effect, UseOffering | SetGpuCount)]
    return moved[-1] if moved else case.workload.gpus_per_node


def _timetable(scaler: Scaler, case: Case, found: Proposed) -> None:
    """Hold its nodes in the hours in which a timetable holds replicas."""
    hours = held_hours(scaler)
    if isinstance(hours, str):
        found.refused = f"its {scaler.kind} cannot be replayed: {hours}"
        return
    found.gives_nodes_back = True
    found.changes.append((schedule.NAME, SetSchedule(hours_of_week=hours)))
    if case.workload.kind is WorkloadKind.NOTEBOOK:
        found.notes.append(
            "replayed with its nodes given back outside its hours, which takes a pool that removes empty nodes"
        )


def _runs(
    pods: DeclaredPods, pool: NodePool | None, case: Case, market: Market, manifests: Manifests, found: Proposed
) -> None:
    workload = case.workload
    held = round(workload.gpus_per_pod)
    if pods.gpus is not None and pods.gpus != held:
        counts = with_fewer_gpus(pods, workload, market)
        if not counts:
            found.refused = _width_unknown(pods, workload)
            return
        asked = pods.selected(*INSTANCE_TYPE_LABELS) or workload.pool.instance_type
        types = (types_of(pool, workload, market) if pool is not None else ()) or (asked,)
        counts.sort(key=lambda count: count.pool.instance_type not in types)
        found.changes.append((gpu_count.NAME, counts[0]))
    if pool is not None:
        _lifetimes(pods, pool, case, found)
    if pool is None or not pool.elastic:
        return
    found.run_nodes = pool
    turns = manifests.queues.turns.get(f"{workload.name.partition('/')[0]}/{pods.queue}")
    deferred = None if turns is None else deferral_of(turns)
    if isinstance(deferred, str):
        found.refused = deferred
    elif deferred is not None:
        startup_s = run_startup_s(workload, case.settings.assumptions)
        found.changes.append((schedule.NAME, DeferRuns(policy=deferred, startup_s=startup_s)))
    else:
        found.changes += [
            (idle_release.NAME, effect) for effect in idle_release.propose(workload, case.settings.assumptions)
        ]


def _through_queue(pods: DeclaredPods, case: Case, manifests: Manifests, found: Proposed) -> None:
    """Say what stops its runs in their queue for good, or why it is not counted."""
    queues, name = manifests.queues, case.workload.name
    key = f"{name.partition('/')[0]}/{pods.queue}"
    local = queues.local.get(key)
    if case.workload.kind not in RUN_KINDS:
        found.notes.append(f"waits in LocalQueue {key}: quotas are counted for runs only")
        return
    cluster = None if local is None else queues.cluster.get(local.cluster_queue)
    if local is None or cluster is None:
        missing = f"LocalQueue {key}" if local is None else f"ClusterQueue {local.cluster_queue}"
        found.notes.append(f"waits in {missing}, which is not among these objects: its quota is not counted")
        return
    files = (*pods.files, local.file, cluster.file)
    if cluster.stopped or (local.stopped and key not in queues.turns):
        which = f"ClusterQueue {cluster.name}" if cluster.stopped else f"LocalQueue {key}"
        found.stop(name, files, f"{which} is stopped (stopPolicy): its runs are not admitted", "set stopPolicy: None")
    if not cluster.quotas:
        found.stop(
            name, files,
            f"ClusterQueue {cluster.name} has no quota of {GPU}, which its runs ask for: they are never admitted",
            f"add {GPU} to coveredResources and to a flavor",
        )  # fmt: skip


def _as_admitted(pods: DeclaredPods, manifests: Manifests) -> DeclaredPods:
    """Return pods with the labels and tolerations that the only flavor of their queue gives them."""
    namespace = pods.workload.partition("/")[0]
    flavor = only_flavor(manifests.queues, f"{namespace}/{pods.queue}") if pods.queue else None
    if flavor is None:
        return pods
    return replace(
        pods,
        node_selector=tuple({**dict(pods.node_selector), **flavor.labels}.items()),
        tolerations=(*(pods.tolerations or ()), *flavor.tolerations) or None,
    )


def unmatched(manifests: Manifests, known: Mapping[str, object]) -> Iterator[ManifestFault]:
    """Yield what scales or patches a workload that neither the history nor the objects know."""
    for name, scalers in sorted(manifests.scalers.items()):
        if name not in known and name not in manifests.pods:
            yield ManifestFault(
                weight=Weight.STOPS,
                workload=name,
                files=tuple(scaler.file for scaler in scalers),
                what="is scaled, and neither this history nor these objects have it: nothing happens",
                cure="check the namespace and the name of scaleTargetRef",
            )
