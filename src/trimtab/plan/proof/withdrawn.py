"""What leaves a plan because the proof window shows that it costs more than doing nothing, and mends no target for it.

Staying as it is is always an option, and the proof window is where it was measured: history's own replicas served its demand at
history's own cost. A plan made on quieter weeks may run more capacity there than history needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet
from trimtab.fleet.settings import Settings
from trimtab.plan.actions.attribution import components
from trimtab.plan.actions.intervals import spend_of_runs
from trimtab.plan.model import NotWorthDoing, Proof
from trimtab.plan.planner import Planned, laid_out
from trimtab.plan.proof.proof_window import replayed
from trimtab.units import per_month, usd


def costs_more(
    planned: Planned, proof: Proof, fleet: Fleet, market: Market, settings: Settings, *, seed: int
) -> dict[int, int]:
    """Return the places in the plan of actions that together cost more over the proof window, and what those cost more.

    Actions that touch one another are judged together, in micro-dollars of that window. Those that keep a target which history
    missed there are worth their cost.
    """
    if not planned.plan.actions:
        return {}
    after = replayed(planned, fleet, market, settings, seed=seed)
    mended = {
        one.workload
        for one in proof.targets
        if one.kept and one.before_frac is not None and one.before_frac < one.target.required_frac
    }
    found: dict[int, int] = {}
    for group in components(len(planned.order), [planned.drafted.actions[number].touches for number in planned.order]):
        subjects = {change.subject for place in group for change in planned.plan.actions[place].changes}
        saved = after.saving(frozenset(group))
        if saved < 0 and not subjects & mended:
            found |= dict.fromkeys(group, -saved)
    return found


def withdrawn(
    planned: Planned, places: Mapping[int, int], settings: Settings, *, seed: int, proof_hours: int
) -> Planned:
    """Return a plan without the actions at some places, each among what is not worth doing, with the sum that decided it."""
    drafted = planned.drafted.without(frozenset(planned.order[place] for place in places))
    laid = laid_out(drafted, settings, seed=seed)
    refused = tuple(
        NotWorthDoing(
            lever=planned.plan.actions[place].lever,
            subject=planned.plan.actions[place].subject,
            saving_usd_mo=-per_month(usd(more), proof_hours),
            reason="with what goes with it, costs more than history did on weeks that the plan had not seen",
        )
        for place, more in places.items()
    )
    return replace(
        planned,
        plan=replace(
            planned.plan,
            after_micro_usd=drafted.cost(drafted.everything),
            moving_micro_usd=drafted.moving(drafted.everything),
            actions=laid.actions,
            roadmap=laid.roadmap,
            attribution=laid.attribution,
            not_worth_doing=(*refused, *planned.plan.not_worth_doing),
            runs=tuple(spend_of_runs(drafted)),
        ),
        deployments={planned.fleet.workloads[index].name: one for index, one in drafted.deployments.items()},
        released=tuple(planned.fleet.nodes[index].name for index in drafted.released),
        discounts=drafted.bought(drafted.everything),
        drafted=drafted,
        order=laid.order,
    )
