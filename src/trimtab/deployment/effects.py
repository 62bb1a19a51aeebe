"""The effects that actions may have, a closed set: on one workload, or on the fleet.

Resolution, emission and verification `match` on it with `assert_never`: a new effect is a list of places that the type checker
names. Which lever proposes an effect is not known here (`Deployment.owed_to`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from enum import Enum
from typing import Annotated

from trimtab.catalog.kinds import BuyingOption, Isolation
from trimtab.catalog.pools import Pool, SharedPool
from trimtab.catalog.prices import ANY_REGION
from trimtab.deployment.kept_form import BY_NAME
from trimtab.fleet.token_work import TokenWork
from trimtab.physics.colocation import BatchCurve
from trimtab.physics.formats import WeightFormat
from trimtab.physics.training import Optimizer, Recompute, Sharding
from trimtab.policies.blocks import Block, BlockCalendar, blocks_of
from trimtab.policies.deferral import DeferPolicy
from trimtab.policies.forecast import ForecastPolicy
from trimtab.policies.keda import KedaPolicy, goes_to_none
from trimtab.policies.scaling import SYNC_S, USUAL_WINDOW_S, HpaPolicy
from trimtab.provenance import Basis, Estimate
from trimtab.tables.workloads import cluster_of, local_name
from trimtab.units import DAYS_PER_WEEK, S_PER_HR, S_PER_MIN, usd


@dataclass(frozen=True, slots=True, kw_only=True)
class UseOffering:
    """Run on nodes of another instance type: `gpus_per_node` GPUs, each `speed` times as fast as the present one.

    `work_speed` is that of work which keeps the GPU itself busy: what each further request of a batch adds.
    """

    pool: Pool
    gpu: str
    gpus_per_node: int
    speed: Estimate
    work_speed: Estimate | None = None
    only_quantized: bool = False
    """Whether it holds the model only once its weights are stored in fewer bits."""

    def describe(self) -> str:
        """Describe it in words."""
        return f"run on {self.pool.instance_type} ({self.gpus_per_node}x {self.gpu})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocate:
    """Run in another region, or another cloud, on the nodes `to`: what that costs besides nodes, once and each month."""

    to: UseOffering
    home: Pool
    """The nodes that it leaves."""
    rtt_s: float
    """What each request of a service gains on its way."""
    data_gib: float
    traffic_gib_mo: float
    copy_usd: float
    """Copying the data, once."""
    overlap_usd: float
    """Keeping the present nodes up beside the new ones for a while, once."""
    traffic_usd_mo: float
    """What crosses the border each month."""

    @property
    def pool(self) -> Pool:
        """Return the pool of the new nodes."""
        return self.to.pool

    @property
    def speed(self) -> Estimate:
        """Return the speed there, relative to the present GPU."""
        return self.to.speed

    @property
    def once_usd(self) -> float:
        """Return what the move costs once."""
        return self.copy_usd + self.overlap_usd

    @property
    def cloud(self) -> str | None:
        """Return the other provider that it moves to; None within one cloud."""
        return self.pool.provider if self.pool.provider != self.home.provider else None

    @property
    def place(self) -> str:
        """Return the region that it moves to, with its cloud where that is another one."""
        named = self.pool.region != ANY_REGION
        return " ".join([*([self.cloud] if self.cloud else []), *([self.pool.region] if named else [])])

    def describe(self) -> str:
        """Describe it in words."""
        return f"move to {self.place}, on {self.pool.instance_type} ({self.to.gpus_per_node}x {self.to.gpu})"


@dataclass(frozen=True, slots=True, kw_only=True)
class OverflowTo:
    """Run on up to `first_nodes` nodes of a pool, and what has no room there on nodes of another type.

    Requests are dealt out evenly, so that each replica does what the slower type does.
    """

    pool: Pool
    """The nodes that come first."""
    first_nodes: int
    further: UseOffering
    """The nodes behind them; its speed is relative to the present GPU, like that of any offering."""

    @property
    def speed(self) -> Estimate:
        """Return the speed on the nodes behind, relative to the present GPU."""
        return self.further.speed

    def describe(self) -> str:
        """Describe it in words."""
        first = f"{self.first_nodes} node{'s' if self.first_nodes != 1 else ''} of {self.pool.instance_type}"
        there = f"{self.further.pool.instance_type} ({self.further.gpus_per_node}x {self.further.gpu})"
        return f"run on {first} at most, and beyond them on {there}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetGpuCount:
    """Ask for as many GPUs as a run uses, on nodes of the same GPU that hold `gpus_per_node` of them."""

    gpus: int
    before: int
    pool: Pool
    gpus_per_node: int

    def describe(self) -> str:
        """Describe it in words."""
        return f"ask for {self.gpus} GPU{'s' if self.gpus != 1 else ''} a run, not {self.before}, on {self.pool.instance_type}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UseSlots:
    """Run in slots of nodes that several workloads share: whole GPUs, MIG instances, or shares of GPUs; `slots` a replica.

    In time slices `speed` is that of the GPU while no other is busy.
    """

    shared: SharedPool
    gpu: str
    gpus_per_node: int
    slots: int
    memory_gib: float
    """What a program sees of a slot."""
    speed: Estimate
    work_speed: Estimate
    """The speed of work that keeps the GPU itself busy, as what further requests of a batch add."""
    only_quantized: bool = False
    """Whether it holds the model only once its weights are stored in fewer bits."""

    @property
    def pool(self) -> Pool:
        """Return the pool of the shared nodes."""
        return self.shared.pool

    @property
    def gpus(self) -> float:
        """Return how many GPUs' worth of a node one replica holds."""
        return self.slots * self.gpus_per_node / self.shared.slots_per_node

    @property
    def per_gpu(self) -> int:
        """Return how many slots one GPU has; 0 if a slot is more than one GPU."""
        return self.shared.slots_per_node // self.gpus_per_node

    @property
    def others(self) -> int:
        """Return how many replicas at most may take turns with one; 0 if each has a place of its own."""
        return self.per_gpu - self.slots if self.shared.kept_apart_by is Isolation.TIME_SLICING else 0

    def describe(self) -> str:
        """Describe it in words."""
        if not self.shared.is_isolated:
            how = "time slices" if self.shared.kept_apart_by is Isolation.TIME_SLICING else "MPS shares"
            where = f"{self.slots} of {self.per_gpu} {how} of a {self.gpu} each"
            return f"share {self.pool.instance_type} without hardware isolation: {where}"
        if self.shared.profile:
            return f"share {self.pool.instance_type}: a {self.shared.profile} slice of a {self.gpu} each"
        gpus = f"{self.slots} GPU{'s' if self.slots != 1 else ''}"
        return f"share {self.pool.instance_type} with others: {gpus} of {self.shared.slots_per_node} each"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """What shows that requests arrive for a service without replicas: PromQL above 0 then; and how long requests are held."""

    query: str
    hold_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedReplicas:
    """Replicas that are asked for in a span of every week: from a minute of it on (Monday 00:00 UTC is 0), for so many."""

    begin_min: int
    length_min: int
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReplicaPolicy:
    """Scale replicas with demand, or with what recording rules forecast of it; to none where something wakes them."""

    policy: Annotated[HpaPolicy | ForecastPolicy | KedaPolicy, BY_NAME]
    metric: str
    wake: Wake | None = None
    """Of a policy that goes to none."""
    tokens: TokenWork | None = None
    """What each token counts of a mean request, where the metric counts the work of tokens; None: it counts requests."""
    hours: tuple[TimedReplicas, ...] = ()
    """What a timetable asks for beside the metric: the highest counts."""

    @property
    def hpa(self) -> HpaPolicy:
        """Return the autoscaler, which follows demand itself or what the forecast records."""
        return self.policy if isinstance(self.policy, HpaPolicy) else self.policy.hpa

    @property
    def least(self) -> int:
        """Return the fewest replicas that it ever holds."""
        return 0 if self.goes_to_none else self.hpa.min_replicas

    @property
    def goes_to_none(self) -> bool:
        """Return whether it gives up the last replica."""
        return isinstance(self.policy, KedaPolicy) and goes_to_none(self.policy)

    def at_most(self, replicas: int) -> SetReplicaPolicy | None:
        """Return the same with no higher a ceiling; None if that is below its floor."""
        if replicas < max(self.hpa.min_replicas, 1):
            return None
        hpa = self.hpa._replace(max_replicas=min(self.hpa.max_replicas, replicas))
        return self._with(hpa)

    def differs_in_load(self, other: SetReplicaPolicy) -> bool:
        """Return whether it is another rule but for the load at which both keep replicas."""
        beside, others = ((rule.metric, rule.wake, rule.tokens, rule.hours) for rule in (self, other))
        return self._policy(self.hpa._replace(target_frac=other.hpa.target_frac)) == other.policy and beside == others

    def as_long_as(self, other: SetReplicaPolicy) -> SetReplicaPolicy:
        """Return the same that waits as long before it scales down as another one."""
        return self._with(self.hpa._replace(down_stabilization_s=other.hpa.down_stabilization_s))

    def _with(self, hpa: HpaPolicy) -> SetReplicaPolicy:
        return replace(self, policy=self._policy(hpa))

    def _policy(self, hpa: HpaPolicy) -> HpaPolicy | ForecastPolicy | KedaPolicy:
        return hpa if isinstance(self.policy, HpaPolicy) else self.policy._replace(hpa=hpa)

    def describe(self) -> str:
        """Describe it in words."""
        top = "" if self.hpa.max_replicas >= 10**6 else f"..{self.hpa.max_replicas}"
        ahead = " ahead of demand" if isinstance(self.policy, ForecastPolicy) else ""
        mean = "" if self.hpa.window_s <= SYNC_S else f", mean of {self.hpa.window_s // S_PER_MIN} min"
        window_s = self.hpa.down_stabilization_s
        down = "" if window_s == USUAL_WINDOW_S else f", scaled down after {window_s // S_PER_MIN} min below it"
        idle = ""
        if isinstance(self.policy, KedaPolicy) and goes_to_none(self.policy):
            # an average over a window still shows a request for so much longer
            idle_min = (self.policy.cooldown_s + self.policy.activation_window_s - SYNC_S) / S_PER_MIN
            idle = f", none after {idle_min:.0f} min without a request: the next one waits for a start"
        return (
            f"scale {self.hpa.min_replicas}{top} replicas{ahead} at {self.hpa.target_frac:.0%} load each "
            f"({self.metric}{mean}){down}{idle}{self._by_the_hour()}"
        )

    def _by_the_hour(self) -> str:
        hours = sum(span.length_min for span in self.hours) * S_PER_MIN / S_PER_HR
        return f", {max(span.replicas for span in self.hours)} at least for {hours:.4g} h of the week" if hours else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortenStart:
    """Have on each node's disk what a service's replicas start with: its images, and the weights and kernels that they load.

    Or restore replicas from a snapshot of one that was ready. Both times are from a replica's place on a node to ready.
    """

    start_s: float
    before_s: float
    images: bool
    """Whether nothing is pulled."""
    weights: bool
    """Whether weights and compiled kernels are there, too."""
    restored: bool = False
    """Whether its process is restored from a snapshot, whatever else is there."""

    @property
    def saved_s(self) -> float:
        """Return how much shorter a start is."""
        return self.before_s - self.start_s

    @property
    def parts(self) -> str:
        """Return in words what a replica is to find there."""
        if self.restored:
            return "snapshot of its process"
        loaded = "weights and compiled kernels"
        return loaded if not self.images else f"images, {loaded}" if self.weights else "images"

    def describe(self) -> str:
        """Describe it in words."""
        how = (
            f"restore its replicas from a {self.parts}"
            if self.restored
            else f"have its {self.parts} on each node's disk"
        )
        return f"{how}: replicas start in {self.start_s:.0f} s, not {self.before_s:.0f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReplicas:
    """Run another number of replicas, the same at all times."""

    replicas: int
    before: int

    @property
    def least(self) -> int:
        """Return the fewest replicas that it ever holds."""
        return self.replicas

    def describe(self) -> str:
        """Describe it in words."""
        return f"run {self.replicas} replica{'s' if self.replicas != 1 else ''} at all times, not {self.before}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingHalf:
    """Prefill or decode of a service whose halves have nodes of their own: what a replica serves, how fast, and how many run.

    Times are those of the predicted step times at each of `loads` (share of `replica_req_s`), at the shares of requests that
    `physics.disaggregated.TIME_SHARES` names: `wait_s` until the half hands on or shows its first token, `token_s` per token
    after that, `answer_s` until it is done. Their doubt is the interval of `nodes.speed`, whose value is 1.
    """

    nodes: UseOffering
    gpus: int
    """Of one replica, tensor parallel."""
    concurrency: int
    """Requests in work at once, at most (vLLM's `--max-num-seqs`)."""
    replica_req_s: float
    """Mean requests a second that a replica serves at a load of 1."""
    loads: tuple[float, ...]
    wait_s: tuple[tuple[float, ...], ...]
    token_s: tuple[tuple[float, ...], ...]
    """Empty for prefill, which answers one token."""
    answer_s: tuple[tuple[float, ...], ...]
    scaling: SetReplicaPolicy
    """Counts the half's own tokens alone."""

    def describe(self) -> str:
        """Describe it in words."""
        count = f"{self.gpus} GPU{'s' if self.gpus != 1 else ''} a replica"
        hpa = self.scaling.hpa
        held = f"{hpa.min_replicas} to {hpa.max_replicas} replicas at {hpa.target_frac:.0%}"
        return f"{self.nodes.pool.instance_type} ({count}, {held})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReplicaGpus:
    """Serve a declared model with another number of GPUs a replica (tensor parallel), prompts and answers in one pool.

    Times are those of a `ServingHalf`, of whole requests: by load, at the same shares of requests, their doubt being the
    interval of `nodes.speed`, whose value is 1.
    """

    nodes: UseOffering
    gpus: int
    before: int
    concurrency: int
    """Requests in work at once, at most (vLLM's `--max-num-seqs`)."""
    replica_req_s: float
    """Mean requests a second that a replica serves at a load of 1."""
    today_req_s: float
    """The same of a replica of today."""
    loads: tuple[float, ...]
    wait_s: tuple[tuple[float, ...], ...]
    token_s: tuple[tuple[float, ...], ...]
    answer_s: tuple[tuple[float, ...], ...]

    @property
    def pool(self) -> Pool:
        """Return the pool of its nodes."""
        return self.nodes.pool

    @property
    def speed(self) -> Estimate:
        """Return the speed beside its predicted one."""
        return self.nodes.speed

    @property
    def times_today(self) -> float:
        """Return how many times as many requests a replica serves as one of today."""
        return self.replica_req_s / self.today_req_s

    def describe(self) -> str:
        """Describe it in words."""
        where = f"{self.nodes.pool.instance_type} ({self.nodes.gpus_per_node}x {self.nodes.gpu})"
        return f"serve on {self.gpus} GPU{'s' if self.gpus != 1 else ''} a replica, not {self.before}, on {where}"


