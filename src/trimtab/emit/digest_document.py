"""The document of a weekly digest (cost of a fleet or a team, changes, open actions, realised savings), made from a week.

Money is rounded here and nowhere else: rows sum to the total and causes sum to the change, to the cent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from trimtab._version import __version__
from trimtab.diagnose.findings import UNALLOCATED
from trimtab.diagnose.weeks import ChangeCause, WeekRow, WeekSpend, WeekUse, together
from trimtab.emit.document import AuditDocument
from trimtab.emit.document.part import Part, WindowPart
from trimtab.emit.document.plan import ActionPart
from trimtab.emit.from_audit.shared import window_part
from trimtab.emit.verify_document import VerifiedActionPart, VerifiedPart
from trimtab.plan.verify.verification import ActionStatus
from trimtab.units import MICRO_PER_CENT, cents, hours_between, round_parts, usd_cents

DIGEST_SCHEMA_VERSION: Literal[1] = 1


class FormerWeekPart(Part):
    """The week before."""

    week: str
    """ISO 8601: 2026-W43."""
    window: WindowPart
    """Its hours that history covers."""
    whole: bool
    """True if these are all of its hours."""
    usd: float
    """Its cost, scaled to as many hours as this week covers."""
    gpu_hours: float
    """GPU-hours held, scaled the same way."""


class MovedPart(Part):
    """The contribution of a workload or shared row to a cause."""

    name: str
    """Workload (with its team in the fleet's digest), or shared row."""
    usd: float
    """What it added; negative where it saved."""


class CausePart(Part):
    """One cause of the change. The causes sum to the change to the cent."""

    cause: str
    """GPU-hours held, other nodes, price, workloads that began or ended, idle nodes and the like."""
    usd: float
    """What it added; negative where it saved."""
    mostly: tuple[MovedPart, ...]
    """Main contributors, largest first."""


class PayerPart(Part):
    """A team of the fleet, a workload of a team, or a row of shared cost."""

    name: str
    """Team, workload or shared row."""
    shared: bool
    """True for costs without an owner: idle nodes, tax, credits."""
    usd: float
    """Its cost; the rows sum to the total to the cent."""
    micro_usd: int
    """The same, exactly."""
    share_frac: float | None
    """Share of the total; null if the total is zero."""
    former_usd: float | None
    """Cost in the previous week, scaled to as many hours; null if there is nothing to compare with."""
    gpu_hours: float
    """GPU-hours held."""
    idle_frac: float | None
    """Share of its measured GPU-hours in which its GPUs did nothing; null if none was measured."""


class TodoPart(Part):
    """An action of the plan."""

    id: str
    """As `trimtab explain` takes it."""
    subject: str
    """What it changes."""
    effect: str
    """What to do, in words."""
    saving_usd_mo: float
    """Its share of the plan's saving, dollars a month, including other teams' part."""
    effort_weeks: float
    """Engineer-weeks."""
    risk: str
    """low, medium or high."""
    others: bool
    """True if it also changes workloads of other teams."""


class TodosPart(Part):
    """The first open actions of the last audit's plan."""

    fleet: str
    """The history that was audited."""
    until: str
    """The last day of that history."""
    saving_usd_mo: float
    """What all open actions save, dollars a month."""
    actions: tuple[TodoPart, ...]
    """The first ones, in the plan's order, without those already on track."""
    left: int
    """How many more there are."""


class RealisedActionPart(Part):
    """A verified action of the plan."""

    id: str
    """As `trimtab explain` takes it."""
    subject: str
    """What it changed."""
    status: str
    """on track, short or not enacted."""
    predicted_usd_mo: float
    """The predicted saving, dollars a month."""
    realised_usd_mo: float
    """The realised saving."""
    cause: str
    """Why it is short; empty if it is not."""


class RealisedPart(Part):
    """What the plan has saved since, as found by `trimtab verify`."""

    window: WindowPart
    """The history that was verified."""
    predicted_usd_mo: float
    """The sum over the actions."""
    realised_usd_mo: float
    """The sum over the actions."""
    on_track: int
    """Number of actions on track."""
    actions: tuple[RealisedActionPart, ...]
    """The actions, largest prediction first."""


class DigestPart(Part):
    """One digest: the fleet's, or a team's."""

    team: str | None
    """Null for the fleet."""
    fleet: str
    """Where the history came from."""
    week: str
    """ISO 8601: 2026-W44, Monday to Sunday in UTC."""
    window: WindowPart
    """Its hours that history covers."""
    whole: bool
    """True if these are all of its hours."""
    basis: str
    """What was charged: a bill's charges, or list prices."""
    usd: float
    """Its cost."""
    micro_usd: int
    """The same, exactly."""
    share_frac: float | None
    """A team's share of the fleet's bill; null for the fleet."""
    gpu_hours: float
    """GPU-hours held."""
    idle_nodes_usd: float | None
    """Cost of nodes that no workload held; null for a team."""
    idle_frac: float | None
    """Share of the measured GPU-hours held in which the GPUs did nothing; null if none was measured."""
    measured_frac: float | None
    """Share of the GPU-hours held that have readings; null if none was held."""
    former: FormerWeekPart | None
    """The previous week; null if there is nothing to compare with."""
    no_former: str
    """Why there is none; empty if there is one."""
    causes: tuple[CausePart, ...]
    """Causes of the change, largest first; empty without a previous week."""
    payers: tuple[PayerPart, ...]
    """Teams of the fleet, or workloads of the team, the most expensive first."""
    todos: TodosPart | None
    """Open actions; null if no audit was kept."""
    no_todos: str
    """Why there are none, and how to get them; empty if there are some."""
    realised: RealisedPart | None
    """Realised savings; null if nothing was verified."""
    no_realised: str
    """How to get them; empty if they are there."""

    @property
    def change_usd(self) -> float | None:
        """Return the change against the previous week; None if there is none."""
        return None if self.former is None else round(self.usd - self.former.usd, 2)


class DigestDocument(Part):
    """What `trimtab digest` found: the requested digests."""

    schema_version: Literal[1]
    """Version of this layout; a key is never renamed or removed within a version."""
    trimtab_version: str
    """The program that wrote it."""
    digests: tuple[DigestPart, ...]
    """The fleet's digest first."""


_FIRST = 3
"""Maximum number of actions in a digest."""
_NAMED = 3
"""Maximum number of workloads named per cause."""
NO_VERIFICATION = (
    "Unknown: no plan was verified. Run `trimtab verify BUNDLE -o json --out verified.json` on history since the plan, and "
    "pass the file with --verify."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestSources:
    """What a digest needs in addition to the week itself."""

    fleet: str
    basis: str
    audit: AuditDocument | None = None
    no_audit: str = ""
    """Why there is not an audit to take actions from, and how to get one."""
    verified: VerifiedPart | None = None


def digest_document(spend: WeekSpend, teams: Sequence[str | None], sources: DigestSources) -> DigestDocument:
    """Return the digest of each team (None stands for the fleet). Raises UnknownName for a team that is not in the week."""
    return DigestDocument(
        schema_version=DIGEST_SCHEMA_VERSION,
        trimtab_version=__version__,
        digests=tuple(digest_part(spend, team, sources) for team in teams),
    )


def render_digest_json(document: DigestDocument) -> str:
    """Return the document as JSON text."""
    return json.dumps(document.model_dump(mode="json"), indent=2, ensure_ascii=False, allow_nan=False)


def digest_part(spend: WeekSpend, team: str | None, sources: DigestSources) -> DigestPart:
    """Return the fleet's digest, or a team's."""
    rows = spend.rows if team is None else spend.of_team(team)
    now = together(row.now for row in rows)
    changed = sum(sum(row.causes.values()) for row in rows)
    held = [row.now for row in rows if row.team]
    idle = sum(use.idle_gpu_hours for use in held)
    measured = sum(use.measured_gpu_hours for use in held)
    done = _on_track(sources.verified)
    mine = None if team is None else {row.name for row in rows}
    todos, no_todos = _todos(sources, mine, done)
    realised = _realised(sources, mine)
    return DigestPart(
        team=team,
        fleet=sources.fleet,
        week=str(spend.chosen.week),
        window=window_part(spend.chosen.window),
        whole=spend.chosen.whole,
        basis=sources.basis,
        usd=usd_cents(now.micro_usd),
        micro_usd=now.micro_usd,
        share_frac=None if team is None else _share(now.micro_usd, spend.micro_usd),
        gpu_hours=round(now.gpu_hours, 3),
        idle_nodes_usd=None if team else usd_cents(sum(row.now.micro_usd for row in rows if row.name == UNALLOCATED)),
        idle_frac=round(idle / measured, 6) if measured else None,
        measured_frac=round(min(1.0, measured / now.gpu_hours), 6) if now.gpu_hours else None,
        former=_former(spend, rows, cents(now.micro_usd) - cents(changed)),
        no_former=spend.why_no_former,
        causes=_causes(rows, by_team=team is None) if spend.former else (),
        payers=_payers(rows, by_team=team is None, compared=spend.former is not None),
        todos=todos,
        no_todos=no_todos,
        realised=realised,
        no_realised="" if realised else _no_realised(sources),
    )


def _former(spend: WeekSpend, rows: Iterable[WeekRow], former_cents: int) -> FormerWeekPart | None:
    if spend.former is None:
        return None
    before = together(row.former for row in rows if row.former is not None)
    return FormerWeekPart(
        week=str(spend.former.week),
        window=window_part(spend.former.window),
        whole=spend.former.whole,
        usd=former_cents / 100,
        gpu_hours=round(before.gpu_hours, 3),
    )


def _causes(rows: Sequence[WeekRow], *, by_team: bool) -> tuple[CausePart, ...]:
    """Return the causes that changed the bill by at least a cent, largest first. For the fleet, they name teams as well as
    workloads."""
    of_cause: dict[ChangeCause, dict[str, int]] = {}
    for row in rows:
        name = f"{row.team}: {row.name}" if by_team and row.team else row.name
        for cause, micro_usd in row.causes.items():
            of_cause.setdefault(cause, {})[name] = micro_usd
    shown = round_parts([sum(parts.values()) for parts in of_cause.values()], MICRO_PER_CENT)
    found = [
        CausePart(cause=cause.value, usd=part / 100, mostly=_mostly(parts))
        for (cause, parts), part in zip(of_cause.items(), shown, strict=True)
        if part
    ]
    return tuple(sorted(found, key=lambda cause: (-abs(cause.usd), cause.cause)))


def _mostly(parts: Mapping[str, int]) -> tuple[MovedPart, ...]:
    """Return the workloads or teams that contributed most to a cause, up or down."""
    moved = sorted((name for name in parts if cents(parts[name])), key=lambda name: (-abs(parts[name]), name))
    return tuple(MovedPart(name=name, usd=usd_cents(parts[name])) for name in moved[:_NAMED])


def _payers(rows: Sequence[WeekRow], *, by_team: bool, compared: bool) -> tuple[PayerPart, ...]:
    """Return one row per team of a fleet, or per workload of a team. Shared rows stay separate."""
    grouped: dict[tuple[bool, str], list[WeekRow]] = {}
    for row in rows:
        grouped.setdefault((not row.team, row.team if by_team and row.team else row.name), []).append(row)
    uses = [together(row.now for row in group) for group in grouped.values()]
    whole = sum(use.micro_usd for use in uses)
    shown = round_parts([use.micro_usd for use in uses], MICRO_PER_CENT)
    changes = round_parts(
        [sum(sum(row.causes.values()) for row in group) for group in grouped.values()], MICRO_PER_CENT
    )
    found = [
        PayerPart(
            name=name,
            shared=shared,
            usd=part / 100,
            micro_usd=use.micro_usd,
            share_frac=_share(use.micro_usd, whole),
            former_usd=(part - change) / 100 if compared else None,
            gpu_hours=round(use.gpu_hours, 3),
            idle_frac=_idle_frac(use),
        )
        for (shared, name), use, part, change in zip(grouped, uses, shown, changes, strict=True)
    ]
    return tuple(sorted(found, key=lambda payer: (-payer.micro_usd, payer.name)))


def _idle_frac(use: WeekUse) -> float | None:
    return round(use.idle_gpu_hours / use.measured_gpu_hours, 6) if use.measured_gpu_hours else None


def _share(part_micro_usd: int, whole_micro_usd: int) -> float | None:
    return round(part_micro_usd / whole_micro_usd, 6) if whole_micro_usd else None


# To do, and done


def touched(action: ActionPart) -> frozenset[str]:
    """Return what an action changes and whose targets it may affect: names of workloads, pools and nodes."""
    return frozenset({change.subject for change in action.changes} | {target.workload for target in action.targets})


def _todos(
    sources: DigestSources, mine: set[str] | None, done: frozenset[tuple[str, str]]
) -> tuple[TodosPart | None, str]:
    """Return the open actions of the fleet or of the given workloads, or the reason why there are none."""
    audit = sources.audit
    if audit is None:
        return None, sources.no_audit
    known = {verdict.workload for verdict in audit.verdicts} | {row.workload for row in audit.unjudged}
    left = [
        action
        for action in audit.plan.actions
        if (action.lever, action.subject) not in done and (mine is None or touched(action) & mine)
    ]
    if not left:
        whom = "" if mine is None else " for this team"
        return None, f"The plan of the last audit has no open actions{whom}."
    seen = audit.coverage.window
    return TodosPart(
        fleet=audit.fleet,
        until=f"{seen.end - timedelta(microseconds=1):%-d %b %Y}",
        saving_usd_mo=round(sum(action.saving_usd_mo for action in left), 2),
        actions=tuple(_todo(action, mine, known) for action in left[:_FIRST]),
        left=max(0, len(left) - _FIRST),
    ), ""


def _todo(action: ActionPart, mine: set[str] | None, known: set[str]) -> TodoPart:
    return TodoPart(
        id=action.id,
        subject=action.subject,
        effect=action.effect,
        saving_usd_mo=action.saving_usd_mo,
        effort_weeks=action.effort_weeks,
        risk=action.risk,
        others=mine is not None and bool((touched(action) & known) - mine),
    )


def _on_track(verified: VerifiedPart | None) -> frozenset[tuple[str, str]]:
    """Return lever and subject of the actions on track. Their ids may belong to another audit's plan."""
    rows = verified.rows if verified else ()
    return frozenset((row.lever, row.subject) for row in rows if row.status is ActionStatus.ON_TRACK)


def _realised(sources: DigestSources, mine: set[str] | None) -> RealisedPart | None:
    """Return the verified actions of the fleet or of the given workloads; None if there are none."""
    verified = sources.verified
    if verified is None:
        return None
    chosen = [row for row in verified.rows if mine is None or _subjects(sources.audit)(row) & mine]
    if mine is not None and not chosen:
        return None
    hours = round(hours_between(verified.window.start, verified.window.end))
    return RealisedPart(
        window=WindowPart(start=verified.window.start, end=verified.window.end, hours=hours),
        predicted_usd_mo=round(sum(row.predicted_usd_mo for row in chosen), 2),
        realised_usd_mo=round(sum(row.realised_usd_mo for row in chosen), 2),
        on_track=sum(row.status is ActionStatus.ON_TRACK for row in chosen),
        actions=tuple(
            RealisedActionPart(
                id=row.id,
                subject=row.subject,
                status=row.status.value,
                predicted_usd_mo=row.predicted_usd_mo,
                realised_usd_mo=row.realised_usd_mo,
                cause=row.cause,
            )
            for row in sorted(chosen, key=lambda row: (-row.predicted_usd_mo, row.id))
        ),
    )


def _subjects(audit: AuditDocument | None) -> Callable[[VerifiedActionPart], frozenset[str]]:
    """Return what identifies the workloads of a verified action: the audit's action with the same lever and subject, else
    its subject."""
    actions = audit.plan.actions if audit else ()
    known = {(action.lever, action.subject): touched(action) for action in actions}
    return lambda row: known.get((row.lever, row.subject), frozenset({row.subject}))


def _no_realised(sources: DigestSources) -> str:
    return NO_VERIFICATION if sources.verified is None else "No verified action belongs to this team."
