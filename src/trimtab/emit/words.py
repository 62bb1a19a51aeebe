"""Sentences shared by all reports: waste kinds, levers and risks, the year ahead, and alternatives judged for every fleet."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, assert_never

from trimtab.diagnose.findings import WasteKind
from trimtab.emit.document import AuditDocument, UndeclaredPart
from trimtab.emit.document.bill import OwnedPart, OwnedSpendPart
from trimtab.emit.document.plan import ActionPart, AlternativePart, LimitPart, PlanPart, RoadmapPart, TargetPart
from trimtab.emit.document.proof import HeldPart, LawPart, ProofPart, RepairPart, RobustnessPart, StressedPart
from trimtab.emit.money import bill_left, dollars, dollars_and_cents, percent
from trimtab.fleet.model import Target
from trimtab.levers import overflow
from trimtab.levers.lever import Risk
from trimtab.levers.registry import lever_named, title_of
from trimtab.tables.workloads import TargetMetric
from trimtab.units import MO_PER_YEAR, MS_PER_S, S_PER_HR, S_PER_MIN

if TYPE_CHECKING:  # reports of a kept audit are written without the planner
    from trimtab.plan.model import Action

WASTE_MEANING: Mapping[WasteKind, str] = MappingProxyType(
    {
        WasteKind.FAILED_RUNS: "runs that failed, containers that crash",
        WasteKind.FAULTY_NODES: "cordoned, faulty or throttled",
        WasteKind.UNUSED_COMMITMENT: "paid ahead, used by nothing",
        WasteKind.UNALLOCATED_NODES: "no workload held them",
        WasteKind.UNKNOWN_HOLDER: "no record of who ran on them",
        WasteKind.HOURS_NOT_USED: "nodes up, nothing running",
        WasteKind.NON_GPU_PODS: "they need no GPU",
        WasteKind.IDLE: "held, but did nothing",
        WasteKind.OVER_PARALLEL: "each run needs fewer",
        WasteKind.OVER_PROVISIONED: "more copies than demand",
        WasteKind.OVER_SIZED: "a cheaper GPU would do",
        WasteKind.BUYING_OPTION: "a cheaper way to pay exists",
        WasteKind.UNMEASURED: "no readings, so not judged",
        WasteKind.USEFUL: "what the work itself needed",
    }
)

_NAMED = 3
_CENT = 0.01
_WORTH_A_MULTIPLE = 1.05
_CLEARLY_LESS = 0.75
"""Below the top of the healthy band, which every plan leaves."""
_NO_GAP_FRAC = 0.0005
"""A gap that would be shown as 0.0 %."""

USEFUL = WasteKind.USEFUL.value
"""The only kind that is not waste."""

RISK_MEANING: Mapping[Risk, str] = MappingProxyType(
    {
        Risk.LOW: "users would notice no difference if it went wrong, and it is undone at once",
        Risk.MEDIUM: "a target may be missed for a while if the prediction is off; it can be undone",
        Risk.HIGH: "it cannot be undone for a term, or users would notice a fault; try it on a small part first",
    }
)

_BINDS = "a purchase is paid to the end of its term, used or not, and cannot be undone"


def risk_meaning(risk: Risk, lever: str) -> str:
    """Explain a risk for an action of a lever. A lever with a term is never described as reversible."""
    if lever_named(lever).reversible:
        return RISK_MEANING[risk]
    also = f"; {RISK_MEANING[risk]}" if risk is Risk.HIGH else ""
    return _BINDS + also


GLOSSARY: Mapping[str, str] = MappingProxyType(
    {
        "commitment": "an agreement to pay for a node for a year or more, used or not, at a lower rate",
        "fit window": "the part of the history that the plan was made from",
        "80% interval": "in 8 of 10 cases the saving lies between these two figures",
        "no worse than observed": "the target of a workload that declared none: as quick as it has been so far",
        "last in": "what would be lost if this action alone were left out; it may be more or less than its fair share",
        "quick win": "little work, low risk, paid back within a month",
        "proof window": "the last part of the history, hidden from the planner and used only to test the plan",
        "p95": "19 of 20 requests are at least this quick",
        "spot": "spare capacity at a discount, which the cloud may take back at two minutes' notice",
    }
)


def plan_note(plan: PlanPart) -> str:
    """Explain what readers of the plan's table may ask about, and how close to the optimum the plan is."""
    return " ".join([*(_only_together(action) for action in plan.actions if action.enables), _certificate(plan)])


