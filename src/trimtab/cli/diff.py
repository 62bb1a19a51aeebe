"""`trimtab diff`: shows what changed between two audits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from trimtab.cli.options import AnswerOptions, answer_options, argument, options_from
from trimtab.cli.output import ROW_FORMATS, Cell, Format, Sheet, SheetColumn, fixed, sheet_comment, write, write_answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trimtab.emit.document import AuditDocument
    from trimtab.emit.document.plan import ActionPart, TargetPart

COLUMNS = (
    SheetColumn(key="change", title="", whole=True),
    SheetColumn(key="lever", title="lever", whole=True),
    SheetColumn(key="subject", title="on"),
    SheetColumn(key="before_usd_mo", title="saving before, $/mo", show=fixed(0), right=True, whole=True),
    SheetColumn(key="after_usd_mo", title="after", show=fixed(0), right=True, whole=True),
    SheetColumn(key="effect", title="what"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """Arguments of `trimtab diff`."""

    before: str = argument(default="-2")
    after: str = argument(default="-1")
    answer: AnswerOptions = answer_options(*ROW_FORMATS, Format.GITHUB_COMMENT)


@click.command()
@options_from(DiffOptions)
def command(options: DiffOptions) -> None:
    """Show what changed between two audits: actions added, removed or changed, the bill, the saving.

    Declared targets that were removed or loosened are listed too.

    BEFORE and AFTER are numbers of kept audits (.trimtab/history), -1 for the last one, or files of `trimtab audit -o json`;
    the last two by default. Write -- before negative numbers.

    \b
    Examples:
      trimtab diff
      trimtab diff 3 7
      trimtab diff march.json april.json -o markdown
      trimtab diff -o github-comment --out comment.md
      trimtab diff -- -3 -1
    """
    from trimtab.cli.kept_audits import recall_named

    first, second = recall_named(options.before), recall_named(options.after)
    sheet = _sheet(first, second)
    if options.answer.output_format is Format.GITHUB_COMMENT:
        chosen = sheet.only(options.answer.fields) if options.answer.fields else sheet
        write(sheet_comment("diff", f"What changed between two audits: {second.fleet}", chosen), options.answer.out)
    else:
        write_answer(sheet, options.answer)


def _sheet(before: AuditDocument, after: AuditDocument) -> Sheet:
    first, second = _actions(before), _actions(after)
    rows = [_row(first.get(key), second.get(key)) for key in {**first, **second}]
    rows += _targets(before, after)
    parts = (
        ("bill", before.bill_usd_mo, after.bill_usd_mo),
        ("saving", before.plan.joint_saving_usd_mo, after.plan.joint_saving_usd_mo),
    )
    bridge = "; ".join(f"{name} {former:,.0f} -> {two:,.0f} ({two - former:+,.0f})" for name, former, two in parts)
    notes = [f"$/month: {bridge}."]
    if before.fleet != after.fleet:
        notes.append(f"different fleets: {before.fleet}, then {after.fleet}")
    return Sheet(columns=COLUMNS, rows=rows, notes=notes)


def _targets(before: AuditDocument, after: AuditDocument) -> list[dict[str, Cell]]:
    """Return declared targets that were removed or loosened, of workloads that both plans change."""
    there = {target.workload for target in after.proof.targets if target.touched}
    rows: list[dict[str, Cell]] = []
    for then, same in _pairs(before.proof.targets, after.proof.targets):
        if not then.declared or not then.touched or then.workload not in there:
            continue
        change = "target dropped" if same is None or not same.declared else _loosened(then, same)
        if change:
            became = same.target if same else "nothing"
            words = f"{then.target} -> {became}"
            rows.append({"change": change, "lever": then.metric, "subject": then.workload, "effect": words})
    return rows


def _pairs(before: Sequence[TargetPart], after: Sequence[TargetPart]) -> Iterator[tuple[TargetPart, TargetPart | None]]:
    """Yield each former target with its successor: the same quantile, else an unmatched target of the same metric."""
    left = list(after)
    pairs: dict[int, TargetPart] = {}
    for exact in (True, False):
        for index, then in enumerate(before):
            same = (
                now
                for now in left
                if (now.workload, now.metric) == (then.workload, then.metric)
                and (not exact or now.required_frac == then.required_frac)
            )
            found = None if index in pairs else next(same, None)
            if found is not None:
                pairs[index] = found
                left.remove(found)
    for index, then in enumerate(before):
        yield then, pairs.get(index)


def _loosened(then: TargetPart, now: TargetPart) -> str:
    longer = then.limit_s is not None and now.limit_s is not None and now.limit_s > then.limit_s
    return "target loosened" if longer or now.required_frac < then.required_frac else ""


def _actions(document: AuditDocument) -> Mapping[tuple[str, str], ActionPart]:
    return {(action.lever, action.subject): action for action in document.plan.actions}


def _row(before: ActionPart | None, after: ActionPart | None) -> dict[str, Cell]:
    shown = after or before
    if shown is None:
        return {}
    return {
        "change": _change(before, after),
        "lever": shown.lever,
        "subject": shown.subject,
        "before_usd_mo": before.saving_usd_mo if before else None,
        "after_usd_mo": after.saving_usd_mo if after else None,
        "effect": shown.effect,
    }


def _change(before: ActionPart | None, after: ActionPart | None) -> str:
    if before is None:
        return "new"
    if after is None:
        return "gone"
    return "same" if before.changes == after.changes and before.saving_usd_mo == after.saving_usd_mo else "changed"
