"""A world other than the one that history showed, and how a plan fares in it beside the plan for the world as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.catalog.registry import PriceChange
from trimtab.fleet.reach import listed
from trimtab.fleet.settings import Settings
from trimtab.fleet.targets import OtherLimit
from trimtab.ledger.arrays import IntArray
from trimtab.plan.effort import effort_micro_usd
from trimtab.plan.model import Action, Proof
from trimtab.plan.planner import Planned
from trimtab.plan.program.limits import LimitPrice
from trimtab.plan.proof.reach import ByDeadline, WithinBudget
from trimtab.units import HR_PER_MO, usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is different; what is left out stays as it is."""

    demand: float = 1.0
    prices: tuple[PriceChange, ...] = ()
    use_spot: bool | None = None
    spot_max_frac: float | None = None
    quotas: str | None = None
    """In the words of the setting `limits.quotas`, instead of it."""
    clouds: tuple[str, ...] = ()
    """Providers that work may be moved to besides those of the settings."""
    limits: tuple[OtherLimit, ...] = ()
    """Targets of workloads with another limit."""
    budget_usd_mo: float | None = None
    deadline: date | None = None

    def words(self) -> tuple[str, ...]:
        """Say what is different, a few words each."""
        said = [
            (self.demand != 1, f"demand {self.demand:g}x"),
            *((True, f"price {change}") for change in self.prices),
            *((True, str(limit)) for limit in self.limits),
            (self.use_spot is False, "no spot"),
            (self.spot_max_frac is not None, f"at most {self.spot_max_frac or 0.0:.0%} of node-hours on spot"),
            (self.quotas is not None, f"quotas {self.quotas}"),
            (self.clouds != (), f"{', '.join(self.clouds)} as another cloud"),
            (self.budget_usd_mo is not None, f"budget ${self.budget_usd_mo or 0.0:,.0f} a month"),
            (self.deadline is not None, f"deadline {self.deadline}"),
        ]
        return tuple(words for holds, words in said if holds)

    def settings(self, settings: Settings) -> Settings:
        """Return the settings under which the scenario is planned."""
        limits = settings.limits
        if self.use_spot is not None:
            limits = replace(limits, use_spot=self.use_spot)
        if self.spot_max_frac is not None:
            limits = replace(limits, spot_max_frac=self.spot_max_frac)
        if self.quotas is not None:
            limits = replace(limits, quotas=self.quotas)
        if self.clouds:
            limits = replace(limits, providers=", ".join((*listed(limits.providers), *self.clouds)))
        return replace(settings, limits=limits)

    def plans_as_it_is(self, settings: Settings) -> bool:
        """Tell whether its plan is the one for the world as it is: a budget and a deadline are only held against that."""
        return self.demand == 1 and not self.prices and not self.limits and self.settings(settings) == settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """A plan in one world, in monthly figures."""

    before_usd_mo: float
    """The bill if the fleet went on as it is run today."""
    after_usd_mo: float
    whole_usd_mo: float
    """That bill and the work that the plan asks for, paid back over `planning.max_payback_mo`: what the plan minimises."""
    bound_usd_mo: float
    actions: tuple[Action, ...]
    effort_weeks: float
    spot_frac: float
    """Share of the planned node-hours that are on spot."""
    committed_usd_mo: float
    """What the plan's commitments cost, owned ones included."""
    limits: tuple[LimitPrice, ...]
    proof_saving_frac: float
    targets_kept: int
    targets: int
    budget: WithinBudget | None
    deadline: ByDeadline | None

    @property
    def saving_usd_mo(self) -> float:
        """Return the joint saving."""
        return self.before_usd_mo - self.after_usd_mo

    @property
    def saving_frac(self) -> float:
        """Return the joint saving as a share of the bill."""
        return self.saving_usd_mo / self.before_usd_mo if self.before_usd_mo else 0.0

    @property
    def gap_frac(self) -> float:
        """Return how far the plan may be from the best, as a share of its cost."""
        return (self.after_usd_mo - self.bound_usd_mo) / self.after_usd_mo if self.after_usd_mo else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The world as it is beside another one."""

    scenario: Scenario
    base: Outlook
    other: Outlook | None
    """None where no plan exists in the other world."""
    refused: str = ""
    """Why there is none."""


def outlook(
    planned: Planned, proof: Proof, budget: WithinBudget | None, deadline: ByDeadline | None, settings: Settings
) -> Outlook:
    """Return a plan's figures."""
    plan = planned.plan
    work = effort_micro_usd(planned.drafted.actions, settings, plan.window.hours)
    drafted = planned.drafted
    used = drafted.enacted.usage(drafted.in_force(drafted.everything), planned.released)
    return Outlook(
        before_usd_mo=plan.usd_mo(plan.before_micro_usd),
        after_usd_mo=plan.usd_mo(plan.after_micro_usd),
        whole_usd_mo=plan.usd_mo(plan.after_micro_usd + work),
        bound_usd_mo=plan.usd_mo(plan.bound_micro_usd),
        actions=plan.actions,
        effort_weeks=sum(action.effort_weeks for action in plan.actions),
        spot_frac=_spot_frac(used),
        committed_usd_mo=usd(sum(commitment.micro_usd_hr for commitment in (*planned.owned, *planned.discounts)))
        * HR_PER_MO,
        limits=plan.limits,
        proof_saving_frac=proof.saving_frac,
        targets_kept=sum(result.kept for result in proof.targets),
        targets=len(proof.targets),
        budget=budget,
        deadline=deadline,
    )


def _spot_frac(usage: Mapping[Pool, IntArray]) -> float:
    total = sum(int(use.sum()) for use in usage.values())
    spot = sum(int(use.sum()) for pool, use in usage.items() if pool.capacity_type is CapacityType.SPOT)
    return spot / total if total else 0.0
