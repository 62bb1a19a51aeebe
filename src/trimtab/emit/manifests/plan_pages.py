"""Pages for a person: the order of applying, a decision record for each action, and the year."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta

from trimtab.deployment.effects import SetSchedule
from trimtab.emit.manifests.cron_files import held_stretches, hours_in_words
from trimtab.emit.manifests.emission import STAGE_MEANING, ApplyStage, Emission, ManifestFile
from trimtab.emit.manifests.pool_specs import PoolSpec
from trimtab.emit.money import bill_left, dollars, dollars_and_cents
from trimtab.emit.words import canary_steps, risk_meaning
from trimtab.levers.registry import title_of
from trimtab.plan.model import Action, Change, Plan, Schedule, ScheduledAction
from trimtab.units import HR_PER_MO, MICRO_PER_USD

_QUARTER_DAYS = 91
_LATER_DAYS = 365
"""When an action that is planned for later than a year is looked at again."""


def decision_record(
    action: Action,
    plan: Plan,
    *,
    written: Sequence[str],
    withheld: Sequence[str],
    owners: Sequence[str] = (),
    pools: Sequence[str] = (),
) -> str:
    """Return the record as Markdown; `written` are the paths that enact the action, `withheld` what no file could carry.

    `owners` are the teams whose workloads it changes, `pools` what is to be known of its node pools.
    """
    parts = (
        f"# {action.id}: {title_of(action.lever)} ({action.subject})",
        _head(action, plan, owners),
        "## Context",
        _context(action, plan),
        "## Evidence",
        _bullets(_evidence(action)),
        "## Decision",
        _bullets([*(_decided(change) for change in action.changes), *pools]),
        "## Saving",
        _saving(action),
        "## Alternatives",
        _bullets(_alternatives(action, plan)),
        "## Enacted by",
        _bullets([f"`{path}`" for path in written]) or "No file: a person does it (below).",
        *(["## Left to a person", _bullets(withheld)] if withheld else []),
        *(
            ["## Before it", _bullets([condition.words for condition in action.preconditions])]
            if action.preconditions
            else []
        ),
        *(["## Ask first", _bullets(action.ask_first)] if action.ask_first else []),
        "## Canary",
        "\n".join(f"{number}. {step}" for number, step in enumerate(canary_steps(action), start=1)),
        "## Rollback",
        f"{action.rollback[:1].upper()}{action.rollback[1:]}.",
    )
    return "\n\n".join(parts) + "\n"


def choice_of_spot(spec: PoolSpec) -> str:
    """Return in words which types a pool of spot nodes may start, what each costs, and what that means for the bill."""
    planned, *others = spec.spot_types
    listed = ", ".join(f"`{known.instance_type}` {_usd_hr(known.rate_micro_usd_hr)}" for known in others)
    return (
        f"`{spec.name}` runs on spot nodes of `{planned.instance_type}` at {_usd_hr(planned.rate_micro_usd_hr)}, which is what "
        f"was replayed and is billed here. So that a shortage of one type stops nothing, it may start others: "
        f"{listed}. Each has the same GPUs, as many of them, and at least as much CPU and memory. None costs more on spot than "
        f"`{planned.instance_type}` on demand ({_usd_hr(planned.on_demand_micro_usd_hr)}), which comes after them"
    )


def _usd_hr(rate_micro_usd_hr: int) -> str:
    return f"${rate_micro_usd_hr / MICRO_PER_USD:.4f} an hour"


def _decided(change: Change) -> str:
    """Return a change in words; a timetable with its hours, which whoever keeps it by hand needs."""
    hours = ""
    if isinstance(change.effect, SetSchedule):
        hours = f": {hours_in_words(held_stretches(change.effect.hours_of_week))} (UTC)"
    return f"`{change.subject}`: {change.effect.describe()}{hours}"


def _head(action: Action, plan: Plan, owners: Sequence[str]) -> str:
    quarter = f"quarter {action.quarter}" if action.quarter else "later than a year"
    return (
        "| status | owner | risk | effort | planned for | review by |\n|---|---|---|---|---|---|\n"
        f"| proposed | {owner_words(owners)} | {action.risk.value}: {risk_meaning(action.risk, action.lever)} "
        f"| {action.effort_weeks:g} engineer-weeks | {quarter} | {review_date(action, plan).isoformat()} |"
    )


def owner_words(owners: Sequence[str]) -> str:
    """Return who owns a decision; an unknown owner is stated, since one has to be named before it is done."""
    return ", ".join(owners) or "to be named"


def review_date(action: Action, plan: Plan) -> date:
    """Return the day by which to hold an action against its claim (`trimtab verify`): the end of the quarter planned for it."""
    days = action.quarter * _QUARTER_DAYS if action.quarter else _LATER_DAYS
    return (plan.window.end + timedelta(days=days)).date()


def _alternatives(action: Action, plan: Plan) -> Iterable[str]:
    """Yield what else could be done with the same workloads, and what each costs beside the plan."""
    yield f"Leave it as it is: {dollars_and_cents(action.last_in_usd_mo)} a month more than with the rest of the plan done."
    yield f"Do it and nothing else: it saves {dollars_and_cents(action.standalone_usd_mo)} a month by itself."
    subjects = {action.subject, *(change.subject for change in action.changes)}
    for other in plan.not_worth_doing:
        if subjects & {other.subject, *other.subject.split(", ")}:
            price = "no price" if other.saving_usd_mo is None else f"{_signed(other.saving_usd_mo)} a month"
            yield f"{title_of(other.lever)} ({price}): {other.reason}."


def _signed(saving_usd_mo: float) -> str:
    verb = "saves" if saving_usd_mo >= 0 else "costs"
    return f"{verb} {dollars_and_cents(abs(saving_usd_mo))}"


def decision_index(rows: Sequence[tuple[Action, str, Sequence[str]]], plan: Plan) -> str:
    """Return the page that lists the records: each action, the path of its record beside the page, and its owners."""
    lines = [
        "# Decisions",
        "",
        "Names stay from audit to audit; ids are those of this plan (`trimtab explain a1`). When each is due: `year.md`, where "
        "the whole plan was emitted.",
        "",
        "| record | id | decision | saves a month | risk | owner | review by |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| [{name}]({name}.md) | {action.id} | {title_of(action.lever)}: {action.subject} "
            f"| {dollars_and_cents(action.saving_usd_mo.value)} | {action.risk.value} | {owner_words(owners)} "
            f"| {review_date(action, plan).isoformat()} |"
            for action, name, owners in rows
        ),
    ]
    return "\n".join(lines) + "\n"


def _context(action: Action, plan: Plan) -> str:
    return (
        f"The fleet cost {dollars_and_cents(plan.usd_mo(plan.before_micro_usd))} a month over {plan.window}. The plan brings "
        f"that to {dollars_and_cents(plan.usd_mo(plan.after_micro_usd))}, and {action.id} carries "
        f"{dollars_and_cents(action.saving_usd_mo.value)} of the difference ({plan.attribution})."
    )


def _evidence(action: Action) -> Iterable[str]:
    for row in action.evidence:
        against = f" (compared with {row.threshold})" if row.threshold else ""
        yield f"{row.what}: {row.value}{against}. From `{row.query}`, {row.window}."


def _saving(action: Action) -> str:
    saving = action.saving_usd_mo
    because = f": {saving.because}" if saving.because else ""
    return (
        f"**{dollars_and_cents(saving.value)} a month**, 80% interval {dollars_and_cents(saving.low)} to "
        f"{dollars_and_cents(saving.high)} ({saving.basis.value}{because}). Alone it would save "
        f"{dollars_and_cents(action.standalone_usd_mo)}; left out of the plan it would cost "
        f"{dollars_and_cents(action.last_in_usd_mo)}."
    )


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


_QUARTERS, _MO_PER_QUARTER = 4, 3

Record = tuple[Action, str, Sequence[str]]
"""An action, the name of its decision record, and the teams whose workloads it changes."""


def year_page(records: Sequence[Record], plan: Plan, course: Schedule) -> str:
    """Return the page as Markdown, for `decisions/`; the course is the plan's own, month 0 the end of its window."""
    today, end = course.bill_usd_mo[0], course.bill_usd_mo[-1]
    whole = saved_by(course, _QUARTERS * _MO_PER_QUARTER)
    parts = [
        "# The year",
        f"From {_day(plan, 0)} to {_day(plan, _QUARTERS * _MO_PER_QUARTER)}: the bill goes from {dollars(today)} a month to "
        f"{dollars(bill_left(today, end))}, and {_saved(whole)} by then, before what the work costs. Dates are those of the "
        "roadmap: one action after another as there are people, each done when its effort is. What fails its canary, or is not "
        "approved, moves all that stands below it.",
        *(_quarter(number, records, plan, course) for number in range(1, _QUARTERS + 1)),
    ]
    later = [step for step in course.steps if step.done_mo > _QUARTERS * _MO_PER_QUARTER]
    if later:
        parts += ["## Later than the year", _table(later, records, plan, today)]
    return "\n\n".join(parts) + "\n"


