"""Replay training and batch jobs: queue, start, run, lose a node, restore, fall back.

Jobs start first come, first served, within a quota of nodes. On spot a job lives through node losses: what was not saved since
the last checkpoint is done again and paid again, and so is every start. What starts or starts again in a drought runs on demand
to its end: a node pool that lists both takes on demand then, and moves no pod back. In capacity blocks a job takes booked nodes
where enough are free when it starts, and goes on elsewhere, on demand, once its block ends. While no node can
be had at all, what would start or start again waits.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.replay.compiled import add_interval
from trimtab.replay.job_nodes import Blocks, BookedNodes, Droughts, PackedNodes, opens_s
from trimtab.units import S_PER_HR


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobHistory:
    """What was run: `submit_s`, `work_s` (run time at the speed of where it is replayed) and whole `nodes`, each `(n_jobs,)`.

    Seconds count from the start of the window, on an hour boundary; jobs are in order of submission.
    """

    submit_s: FloatArray
    work_s: FloatArray
    nodes: IntArray
    pods: IntArray | None = None
    """Pods of each job `(n_jobs,)`, where several jobs may share a node (`JobRules.shared_node_gpus`)."""
    pod_gpus: FloatArray | None = None
    """GPUs that each of its pods holds `(n_jobs,)`."""

    def __post_init__(self) -> None:
        if not len(self.submit_s) == len(self.work_s) == len(self.nodes):
            raise ValueError("submit_s, work_s and nodes must be equally long")
        if np.any(np.diff(self.submit_s) < 0):
            raise ValueError("jobs must be in order of submission")


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDemand:
    """Nodes that stay."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spot:
    """Nodes that may go: lost at `loss_per_hr` a node, or after lives drawn from `lifetimes_s` where those were measured.

    A new node is ready `restart_s` after a loss (that wait is not billed). A loss is announced `notice_s` before it happens.
    `droughts` are the periods in which no new node can be obtained.
    """

    loss_per_hr: float = 0.0
    lifetimes_s: FloatArray | None = None
    restart_s: float = 0.0
    notice_s: float = 0.0
    droughts: Droughts | None = None


Capacity = OnDemand | Spot | Blocks

MOST_LOSSES = 10_000
"""A job that has lost its nodes so often never ends on these rules; its finish is infinite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Save every `interval_s` of work, which takes `save_s`; going on from a save takes `restore_s`.

    An interval of None saves at notice only.
    """

    interval_s: float | None
    save_s: float
    restore_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRules:
    """The rules to replay jobs under: where they run, how they save, how many nodes there are.

    `startup_s` is paid at every start; without `checkpoints` a loss loses all. When a
    job has ended its nodes stay up, empty and billed, for `empty_node_kept_s`; the next job is taken to find them gone, unless
    jobs share nodes of `shared_node_gpus` GPUs: then pods go where there is room (on demand only).
    """

    capacity: Capacity = OnDemand()
    startup_s: float = 0.0
    checkpoints: Checkpoints | None = None
    max_nodes: int | None = None
    empty_node_kept_s: float = 0.0
    shared_node_gpus: float | None = None
    closed_s: tuple[float, float] = (0.0, 0.0)
    """From the first second to the second no node can be had but those that are booked."""
    first_nodes_stay: bool = False
    """Each job's first nodes are up whether it runs or not: only those that take the place of lost ones must be had."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobsReplay:
    """What the jobs would have used and when they would have finished.

    Node-seconds are by clock hour; on demand and on spot what lies beyond the last hour is billed from the first one on. A job
    that needs more nodes than the quota never starts: its times are NaN and it counts in `impossible`. `lost_s` (n_jobs,) is
    work done again.
    """

    on_demand_node_seconds: IntArray
    spot_node_seconds: IntArray
    block_node_seconds: IntArray
    """Of booked nodes what jobs used; they are paid whether used or not."""
    start_s: FloatArray
    ready_s: FloatArray
    """When a job's nodes were first up: its work begins."""
    finish_s: FloatArray
    wait_s: FloatArray
    interruptions: int
    lost_s: FloatArray
    impossible: int
    no_node_s: FloatArray
    """How long each job waited while no node could be had (`JobRules.closed_s`)."""


