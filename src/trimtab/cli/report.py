"""The audit on a terminal: read from top to bottom in a minute, safe from 80 columns on."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trimtab.emit.document import (
    ActionPart,
    AuditDocument,
    NotWorthPart,
    PlanPart,
    ProofPart,
    RobustnessPart,
    SpendPart,
    TargetPart,
    VenturePart,
    WhatIfPart,
)
from trimtab.emit.money import dollars, percent
from trimtab.emit.roadmap_words import quick_wins, roadmap_lines
from trimtab.emit.venture_words import venture_subject
from trimtab.emit.words import (
    UNDECLARED_LEAD,
    UNDECLARED_NOTE,
    USEFUL,
    compared_cells,
    days,
    headroom_line,
    interval,
    joint_interval,
    kept_words,
    law_line,
    limit_line,
    load_test_line,
    moving_in,
    owned_lines,
    plan_note,
    repair_lines,
    stress_line,
    undeclared_line,
)

MAX_WIDTH = 120
"""A wider screen does not make lines easier to read."""
_SHOWN_ROWS = 8
_SHOWN_ACTIONS = 20
_BAR_CELLS = 16
_INDENT = 2
_RISK_STYLE = {"low": "green", "medium": "yellow", "high": "red"}


def render_report(
    document: AuditDocument, *, width: int, colour: bool, next_steps: Sequence[tuple[str, str]] = ()
) -> str:
    """Return the report as text no wider than `width` columns, with colour codes where asked for.

    `next_steps` are pairs of a command and what it gives, shown last.
    """
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=min(width, MAX_WIDTH),
        force_terminal=colour,
        no_color=not colour,
        color_system="standard" if colour else None,
        highlight=False,
        emoji=False,
        markup=False,
    )
    for part in _parts(document, next_steps):
        console.print(part, crop=False)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()).strip("\n") + "\n"


def _parts(document: AuditDocument, next_steps: Sequence[tuple[str, str]]) -> Iterator[RenderableType]:
    yield _coverage(document)
    yield _headline(document)
    yield _spend(document)
    yield _waste(document)
    yield _plan(document)
    if document.plan.roadmap:
        lines = [f"· {line}" for line in roadmap_lines(document.plan.roadmap)]
        yield _section("The year ahead", "one lever a month, finished before the next; ★ quick win", *map(Text, lines))
    worth = [one for one in document.plan.always_judged if one.worth]
    if worth:
        yield _section("Worth a closer look", "on stated assumptions, and no part of the plan", *map(_venture, worth))
    if document.undeclared:
        yield _undeclared(document)
    if document.plan.not_worth_doing or document.plan.always_judged:
        yield _not_worth_doing(document)
    if document.unjudged:
        yield _unjudged(document)
    if document.plan.limits:
        lines = [f"· {limit_line(limit)}" for limit in document.plan.limits]
        yield _section("Limits", "what the plan may not exceed, and what that costs", *map(Text, lines))
    if held := owned_lines(document):
        lines = [f"· {line}" for line in held]
        yield _section("Commitments held", "judged on the use as it was", *map(Text, lines))
    yield _proof(document.proof, document.plan)
    if document.laws:
        yield _laws(document)
    if document.robustness:
        yield _robustness(document.robustness)
    if document.what_if:
        yield _what_if(document.what_if)
    if next_steps:
        yield _next_steps(next_steps)


def _section(title: str, gloss: str, *body: RenderableType) -> RenderableType:
    head = Text.assemble((title, "bold cyan"), (f"  {gloss}" if gloss else "", "dim"))
    return Group(Text(""), head, *(Padding(part, (0, 0, 0, _INDENT)) for part in body))


def _coverage(document: AuditDocument) -> RenderableType:
    lines = [
        Text.assemble(("trimtab audit", "bold"), f"  {document.fleet}"),
        Text(f"Seen: {document.coverage.summary}.", style="dim"),
    ]
    lines += [Text(f"! {reason}", style="yellow") for reason in document.degraded]
    lines += [Text(f"· {note}", style="dim") for note in document.coverage.notes]
    lines += [Text(f"· {count:,} x {what}", style="dim") for what, count in document.coverage.counts.items()]
    return Group(*lines)


def _headline(document: AuditDocument) -> RenderableType:
    plan = document.plan
    return Group(
        Text(""),
        Text.assemble(
            "The bill is ",
            (f"{dollars(document.bill_usd_mo)} a month", "bold"),
            ". The plan below brings it to ",
            (dollars(plan.objective_usd_mo), "bold green"),
            moving_in(plan.moving_usd_mo),
            ": it saves ",
            (f"{dollars(plan.joint_saving_usd_mo)} a month ({percent(plan.saving_frac, 1)})", "bold green"),
            f"{joint_interval(plan)}.",
        ),
    )


def _spend(document: AuditDocument) -> RenderableType:
    table = _table()
    for title, right in (("", False), ("$/month", True), ("share", True), ("GPU active", True), ("", False)):
        table.add_column(title, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for name, rows in (("by workload type", document.spend.by_kind), ("by team", document.spend.by_team)):
        table.add_row(Text(name, style="italic"))
        for row in _shown(rows):
            table.add_row(
                f"  {row.name}",
                f"{row.usd_mo:,.0f}",
                percent(row.share_frac),
                percent(row.activity_frac),
                _bar(row.share_frac, "cyan"),
            )
    return _section("Where the money goes", "GPU active: mean share of the GPU at work while held", table)


def _shown(rows: Sequence[SpendPart]) -> list[SpendPart]:
    """Return the dearest rows, the rest summed in one."""
    if len(rows) <= _SHOWN_ROWS:
        return list(rows)
    kept, rest = rows[: _SHOWN_ROWS - 1], rows[_SHOWN_ROWS - 1 :]
    other = SpendPart(
        name=f"{len(rest)} more",
        usd_mo=sum(row.usd_mo for row in rest),
        share_frac=sum(row.share_frac for row in rest),
        gpu_hours=sum(row.gpu_hours for row in rest),
        activity_frac=None,
    )
    return [*kept, other]


def _waste(document: AuditDocument) -> RenderableType:
    table = _table(head=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in document.waste:
        if row.usd_mo == 0:
            continue
        useful = row.kind == USEFUL
        table.add_row(
            f"{row.usd_mo:,.0f}",
            percent(row.share_frac),
            _bar(row.share_frac, "green" if useful else "red"),
            Text.assemble((row.kind, "bold"), f": {row.meaning}"),
        )
    gloss = f"$/month; together they are the bill, {dollars(document.bill_usd_mo)}"
    return _section("What it buys", gloss, table, _product_form(document))


def _product_form(document: AuditDocument) -> Text:
    form = document.product_form
    text = f"Of 100 GPU-hours paid, {form.allocation_frac * 100:.0f} were held by a workload"
    if form.busy_frac is None:
        return Text(f"{text}; how busy they were was not measured.", style="dim")
    busy = form.allocation_frac * form.busy_frac
    text += f", {busy * 100:.0f} were busy"
    if form.product_frac is None:
        return Text(f"{text}; how hard they worked was not measured.", style="dim")
    factors = " x ".join(percent(part) for part in (form.allocation_frac, form.busy_frac, form.efficiency_frac))
    return Text(f"{text}, {form.product_frac * 100:.0f} did full work ({factors}).", style="dim")


def _plan(document: AuditDocument) -> RenderableType:
    plan = document.plan
    if not plan.actions:
        return _section(
            "The plan", "", Text("Nothing that is worth doing was found; what was judged and refused stands below.")
        )
    table = _table()
    table.add_column("id", no_wrap=True, style="bold")
    table.add_column("what to do", overflow="fold", ratio=1)
    table.add_column("saves\n$/month", justify="right", no_wrap=True, style="green")
    table.add_column("low–high", justify="right", no_wrap=True)
    table.add_column("weeks", justify="right", no_wrap=True)
    table.add_column("risk", no_wrap=True)
    table.add_column("qtr", no_wrap=True)
    wins = quick_wins(document)
    for action in plan.actions[:_SHOWN_ACTIONS]:
        table.add_row(*_action_cells(action, action.id in wins))
    rest = plan.actions[_SHOWN_ACTIONS:]
    if rest:
        table.add_row("", f"{len(rest)} more in `-o json`", f"{sum(action.saving_usd_mo for action in rest):,.0f}")
    table.add_row("", Text("together", style="bold"), Text(f"{plan.joint_saving_usd_mo:,.0f}", style="bold green"))
    notes = Text(
        "Savings overlap; each figure is a fair share, so they add up. low–high: 80% interval. weeks: engineer-weeks. "
        + plan_note(plan),
        style="dim",
    )
    return _section("The plan", "what to do first stands first", table, notes)


def _action_cells(action: ActionPart, quick_win: bool) -> list[RenderableType]:
    quarter = f"Q{action.quarter}" if action.quarter else "later"
    return [
        action.id,
        Text.assemble((action.subject, "bold"), f": {action.effect}{' ★' if quick_win else ''}"),
        f"{action.saving_usd_mo:,.0f}",
        interval(action),
        f"{action.effort_weeks:g}",
        Text(action.risk, style=_RISK_STYLE[action.risk]),
        quarter,
    ]


def _undeclared(document: AuditDocument) -> RenderableType:
    lines: list[RenderableType] = [Text(f"{UNDECLARED_LEAD}.")]
    for one in document.undeclared[:_SHOWN_ROWS]:
        lines.append(Text(f"· {undeclared_line(one)}"))
        lines.append(Padding(Text(one.declaration, style="green"), (0, 0, 0, 2 * _INDENT)))
    if len(document.undeclared) > _SHOWN_ROWS:
        lines.append(Text(f"· {len(document.undeclared) - _SHOWN_ROWS} more in `-o json`", style="dim"))
    return _section("What was not declared", "", *lines, Text(UNDECLARED_NOTE, style="dim"))


def _venture(one: VenturePart) -> Text:
    return Text.assemble("· ", (venture_subject(one), "bold"), f": {one.reason}")


def _not_worth_doing(document: AuditDocument) -> RenderableType:
    rows: Sequence[NotWorthPart] = document.plan.not_worth_doing
    lines = [_venture(one) for one in document.plan.always_judged if not one.worth]
    for row in rows[:_SHOWN_ROWS]:
        money = "" if row.saving_usd_mo is None else f" ({_saves(row.saving_usd_mo)})"
        lines.append(Text.assemble("· ", (f"{row.lever} on {row.subject}", "bold"), f"{money}: {row.reason}"))
    if len(rows) > _SHOWN_ROWS:
        lines.append(Text(f"· {len(rows) - _SHOWN_ROWS} more in `-o json`", style="dim"))
    return _section("Not worth doing", "judged and refused", *lines)


def _saves(usd_mo: float) -> str:
    return f"saves {dollars(usd_mo)} a month" if usd_mo >= 0 else f"costs {dollars(-usd_mo)} a month more"


def _unjudged(document: AuditDocument) -> RenderableType:
    total = sum(row.usd_mo for row in document.unjudged)
    share = total / document.bill_usd_mo if document.bill_usd_mo else 0.0
    lines = [
        Text.assemble("· ", (row.workload, "bold"), f" ({dollars(row.usd_mo)} a month): {row.reason}")
        for row in document.unjudged[:_SHOWN_ROWS]
    ]
    if len(document.unjudged) > _SHOWN_ROWS:
        lines.append(Text(f"· {len(document.unjudged) - _SHOWN_ROWS} more in `-o json`", style="dim"))
    return _section("Not judged", f"{percent(share, 1)} of the bill; left as it is", *lines)


def _proof(proof: ProofPart, plan: PlanPart) -> RenderableType:
    lines: list[RenderableType] = [
        Text.assemble(
            f"{days(proof.window.start, proof.window.end)} cost {dollars(proof.before_usd)}; under the plan "
            f"it would have cost {dollars(proof.after_usd)}{moving_in(proof.moving_usd)}: ",
            (f"{percent(proof.saving_frac, 1)} less", "bold green"),
            f" (with the future known, no plan could go below {dollars(proof.clairvoyant_usd)}).",
        ),
        _targets_line(proof),
        *(_missed(target) for target in proof.targets if not target.kept),
        *(Text(f"· {line}", style="yellow") for line in repair_lines(proof, plan)),
        Text(
            f"{proof.interruptions} interruptions (spot, or a block that ended), "
            f"{proof.lost_gpu_hr:.1f} GPU-hours of work done twice."
        ),
        *(Text(f"· given up within its target: {line}", style="dim") for line in proof.given_up[:_SHOWN_ROWS]),
        *(Text(f"· {note}", style="dim") for note in proof.notes),
        *_proof_by_action(proof),
    ]
    return _section("The proof", "replayed on history that the planner never saw", *lines)


def _proof_by_action(proof: ProofPart) -> Iterator[RenderableType]:
    """Show each action's replayed saving beside what was predicted."""
    if not proof.actions:
        return
    table = _table()
    for title, right in (("id", False), ("predicted\n$/month", True), ("replayed", True), ("", False)):
        table.add_column(title, justify="right" if right else "left", no_wrap=True)
    for one in proof.actions[:_SHOWN_ACTIONS]:
        held = "" if one.held is None or one.held else "outside its interval"
        table.add_row(one.id, f"{one.predicted_usd_mo:,.0f}", f"{one.replayed_usd_mo:,.0f}", held)
    yield table


