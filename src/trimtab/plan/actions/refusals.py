"""What was judged and is not worth doing, with the reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from trimtab.fleet.kinds import RUN_KINDS
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet
from trimtab.fleet.settings import Lever, Planning, Settings
from trimtab.levers import sharing
from trimtab.plan.actions.draft_actions import Draft
from trimtab.plan.actions.drafted import Drafted
from trimtab.plan.actions.roadmap import efforts
from trimtab.plan.effort import class_of
from trimtab.plan.model import NotWorthDoing
from trimtab.plan.options.looser_target import looser_target
from trimtab.plan.options.workload_options import MISSES, MISSES_ON_DEMAND, WorkloadOptions
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import per_month, usd

_ASKED = 20
"""Services for which the nearest target that sharing keeps is looked for."""


def refusals(
    fleet: Fleet, options: Sequence[WorkloadOptions | None], cheapest: Drafted, plan: Drafted, market: Market
) -> tuple[NotWorthDoing, ...]:
    """Return the levers that apply to a workload's kind and were not chosen, workloads of one class and reason together.

    Those that too much work kept out of the plan are told with their sums (`too_much_work`).
    """
    planned = plan.effects
    told = {
        (cheapest.actions[one].lever, index)
        for one in _given_up(cheapest, plan)
        for index in cheapest.actions[one].workloads
    }
    found: dict[tuple[Lever, str], list[int]] = defaultdict(list)
    slices = _slices(fleet, options, market)
    for index, one in enumerate(options):
        if one is None:
            continue
        for lever in _applicable(fleet.workloads[index].kind):
            if (lever, index) not in told and lever not in planned.get(index, {}) and _was_judged(lever, one):
                said = slices.get(index) if lever is Lever.SHARING else None
                found[lever, said or _reason(lever, one, index, fleet)].append(index)
    return tuple(
        NotWorthDoing(lever=lever, subject=_subject(fleet, members), saving_usd_mo=None, reason=reason)
        for (lever, reason), members in sorted(found.items(), key=lambda item: (item[0][0].value, item[1]))
    )


def _slices(fleet: Fleet, options: Sequence[WorkloadOptions | None], market: Market) -> dict[int, str]:
    """Say, for the largest services of which every slice misses a target, what limits one would keep."""
    largest = sorted(range(len(options)), key=lambda index: -fleet.workloads[index].gpu_hours)[:_ASKED]
    said: dict[int, str] = {}
    for index in largest:
        one = options[index]
        if one is not None and not any(shared.profile for candidate in one.candidates for shared in candidate.slots):
            case = one.evaluator.case
            slots = sharing.propose(case.workload, market, case.settings.assumptions).fitting
            words = looser_target(case, slots, market)
            said |= {index: words} if words else {}
    return said


def not_worth(adds_usd_mo: float, weeks: float, planning: Planning) -> str | None:
    """Say why what an action adds a month is not worth its effort; None where it is."""
    if adds_usd_mo < planning.min_saving_usd_mo:
        return f"adds less than ${planning.min_saving_usd_mo:,.0f} a month to the other actions"
    cost_usd = weeks * planning.engineer_week_usd
    months = cost_usd / adds_usd_mo
    if months > planning.max_payback_mo:
        return f"{weeks:g} engineer-weeks pay back after {months:.0f} months"
    return None


def too_much_work(cheapest: Drafted, plan: Drafted, settings: Settings) -> Iterator[NotWorthDoing]:
    """Yield what the cheapest plan at any effort does and the plan does not, with what it would add there."""
    hours, weeks = cheapest.fleet.window.hours, efforts(cheapest.actions, settings, entries=False)
    levers = {action.lever for action in plan.actions}
    for number in _given_up(cheapest, plan):
        draft = cheapest.actions[number]
        added = per_month(usd(cheapest.last_in(number)), hours)
        reason = not_worth(added, weeks[number], settings.planning)
        if reason is None and settings.efforts[draft.lever].per == "fleet" and draft.lever not in levers:
            reason = (
                f"all that it would add does not pay back its {settings.efforts[draft.lever].weeks:g} engineer-weeks"
            )
        yield left_out(draft, added, reason or "what the plan does instead saves nearly as much with less work")


def _given_up(cheapest: Drafted, plan: Drafted) -> list[int]:
    """Return the actions of the cheapest plan at any effort that the plan does not have, commitments aside."""
    taken = {(action.lever, action.class_name) for action in plan.actions}
    done = {(action.lever, workload) for action in plan.actions for workload in action.workloads}
    return [
        number
        for number, draft in enumerate(cheapest.actions)
        if (draft.lever, draft.class_name) not in taken
        and draft.lever is not Lever.COMMITMENT
        and not (draft.workloads and all((draft.lever, workload) in done for workload in draft.workloads))
    ]


def left_out(draft: Draft, adds_usd_mo: float, reason: str) -> NotWorthDoing:
    """Return the refusal of an action that was priced."""
    return NotWorthDoing(lever=draft.lever, subject=draft.subject, saving_usd_mo=adds_usd_mo, reason=reason)


def _applicable(kind: WorkloadKind) -> tuple[Lever, ...]:
    if kind is WorkloadKind.SERVING:
        return (
            Lever.AUTOSCALING,
            Lever.BATCHING,
            Lever.QUANTIZATION,
            Lever.RIGHT_SIZE,
            Lever.RELOCATION,
            Lever.SHARING,
        )
    if kind in RUN_KINDS:
        return (
            Lever.RIGHT_SIZE,
            Lever.RELOCATION,
            Lever.SPOT,
            Lever.CAPACITY_BLOCK,
            Lever.TRAINING_MEMORY,
        )
    return (Lever.RIGHT_SIZE, Lever.RELOCATION, Lever.SHARING, Lever.SCHEDULE)


def _was_judged(lever: Lever, options: WorkloadOptions) -> bool:
    """Tell whether there is anything to say of a lever: memory plans and moves are looked for only where they are declared,
    blocks where their rate is known."""
    known = lever in options.notes or any(lever in one.effects for one in options.candidates)
    if lever is Lever.CAPACITY_BLOCK:
        return known or options.missed[lever] > 0
    return known or lever not in (Lever.TRAINING_MEMORY, Lever.RELOCATION)


def _reason(lever: Lever, options: WorkloadOptions, index: int, fleet: Fleet) -> str:
    workload = fleet.workloads[index]
    if lever is Lever.SPOT and not workload.spec.interruptible:
        said = workload.spec.interruptible is False
        return "declared not interruptible" if said else "nobody declared it interruptible (workloads.yaml)"
    if workload.pool.capacity_type.paid_anyway:
        return f"on {workload.pool.capacity} nodes, paid for whether used or not: leaving them saves nothing"
    if lever in options.notes:
        return options.notes[lever]
    with_lever = [one for one in options.candidates if lever in one.effects]
    if with_lever:
        return "possible, but dearer than the plan"
    if options.missed[lever]:
        return "every variant misses a target in replay"
    reasons = Counter({why: count for why, count in options.dropped.items() if why not in (MISSES, MISSES_ON_DEMAND)})
    if lever is Lever.SHARING:
        return "no other node to share holds it within its targets, or for less"
    if lever is Lever.RIGHT_SIZE and reasons:
        return f"no GPU of the region fits: {reasons.most_common(1)[0][0]}"
    return "nothing to change"


def _subject(fleet: Fleet, members: Sequence[int]) -> str:
    names = [fleet.workloads[index].name for index in members]
    classes = {class_of(fleet.workloads[index]) for index in members}
    if len(names) > 3 and len(classes) == 1:
        return f"{names[0].partition('/')[0]}/* ({len(names)} workloads)"
    return ", ".join(names)
