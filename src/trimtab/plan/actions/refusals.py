"""What was judged and is not worth doing, with the reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from trimtab.fleet.model import Fleet
from trimtab.fleet.settings import Planning, Settings
from trimtab.levers import commitments
from trimtab.levers.registry import effort_of_lever
from trimtab.plan.actions.draft_actions import DraftAction
from trimtab.plan.actions.draft_plan import DraftPlan
from trimtab.plan.actions.roadmap import efforts
from trimtab.plan.effort import class_of
from trimtab.plan.model import NotWorthDoing
from trimtab.plan.options.workload_options import WorkloadOptions
from trimtab.units import per_month, usd


def refusals(
    fleet: Fleet, options: Sequence[WorkloadOptions | None], cheapest: DraftPlan, plan: DraftPlan
) -> tuple[NotWorthDoing, ...]:
    """Return the levers that apply to a workload and were not chosen, workloads of one class and reason together.

    Those that too much work kept out of the plan are told with their sums (`too_much_work`).
    """
    told = {
        (cheapest.actions[number].lever, index)
        for number in _given_up(cheapest, plan)
        for index in cheapest.actions[number].workloads
    }
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, judged in enumerate(options):
        planned = plan.deployments[index].levers if index in plan.deployments else frozenset()
        for lever, reason in ((judged.why_not if judged else None) or {}).items():
            if (lever, index) not in told and lever not in planned:
                found[lever, reason].append(index)
    return tuple(
        NotWorthDoing(lever=lever, subject=_subject(fleet, members), saving_usd_mo=None, reason=reason)
        for (lever, reason), members in sorted(found.items(), key=lambda item: (item[0][0], item[1]))
    )


def not_worth(adds_usd_mo: float, weeks: float, planning: Planning) -> str | None:
    """Say why what an action adds a month is not worth its effort; None where it is."""
    if adds_usd_mo < planning.min_saving_usd_mo:
        return f"adds less than ${planning.min_saving_usd_mo:,.0f} a month to the other actions"
    cost_usd = weeks * planning.engineer_week_usd
    months = cost_usd / adds_usd_mo
    if months > planning.max_payback_mo:
        return f"{weeks:g} engineer-weeks pay back after {months:.0f} months"
    return None


def too_much_work(cheapest: DraftPlan, plan: DraftPlan, settings: Settings) -> Iterator[NotWorthDoing]:
    """Yield what the cheapest plan at any effort does and the plan does not, with what it would add there."""
    hours, weeks = cheapest.fleet.window.hours, efforts(cheapest.actions, settings, entries=False)
    levers = {action.lever for action in plan.actions}
    for number in _given_up(cheapest, plan):
        draft = cheapest.actions[number]
        effort = effort_of_lever(draft.lever, settings)
        added = per_month(usd(cheapest.last_in(number)), hours)
        reason = not_worth(added, weeks[number], settings.planning)
        if reason is None and effort.once_weeks and draft.lever not in levers:
            reason = (
                f"all that it would add does not pay back the {effort.once_weeks:g} engineer-weeks of its first use"
            )
        yield left_out(draft, added, reason or "what the plan does instead saves nearly as much with less work")


def _given_up(cheapest: DraftPlan, plan: DraftPlan) -> list[int]:
    """Return the actions of the cheapest plan at any effort that the plan does not have, commitments aside."""
    taken = {(action.lever, action.class_name) for action in plan.actions}
    done = {(action.lever, workload) for action in plan.actions for workload in action.workloads}
    return [
        number
        for number, draft in enumerate(cheapest.actions)
        if (draft.lever, draft.class_name) not in taken
        and draft.lever != commitments.NAME
        and not (draft.workloads and all((draft.lever, workload) in done for workload in draft.workloads))
    ]


def left_out(draft: DraftAction, adds_usd_mo: float, reason: str) -> NotWorthDoing:
    """Return the refusal of an action that was priced."""
    return NotWorthDoing(lever=draft.lever, subject=draft.subject, saving_usd_mo=adds_usd_mo, reason=reason)


def _subject(fleet: Fleet, members: Sequence[int]) -> str:
    names = [fleet.workloads[index].name for index in members]
    classes = {class_of(fleet.workloads[index]) for index in members}
    if len(names) > 3 and len(classes) == 1:
        return f"{names[0].partition('/')[0]}/* ({len(names)} workloads)"
    return ", ".join(names)