def _laws(document: AuditDocument) -> RenderableType:
    """Show the laws of the dearest services, and what a load test of each could buy."""
    spend = {row.name: row.usd_mo for row in document.spend.by_workload}
    laws = sorted(document.laws, key=lambda one: -spend.get(one.workload, 0.0))
    lines = [Text(f"· {law_line(one)}") for one in laws[:_SHOWN_ROWS]]
    tests = [Text(f"· load test, {load_test_line(one)}", style="dim") for one in laws[:_SHOWN_ROWS] if one.load_test]
    left_out = len(laws) - _SHOWN_ROWS
    more = [Text(f"{left_out} more are in the report (-o html).", style="dim")] if left_out > 0 else []
    gloss = "what a replica is taken to serve, tested on busier hours than it was fitted on"
    return _section("How services answer under load", gloss, *lines, *tests, *more)


def _robustness(found: RobustnessPart) -> RenderableType:
    lines = [Text(f"· {stress_line(one)}", style="yellow" if one.missed else "") for one in found.stressed]
    gloss = "the proof again, where the world departs from what the plan was made for"
    dim = [Text(line, style="dim") for line in (headroom_line(found), *found.notes)]
    return _section("Robustness", gloss, *lines, *dim)


def _what_if(found: WhatIfPart) -> RenderableType:
    table = _table()
    for title, right in (("", False), ("as it is", True), ("what if", True)):
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    section = ""
    for figure in found.figures:
        if figure.section != section:
            section = figure.section
            table.add_row(Text(section, style="italic"))
        table.add_row(f"  {figure.what}", *compared_cells(figure))
    refused = [Text(f"There is no plan in that world: {found.refused}.", style="yellow")] if found.refused else []
    return _section("What if", "; ".join(found.scenario), table, *refused)