@dataclass(slots=True)
class _Run:
    """One job under way: its clock, what is left, what was lost."""

    now_s: float
    left_s: float
    interruptions: int = 0
    lost_s: float = 0.0
    started_s: float | None = None
    """When it first had its nodes."""
    no_node_s: float = 0.0

    def take_nodes(self, rules: JobRules) -> None:
        """Wait until nodes can be had."""
        # first nodes may stand there already; those in place of lost ones must be had
        if self.started_s is not None or not rules.first_nodes_stay:
            opens = opens_s(rules.closed_s, self.now_s)
            self.no_node_s += opens - self.now_s if opens > self.now_s else 0.0
            self.now_s = opens
        self.started_s = self.now_s if self.started_s is None else self.started_s


def replay_jobs(history: JobHistory, rules: JobRules, *, hours: int, seed: int) -> JobsReplay:
    """Replay jobs over `hours` clock hours; the seed fixes when spot nodes are lost, job by job."""
    if rules.shared_node_gpus is not None and history.pods is not None and history.pod_gpus is not None:
        return _replay_beside(history, rules, history.pods, history.pod_gpus, rules.shared_node_gpus, hours)
    on_demand = np.zeros(hours, dtype=np.int64)
    spot = np.zeros(hours, dtype=np.int64)
    block = np.zeros(hours, dtype=np.int64)
    booked = BookedNodes(rules.capacity) if isinstance(rules.capacity, Blocks) else None
    jobs = len(history.submit_s)
    start_s, finish_s = np.full(jobs, np.nan), np.full(jobs, np.nan)
    queue = _Quota(rules.max_nodes)
    interruptions, lost_s, no_node_s = 0, np.zeros(jobs), np.zeros(jobs)
    for job in range(jobs):
        nodes = int(history.nodes[job])
        begins_s = queue.wait_for(nodes, float(history.submit_s[job]))
        if begins_s is None:
            continue
        run = _Run(now_s=begins_s, left_s=float(history.work_s[job]))
        # a stream for each job, so that what one of them loses does not shift the draws of the others
        rng = np.random.default_rng((seed, job))
        if booked is not None:
            # booked nodes first; what is left of the work goes on demand afterwards
            _run_in_block(run, rules, booked, nodes, block)
        _run_job(run, rules, nodes, rng, on_demand, spot)
        queue.release_at(run.now_s, nodes)
        start_s[job], finish_s[job] = begins_s if run.started_s is None else run.started_s, run.now_s
        interruptions += run.interruptions
        lost_s[job], no_node_s[job] = run.lost_s, run.no_node_s
    return JobsReplay(
        on_demand_node_seconds=on_demand,
        spot_node_seconds=spot,
        block_node_seconds=block,
        start_s=start_s,
        ready_s=start_s + rules.startup_s,
        finish_s=finish_s,
        wait_s=start_s - history.submit_s,
        interruptions=interruptions,
        lost_s=lost_s,
        impossible=int(np.isnan(start_s).sum()),
        no_node_s=no_node_s,
    )


def _replay_beside(
    history: JobHistory, rules: JobRules, pods: IntArray, pod_gpus: FloatArray, gpus_per_node: float, hours: int
) -> JobsReplay:
    """Replay jobs whose pods stand side by side on nodes on demand; one that fits on no node never starts."""
    nodes = PackedNodes(
        gpus_per_node=gpus_per_node,
        startup_s=rules.startup_s,
        kept_s=rules.empty_node_kept_s,
        max_nodes=rules.max_nodes,
        closed_s=rules.closed_s,
    )
    jobs = len(history.submit_s)
    start_s, ready_s, finish_s = np.full(jobs, np.nan), np.full(jobs, np.nan), np.full(jobs, np.nan)
    no_node_s = np.zeros(jobs)
    for job in range(jobs):
        gpus = float(pod_gpus[job])
        placed = nodes.place(int(pods[job]), gpus, float(history.submit_s[job]))
        if placed is not None:
            start_s[job], ready_s[job], taken = placed
            no_node_s[job] = _closed_within(rules.closed_s, float(history.submit_s[job]), start_s[job])
            finish_s[job] = ready_s[job] + history.work_s[job]
            nodes.hold(taken, gpus, float(finish_s[job]))
    on_demand, nothing = np.zeros(hours, dtype=np.int64), np.zeros(hours, dtype=np.int64)
    for begins_s, ends_s in nodes.close():
        _bill(on_demand, begins_s, ends_s, 1)
    return JobsReplay(
        on_demand_node_seconds=on_demand,
        spot_node_seconds=nothing,
        block_node_seconds=nothing,
        start_s=start_s,
        ready_s=ready_s,
        finish_s=finish_s,
        wait_s=start_s - history.submit_s,
        interruptions=0,
        lost_s=np.zeros(jobs),
        impossible=int(np.isnan(start_s).sum()),
        no_node_s=no_node_s,
    )