def saved_by(course: Schedule, month: float) -> float:
    """Return the dollars that a course has saved from today to a month: each bill stands from the end of its action on."""
    ended = sorted(course.steps, key=lambda step: step.done_mo)
    today, saved, bill, since = course.bill_usd_mo[0], 0.0, course.bill_usd_mo[0], 0.0
    for step in ended:
        if step.done_mo >= month:
            break
        saved += (today - bill) * (step.done_mo - since)
        bill, since = step.bill_usd_mo, step.done_mo
    return saved + (today - bill) * (month - since)


def _quarter(number: int, records: Sequence[Record], plan: Plan, course: Schedule) -> str:
    first, last = (number - 1) * _MO_PER_QUARTER, number * _MO_PER_QUARTER
    done = [step for step in course.steps if first < step.done_mo <= last or (number == 1 and step.done_mo == 0)]
    under_way = [step.action for step in course.steps if step.start_mo < last < step.done_mo]
    bill = bill_left(course.bill_usd_mo[0], course.bill_usd_mo[last])
    lines = [
        f"## Quarter {number}: {_day(plan, first)} to {_day(plan, last)}",
        _table(done, records, plan, course.bill_usd_mo[0]) if done else "Nothing ends in it.",
        f"At its end: {dollars(bill)} a month, {_saved(saved_by(course, last))} since today"
        + (f"; under way: {', '.join(under_way)}." if under_way else "."),
    ]
    return "\n\n".join(lines)