def _only_together(action: ActionPart) -> str:
    """Explain what an action enables."""
    return (
        f"{enabled(action)} Part of the saving credited to {action.id} is what the others save only together with it."
    )


def enabled(action: ActionPart) -> str:
    """Say what would go wrong with the actions that one enables, without it."""
    wrong = "exceed a quota, or miss a target" if action.lever == overflow.NAME else "miss a target"
    return f"Without {action.id}, {', '.join(action.enables)} would {wrong}."


def _certificate(plan: PlanPart) -> str:
    options = f"the {plan.options:,} options considered"
    if plan.gap_frac < _NO_GAP_FRAC:
        return f"No combination of {options} is cheaper."
    bill = f"is more than {percent(plan.gap_frac, 1)} cheaper ({dollars(plan.bound_usd_mo)} a month)"
    if plan.work_gap_frac is None or plan.work_gap_frac >= plan.gap_frac:
        return f"No combination of {options} {bill}."
    both = (
        "is cheaper" if plan.work_gap_frac < _NO_GAP_FRAC else f"is more than {percent(plan.work_gap_frac, 1)} cheaper"
    )
    alone = f"counting the bill alone, including work that does not pay off, none {bill}"
    return f"No combination of {options} {both}, bill and work together; {alone}."


def kept_words(proof: ProofPart) -> str:
    """Say how many targets are met, in total and by kind: `17 of 18 targets kept (latency 4 of 5, hours 13 of 13)`."""
    if not proof.targets:
        return "no target that could be checked"
    whole = f"{proof.targets_kept} of {len(proof.targets)} targets kept"
    kinds = ", ".join(f"{kind.promise} {kind.kept} of {kind.targets}" for kind in proof.by_promise)
    untouched = sum(kind.untouched for kind in proof.by_promise)
    left = f"; {untouched} belong to workloads that the plan does not change" if untouched else ""
    return f"{whole} ({kinds}{left})" if len(proof.by_promise) > 1 or untouched else whole


def late_words(target: TargetPart) -> str:
    """Say how many more requests are late: `late requests 0.8% -> 3.6% (4.5 times as many), allowed 5%`. Empty for other
    targets."""
    if target.limit_s is None or target.before_frac is None:
        return ""
    what = "runs" if target.metric == TargetMetric.QUEUE_WAIT.value else "requests"
    late = f"late {what} {percent(1 - target.before_frac, 1)} → {percent(1 - target.attained_frac, 1)}"
    times = target.times_as_late
    many = "" if times is None or times < _WORTH_A_MULTIPLE else f" ({times:.1f} times as many)"
    return f"{late}{many}, allowed {percent(1 - target.required_frac, 1)}"


def repair_lines(proof: ProofPart, plan: PlanPart) -> list[str]:
    """Say which workloads were planned again after the proof failed them, and how the saving changed; empty if none were."""
    if not proof.repairs or proof.first_saving_usd_mo is None:
        return []
    lines = [f"{repair.workload}: {_refused_words(repair)}; {_instead(repair)}" for repair in proof.repairs]
    many = len(proof.repairs)
    return [
        f"{many} workload{'' if many == 1 else 's'} failed the proof and {'was' if many == 1 else 'were'} planned again: "
        f"the saving is {dollars(plan.joint_saving_usd_mo)} a month, not the {dollars(proof.first_saving_usd_mo)} of the first "
        "plan. The proof window was only used to reject options, not to choose any, but for these workloads it is no longer "
        "unseen.",
        *lines,
    ]