def _closed_within(closed_s: tuple[float, float], begins_s: float, ends_s: float) -> float:
    """Return how long no node could be had between two moments."""
    return max(0.0, min(closed_s[1], ends_s) - max(closed_s[0], begins_s))


class _Quota:
    """Nodes in use, first come, first served: a job waits for those before it even where it would fit."""

    def __init__(self, max_nodes: int | None) -> None:
        self._free = math.inf if max_nodes is None else float(max_nodes)
        self._most = self._free
        self._ends: list[tuple[float, int]] = []
        self._now_s = -math.inf

    def wait_for(self, nodes: int, submit_s: float) -> float | None:
        """Return when that many nodes are free for a job submitted then, and take them; None if they never are."""
        if nodes > self._most:
            return None
        # first come, first served: the clock never goes back for a later job
        self._now_s = max(self._now_s, submit_s)
        # give back what has ended by now and, while it does not fit, wait for the next end
        while self._ends and (self._ends[0][0] <= self._now_s or self._free < nodes):
            end_s, released = heapq.heappop(self._ends)
            self._now_s = max(self._now_s, end_s)
            self._free += released
        self._free -= nodes
        return self._now_s

    def release_at(self, end_s: float, nodes: int) -> None:
        """Give nodes back at a time to come."""
        heapq.heappush(self._ends, (end_s, nodes))


def _run_job(
    run: _Run, rules: JobRules, nodes: int, rng: np.random.Generator, on_demand: IntArray, spot: IntArray
) -> None:
    """Run one job to its end, on spot while the rules let it."""
    match rules.capacity:
        case Spot() as market:
            while run.left_s > 0:
                run.take_nodes(rules)
                if _falls_back(market, run):
                    break
                _run_life(run, rules, market, nodes, rng, spot)
                # on these rules it would go on losing for ever
                if run.interruptions > MOST_LOSSES:
                    run.now_s, run.left_s = math.inf, 0.0
        case OnDemand() | Blocks():
            pass
    # on demand from the start, or what spot and blocks left undone
    if run.left_s > 0:
        run.take_nodes(rules)
        begins_s = run.now_s
        run.now_s += rules.startup_s + _restore_s(rules, run) + run.left_s
        run.left_s = 0.0
        _bill(on_demand, begins_s, run.now_s + rules.empty_node_kept_s, nodes)


def _bill(by_hour: IntArray, begins_s: float, ends_s: float, nodes: int) -> None:
    """Add nodes from one moment to another, by clock hour.

    What lies beyond the last hour is billed from the first hour on, as what an earlier window would have left over: runs that
    take longer or start later must not get cheaper by it.
    """
    whole_s = len(by_hour) * S_PER_HR
    begin_s, end_s = round(begins_s), round(ends_s)
    # each round bills one window's length and carries what lies beyond it to the front
    while end_s > 0:
        add_interval(by_hour, begin_s, end_s, nodes)
        begin_s, end_s = max(begin_s - whole_s, 0), end_s - whole_s


def _falls_back(market: Spot, run: _Run) -> bool:
    return market.droughts is not None and market.droughts.lasts_at(run.now_s)


def _restore_s(rules: JobRules, run: _Run) -> float:
    return rules.checkpoints.restore_s if rules.checkpoints and run.interruptions else 0.0