def _table(steps: Sequence[ScheduledAction], records: Sequence[Record], plan: Plan, today_usd_mo: float) -> str:
    head = "| from | done by | id | what | by | engineer-weeks | bill a month then |\n|---|---|---|---|---|---|---|\n"
    return head + "\n".join(_rows(steps, records, plan, today_usd_mo))


def _rows(
    steps: Sequence[ScheduledAction], records: Sequence[Record], plan: Plan, today_usd_mo: float
) -> Iterator[str]:
    known = {action.id: (action, name, owners) for action, name, owners in records}
    for step in sorted(steps, key=lambda step: (step.done_mo, step.start_mo)):
        action, name, owners = known[step.action]
        yield (
            f"| {_day(plan, step.start_mo)} | {_day(plan, step.done_mo)} | {action.id} "
            f"| [{title_of(action.lever)}: {action.subject}]({name}.md) | {owner_words(owners)} "
            f"| {action.effort_weeks:g} | {dollars(bill_left(today_usd_mo, step.bill_usd_mo))} |"
        )


def _saved(saved_usd: float) -> str:
    return f"{dollars(saved_usd)} saved" if saved_usd >= 0 else f"{dollars(-saved_usd)} more spent"


def _day(plan: Plan, month: float) -> date:
    return (plan.window.end + timedelta(hours=month * HR_PER_MO)).date()


