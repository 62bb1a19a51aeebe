"""What a plan asks of its team, in the currency of the bill: entries that are paid once, whoever needs them.

An action is a lever on a class of workloads. It is worth doing where it adds at least `planning.min_saving_usd_mo` a month and
pays its effort back within `planning.max_payback_mo`; so it costs the larger of the two, a month. Effort that a lever's first
use takes is an entry of its own, which all actions of the lever pay back together. The joint choice knows these entries:
what is left out for its effort makes room for what is worth it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import Relocate, UseSlots, WorkloadEffect
from trimtab.fleet.model import Workload
from trimtab.fleet.settings import Settings
from trimtab.levers.registry import effort_of_lever
from trimtab.plan.problem import Option, Problem
from trimtab.units import HR_PER_MO, micro_usd

UNHELD = "unheld nodes"
"""The class of nodes that no workload holds."""
_NEVER_MO = 1e-3
"""A payback of no time at all, as a divisor."""

Effort = Mapping[str, float]
"""What must be paid, by name, in dollars a month."""


class PaidAction(Protocol):
    """A lever on a class of workloads."""

    @property
    def lever(self) -> str: ...

    @property
    def class_name(self) -> str: ...


def class_of(workload: Workload) -> str:
    """Return the class that effort is paid once for: workloads of one namespace, kind and GPU."""
    return f"{workload.namespace}/{workload.kind.value}/{workload.gpu}"


def together_of(workload: Workload, effect: WorkloadEffect) -> str:
    """Return whom an effect makes one action with: its class, those that go to the same place, or that share the same nodes."""
    if isinstance(effect, UseSlots):
        return f"{effect.shared.site} ({effect.pool.region})"
    return f"{class_of(workload)} to {effect.place}" if isinstance(effect, Relocate) else class_of(workload)


def effort_of(lever: str, together: str, settings: Settings) -> Effort:
    """Return what an action costs its team: its own entry, and that of its lever where effort is paid once for the fleet."""
    planning, effort = settings.planning, effort_of_lever(lever, settings)
    week_usd_mo = planning.engineer_week_usd / max(planning.max_payback_mo, _NEVER_MO)
    entries = {
        lever: effort.once_weeks * week_usd_mo,
        f"{lever} for {together}": max(effort.each_weeks * week_usd_mo, planning.min_saving_usd_mo),
    }
    return {name: price for name, price in entries.items() if price > 0}


def effort_of_deployment(workload: Workload, deployment: Deployment, settings: Settings) -> Effort:
    """Return what a workload's deployment costs the team."""
    found: dict[str, float] = {}
    for lever in dict.fromkeys(lever for lever, _ in deployment.changes):
        # a lever is one action of a workload, whatever it changes of it
        found |= effort_of(lever, together_of(workload, next(deployment.of_lever(lever))), settings)
    return _one_of_all(tuple(found.items()))


@lru_cache(maxsize=4096)
def _one_of_all(entries: tuple[tuple[str, float], ...]) -> Effort:
    """Return the same mapping for all that are equal: hundreds of ways of a workload ask for the same."""
    return dict(entries)


def effort_micro_usd(actions: Iterable[PaidAction], settings: Settings, hours: int) -> int:
    """Return what some actions ask of the team over a window, in micro-dollars; what is paid once counts once."""
    found: dict[str, float] = {}
    for action in actions:
        found |= effort_of(action.lever, action.class_name, settings)
    return micro_usd(sum(found.values()) * hours / HR_PER_MO)


def with_effort(problem: Problem, rows: Iterable[Iterable[Effort]]) -> Problem:
    """Return a problem whose options need their entries too; `rows` holds each option's, workload by workload."""
    names: dict[str, float] = {}
    options = []
    for offered, needed in zip(problem.options, rows, strict=True):
        entered: list[Option] = []
        for option, entries in zip(offered, needed, strict=True):
            names |= entries
            entered.append(replace(option, needs=option.needs | entries.keys()))
        options.append(tuple(entered))
    months = problem.hours / HR_PER_MO
    entries_micro_usd = {name: micro_usd(price * months) for name, price in names.items()}
    return replace(
        problem, options=tuple(options), entries_micro_usd={**problem.entries_micro_usd, **entries_micro_usd}
    )
