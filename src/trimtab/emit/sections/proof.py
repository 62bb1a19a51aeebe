"""Sections of the proof: the plan replayed on unseen history, stress tests, and a comparison with a scenario."""

from __future__ import annotations

from trimtab.emit.blocks import (
    Block,
    Chart,
    Folded,
    Noted,
    Paragraph,
    StyledText,
    Table,
    TableColumn,
    TableRow,
    Tone,
    bullets,
    code,
    soft,
    strong,
)
from trimtab.emit.comparison import ComparedFigure, FigureUnit, values_shown
from trimtab.emit.document import AuditDocument
from trimtab.emit.document.plan import TargetPart
from trimtab.emit.document.proof import ActionProofPart
from trimtab.emit.html.charts import bill_by_hour
from trimtab.emit.html.markup import PHONE_WIDTH
from trimtab.emit.money import dollars, percent
from trimtab.emit.words import (
    days,
    headroom_line,
    kept_words,
    late_words,
    law_line,
    load_test_line,
    moving_in,
    repair_lines,
    stress_line,
)
from trimtab.levers.registry import title_of

_BRIEF_LINES = 8
_BRIEF_ACTIONS = 20
_TARGETS_UNFOLDED = 8
_SAME_WORK_FRAC = 0.05
"""Work that differs by less explains no saving that missed its interval."""


def proof_blocks(document: AuditDocument) -> list[Block]:
    """Return the replay of the proof window: bill, targets, workloads planned again, the part of each action."""
    proof = document.proof
    all_kept = proof.targets_kept == len(proof.targets)
    window = days(proof.window.start, proof.window.end)
    blocks: list[Block] = [
        Paragraph(
            words=(
                f"{window} cost {dollars(proof.before_usd)}; under the plan it would have cost "
                f"{dollars(proof.after_usd)}{moving_in(proof.moving_usd)}: ",
                strong(f"{percent(proof.saving_frac, 1)} less", Tone.GOOD),
                f" (with the future known, no plan could cost less than {dollars(proof.clairvoyant_usd)}). "
                f"{proof.interruptions} interruptions (spot, or a block that ended), {proof.lost_gpu_hr:.1f} GPU-hours of "
                "work repeated.",
            )
        ),
        Chart(
            title="Bill by hour",
            keys=(("key-before", "as it was"), ("key-after", "with the plan")),
            draw=lambda: bill_by_hour(document.pictures.bill_by_hour),
            on_phone=lambda: bill_by_hour(document.pictures.bill_by_hour, width=PHONE_WIDTH),
        ),
    ]
    if proof.targets:
        blocks.append(Paragraph(words=(strong(kept_words(proof), Tone.GOOD if all_kept else Tone.BAD), ".")))
        blocks += _targets(proof.targets)
    else:
        blocks.append(Paragraph(words=StyledText("No workload has a target that could be checked.", Tone.WARN)))
    if repairs := repair_lines(proof, document.plan):
        blocks.append(
            bullets([StyledText(line, Tone.WARN) for line in repairs], title="Planned again after this proof")
        )
    if proof.given_up:
        blocks.append(bullets(proof.given_up, title="Given up within the targets", brief=_BRIEF_LINES))
    if proof.notes:
        blocks.append(bullets(proof.notes))
    if proof.actions:
        blocks.append(_actions(document))
    return blocks


def _targets(targets: tuple[TargetPart, ...]) -> list[Block]:
    """Return the table of targets: missed and declared ones first, the others collapsed if there are many."""
    order = sorted(targets, key=lambda target: (target.kept, not target.declared))
    first = [target for target in order if target.declared or not target.kept]
    if len(order) <= _TARGETS_UNFOLDED or not first:
        return [_target_table(order)]
    rest = order[len(first) :]
    if not rest:
        return [_target_table(first)]
    title = f"{len(rest)} more that were not declared, all met: no worse than observed"
    return [_target_table(first), Folded(title=title, blocks=(_target_table(rest),))]


