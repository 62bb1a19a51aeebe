"""The closed set of what an action may change.

Plan, replay and emit each `match` on it with `assert_never`: a new effect is a list of places that the type checker names.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.catalog.kinds import BuyingOption
from trimtab.catalog.pools import Pool
from trimtab.policies.forecast import ForecastPolicy
from trimtab.policies.scaling import HpaPolicy
from trimtab.provenance import Estimate
from trimtab.units import S_PER_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class UseOffering:
    """Run on nodes of another instance type: `gpus_per_node` GPUs, each `speed` times as fast as the present one."""

    pool: Pool
    gpu: str
    gpus_per_node: int
    speed: Estimate

    def describe(self) -> str:
        """Say it in words."""
        return f"run on {self.pool.instance_type} ({self.gpus_per_node}x {self.gpu})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetGpuCount:
    """Ask for as many GPUs as a run uses, on nodes of the same GPU that hold `gpus_per_node` of them."""

    gpus: int
    before: int
    pool: Pool
    gpus_per_node: int

    def describe(self) -> str:
        """Say it in words."""
        return f"ask for {self.gpus} GPU{'s' if self.gpus != 1 else ''} a run, not {self.before}, on {self.pool.instance_type}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReplicaPolicy:
    """Scale replicas with demand, or with what recording rules forecast of it."""

    policy: HpaPolicy | ForecastPolicy
    metric: str

    @property
    def hpa(self) -> HpaPolicy:
        """Return the autoscaler, which follows demand itself or what the forecast records."""
        return self.policy.hpa if isinstance(self.policy, ForecastPolicy) else self.policy

    def describe(self) -> str:
        """Say it in words."""
        top = "" if self.hpa.max_replicas >= 10**6 else f"..{self.hpa.max_replicas}"
        ahead = " ahead of demand" if isinstance(self.policy, ForecastPolicy) else ""
        return f"scale {self.hpa.min_replicas}{top} replicas{ahead} at {self.hpa.target_frac:.0%} load each ({self.metric})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCapacityType:
    """Hold the nodes another way: spot, with on-demand after `on_demand_after` losses of one run."""

    pool: Pool
    loss_per_hr: float
    on_demand_after: int

    def describe(self) -> str:
        """Say it in words."""
        return f"run on spot {self.pool.instance_type}, on demand after {self.on_demand_after} losses"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSchedule:
    """Hold nodes only in these hours of the week (Monday 00:00 UTC is hour 0)."""

    hours_of_week: tuple[int, ...]

    def describe(self) -> str:
        """Say it in words."""
        return f"hold nodes {len(self.hours_of_week)} of 168 hours a week"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartBeforeRuns:
    """Start nodes before each scheduled run and give them back after it."""

    lead_s: float

    def describe(self) -> str:
        """Say it in words."""
        return f"start nodes {self.lead_s / S_PER_MIN:.0f} min before each scheduled run, give them back after it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseIdle:
    """Hold nodes only while something runs on them."""

    startup_s: float

    def describe(self) -> str:
        """Say it in words."""
        return "start nodes for runs that queue, give them back when they are empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseNodes:
    """Give back nodes that nobody held."""

    nodes: tuple[str, ...]

    def describe(self) -> str:
        """Say it in words."""
        return f"give back {len(self.nodes)} node{'s' if len(self.nodes) != 1 else ''} that nobody holds"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuyCommitment:
    """Commit to nodes of a pool for a term."""

    pool: Pool
    option: BuyingOption
    count: int
    rate_micro_usd_hr: int
    on_demand_micro_usd_hr: int

    def describe(self) -> str:
        """Say it in words."""
        return f"commit to {self.count} x {self.pool.instance_type} for {self.option.term_years} year(s)"


Effect = (
    UseOffering
    | SetGpuCount
    | SetReplicaPolicy
    | SetCapacityType
    | SetSchedule
    | StartBeforeRuns
    | ReleaseIdle
    | ReleaseNodes
    | BuyCommitment
)