def _refused_words(repair: RepairPart) -> str:
    if repair.missed:
        doubt = "with its new GPUs at the slow end of the prediction, " if repair.when_slow else ""
        return doubt + "; ".join(map(_missed_words, repair.missed))
    return f"together with dependent changes, it cost {dollars(repair.extra_usd)} more than history over these weeks"


def _missed_words(target: TargetPart) -> str:
    came = late_words(target) or f"attained {percent(target.attained_frac, 1)}"
    return f"{target.target}: {came}"


def _instead(repair: RepairPart) -> str:
    first = f'instead of "{"; ".join(repair.was)}"'
    return f"{first} now {'; '.join(repair.now)}" if repair.now else f"{first} it stays as it is"


def stress_line(stressed: StressedPart) -> str:
    """Describe the outcome of the plan in one stress test."""
    missed = f"; missed by {', '.join(stressed.missed[:_NAMED])}" if stressed.missed else ""
    more = f" and {len(stressed.missed) - _NAMED} more" if len(stressed.missed) > _NAMED else ""
    kept = f"{stressed.targets_kept} of {stressed.targets} targets kept"
    bill = "" if stressed.bill_usd_mo is None else f"the bill is {dollars(stressed.bill_usd_mo)} a month, "
    waits = _waits(stressed)
    return (
        f"{stressed.departure}: {bill}{saved_words(stressed.saving_frac)}, "
        f"{waits}{kept}{missed}{more}{_worst(stressed)}"
    )


def saved_words(frac: float) -> str:
    """Say what share of a bill is saved, or by how much it grows."""
    return f"saves {percent(frac, 1)}" if frac >= 0 else f"costs {percent(-frac, 1)} more than today"


def _waits(stressed: StressedPart) -> str:
    """Say how many runs wait for a node, and how long."""
    if not stressed.runs_without_node:
        return ""
    runs = "1 run waits" if stressed.runs_without_node == 1 else f"{stressed.runs_without_node:,} runs wait"
    return f"{runs} for a node, up to {stressed.longest_without_node_s / S_PER_HR:.1f} h, "


def _worst(stressed: StressedPart) -> str:
    """Name the target that is missed most, and what it reaches."""
    missed = [target for target in stressed.attained if not target.kept and target.workload in stressed.missed]
    if not missed:
        return ""
    worst = min(missed, key=lambda target: target.attained_frac - target.required_frac)
    came = f"{percent(worst.attained_frac, 1)}, required {percent(worst.required_frac, 1)}"
    return f" (worst: {worst.workload} {worst.metric} {came})"


def headroom_line(found: RobustnessPart) -> str:
    """Say what the plan's headroom costs."""
    what = "headroom for demand, speed and targets"
    if round(found.price_usd_mo) <= 0:
        return f"The plan's {what} costs nothing: without it, no plan would save more."
    return (
        f"{what[:1].upper()}{what[1:]} costs {dollars(found.price_usd_mo)} a month, which a plan without it would save."
    )


UNDECLARED_LEAD = (
    "Savings that need permission from a workload's owner. To permit one, add the lines to workloads: in workloads.yaml"
)
UNDECLARED_NOTE = (
    "Each is priced alone, with the rest of the plan unchanged: the figures are alternatives and do not add up. Audit again "
    "after each declaration."
)


def undeclared_line(undeclared: UndeclaredPart) -> str:
    """Describe a missing declaration, what declaring it would save, and what the owner accepts with it."""
    names = ", ".join(undeclared.workloads)
    saves = f"{undeclared.permits} would save {dollars(undeclared.saves_usd_mo)} a month"
    bought = undeclared.saves_once_bought_usd_mo
    if bought is not None:
        saves += f", {dollars(bought) if bought > 0 else 'nothing'} once the plan's commitments are bought"
    return f"{names}: {undeclared.known}; {saves} ({undeclared.gives_up})"