def _targets_line(proof: ProofPart) -> Text:
    if not proof.targets:
        return Text("No workload has a target that could be checked.", style="yellow")
    style = "bold green" if proof.targets_kept == len(proof.targets) else "bold red"
    return Text.assemble((kept_words(proof), style), ".")


def _missed(target: TargetPart) -> Text:
    return Text(
        f"✗ {target.workload}: {target.target}, attained {percent(target.attained_frac, 1)} of "
        f"{percent(target.required_frac, 1)} required",
        style="red",
    )


def _next_steps(steps: Sequence[tuple[str, str]]) -> RenderableType:
    """Show what to do now; a command is never broken over lines, so that it can be copied."""
    lines: list[RenderableType] = []
    for what, why in steps:
        # not in a Padding, which would cut what is wider than the screen
        lines.append(Text(f"{' ' * _INDENT}{what}", style="bold", no_wrap=True, overflow="ignore"))
        lines.append(Padding(Text(why, style="dim"), (0, 0, 0, 2 * _INDENT)))
    return Group(_section("Next", ""), *lines)


def _table(*, head: bool = True) -> Table:
    return Table(
        box=None, pad_edge=False, padding=(0, _INDENT, 0, 0), header_style="dim", show_header=head, expand=False
    )


def _bar(frac: float, style: str) -> Text:
    """Draw a share of the bill, at least a sliver where it is not 0."""
    eighths = max(round(frac * _BAR_CELLS * 8), 1 if frac > 0 else 0)
    whole, rest = divmod(eighths, 8)
    return Text("█" * whole + ("", *"▏▎▍▌▋▊▉")[rest], style=style)
