"""The audit as GitHub-flavoured Markdown: a page for a wiki or a ticket, and a shorter body for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trimtab.emit.document import ActionPart, AuditDocument, SpendPart
from trimtab.emit.money import dollars, percent
from trimtab.emit.roadmap_words import quick_wins, roadmap_lines
from trimtab.emit.venture_words import venture_subject, venture_verdict
from trimtab.emit.words import (
    UNDECLARED_LEAD,
    UNDECLARED_NOTE,
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

COMMENT_MARKER = "<!-- trimtab audit -->"
"""First line of a comment, by which a later run finds the one to update."""
_SHOWN_IN_COMMENT = 10
"""Rows of each table in a comment: GitHub takes 65,536 characters."""


def render_markdown(document: AuditDocument) -> str:
    """Return the whole audit as a page."""
    parts = [
        f"# GPU cost audit: {_text(document.fleet)}",
        _headline(document),
        _coverage(document),
        "## Where the money goes",
        _spend_table("Workload type", document.spend.by_kind),
        _spend_table("Team", document.spend.by_team),
        _workload_table(document),
        "## What it buys",
        _waste_table(document),
        "## The plan",
        _plan_table(document.plan.actions, document),
        plan_note(document.plan),
        _roadmap(document),
        _always_judged(document),
        _undeclared(document),
        _not_worth_doing(document),
        _unjudged(document),
        _limits(document),
        "## The proof",
        _proof(document),
        _laws(document),
        _robustness(document),
        _what_if(document),
    ]
    return _join(parts)


def render_github_comment(document: AuditDocument) -> str:
    """Return a comment for a pull request: headline and plan, the rest folded away, long tables cut short."""
    short = _shortened(document)
    left_out = len(document.plan.actions) - len(short.plan.actions)
    parts = [
        COMMENT_MARKER,
        f"### GPU cost audit: {_text(document.fleet)}",
        _headline(document),
        _plan_table(short.plan.actions, document),
        f"{left_out} more actions are in the full report." if left_out else "",
        _details("What the bill buys", _waste_table(document)),
        _details("The proof", _proof(short)),
        _details("Not worth doing, not judged", _join([_not_worth_doing(short), _unjudged(short)])),
        f"<sub>{_text(document.coverage.summary)}. Tables show {_SHOWN_IN_COMMENT} rows at most. "
        f"trimtab {document.trimtab_version}</sub>",
    ]
    return _join(parts)


def _shortened(document: AuditDocument) -> AuditDocument:
    """Return the document with the first rows of its long lists; of the targets, the missed ones first."""
    plan, proof, most = document.plan, document.proof, _SHOWN_IN_COMMENT
    targets = sorted(proof.targets, key=lambda target: target.kept)
    return document.model_copy(
        update={
            "plan": plan.model_copy(
                update={"actions": plan.actions[:most], "not_worth_doing": plan.not_worth_doing[:most]}
            ),
            "proof": proof.model_copy(update={"targets": tuple(targets[:most])}),
            "unjudged": document.unjudged[:most],
        }
    )


def _headline(document: AuditDocument) -> str:
    plan, proof = document.plan, document.proof
    kept = kept_words(proof)
    return (
        f"The bill is **{dollars(document.bill_usd_mo)} a month**. The plan brings it to "
        f"{dollars(plan.objective_usd_mo)}{moving_in(plan.moving_usd_mo)} and saves "
        f"**{dollars(plan.joint_saving_usd_mo)} a month "
        f"({percent(plan.saving_frac, 1)})**{joint_interval(plan)}. "
        f"Replayed on {days(proof.window.start, proof.window.end)}, which the "
        f"planner never saw, it saves {percent(proof.saving_frac, 1)}, with {kept}."
    )


def _coverage(document: AuditDocument) -> str:
    counts = (f"{count:,} x {what}" for what, count in document.coverage.counts.items())
    notes = [*document.degraded, *document.coverage.notes, *counts]
    return _join([f"Seen: {_text(document.coverage.summary)}.", _bullets(_text(note) for note in notes)])


def _spend_table(title: str, rows: Sequence[SpendPart]) -> str:
    return _table(
        (f"{title}", "$/month", "share", "GPU active"),
        "lrrr",
        ((_text(row.name), f"{row.usd_mo:,.2f}", percent(row.share_frac), percent(row.activity_frac)) for row in rows),
    )


def _workload_table(document: AuditDocument) -> str:
    verdicts = {verdict.workload: verdict.headline for verdict in document.verdicts}
    rows = (
        (_text(row.name), f"{row.usd_mo:,.2f}", percent(row.activity_frac), _text(verdicts.get(row.name, "")))
        for row in document.spend.by_workload
    )
    return _table(("Workload", "$/month", "GPU active", "what its readings say"), "lrrl", rows)


def _waste_table(document: AuditDocument) -> str:
    rows = [
        (row.kind, row.meaning, f"{row.usd_mo:,.2f}", percent(row.share_frac), _text(", ".join(row.where)))
        for row in document.waste
        if row.usd_mo
    ]
    rows.append(("**the bill**", "", f"**{document.bill_usd_mo:,.2f}**", "", ""))
    return _table(("what", "in words", "$/month", "share", "mostly"), "llrrl", rows)


def _limits(document: AuditDocument) -> str:
    held = owned_lines(document)
    if not document.plan.limits and not held:
        return ""
    limits = _bullets(_text(limit_line(limit)) for limit in document.plan.limits)
    owned = _bullets(map(_text, held))
    return _join(
        [
            *(["### Limits", limits] if document.plan.limits else []),
            *(["### Commitments held", owned] if held else []),
        ]
    )


def _undeclared(document: AuditDocument) -> str:
    if not document.undeclared:
        return ""
    parts = [f"- {_text(undeclared_line(one))}\n\n{_yaml(one.declaration)}" for one in document.undeclared]
    return _join(["### What was not declared", f"{UNDECLARED_LEAD}.", *parts, UNDECLARED_NOTE])


def _yaml(text: str) -> str:
    return "\n".join(f"  {line}" for line in ("```yaml", *text.splitlines(), "```"))


def _laws(document: AuditDocument) -> str:
    if not document.laws:
        return ""
    tests = [one for one in document.laws if one.load_test]
    return _join(
        [
            "### How services answer under load",
            _bullets(_text(law_line(one)) for one in document.laws),
            "Load tests that buy more:" if tests else "",
            _bullets(_text(load_test_line(one)) for one in tests),
        ]
    )


def _robustness(document: AuditDocument) -> str:
    found = document.robustness
    if found is None:
        return ""
    lines = _bullets(_text(stress_line(one)) for one in found.stressed)
    return _join(["### Robustness", lines, headroom_line(found), *map(_text, found.notes)])


def _what_if(document: AuditDocument) -> str:
    found = document.what_if
    if found is None:
        return ""
    rows = ((figure.section, _text(figure.what), *compared_cells(figure)) for figure in found.figures)
    refused = f"There is no plan in that world: {_text(found.refused)}." if found.refused else ""
    title = f"## What if: {_text('; '.join(found.scenario))}"
    return _join([title, _table(("", "", "as it is", "what if"), "llrr", rows), refused])


def _plan_table(actions: Sequence[ActionPart], document: AuditDocument) -> str:
    if not actions:
        return "Nothing that is worth doing was found."
    rows = [_action_row(action) for action in actions]
    if len(actions) == len(document.plan.actions):
        rows.append(("", "**together**", f"**{document.plan.joint_saving_usd_mo:,.2f}**", *[""] * 6))
    return _table(
        ("id", "what to do", "saves $/month", "80% interval", "alone", "last in", "weeks", "risk", "quarter"),
        "llrrrrrll",
        rows,
    )


def _action_row(action: ActionPart) -> tuple[str, ...]:
    return (
        f"`{action.id}`",
        f"**{_text(action.subject)}**: {_text(action.effect)}",
        f"{action.saving_usd_mo:,.2f}",
        interval(action),
        f"{action.standalone_usd_mo:,.0f}",
        f"{action.last_in_usd_mo:,.0f}",
        f"{action.effort_weeks:g}",
        action.risk,
        f"Q{action.quarter}" if action.quarter else "later",
    )


def _roadmap(document: AuditDocument) -> str:
    found = document.plan.roadmap
    if found is None:
        return ""
    wins = ", ".join(f"`{name}`" for name in quick_wins(document))
    rows = (
        (str(month), f"{mine:,.0f}", f"{fixed:,.0f}")
        for month, (mine, fixed) in enumerate(zip(found.course.bill_usd_mo, found.fixed.bill_usd_mo, strict=True))
    )
    return _join(
        [
            "### The year ahead",
            _bullets([*map(_text, roadmap_lines(found)), *([f"Quick wins: {wins}."] if wins else [])]),
            _table(("after months", "bill $/month, this order", "fixed order"), "rrr", rows),
        ]
    )


def _always_judged(document: AuditDocument) -> str:
    rows = document.plan.always_judged
    if not rows:
        return ""
    lines = (
        f"{_text(venture_subject(one))}, {venture_verdict(one)}: {_text(one.reason)}. "
        f"Assumed: {_text(', '.join(one.assumptions))}."
        for one in rows
    )
    return _join(["**Always judged**, beside the plan", _bullets(lines)])


def _not_worth_doing(document: AuditDocument) -> str:
    rows = document.plan.not_worth_doing
    if not rows:
        return ""
    lines = (
        f"{row.lever} on {_text(row.subject)}"
        f"{'' if row.saving_usd_mo is None else f' ({dollars(row.saving_usd_mo)} a month)'}: {_text(row.reason)}"
        for row in rows
    )
    return _join(["**Not worth doing**", _bullets(lines)])


def _unjudged(document: AuditDocument) -> str:
    if not document.unjudged:
        return ""
    lines = (f"{_text(row.workload)} ({dollars(row.usd_mo)} a month): {_text(row.reason)}" for row in document.unjudged)
    return _join(["**Not judged**, left as it is", _bullets(lines)])


def _proof(document: AuditDocument) -> str:
    proof = document.proof
    rows = (
        (
            _text(target.workload),
            _text(target.target),
            percent(target.before_frac, 1),
            percent(target.attained_frac, 1),
            "yes" if target.kept else "**no**",
        )
        for target in proof.targets
    )
    return _join(
        [
            f"The window cost {dollars(proof.before_usd)}; under the plan {dollars(proof.after_usd)}"
            f"{moving_in(proof.moving_usd)} ({percent(proof.saving_frac, 1)} less). With the future known, no plan could go "
            f"below {dollars(proof.clairvoyant_usd)}. {proof.interruptions} interruptions (spot, or a block that ended), "
            f"{proof.lost_gpu_hr:.1f} GPU-hours of work done twice.",
            _table(("workload", "target", "before", "under the plan", "kept"), "llrrl", rows) if proof.targets else "",
            _bullets(map(_text, repair_lines(proof, document.plan))),
            _proof_by_action(document),
            _bullets(f"given up within its target: {_text(line)}" for line in proof.given_up),
            _bullets(_text(note) for note in proof.notes),
        ]
    )


def _proof_by_action(document: AuditDocument) -> str:
    rows = [
        (
            f"`{one.id}`",
            f"{one.predicted_usd_mo:,.0f}",
            f"{one.replayed_usd_mo:,.0f}",
            "" if one.held is None else "yes" if one.held else "no",
        )
        for one in document.proof.actions
    ]
    heads = ("action", "predicted $/month", "replayed", "in its interval")
    return _table(heads, "lrrl", rows) if rows else ""


def _table(heads: Sequence[str], sides: str, rows: Iterable[Sequence[str]]) -> str:
    rule = "|".join("---:" if side == "r" else "---" for side in sides)
    lines = (f"| {' | '.join(row)} |" for row in (heads, *rows))
    first, *rest = lines
    return "\n".join([first, f"|{rule}|", *rest])


def _details(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body.strip()}\n\n</details>" if body.strip() else ""


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _text(raw: str) -> str:
    """Return text that Markdown shows as it is: names may hold pipes, stars, underscores and angle brackets."""
    for mark in "\\`*_|<>[]":
        raw = raw.replace(mark, f"\\{mark}")
    return " ".join(raw.split())


def _join(parts: Iterable[str]) -> str:
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"