def law_line(law: LawPart) -> str:
    """Describe the capacity assumed for a replica of a service, where it comes from, and how its model did in a back-test."""
    most = f"{law.planned:.3g} {law.unit}"
    load = f"a replica is planned at up to {most}, "
    load += (
        "the most that was observed" if f"{law.shown:.3g}" == f"{law.planned:.3g}" else f"{law.shown:.3g} were observed"
    )
    if law.planned < law.by_activity * _CLEARLY_LESS:
        load += f" (GPU activity alone would suggest {law.by_activity:.3g})"
    return f"{law.workload}: {load}; first limit reached: {law.bound}; {_back_test(law)}"


def load_test_line(law: LawPart) -> str:
    """Describe the load test that would show whether a replica can serve more than was observed."""
    return f"{law.workload}: {law.load_test}"


def _back_test(law: LawPart) -> str:
    test = law.back_test
    if test is None:
        return f"not tested: {law.untested}"
    measures = (
        _held(test.in_time, "answered in time", share=True),
        _held(test.running, "requests in work"),
        _held(test.waiting, "requests waiting"),
    )
    said = "; ".join(measure for measure in measures if measure) or "GPU time per request alone"
    return f"on busier hours than it was fitted on, {said} (off by {percent(test.error_frac, 1)})"


def _held(held: HeldPart | None, what: str, *, share: bool = False) -> str:
    if held is None:
        return ""
    predicted, measured = (f"{part:.1%}" if share else f"{part:.2g}" for part in (held.foretold, held.measured))
    return f"{what}: {predicted} predicted, {measured} measured"


def limit_line(limit: LimitPart) -> str:
    """Describe the effect of a limit on the plan."""
    used = f"{limit.used:g} used" if limit.most > 1 else f"{percent(limit.used)} used"
    if not limit.binds and not limit.cost_usd_mo:
        return f"{limit.limit}: {used}, not reached"
    reached = "reached" if limit.binds else f"{used}, and it excludes options that need more"
    if limit.cost_usd_mo is None:
        return f"{limit.limit}: {reached}"
    less = f"bill and work would cost {dollars(limit.cost_usd_mo)} a month less"
    if limit.bill_usd_mo is None or abs(limit.cost_usd_mo - limit.bill_usd_mo) < 1:
        return f"{limit.limit}: {reached}; without it, {less}"
    bill, work = (_less_or_more(usd_mo) for usd_mo in (limit.bill_usd_mo, limit.cost_usd_mo - limit.bill_usd_mo))
    return f"{limit.limit}: {reached}; without it, {less} (the bill {bill}, the work {work})"


def _less_or_more(usd_mo: float) -> str:
    return f"{dollars(abs(usd_mo))} {'less' if usd_mo >= 0 else 'more'}"


def owned_lines(document: AuditDocument) -> list[str]:
    """Say how much of each active commitment is used, those to nodes first."""
    lines = [
        f"{owned.name}: {owned.count} x {owned.pool} until {owned.end}, {percent(owned.used_frac)} in use{_sunk(owned)}"
        for owned in document.owned
    ]
    return lines + [
        f"{owned.name}: {dollars_and_cents(owned.usd_hr)} an hour of spend with {owned.provider} until {owned.end}, "
        f"{percent(owned.used_frac)} in use{_sunk(owned)}"
        for owned in document.owned_spend
    ]


def _sunk(owned: OwnedPart | OwnedSpendPart) -> str:
    return f"; {dollars(owned.sunk_usd_mo)} a month are sunk until it ends" if owned.sunk_usd_mo else ""


def without_committed_rate(unjudged_usd_mo: float, on_demand_usd_mo: float) -> tuple[str, ...]:
    """Say how much of the use on demand could not be judged for lack of any committed rate; nothing where all could be."""
    if unjudged_usd_mo <= 0:
        return ()
    return (
        f"{percent(unjudged_usd_mo / on_demand_usd_mo)} of the use on demand, {dollars(unjudged_usd_mo)} of "
        f"{dollars(on_demand_usd_mo)} a month, could not be judged: no committed rate is known for it",
    )