PREFILL, DECODE = "prefill", "decode"
"""Roles of the two halves of a service, as llm-d and Dynamo call them."""


def part_of(workload: str, role: str) -> str:
    """Return the name under which the pods of a half of a service run.

    >>> part_of("prod/chat@east", PREFILL)
    'prod/chat-prefill@east'
    """
    cluster = cluster_of(workload)
    return f"{local_name(workload)}-{role}{'@' + cluster if cluster else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitServing:
    """Serve prompts (prefill) and answers (decode) on nodes of their own, each scaled apart; caches cross the network."""

    prefill: ServingHalf
    decode: ServingHalf
    model: str
    stored: WeightFormat
    context: int
    """Tokens of the longest request that both halves take (vLLM's `--max-model-len`)."""
    prompt_mb: float
    """The cache that a mean prompt hands over."""
    link_gb_s: float
    """Bytes a second between a replica of each half, at the slower end."""
    link: str
    """That link in words."""

    @property
    def prompt_ms(self) -> float:
        """Return how long a mean prompt's cache takes over the link."""
        return self.prompt_mb / self.link_gb_s  # MB at GB/s

    @property
    def halves(self) -> dict[str, ServingHalf]:
        """Return both halves by role."""
        return {PREFILL: self.prefill, DECODE: self.decode}

    @property
    def speed(self) -> Estimate:
        """Return the speed of the less certain half beside its predicted one."""
        return min((half.nodes.speed for half in (self.prefill, self.decode)), key=lambda speed: speed.low)

    def describe(self) -> str:
        """Describe it in words."""
        return f"serve {self.model} with prefill on {self.prefill.describe()} and decode on {self.decode.describe()}"