_STEPS: Mapping[ApplyStage, str] = {
    ApplyStage.MEASURE: """Wait until `trimtab:demand_replicas` exists for every service \
and follows its load: a rule that no Prometheus selects raises no alert either.""",
    ApplyStage.WORKLOADS: """List each folder under `components` in the kustomization that holds the workload's own \
manifest, then see that it took: a patch that matches nothing is skipped silently.

```sh
kubectl kustomize . | grep trimtab.dev/action    # must print a line for each workload that was listed
```

A Job's template cannot be changed in place: the next run takes the change.""",
    ApplyStage.RELEASE: """What the workloads left is billed until it is given back: the saving comes with these \
orders, not before.""",
    ApplyStage.COMMIT: "Only after the purchase: it shows Karpenter a price that holds by then.",
    ApplyStage.UNDO: """To go back, take a workload's Component out of its kustomization and list the one here in \
its place, give the old nodes their size back (each order says how), and delete what was applied: `kubectl delete -k`, \
`scaling` before `nodes`.""",
}
"""What to do with the files of a stage."""


def apply_order(emission: Emission, needs: Sequence[str] = ()) -> str:
    """Return the page as Markdown; trimtab writes files and never touches a cluster. `needs` must be in place before."""
    lines = [
        "# How to apply this plan",
        "",
        "Apply stage by stage; go on when the canary of each decision record holds. Nothing here was applied by trimtab.",
        *(["", "## Before you start", "", *(f"- [ ] {need}" for need in needs)] if needs else []),
        *_stages(emission),
        *_left(emission),
    ]
    return "\n".join(lines) + "\n"


def _stages(emission: Emission) -> Iterator[str]:
    for stage, number in emission.stages().items():
        yield ""
        yield f"## {number}. {STAGE_MEANING[stage][:1].upper()}{STAGE_MEANING[stage][1:]}"
        yield ""
        files = [file for file in emission.files if file.stage is stage]
        roots = sorted(file.path.removesuffix("/kustomization.yaml") for file in files if file.kind == "Kustomization")
        steps = _replicas_steps(files) if stage is ApplyStage.SCALE else _STEPS.get(stage)
        if stage is ApplyStage.COMMIT and not roots:
            steps = None  # no Karpenter, which would be shown a price
        for step in (_applied(roots), steps):
            if step:
                yield step
                yield ""
        for file in files:
            yield f"- [ ] `{file.path}` ({file.kind}; {', '.join(file.actions)})"


def _applied(roots: Sequence[str]) -> str:
    """Return how the folders of a stage are applied: one, or one for each cluster in that cluster's context."""
    if not roots:
        return ""
    if len(roots) == 1 and "/" not in roots[0]:
        return f"Apply `kubectl apply -k {roots[0]}`."
    lines = [f"kubectl --context {shlex.quote(root.split('/')[1])} apply -k {root}" for root in roots if "/" in root]
    lines += [f"kubectl apply -k {root}" for root in roots if "/" not in root]
    return "Apply, with your own names of the contexts:\n\n```sh\n" + "\n".join(lines) + "\n```"


def _left(emission: Emission) -> Iterator[str]:
    if emission.withheld:
        yield ""
        yield "## Left to a person"
        yield ""
    for action, subjects, reason in emission.grouped():
        yield f"- {action}, {', '.join(f'`{subject}`' for subject in subjects)}: {reason}"


def _replicas_steps(files: Sequence[ManifestFile]) -> str:
    """Return how autoscalers take over `replicas`: a plain apply of a manifest that loses the field would set it to 1.

    Source: kubernetes.io, "Migrating Deployments and StatefulSets to horizontal autoscaling".
    """
    if not any(file.path.endswith(".autoscaled/kustomization.yaml") for file in files):
        return ""
    return """See with `kubectl get hpa -A` that every TARGETS has a number, then remove `replicas`, in this order:

1. Take it out of the last applied manifest, which changes no pod. Without this step the next apply of a manifest that no \
longer has `replicas` sets the workload to 1:

   ```sh
   kubectl apply view-last-applied deployment/NAME -n NAMESPACE -o json | jq 'del(.spec.replicas)' |
     kubectl apply set-last-applied -f -
   ```

   With server-side apply, Argo CD (`ignoreDifferences` on `/spec/replicas`) or Helm, leave it to the autoscaler in their way.
2. List the folder `NAME.autoscaled` under `components` beside the workload's manifest: it takes `replicas` out of it."""