def moving_in(moving: float) -> str:
    """Say how much of a bill is moving and traffic; empty if none."""
    return f", {dollars(moving)} of it moving and traffic" if moving else ""


def joint_interval(plan: PlanPart) -> str:
    """Give the interval of the joint saving; empty if it is not known or nothing is saved."""
    low, high = plan.joint_saving_low_usd_mo, plan.joint_saving_high_usd_mo
    if low is None or high is None or low == high:
        return ""
    return f", 80% interval {dollars(low)}–{dollars(high)}"


def interval(action: ActionPart) -> str:
    """Format an action's 80% interval in whole dollars; one figure if both ends are equal."""
    low, high = (f"{usd_mo:,.0f}" for usd_mo in (action.saving_low_usd_mo, action.saving_high_usd_mo))
    return low if low == high else f"{low}–{high}"


def sampled_share(action: ActionPart) -> bool:
    """Return whether an action's share of the joint saving was sampled and therefore has its own interval."""
    low, high = action.share_low_usd_mo, action.share_high_usd_mo
    return low is not None and high is not None and high - low >= _CENT


def target_words(target: Target) -> str:
    """Describe a target in words: `95% of requests answered within 4 s`."""
    share = f"{target.required_frac * 100:g}%"
    limit = "" if target.limit_s is None else f" within {span(target.limit_s)}"
    match target.metric:
        case TargetMetric.LATENCY:
            return f"{share} of requests answered{limit}"
        case TargetMetric.TTFT:
            return f"{share} of requests get their first token{limit}"
        case TargetMetric.TPOT:
            return f"{share} of requests get each further token{limit}"
        case TargetMetric.QUEUE_WAIT:
            return (
                f"{share} of runs start{limit} after they are requested"
                if target.limit_s
                else f"{share} of runs start at once"
            )
        case TargetMetric.THROUGHPUT:
            return f"at least {share} of the observed throughput"
    assert_never(target.metric)


def days(start: datetime, end: datetime) -> str:
    """Format `[start, end)` as its first and last day: `19 Oct to 1 Nov 2026`."""
    last = end - timedelta(microseconds=1)
    year = "" if start.year == last.year else f" {start.year}"
    return f"{start.day} {start:%b}{year} to {last.day} {last:%b %Y}"


def span(seconds: float) -> str:
    """Format a duration with three figures, in a readable unit."""
    if seconds < 1:
        return f"{seconds * MS_PER_S:.3g} ms"
    if seconds < 2 * S_PER_MIN:
        return f"{seconds:.3g} s"
    if seconds < 2 * S_PER_HR:
        return f"{seconds / S_PER_MIN:.3g} min"
    return f"{seconds / S_PER_HR:.3g} h"


def quick_wins(document: AuditDocument) -> tuple[str, ...]:
    """Return the ids of the quick wins, in order."""
    found = document.plan.roadmap
    return tuple(step.action for step in found.course.steps if step.quick_win) if found else ()


def roadmap_lines(found: RoadmapPart) -> tuple[str, ...]:
    """Describe the year: the bill after twelve months, how good the order is, and how robust."""
    return (_year_line(found), *_best_lines(found), _fixed_line(found), _firm_line(found))


def _year_line(found: RoadmapPart) -> str:
    share, low, high = found.year_end_saving_frac, found.folklore_low_frac, found.folklore_high_frac
    range_words = f"the {percent(low)} to {percent(high)} often promised in cost guides"
    if share < low:
        held = f"less than {range_words}: under its targets, this fleet does not allow more"
    elif share > high:
        held = f"more than {range_words}"
    else:
        held = f"within {range_words}"
    bill = bill_left(found.course.bill_usd_mo[0], found.year_end_bill_usd_mo)
    left = sum(step.done_mo > len(found.course.bill_usd_mo) - 1 for step in found.course.steps)
    later = f"; {left} of the actions end later than that" if left else ""
    return f"After twelve months the bill is {dollars(bill)} a month, {percent(share, 1)} below today's, {held}{later}."


