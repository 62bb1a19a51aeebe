"""A review as rows, and as a comment for a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.cli.output import Cell, Sheet, SheetColumn, fixed, percent
from trimtab.emit.blocks import Paragraph, bullets
from trimtab.emit.money import dollars
from trimtab.emit.words import target_words
from trimtab.emit.writers.comment import write_comment
from trimtab.review import ManifestFault, Review, TargetReview, WorkloadReview
from trimtab.review.placing import Weight
from trimtab.units import per_month, usd

TABLE_FIELDS = ("workload", "change_usd_mo", "target", "before_frac", "after_frac", "required_frac", "verdict")
"""Columns of the table for people: what changes is said in words below it."""
_UNCHANGED = "No workload of this history is changed."
_FEW = 20
"""Rows that a comment shows of what is not modelled."""


COLUMNS = (
    SheetColumn(key="workload", title="workload", whole=True),
    SheetColumn(key="change_usd_mo", title="$/month", show=fixed(0, signed=True), right=True, whole=True),
    SheetColumn(key="changes", title="what changes"),
    SheetColumn(key="target", title="target"),
    SheetColumn(key="before_frac", title="before", show=percent(2), right=True, whole=True),
    SheetColumn(key="after_frac", title="after", show=percent(2), right=True, whole=True),
    SheetColumn(key="required_frac", title="needs", show=percent(2), right=True, whole=True),
    SheetColumn(key="verdict", title="so", whole=True),
)


def review_sheet(found: Review) -> Sheet:
    """Return a row per workload and target; as notes the verdict, what changes, what was found and what is not modelled."""
    changes = [
        f"{workload.workload} would {'; '.join(workload.changes)}" for workload in found.workloads if workload.changes
    ]
    verdict, *others = _notes(found)
    rows = list(_rows(found))
    return Sheet(columns=COLUMNS, rows=rows, notes=[*([] if rows else [_UNCHANGED]), verdict, *changes, *others])


def review_comment(found: Review) -> str:
    """Return a comment for a pull request: the verdict, the bill, each target, what would stop pods, what was not read."""
    rows = list(_rows(found))
    table = Sheet(columns=COLUMNS, rows=rows).table() if rows else Paragraph(words=_UNCHANGED)
    notes = list(_notes(found))
    more = [f"and {len(notes) - _FEW - 1} more"] if len(notes) > _FEW + 1 else []
    return write_comment("review", _verdict(found), [table, bullets([*notes[: _FEW + 1], *more])])


def _verdict(found: Review) -> str:
    if found.broken:
        broken = "; ".join(f"{name} {target_words(target.target)}" for name, target in found.broken)
        word = f"breaks {len(found.broken)} target{'s' if len(found.broken) != 1 else ''} ({broken})"
    elif not found.passes:
        word = "would leave pods that do not run"
    else:
        word = "keeps every target that was kept before"
    if found.unjudged:
        word += f"; {', '.join(found.unjudged)} could not be judged"
    change = found.change_usd_mo
    bill = "does not change the bill"
    if round(change):
        bill = f"{'adds' if change > 0 else 'saves'} {dollars(abs(change))} a month"
    return f"This change {bill} and {word}"


def _rows(found: Review) -> Iterator[dict[str, Cell]]:
    for workload in found.workloads:
        first: dict[str, Cell] = {
            "workload": workload.workload,
            "change_usd_mo": None if workload.unjudged else round(_usd_mo(found, workload.change_micro_usd), 2),
            "changes": "; ".join(workload.changes) or ("" if workload.unjudged else "nothing"),
        }
        if workload.unjudged or not workload.targets:
            yield {**first, "verdict": "not judged" if workload.unjudged else "unchanged"}
        for target in workload.targets:
            yield {**first, **_target(target)}
            first = {"workload": workload.workload, "change_usd_mo": None, "changes": ""}


def _target(target: TargetReview) -> dict[str, Cell]:
    return {
        "target": target_words(target.target),
        "before_frac": target.before_frac,
        "after_frac": round(target.after_frac, 6),
        "required_frac": target.target.required_frac,
        "verdict": "kept" if target.kept else ("BROKEN" if target.broken else "missed, as before"),
    }


def _usd_mo(found: Review, micro_usd: int) -> float:
    return per_month(usd(micro_usd), found.window.hours)


def _notes(found: Review) -> Iterator[str]:
    yield (
        f"{_verdict(found)}: {dollars(found.before_usd_mo)} a month with {found.against}, "
        f"{dollars(found.after_usd_mo)} with these, replayed over {found.window}."
    )
    for finding in found.findings:
        yield _finding(finding)
    for workload in found.workloads:
        yield from _of_workload(found, workload)
    for unread in found.unread:
        yield f"not read: {unread.what} ({unread.file}): {unread.why}"


def _finding(fault: ManifestFault) -> str:
    where = f" ({', '.join(fault.files)})" if fault.files else ""
    word = "STOPS" if fault.weight is Weight.STOPS else "warning"
    return f"{word}: {fault.workload} {fault.what}{where}; {fault.cure}"


def _of_workload(found: Review, workload: WorkloadReview) -> Iterator[str]:
    if workload.unjudged:
        yield f"not judged: {workload.workload}: {workload.unjudged}"
    if workload.ends_micro_usd:
        low, high = (f"{_usd_mo(found, end):+,.0f}" for end in workload.ends_micro_usd)
        yield (
            f"{workload.workload}: follows GPU activity, on a GPU of which history shows none: between {low} and {high} "
            "dollars a month, by the interval of its estimated speed; follow requests, or measure it there"
        )
    for note in workload.notes:
        yield f"{workload.workload}: {note}"