def _run_life(run: _Run, rules: JobRules, market: Spot, nodes: int, rng: np.random.Generator, spot: IntArray) -> None:
    """Run a job on a set of spot nodes until it ends or the first of them is lost."""
    life_s = draw_life_s(market, nodes, rng)
    if market.droughts is not None and market.droughts.take_nodes:
        # a drought that takes nodes ends their life as a loss does
        life_s = min(life_s, market.droughts.next_begin_s(run.now_s) - run.now_s)
    # paid before any work is done: the start, and after a loss the restore
    ready_s = rules.startup_s + _restore_s(rules, run)
    needed_s = ready_s + _with_saves(run.left_s, rules.checkpoints)
    begins_s = run.now_s
    if needed_s <= life_s:
        run.now_s += needed_s
        run.left_s = 0.0
        _bill(spot, begins_s, run.now_s + rules.empty_node_kept_s, nodes)
        return
    # the part of the life that was work
    _lose(run, rules, max(0.0, life_s - ready_s), market.notice_s)
    # the wait for replacement nodes is lost time, but is not billed
    run.now_s += life_s + market.restart_s
    # lost nodes do not stay up empty
    _bill(spot, begins_s, begins_s + life_s, nodes)


def _run_in_block(run: _Run, rules: JobRules, booked: BookedNodes, nodes: int, block: IntArray) -> None:
    """Run a job on booked nodes, where enough are free, to its end or theirs; saving is part of the work observed."""
    begins_s = run.now_s
    taken = booked.free(nodes, begins_s)
    stands_s = booked.stand_for_s(taken, begins_s) if len(taken) else 0.0
    needed_s = rules.startup_s + run.left_s
    # the block would end before the job is ready
    if stands_s <= rules.startup_s:
        return
    run.started_s = begins_s
    if needed_s <= stands_s:
        run.now_s += needed_s
        run.left_s = 0.0
    else:
        _lose(run, rules, stands_s - rules.startup_s, booked.notice_s)
        run.now_s += stands_s
    # free for others only once they would have been given back
    booked.hold(taken, run.now_s + rules.empty_node_kept_s)
    add_interval(block, round(begins_s), round(run.now_s), nodes)


def _lose(run: _Run, rules: JobRules, worked_s: float, notice_s: float) -> None:
    """Take its nodes from a job that worked so long on them: what was not saved is to be done again."""
    kept_s = min(run.left_s, saved_work_s(worked_s, rules.checkpoints, notice_s))
    run.lost_s += worked_s - kept_s
    run.left_s -= kept_s
    run.interruptions += 1


def draw_life_s(market: Spot, nodes: int, rng: np.random.Generator) -> float:
    """Draw how long a set of nodes lives: until the first of them goes."""
    if market.lifetimes_s is not None:
        # as many lives as nodes; the first to end breaks the set
        return float(rng.choice(market.lifetimes_s, size=nodes).min())
    if market.loss_per_hr <= 0:
        return math.inf
    # the least of n exponential lives has n times the rate
    return float(rng.exponential(S_PER_HR / (market.loss_per_hr * nodes)))


def _with_saves(work_s: float, checkpoints: Checkpoints | None) -> float:
    """Return work with the saves in between; none is needed at its very end."""
    if checkpoints is None or checkpoints.interval_s is None:
        return work_s
    return work_s + checkpoints.save_s * max(0, math.ceil(work_s / checkpoints.interval_s) - 1)


def saved_work_s(worked_s: float, checkpoints: Checkpoints | None, notice_s: float) -> float:
    """Return how much of a broken run's work and saving time was work that is saved.

    A notice at least as long as a save keeps all but that last save.
    """
    if checkpoints is None:
        return 0.0
    interval_s = math.inf if checkpoints.interval_s is None else checkpoints.interval_s
    cycle_s = interval_s + checkpoints.save_s
    cycles = math.floor(worked_s / cycle_s)
    # saves at notice only have an infinite interval, and 0 * inf would be NaN
    saved_s = cycles * interval_s if cycles else 0.0
    if notice_s >= checkpoints.save_s:
        # beyond the full cycles the notice still saves the work since, less the time of the save itself
        since_s = worked_s - cycles * cycle_s if cycles else worked_s
        saved_s += min(interval_s, max(0.0, since_s - checkpoints.save_s))
    return saved_s