def _best_lines(found: RoadmapPart) -> tuple[str, ...]:
    """Say how good the order is, if it was compared."""
    loss = found.per_week_loss_usd
    if loss is None or len(found.course.steps) < 2:
        return ()
    worth = (
        f"the largest saving per engineer-week first would cost {dollars(loss)} more"
        if loss >= 1
        else "it is the largest saving per engineer-week first"
    )
    if found.best:
        return (f"No other order of these actions makes the year cheaper: {worth}.",)
    return (f"The order by saving per engineer-week, improved by exchanging pairs: {worth}.",) if loss >= 1 else ()


def _fixed_line(found: RoadmapPart) -> str:
    customary = "the customary order (autoscale, right-size, capacity, quantize, MIG, taints, long tail)"
    if round(found.gain_usd) == 0:
        return f"Over the year, {customary} costs the same."
    said = "less" if found.gain_usd > 0 else "more"
    return f"Over the year, this order costs {dollars(abs(found.gain_usd))} {said} than {customary}."


def _firm_line(found: RoadmapPart) -> str:
    if not found.sways:
        return "There is nothing to put in order."
    least = min(found.sways, key=lambda sway: sway.same_frac)
    moved = max(found.sways, key=lambda sway: sway.regret_usd)
    if least.same_frac >= 1:
        return "The order stays the same if any one lever takes half or twice its effort."
    regret = dollars(moved.regret_usd)
    cost = (
        f" Keeping the plan's order would then cost at most {regret} more over the year."
        if moved.regret_usd > 0
        else ""
    )
    factor = "half" if least.factor < 1 else "twice"
    return (
        f"If any one lever takes half or twice its effort, at least {percent(least.same_frac)} of the pairs of actions keep "
        f"their order (fewest: {title_of(least.lever)} at {factor}).{cost}"
    )


_LONG_MO = 5 * MO_PER_YEAR


def alternative_subject(alternative: AlternativePart) -> str:
    """Describe an alternative and its figures; its kind alone if there are none."""
    if not alternative.saving_low_usd_mo and not alternative.saving_high_usd_mo:
        return alternative.kind
    return f"{alternative.kind}: {alternative.subject} ({_sums(alternative)})"


def _sums(alternative: AlternativePart) -> str:
    """Give its figures in one line."""
    word = "saves" if alternative.saving_usd_mo >= 0 else "costs"
    low, high = sorted((abs(alternative.saving_low_usd_mo), abs(alternative.saving_high_usd_mo)))
    if alternative.saving_low_usd_mo == alternative.saving_high_usd_mo:
        span = ""
    elif alternative.saving_low_usd_mo * alternative.saving_high_usd_mo > 0:
        span = f" ({dollars(low)} to {dollars(high)})"
    else:
        span = f" ({dollars(alternative.saving_low_usd_mo)} to {dollars(alternative.saving_high_usd_mo)} saved)"
    once = f", {dollars(alternative.once_usd)} once" if alternative.once_usd else ""
    return f"{word} {dollars(abs(alternative.saving_usd_mo))} a month{span}{once}{_payback(alternative)}"


def _payback(alternative: AlternativePart) -> str:
    if alternative.payback_mo is None or not alternative.once_usd:
        return ""
    if alternative.payback_mo > _LONG_MO:
        return ", paid back after more than 5 years"
    months = max(1, round(alternative.payback_mo))
    return f", paid back after {months} month{'s' if months > 1 else ''}"


def canary_steps(action: Action) -> tuple[str, ...]:
    """Return the canary steps of an action, each once, in the order of its changes."""
    lever = lever_named(action.lever)
    steps = [step for change in action.changes for step in lever.canary(change.effect)]
    return tuple(dict.fromkeys(steps))
