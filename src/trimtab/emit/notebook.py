"""The notebook view of a fleet, a plan, its proof, an audit, a fit and a replay: report blocks as HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from trimtab.emit.audit_document import audit_document
from trimtab.emit.blocks import Block, Folded, Paragraph, Section, Table, bullets, code, strong, table
from trimtab.emit.fit_document import serving_ways, training_ways
from trimtab.emit.from_audit.plan import effect_words, target_part
from trimtab.emit.html.markup import Html, join
from trimtab.emit.money import bill_left, dollars, percent
from trimtab.emit.sections.audit import audit_headline, audit_sections
from trimtab.emit.sections.fit import buying_table, rejected_table, ways_table
from trimtab.emit.writers.html import block_html, section_html
from trimtab.physics.ask import FitAnswer
from trimtab.physics.found_ways import ServingOption
from trimtab.physics.search_training import TrainingOption
from trimtab.plan.audit import Audit
from trimtab.plan.model import Plan, Proof
from trimtab.replay.compare import PolicyRun
from trimtab.tables.bundle import Bundle

_SHOWN_WAYS = 12
_AUDIT_SECTIONS = ("spend", "plan", "proof")


def notebook_html(value: object) -> str:
    """Return the view of a value. Raises TypeError if it has none."""
    for kind, made in _VIEWS:
        if isinstance(value, kind):
            return str(made(value))
    raise TypeError(f"a {type(value).__name__} has no view")


def _blocks(*blocks: Block) -> Html:
    return join(map(block_html, blocks))


def _bundle(bundle: Bundle) -> Html:
    """Return the window, and the tables with their row counts."""
    rows = [(code(name), f"{count:,}") for name, count in bundle.row_counts().items()]
    seen = f"History of {bundle.start:%-d %b %Y} to {bundle.end:%-d %b %Y}, {len(bundle.workloads.workloads)} declarations."
    return _blocks(Paragraph(words=seen), table(("table", "#rows"), rows), bullets(bundle.meta.notes))


def _audit(audit: Audit) -> Html:
    """Return the headline, where the money goes, the actions and the proof."""
    document = audit_document(audit)
    sections = (_brief(section) for section in audit_sections(document, _AUDIT_SECTIONS))
    return join([block_html(Paragraph(words=audit_headline(document))), *map(section_html, sections)])


def _brief(section: Section) -> Section:
    """Return a section with all row details removed."""
    blocks = (
        replace(block, rows=tuple(replace(row, details=()) for row in block.rows))
        if isinstance(block, Table)
        else block
        for block in section.blocks
    )
    return replace(section, blocks=tuple(blocks))


def _plan(plan: Plan) -> Html:
    """Return what the plan saves, and its actions."""
    rows = [
        (
            code(action.id),
            (strong(action.subject), f": {effect_words(action.changes)}"),
            f"{action.saving_usd_mo.value:,.2f}",
            f"{action.saving_usd_mo.low:,.0f}–{action.saving_usd_mo.high:,.0f}",
            f"{action.effort_weeks:g}",
            action.risk.value,
        )
        for action in plan.actions
    ]
    before, after = (plan.usd_mo(amount) for amount in (plan.before_micro_usd, plan.after_micro_usd))
    saved = dollars(plan.usd_mo(plan.joint_saving_micro_usd))
    return _blocks(
        Paragraph(
            words=(
                f"From {dollars(before)} to {dollars(bill_left(before, after))} a month: ",
                strong(f"{saved} saved"),
                ".",
            )
        ),
        table(("id", "what to do", "#saves $/month", "#80% interval", "#weeks", "risk"), rows),
    )


def _proof(proof: Proof) -> Html:
    """Return the plan's saving on the proof window, and what each target reaches there."""
    parts = [target_part(result) for result in proof.targets]
    rows = [
        (
            part.workload,
            part.target,
            "–" if part.before_frac is None else percent(part.before_frac, 1),
            percent(part.required_frac, 1),
            percent(part.attained_frac, 1),
            "kept" if part.kept else "MISSED",
        )
        for part in parts
    ]
    kept = f"{sum(part.kept for part in parts)} of {len(parts)} targets kept"
    return _blocks(
        Paragraph(
            words=(
                strong(f"{percent(proof.saving_frac, 1)} saved"),
                f" on history that was not used for planning; {kept}.",
            )
        ),
        table(("workload", "target", "#before", "#required", "#attained", ""), rows),
    )


def _fit(answer: FitAnswer) -> Html:
    """Return the cheapest options, their cost under each buying option, and why the others were rejected."""
    ways = serving_ways([way for way in answer.found if isinstance(way, ServingOption)]) or training_ways(
        [way for way in answer.found if isinstance(way, TrainingOption)]
    )
    shown = ways[:_SHOWN_WAYS]
    rejected = Folded(title=f"{len(answer.rejected)} rejected", blocks=(rejected_table(answer.rejected),))
    if not shown:
        return _blocks(Paragraph(words="Nothing works."), rejected)
    rest = f"{len(ways) - len(shown)} more ways work." if len(ways) > len(shown) else ""
    return _blocks(ways_table(shown), buying_table(shown), *([Paragraph(words=rest)] if rest else []), rejected)


def _run(run: PolicyRun) -> Html:
    """Return how a policy did against the targets of the history and the best in hindsight."""
    rows: Sequence[tuple[str, str]] = (
        ("replica-hours over the best in hindsight", f"{run.over_clairvoyant:.2f}"),
        ("lowest share of requests within a target", percent(run.worst_attained_frac, 2)),
        ("targets", "kept" if run.keeps else "MISSED"),
        ("another is cheaper and no worse", "no" if run.undominated else "yes"),
    )
    return _blocks(table((run.name, "#"), rows), bullets(run.notes))


_VIEWS: tuple[tuple[type, Callable[..., Html]], ...] = (
    (Bundle, _bundle),
    (Audit, _audit),
    (Plan, _plan),
    (Proof, _proof),
    (FitAnswer, _fit),
    (PolicyRun, _run),
)
"""Views by the class of the value."""