class BatchForm(Enum):
    """When a batch leaves."""

    GREEDY = "greedy"
    """As soon as the device is free, with what waits."""
    FIXED = "fixed"
    """When it is full, or its window ends."""
    TARGET = "target-aware"
    """When it is full, or its oldest request would just meet the latency target."""
    CONTINUOUS = "continuous"
    """Requests join and leave a running batch one by one, as in vLLM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBatchPolicy:
    """Serve up to `max_batch` requests at once where a replica took one at a time.

    `seconds` (by `sizes`) are the times that batches of these sizes take on the present GPU; `replicas` is how many then do
    (None: as scaled, or as before).
    """

    form: BatchForm
    max_batch: int
    window_s: float
    replicas: int | None
    before: int
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    basis: Basis
    model: str | None = None

    @property
    def curve(self) -> BatchCurve:
        """Return the batch times on the present GPU."""
        return BatchCurve(sizes=self.sizes, seconds=self.seconds)

    def describe(self) -> str:
        """Describe it in words."""
        window = f", waiting at most {self.window_s:.2g} s" if self.window_s else ""
        how = {
            BatchForm.GREEDY: "batch what waits",
            BatchForm.FIXED: "batch requests",
            BatchForm.TARGET: "batch requests for the latency target",
            BatchForm.CONTINUOUS: "serve with a continuous-batching engine",
        }[self.form]
        count = ""
        if self.replicas is not None:
            count = f": {self.replicas} replica{'s' if self.replicas != 1 else ''}, not {self.before}"
        return f"{how}, up to {self.max_batch} at once{window}{count}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPrecision:
    """Store a served model's weights in fewer bits.

    `speed` is that of the new format over the old one on the present GPU, `speed_there` on the one that it moves to, if it
    moves; `work_speed` and `work_speed_there` are those of what each further request of a batch adds (None: unchanged). What
    this does to the model's answers is not known here: `answers` says what an evaluation found, where there is one.
    """

    before: WeightFormat
    after: WeightFormat
    speed: Estimate
    speed_there: Estimate
    saved_gib: float
    model: str
    work_speed: Estimate | None = None
    work_speed_there: Estimate | None = None
    answers: str = ""

    def describe(self) -> str:
        """Describe it in words."""
        seen = f"answers {self.answers}" if self.answers else "after an evaluation of its answers"
        return f"serve {self.model} in {self.after.value}, not {self.before.value}, {seen}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTrainingMemory:
    """Train with another memory plan, on `gpus` GPUs a run where it had `before`; `speed` is a whole run's, relative to today.

    `accumulate` keeps the batch of an optimizer step; `memory_gib` is what the fullest GPU will show.
    """

    pool: Pool
    gpu: str
    gpus_per_node: int
    gpus: int
    before: int
    optimizer: Optimizer
    recompute: Recompute
    sharding: Sharding
    micro_batch: int
    accumulate: int
    memory_gib: float
    speed: Estimate
    model: str

    def describe(self) -> str:
        """Describe it in words."""
        count = f"{self.gpus} GPU{'s' if self.gpus != 1 else ''}"
        recompute = "no" if self.recompute is Recompute.NONE else self.recompute.value
        return (
            f"train with {self.optimizer.value}, {recompute} recomputation and micro-batch {self.micro_batch} "
            f"on {count} a run of {self.pool.instance_type}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCapacityType:
    """Hold the nodes another way: spot, and on demand what starts while spot is gone."""

    pool: Pool
    loss_per_hr: float
    unavailable_frac: float = 0.0
    """Share of the time in which no new spot node of the pool can be had."""
    drought_s: float = 0.0
    """How long such a time lasts on average."""
    droughts_take: bool = False
    """Whether it begins by taking all spot nodes of the pool."""

    def describe(self) -> str:
        """Describe it in words."""
        return f"run on spot {self.pool.instance_type}, on demand while spot is gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgeOnSpot:
    """Serve from spot nodes over several zones, one replica in `one_in` on demand (0: none), on demand while spot is gone."""

    pool: Pool
    one_in: int
    zones: int
    loss_per_hr: float
    """How often a zone takes its spot nodes back, per hour."""
    outage_s: float
    """How long a zone then gives none, on average."""

    def describe(self) -> str:
        """Describe it in words."""
        floor = f", one replica in {self.one_in} on demand" if self.one_in else ""
        return f"serve from spot {self.pool.instance_type} over {self.zones} zones{floor}, on demand while spot is gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSchedule:
    """Hold nodes only in these hours of the week (Monday 00:00 UTC is hour 0)."""

    hours_of_week: tuple[int, ...]

    def describe(self) -> str:
        """Describe it in words."""
        return f"hold nodes {len(self.hours_of_week)} of 168 hours a week"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartBeforeRuns:
    """Start nodes before each scheduled run and give them back after it."""

    lead_s: float

    def describe(self) -> str:
        """Describe it in words."""
        return f"start nodes {self.lead_s / S_PER_MIN:.0f} min before each scheduled run, give them back after it"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferRuns:
    """Hold runs that can wait until an hour of the day; nodes start with them and go after them."""

    policy: Annotated[DeferPolicy, BY_NAME]
    startup_s: float

    def describe(self) -> str:
        """Describe it in words."""
        hour, within_hr = self.policy.start_hour, self.policy.within_s / S_PER_HR
        return f"hold runs until {hour:02d}:00 UTC where that is within {within_hr:.3g} h, give nodes back after them"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookBlocks:
    """Hold nodes of runs in capacity blocks, bought again every week by a calendar; what does not fit runs on demand."""

    pool: Pool
    calendar: Annotated[BlockCalendar, BY_NAME]
    rate_micro_usd_hr: int
    on_demand_micro_usd_hr: int

    def __post_init__(self) -> None:
        if len(self.calendar.nodes) != DAYS_PER_WEEK or min(self.calendar.nodes) < 0:
            raise ValueError(f"a calendar books nodes on each of seven weekdays, got {self.calendar.nodes}")

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Return the blocks of a week."""
        return blocks_of(self.calendar)

    def describe(self) -> str:
        """Describe it in words."""
        parts = ", ".join(f"{block.nodes} {stretch(block)}" for block in self.blocks)
        return f"book capacity blocks of {self.pool.instance_type} every week: {parts}; the rest on demand"


