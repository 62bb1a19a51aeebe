"""All settings: bands, efforts, assumptions. Every figure can be overridden (`trimtab.toml`, `--set`)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """Thresholds that turn readings into verdicts (shares 0..1).

    The activity bands are those that GPU FinOps practice uses: below 25 % over-provisioned, 25-60 % look for the cause, 60-80 %
    healthy for serving, above 85 % sustained at risk. The memory bands: peak below 40 % a candidate to share, above 80 % offer
    recompute or quantization, above 95 % at risk of running out.
    """

    over_provisioned_frac: float = 0.25
    find_cause_frac: float = 0.60
    healthy_frac: float = 0.80
    at_risk_frac: float = 0.85
    memory_share_frac: float = 0.40
    memory_recompute_frac: float = 0.80
    memory_risk_frac: float = 0.95
    active_frac: float = 0.02
    """A GPU whose hourly maximum of the best activity signal stays below this did nothing in that hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Engineer-weeks a lever costs, and what that is paid for: the whole fleet, each class of workloads, or each action."""

    weeks: float
    per: str
    first_weeks: float = 0.0
    """Additional engineer-weeks for its first use in the fleet: operators, metrics, drills."""

    @property
    def once_weeks(self) -> float:
        """Return what is paid once for the whole fleet."""
        return self.first_weeks + (self.weeks if self.per == "fleet" else 0.0)

    @property
    def each_weeks(self) -> float:
        """Return what each class or action takes in addition."""
        return 0.0 if self.per == "fleet" else self.weeks

    def scaled(self, factor: float) -> Effort:
        """Return the effort times a factor."""
        return Effort(weeks=self.weeks * factor, per=self.per, first_weeks=self.first_weeks * factor)


SERVICE_NODES_KEPT_S = 600.0
"""How long an empty node of services stays up, and is billed, in replays and in the node pools that are emitted (Karpenter's
`consolidateAfter`): longer than an HPA's scale-down window, so that a node outlives a short lull and the next replica finds it.
The Cluster Autoscaler's own default is the same."""
RUN_NODES_KEPT_S = 60.0
"""The same for nodes of runs, where each run is assumed to need new ones: long enough for a pod that is started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Assumptions about what the data does not show; each is displayed as an assumption."""

    node_startup_s: float = 300.0
    """From asking a cloud for a GPU node to a ready pod (boot, driver, image): a planning assumption; measure your own."""
    service_cold_start_s: float = 180.0
    """The same for a serving replica that must also load its model, where workloads.yaml does not say."""
    checkpoint_interval_s: float = 1800.0
    checkpoint_save_s: float = 60.0
    checkpoint_restore_s: float = 180.0
    """Used for jobs declared interruptible without saying how they checkpoint."""
    spot_loss_per_hr: float = 1 / 6
    """Losses per hour of a spot node whose interruption rate has no upper edge (">20 % a month") or is unknown: one in
    six hours, the longest mean life measured in four V100 zones in 2023 (their medians were 0.3 to 1.0 h). Nodes of lower
    bands are lost in proportion to their share (5-10 %: once in 70 hours)."""
    spot_zones: int = 3
    """Zones of a region that a service's spot replicas are spread over."""
    spot_outage_s: float = 5400.0
    """How long a zone gives no spot nodes once it took them back, and how long runs find none: the mean of twelve recorded
    V100 zones of 2022-23 was 1.5 h (their medians 0.2 to 0.5 h)."""
    spot_unavailable_frac: float = 0.53
    """Share of the time in which no new spot node can be had (0: always there): what starts then runs on demand. Nine of twelve
    V100 zones recorded in 2022-23 were without spot for less than 53 % of the time (0.12 to 0.83, mean 0.40)."""
    spot_droughts_take: bool = True
    """Whether such a time begins by taking all spot nodes of the pool, as in the recorded preemptions of V100 zones. False: it
    only keeps new nodes away, and nodes are lost as often as the provider's interruption rate says."""
    spot_notice_s: float = 120.0
    memory_headroom_frac: float = 0.10
    """A GPU fits a workload if its visible memory holds the observed peak plus this."""
    training_headroom_frac: float = 0.05
    """A memory plan fits a GPU if its visible memory holds what the plan needs plus this (the margin at which the physics was
    scored on runs that ran out of memory)."""
    throughput_frac: float = 0.90
    """"No worse than observed" for throughput: within 10 %."""
    region_rtt_s: float = 0.09
    """Network round trip that each request gains where a service runs in another region of its continent: the longest
    measured between AWS regions of one continent in 2017 was 89 ms (N. Virginia - Oregon); measure your own."""
    continent_rtt_s: float = 0.33
    """The same for another continent, or if the distance is not known: the longest between AWS regions in 2017 was
    328 ms."""
    move_overlap_hr: float = 168.0
    """How long the present nodes stay up beside those of another region after a move: a week, a planning assumption."""
    rollout_overlap_hr: float = 0.0
    """The same for other nodes in the same region. 0, since pods move one node at a time within minutes; an hour weighs
    1/8760 of the moved nodes' bill over a year."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """What a model on GPUs costs besides the GPUs (`trimtab fit`, total cost); each is shown with its figure."""

    storage_usd_gib_mo: float = 0.08
    """Block storage for weights, images and checkpoints: AWS EBS gp3 in us-east-1, list price."""
    image_gib: float = 20.0
    """Container image and its unpacked layers on each node: a planning assumption (engine images are 8-10 GiB packed)."""
    egress_usd_gib: float = 0.09
    """Traffic to the internet: AWS EC2 data transfer out, first 10 TB a month, list price; many GPU clouds charge nothing."""
    region_traffic_usd_gib: float = 0.02
    """Traffic between two regions of one cloud: AWS EC2 between most regions, list price; pairs with South America, the
    Middle East and parts of Asia cost up to 0.09."""
    egress_bytes_per_token: float = 200.0
    """A streamed token as one server-sent event of JSON in the OpenAI format, about 200 bytes: a planning assumption."""
    operations_hr_node_mo: float = 1.0
    """Engineer-hours that a node takes a month (upgrades, faults, alerts): a planning assumption."""
    work_week_hr: float = 40.0
    """Turns planning.engineer_week_usd into an hour's cost."""
    rollouts_mo: float = 4.0
    """Times a month that every replica is replaced, old beside new while the new one starts: a planning assumption."""
    checkpoints_kept: float = 2.0
    """Checkpoints of a training run kept at once."""
    data_bytes_per_token: float = 4.0
    """Training data on disk: token numbers of 32 bits."""
    electricity_usd_kwh: float = 0.15
    """Power of one's own card at its limit, around the mean price of households and small firms: a planning assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """How the plan is made and laid out."""

    proof_frac: float = 1 / 3
    """The last part of the window, which the planner never sees."""
    min_history_days: float = 14.0
    """Below this the answer is marked degraded: a fit window must hold at least one whole week."""
    max_term_years: int = 1
    """Longest commitment offered; 3-year terms cannot be judged on weeks of history."""
    commitment_history_days: float = 28.0
    """With less history, fit and proof together, no commitment is advised: it binds for a year."""
    commitment_coverage_max_frac: float = 0.9
    """Most nodes (or spend) that are held committed, as a share of their mean use, whatever history backs: a planning
    assumption. What lies above stays on demand, so that a fleet which shrinks by a tenth pays for nothing idle. 1 is all."""
    demand_headroom_frac: float = 0.20
    """Every option of a service must keep its targets with this much more demand than the fit window had."""
    mip_gap_frac: float = 0.0005
    mip_max_nodes: int = 2_000
    engineers: float = 1.0
    weeks_per_quarter: float = 13.0
    levers_per_mo: float = 1.0
    """Levers that the team takes up in a month; more work with a lever already taken up does not count. 0 means no limit."""
    levers_at_once: int = 1
    """Actions in progress at once, the team divided among them: 1 finishes one before the next."""
    quick_win_weeks: float = 1.0
    """A quick win takes no more engineer-weeks than this, is of low risk, and pays back within a month."""
    min_saving_usd_mo: float = 50.0
    """An action that adds less a month to the others is listed as not worth doing."""
    engineer_week_usd: float = 4000.0
    """What an engineer's week costs in total: a planning assumption (about $200k a year); put your own."""
    change_horizon_mo: float = 12.0
    """What a change costs once (data copied, both places up, moving to another cloud) is spread over so many months: a
    planning assumption, the payback time that a change is held to. Less than a month counts as one."""
    max_payback_mo: float = 12.0
    """An action whose effort takes longer to pay back is listed as not worth doing."""
    target_margin_frac: float = 0.25
    """Share of a target's allowed misses that the plan leaves unused on the fit window: headroom for an unseen proof."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits that a plan must keep."""

    quotas: str = ""
    """Most nodes at once, `TYPE[@REGION][:CAPACITY]=NODES` apart by commas: `p5.48xlarge=16, g6.xlarge@us-east-1:spot=40`.
    Without a capacity type on-demand nodes are meant; without a region, each region's own."""
    spot_max_frac: float = 1.0
    """Largest share of the fleet's node-hours that may be on spot; 1 means no limit."""
    regions: str = ""
    """Regions that anything may be moved to, apart by commas: `us-west-2, gcp/us-central1`. Empty: any that workloads.yaml
    allows. It narrows that and opens nothing by itself; of limits.providers it names the regions to look at."""
    providers: str = ""
    """Other clouds that workloads may be moved to, apart by commas: `gcp, azure`. Empty: none."""
    use_spot: bool = True
    """False: nothing is moved to spot (what is on spot already may stay)."""
    isolation: str = "hardware"
    """What must keep services on one GPU apart where workloads.yaml does not say: `hardware` (whole GPUs, MIG), `mps` (MPS
    will do), `time-slicing` (so will taking turns), or `none` (either)."""
    use_blocks: bool = True
    """False: no capacity blocks are booked (those that run already may stay)."""
    use_commitments: bool = True
    """False: nothing is committed to (commitments that run already are paid and used)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternatives:
    """Alternatives that are judged for every fleet and never planned: another cloud, own kernels, own hardware.

    All are planning assumptions, rough on purpose and shown with their sums: put your own quotes.
    """

    migration_weeks: float = 26.0
    """Engineer-weeks to move a fleet to another cloud: half a year of one engineer, a planning assumption. Where
    limits.providers lets the plan move there, it pays them once for each cloud that it moves anything to."""
    migration_data_gib: float = 20_000.0
    """Data and weights that leave the present cloud once, at ownership.egress_usd_gib."""
    price_error_frac: float = 0.10
    """How far list rates elsewhere may be off what is paid in the end, traffic between clouds counted in."""
    kernels_weeks: float = 26.0
    """Engineer-weeks for kernels of one's own: a planning assumption."""
    kernels_gain_frac: float = 0.10
    """Cost that they take off serving and training, over engines that already carry tuned kernels (low end: nothing)."""
    kernels_gain_high_frac: float = 0.25
    """Upper end of that."""
    kernels_upkeep_frac: float = 0.2
    """Yearly upkeep, as a share of the first effort: new GPUs, models and engines."""
    hardware_price_hr: float = 6_000.0
    """Price of a server with its share of racks and network, in hours of its type's on-demand list rate. Server prices as
    reported in 2023-25 are 4,800 to 8,500 such hours for L4, A100 and H100: a planning assumption, get a quote."""
    hardware_error_frac: float = 0.3
    """How far that may be off."""
    hardware_years: float = 4.0
    """Life over which it is written off; the low end takes one year less."""
    hardware_capital_rate_frac: float = 0.08
    """Yearly cost of capital."""
    hardware_operations_frac: float = 0.12
    """Space, people, support and spares a year, as a share of the price."""
    hardware_power_factor: float = 1.4
    """A server's power at the plug over that of its GPUs at their limit."""
    hardware_pue: float = 1.4
    """Power of the site over power of the machines, about the mean that data centres report."""
    hardware_electricity_usd_kwh: float = 0.10
    """An industrial rate."""
    hardware_payback_mo: float = 24.0
    """Hardware is worth a closer look where even the low end saves and the price is paid back within this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hygiene:
    """Thresholds for reporting something as untidy or broken; each is a planning assumption with its reason."""

    stray_hr: float = 24.0
    """Hours that pods of a workload without GPUs were on GPU nodes: a CI job or a migration is gone within a day."""
    crash_restarts: int = 5
    """Restarts from which a container that fails is in a crash loop: kubelet's pauses of 10, 20, 40, 80 and 160 s are behind
    it, and every further one takes 300 s."""
    crash_life_s: float = 600.0
    """A container that lived so long is not in a crash loop: kubelet begins its pauses again after ten minutes."""
    pending_hr: float = 1.0
    """Hours that a pod with GPUs waits for a node, or on its node for an image: nodes come in minutes, large images in half an
    hour."""
    unused_hr: float = 24.0
    """Hours on end, up to the last of the history, in which no GPU of a pod did anything: a night and a day."""
    notebook_open_hr: float = 4.0
    """Idle hours on end after which a notebook counts as left open: half a working day; lunch and meetings are shorter."""
    scattered_hr: float = 24.0
    """Hours without anybody coming or going on a node, up to the end of the history, before moving its pods is advised: a
    night and a day."""
    allocatable_frac: float = 0.9
    """Share of a machine type's CPUs and memory that pods can have: kubelet, the system and DaemonSets keep a few percent of
    large machines (GKE reserves 0.25 % of the CPUs beyond four and 2 to 6 % of the memory beyond 16 GiB)."""
    cordoned_hr: float = 1.0
    """Hours that a node is cordoned or not ready: a drain for an upgrade takes minutes."""
    throttled_frac: float = 0.05
    """Share of its speed that a GPU loses to throttling: clocks of healthy boards differ by a few percent."""
    fault_to_failure_s: float = 600.0
    """A run that fails so soon after a fault on its node is assumed to have failed of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of them."""

    bands: Bands = field(default_factory=Bands)
    efforts: dict[str, Effort] = field(default_factory=dict)
    """What levers cost this team, by lever; the others cost what they state themselves (`levers`)."""
    assumptions: Assumptions = field(default_factory=Assumptions)
    planning: Planning = field(default_factory=Planning)
    ownership: Ownership = field(default_factory=Ownership)
    limits: Limits = field(default_factory=Limits)
    alternatives: Alternatives = field(default_factory=Alternatives)
    hygiene: Hygiene = field(default_factory=Hygiene)
