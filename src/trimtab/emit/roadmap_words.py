"""The year ahead as lines for people."""

from __future__ import annotations

from trimtab.emit.document import AuditDocument, RoadmapPart
from trimtab.emit.money import dollars, percent


def quick_wins(document: AuditDocument) -> tuple[str, ...]:
    """Return the ids of the quick wins, in order."""
    found = document.plan.roadmap
    return tuple(step.action for step in found.course.steps if step.quick_win) if found else ()


def roadmap_lines(found: RoadmapPart) -> tuple[str, ...]:
    """Say what the year brings, what the order is worth, and how firm it is."""
    return (_year_line(found), *_best_lines(found), _fixed_line(found), _firm_line(found))


def _year_line(found: RoadmapPart) -> str:
    share, low, high = found.year_end_saving_frac, found.folklore_low_frac, found.folklore_high_frac
    range_words = f"the {percent(low)} to {percent(high)} that guides promise"
    if share < low:
        held = f"less than {range_words}: this fleet, under its targets, does not hold it"
    elif share > high:
        held = f"more than {range_words}"
    else:
        held = f"within {range_words}"
    left = sum(step.done_mo > len(found.course.bill_usd_mo) - 1 for step in found.course.steps)
    later = f"; {left} of the actions end later than that" if left else ""
    return (
        f"After twelve months the bill is {dollars(found.year_end_bill_usd_mo)} a month, {percent(share, 1)} below today's, "
        f"{held}{later}."
    )


def _best_lines(found: RoadmapPart) -> tuple[str, ...]:
    """Say how good the order is, where it was compared."""
    loss = found.per_week_loss_usd
    if loss is None or len(found.course.steps) < 2:
        return ()
    worth = (
        f"the largest saving per engineer-week first would cost {dollars(loss)} more"
        if loss >= 1
        else "it is that of the largest saving per engineer-week first"
    )
    if found.best:
        return (f"No order of these actions makes the year cheaper: {worth}.",)
    return (f"The order by saving per engineer-week, improved by exchanging pairs: {worth}.",) if loss >= 1 else ()


def _fixed_line(found: RoadmapPart) -> str:
    said = "less" if found.gain_usd >= 0 else "more"
    return (
        f"The same actions in the fixed order (autoscale, right-size, capacity, quantize, MIG, taints, long tail): over the "
        f"year this order costs {dollars(abs(found.gain_usd))} {said}."
    )


def _firm_line(found: RoadmapPart) -> str:
    if not found.sways:
        return "There is nothing to put in order."
    least = min(found.sways, key=lambda sway: sway.same_frac)
    moved = max(found.sways, key=lambda sway: sway.regret_usd)
    if least.same_frac >= 1:
        return "The order stays the same if any one lever takes half or twice its effort."
    regret = dollars(moved.regret_usd)
    cost = f" Keeping the order of the plan then costs at most {regret} over the year." if moved.regret_usd > 0 else ""
    factor = "half" if least.factor < 1 else "twice"
    return (
        f"If any one lever takes half or twice its effort, at least {percent(least.same_frac)} of the pairs of actions keep "
        f"their order (least: {least.lever} at {factor}).{cost}"
    )
