"""A world other than the one that history showed, and how a plan fares in it beside the plan for the world as it is.

And which of a plan's actions to take there: the least work that keeps within a monthly budget, and what fits before a day.
Both walk the plan's own order. Any set of actions is billed exactly; what is bought follows the use that the set leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.catalog.registry import PriceChange
from trimtab.fleet.reach import listed, named_regions
from trimtab.fleet.settings import Settings
from trimtab.fleet.targets import OtherLimit
from trimtab.ledger.arrays import IntArray
from trimtab.plan.actions.roadmap import efforts
from trimtab.plan.effort import effort_micro_usd
from trimtab.plan.model import Action, Proof
from trimtab.plan.planner import Planned
from trimtab.plan.program.limits import LimitPrice
from trimtab.units import DAYS_PER_WEEK, HR_PER_MO, per_month, usd


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
    regions: tuple[str, ...] = ()
    """Regions that work may be moved to besides those that workloads.yaml names, as `us-west-2` or `gcp/us-central1`."""
    limits: tuple[OtherLimit, ...] = ()
    """Targets of workloads with another limit."""
    node_startup_s: float | None = None
    """How long a new node takes, instead of as measured, stated or assumed."""
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
            (self.regions != (), f"{', '.join(self.regions)} as another region"),
            (self.node_startup_s is not None, f"a new node is there after {self.node_startup_s or 0.0:g} s"),
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
        # a region of another cloud asks for that cloud too
        named = dict.fromkeys(region.provider for region in named_regions(self.regions) if region.provider)
        if self.clouds or named:
            asked = dict.fromkeys((*listed(limits.providers), *self.clouds, *named))
            limits = replace(limits, providers=", ".join(asked))
        if self.regions and limits.regions:
            limits = replace(limits, regions=", ".join((*listed(limits.regions), *self.regions)))
        assumptions = settings.assumptions
        if self.node_startup_s is not None:
            assumptions = replace(assumptions, node_startup_s=self.node_startup_s)
        return replace(settings, limits=limits, assumptions=assumptions)

    def plans_as_it_is(self, settings: Settings) -> bool:
        """Return whether its plan is the one for the world as it is, the only one compared with a budget and a deadline."""
        other = self.demand != 1 or self.prices or self.limits or self.regions
        return not other and self.settings(settings) == settings

    def replays_alike(self, settings: Settings) -> bool:
        """Return whether what was replayed for the world as it is holds, but for workloads with other targets."""
        return self.demand == 1 and self.settings(settings).assumptions == settings.assumptions


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
    stays: tuple[str, ...] = ()
    """Which workloads may not move to the places that were asked for, and why."""


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


_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinBudget:
    """The least work found that brings the monthly bill to a budget; or, where nothing does, by how much the best misses it."""

    budget_usd_mo: float
    actions: tuple[str, ...]
    effort_weeks: float
    bill_usd_mo: float
    short_usd_mo: float
    """0 where the budget is kept."""
    surely_short_usd_mo: float
    """By how much the certified bound alone exceeds the budget: no mix of the options considered comes nearer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByDeadline:
    """What fits before a day, done one after another by the team, and the bill from that day on."""

    day: date
    weeks: float
    """Engineer-weeks from the end of the history to that day."""
    actions: tuple[str, ...]
    effort_weeks: float
    bill_usd_mo: float
    left_out: tuple[str, ...]


def within_budget(planned: Planned, budget_usd_mo: float, settings: Settings) -> WithinBudget:
    """Take actions in order until the bill is within the budget; then drop what is not needed for that, most work first."""
    reach = _Reach(planned, settings)
    taken: list[int] = []
    for number in planned.order:
        if reach.bill_usd_mo(taken) <= budget_usd_mo:
            break
        taken.append(number)
    bill = reach.bill_usd_mo(taken)
    if bill <= budget_usd_mo:
        for number in sorted(taken, key=lambda action: -reach.weeks([action])):
            rest = [action for action in taken if action != number]
            if not reach.needed_by(number) & {*rest} and reach.bill_usd_mo(rest) <= budget_usd_mo:
                taken = rest
    bound_usd_mo = per_month(usd(planned.plan.bound_micro_usd), planned.plan.window.hours)
    return WithinBudget(
        budget_usd_mo=budget_usd_mo,
        actions=reach.names(taken),
        effort_weeks=reach.weeks(taken),
        bill_usd_mo=reach.bill_usd_mo(taken),
        short_usd_mo=max(0.0, reach.bill_usd_mo(taken) - budget_usd_mo),
        surely_short_usd_mo=max(0.0, bound_usd_mo - budget_usd_mo),
    )


def by_deadline(planned: Planned, start: date, day: date, settings: Settings) -> ByDeadline:
    """Take actions in order while their work fits; one that does not is passed over, and so is what must wait for it."""
    reach = _Reach(planned, settings)
    weeks = max(0.0, (day - start).days / DAYS_PER_WEEK) * settings.planning.engineers
    taken: list[int] = []
    for number in planned.order:
        if reach.waits_for(number) <= {*taken} and reach.weeks([*taken, number]) <= weeks + _ROUNDING:
            taken.append(number)
    return ByDeadline(
        day=day,
        weeks=weeks,
        actions=reach.names(taken),
        effort_weeks=reach.weeks(taken),
        bill_usd_mo=reach.bill_usd_mo(taken),
        left_out=reach.names([number for number in planned.order if number not in taken]),
    )


class _Reach:
    """Bills and effort of some of a plan's actions, by their numbers in the draft."""

    def __init__(self, planned: Planned, settings: Settings) -> None:
        self._planned = planned
        self._settings = settings
        self._needed_by = planned.drafted.needed_first()

    def needed_by(self, number: int) -> frozenset[int]:
        """Return the actions that would miss a target without this one."""
        return self._needed_by.get(number, frozenset())

    def waits_for(self, number: int) -> set[int]:
        """Return the actions that must be done before this one; two that need each other may go in any order."""
        mine = self.needed_by(number)
        return {first for first, others in self._needed_by.items() if number in others and first not in mine}

    def bill_usd_mo(self, some: Sequence[int]) -> float:
        """Return the monthly bill with some actions."""
        cost = self._planned.drafted.cost(frozenset(some))
        return per_month(usd(cost), self._planned.plan.window.hours)

    def weeks(self, some: Sequence[int]) -> float:
        """Return the engineer-weeks of some actions; what is paid once is counted once."""
        return sum(efforts([self._planned.drafted.actions[number] for number in some], self._settings))

    def names(self, some: Sequence[int]) -> tuple[str, ...]:
        """Return the actions' ids, in order."""
        return tuple(
            action.id
            for action, number in zip(self._planned.plan.actions, self._planned.order, strict=True)
            if number in some
        )