def _target_table(targets: list[TargetPart]) -> Table:
    """Return targets before and with the plan; at the brief level, only missed ones."""
    return Table(
        columns=(
            TableColumn(title="workload"),
            TableColumn(title="target"),
            TableColumn(title="before", right=True, optional=1),
            TableColumn(title="required", right=True, optional=2),
            TableColumn(title="attained", right=True),
            TableColumn(title="", whole=True),
        ),
        rows=tuple(
            TableRow(
                cells=(
                    target.workload,
                    Noted(words=target.target, beneath=_beneath(target)),
                    percent(target.before_frac, 1),
                    percent(target.required_frac, 1),
                    percent(target.attained_frac, 1),
                    StyledText("✓ kept", Tone.GOOD) if target.kept else strong("✗ missed", Tone.BAD),
                )
            )
            for target in targets
        ),
        brief_rows=sum(not target.kept for target in targets),
    )


def _beneath(target: TargetPart) -> str:
    left = "" if target.touched else "; the plan does not change it"
    late = late_words(target)
    return f"{target.because}{left}{f'; {late}' if late and target.touched else ''}"


def _actions(document: AuditDocument) -> Table:
    """Return predicted and replayed savings of each action."""
    subjects = {action.id: f"{title_of(action.lever)}: {action.subject}" for action in document.plan.actions}
    kind = "shares of the joint saving" if document.proof.actions[0].measure == "share" else "lost without it alone"
    return Table(
        title=f"Action by action, dollars a month ({kind})",
        columns=(
            TableColumn(title="id", whole=True),
            TableColumn(title="what"),
            TableColumn(title="predicted", right=True),
            TableColumn(title="replayed", right=True),
            TableColumn(title="difference", right=True, optional=1),
            TableColumn(title="80% interval", wide_only=True),
        ),
        rows=tuple(_action_row(part, subjects.get(part.id, "")) for part in document.proof.actions),
        brief_rows=_BRIEF_ACTIONS,
    )


def _action_row(part: ActionProofPart, what: str) -> TableRow:
    held = "" if part.held is None else "within" if part.held else _outside(part)
    return TableRow(
        cells=(
            code(part.id),
            what,
            f"{part.predicted_usd_mo:,.0f}",
            f"{part.replayed_usd_mo:,.0f}",
            f"{part.replayed_usd_mo - part.predicted_usd_mo:,.0f}",
            held,
        )
    )


def _outside(part: ActionProofPart) -> str:
    """Return that a saving missed its interval, with the work done then if that differs from the work planned on."""
    ratio = part.work_ratio
    if ratio is None or abs(ratio - 1) < _SAME_WORK_FRAC:
        return "outside"
    return f"outside; its GPUs did {abs(ratio - 1):.0%} {'more' if ratio > 1 else 'less'} work in that window"


def laws_blocks(document: AuditDocument) -> list[Block]:
    """Return how services respond under load, most expensive first, and the load tests that could save more."""
    if not document.laws:
        return []
    spend = {row.name: row.usd_mo for row in document.spend.by_workload}
    laws = sorted(document.laws, key=lambda law: -spend.get(law.workload, 0.0))
    tests = [soft(load_test_line(law)) for law in laws if law.load_test]
    blocks: list[Block] = [bullets([law_line(law) for law in laws], brief=_BRIEF_LINES)]
    if tests:
        blocks.append(bullets(tests, title="Load tests that could save more", brief=_BRIEF_LINES))
    return blocks


def robustness_blocks(document: AuditDocument) -> list[Block]:
    """Return the stress tests of the proof."""
    found = document.robustness
    if found is None:
        return []
    lines = [StyledText(stress_line(part), Tone.WARN if part.missed else Tone.PLAIN) for part in found.stressed]
    notes = (headroom_line(found), *found.notes)
    return [bullets(lines), *(Paragraph(words=soft(note)) for note in notes)]


def what_if_blocks(document: AuditDocument) -> list[Block]:
    """Return both scenarios side by side."""
    found = document.what_if
    if found is None:
        return []
    figures = [
        ComparedFigure(
            section=part.section,
            what=part.what,
            unit=FigureUnit(part.unit),
            base=part.base,
            scenario=part.scenario,
        )
        for part in found.figures
    ]
    compared = Table(
        columns=(TableColumn(title=""), TableColumn(title="as it is"), TableColumn(title="what if")),
        rows=tuple(
            TableRow(cells=(figure.what, value.base, value.scenario), group=figure.section)
            for figure, value in zip(figures, values_shown(figures), strict=True)
        ),
    )
    refused = f"No plan is possible in this scenario: {found.refused}."
    return [compared, *([Paragraph(words=StyledText(refused, Tone.WARN))] if found.refused else [])]