_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def stretch(block: Block) -> str:
    """Say when a block stands.

    >>> stretch(Block(weekday=0, days=5, nodes=2)), stretch(Block(weekday=0, days=7, nodes=2))
    ('for 5 days from Monday', 'throughout')
    """
    if block.days == DAYS_PER_WEEK:
        return "throughout"
    return f"for {block.days} day{'s' if block.days != 1 else ''} from {_WEEKDAYS[block.weekday]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseIdle:
    """Hold nodes only while something runs on them."""

    startup_s: float

    def describe(self) -> str:
        """Describe it in words."""
        return "start nodes for runs that queue, give them back when they are empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseNodes:
    """Give back nodes that no workload held."""

    nodes: tuple[str, ...]

    def describe(self) -> str:
        """Describe it in words."""
        return f"give back {len(self.nodes)} node{'s' if len(self.nodes) != 1 else ''} that no workload holds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tranche:
    """One purchase of several: `quantity` nodes, or micro-dollars an hour of spend, on a day."""

    after_days: int
    """Days after the first purchase may be made."""
    quantity: int
    on: date | None = None
    """The day by the roadmap; None until the roadmap is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuyCommitment:
    """Commit to nodes of a pool for a term."""

    pool: Pool
    option: BuyingOption
    count: int
    rate_micro_usd_hr: int
    on_demand_micro_usd_hr: int
    tranches: tuple[Tranche, ...] = ()
    """When how many of them are bought; none in plans kept before purchases were staged."""

    def describe(self) -> str:
        """Describe it in words."""
        steps = [f"{tranche.quantity} {_when(tranche)}" for tranche in self.tranches]
        staged = f": {', '.join(steps)}" if steps else ""
        return f"commit to {self.count} x {self.pool.instance_type} for {_years(self.option.term_years)}{staged}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRate:
    """What an hour of a pool's nodes takes of a plan's spend, beside its rate on demand."""

    pool: Pool
    rate_micro_usd_hr: int
    on_demand_micro_usd_hr: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BuySpendPlan:
    """Commit to spend so much an hour with a provider for a term; `rates` are of the nodes that the planned use has."""

    provider: str
    option: BuyingOption
    spend_micro_usd_hr: int
    rates: tuple[PlanRate, ...]
    tranches: tuple[Tranche, ...] = ()
    """When how much of it is bought; none in plans kept before purchases were staged."""

    def describe(self) -> str:
        """Describe it in words."""
        spend = f"${usd(self.spend_micro_usd_hr):,.2f}"
        steps = [f"${usd(tranche.quantity):,.2f} {_when(tranche)}" for tranche in self.tranches]
        staged = f": {', '.join(steps)}" if steps else ""
        return f"commit to spend {spend} an hour with {self.provider} for {_years(self.option.term_years)}{staged}"


def _years(count: int) -> str:
    return "1 year" if count == 1 else f"{count} years"


def _when(tranche: Tranche) -> str:
    if tranche.on is not None:
        return f"on {tranche.on}"
    return f"after {tranche.after_days} days" if tranche.after_days else "at once"


Scaling = SetReplicaPolicy | SetReplicas
"""How many replicas there are."""
Holding = SetSchedule | StartBeforeRuns | DeferRuns | ReleaseIdle
"""When nodes are held."""
Buying = SetCapacityType | HedgeOnSpot | BookBlocks
"""How nodes are bought, where not on demand."""
WorkloadEffect = (
    UseOffering
    | Relocate
    | OverflowTo
    | SetGpuCount
    | SetReplicaGpus
    | UseSlots
    | ShortenStart
    | Scaling
    | SplitServing
    | SetBatchPolicy
    | SetPrecision
    | SetTrainingMemory
    | Holding
    | Buying
)
"""What a plan may do to one workload."""
FleetEffect = ReleaseNodes | BuyCommitment | BuySpendPlan
"""What it may do to nodes and purchases that are no workload's own."""
Effect = WorkloadEffect | FleetEffect
