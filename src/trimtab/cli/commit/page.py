"""What to commit to as a page of sections: a table or a drawing for each part of the answer, and what is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trimtab.cli.commit.tables import CommitPart, curve, picture, picture_points, sheet_of
from trimtab.emit.blocks import Block, Drawing, Page, Section, bullets
from trimtab.levers.commit_advice import Advice
from trimtab.plan.commitments.commit_report import CommitReport

_HIDDEN = {"pool", "plan", "beside_reservations", "layers", "term_usd", "source"}
"""Columns that people are not shown: the pool or plan stands above its rows."""


def commit_page(fleet: str, report: CommitReport, parts: Sequence[CommitPart], fields: Sequence[str] = ()) -> Page:
    """Return the page of some parts of the answer, of which `fields` are the columns (empty: all)."""
    known = report.advice or report.spend
    return Page(
        brand="trimtab commit",
        title="Commitments",
        subject=fleet,
        seen=f"{report.window}; {report.basis}",
        headline="" if known else "No commitment below the on-demand price is known for any pool of this fleet.",
        sections=(
            *(Section(name=part.value, title=part.title, blocks=_blocks(part, report, fields)) for part in parts),
            Section(name="beside", title="Held beside these", blocks=(bullets(report.held_beside),)),
            Section(
                name="rates",
                title="No price is known for these, and none is assumed",
                gloss="ask, and give them with --prices or --offer",
                blocks=(bullets(report.wanted_rates),),
            ),
        ),
    )


def _blocks(part: CommitPart, report: CommitReport, fields: Sequence[str]) -> tuple[Block, ...]:
    if part is CommitPart.LOAD:
        return tuple(map(_load, report.advice))
    sheet = sheet_of(part, report)
    sheet = sheet.only(fields) if fields else sheet
    shown = replace(sheet, columns=[column for column in sheet.columns if column.key not in _HIDDEN])
    return shown.table(), bullets(sheet.notes)


def _load(advice: Advice) -> Drawing:
    return Drawing(title=str(advice.pool), draw=lambda width: picture(curve(advice, picture_points(width))))
