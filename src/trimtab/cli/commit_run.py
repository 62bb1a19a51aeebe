"""What `trimtab commit` does once its arguments are read: open the history, ask, and show the parts of the answer."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import yaml

from trimtab.catalog import load_catalog
from trimtab.cli.commit_picture import picture, picture_points
from trimtab.cli.commit_sheets import Section, curve, sheet_of
from trimtab.cli.held import held_inventory
from trimtab.cli.outcome_cache import outcome_cache
from trimtab.cli.output import (
    PLAIN_WIDTH,
    SCHEMA_VERSION,
    Format,
    colour_wanted,
    render,
    screen_width,
    write,
    write_sheet as write_rows,
)
from trimtab.cli.progress import Tell, progress_bar, set_verbosity
from trimtab.cli.settings import resolve
from trimtab.cli.sheet import Sheet
from trimtab.errors import UnknownName, UsageError
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.ledger import Usage
from trimtab.pipeline import open_demo, plan_fleet
from trimtab.pipeline.opening import carried_at
from trimtab.plan.commit_after import ordered_layers, usage_after
from trimtab.plan.commitments.commit_report import (
    AFTER_PLAN,
    AFTER_PLAN_QUOTED,
    AS_IT_WAS,
    CommitReport,
    Question,
    commit_report,
    pools_by_type,
)
from trimtab.plan.commitments.inventory import not_running
from trimtab.sources.bills.commitments import TERMS, quoted_offer
from trimtab.tables.checks import checked_bundle

HIDDEN_FROM_PEOPLE = {"pool", "plan", "beside_reservations", "layers", "term_usd", "source"}
"""Columns that tables for people leave out: the pool or plan stands above its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """The arguments of `trimtab commit`."""

    bundle: Path | None
    demo: str | None
    as_it_was: bool
    term: str
    instance_type: str | None
    nodes: int | None
    hours_mo: float | None
    quotes: tuple[str, ...]
    owned: Path | None
    owned_region: str | None
    prices: Path | None
    at: date | None
    section: str | None
    quiet: bool
    verbose: int
    output_format: Format
    out: Path | None
    fields: tuple[str, ...]


def run_commit(request: CommitRequest) -> None:
    """Run the command."""
    set_verbosity(request.verbose, request.quiet)
    _check(request)
    with progress_bar(quiet=request.quiet) as tell:
        tell("opening the fleet", 0.0)
        report = _report(request, tell)
    sections = [Section(request.section)] if request.section else list(Section)
    if request.section and request.output_format in (Format.CSV, Format.JSON, Format.YAML):
        write_rows(sheet_of(sections[0], report), request.output_format, out=request.out, fields=request.fields)
        return
    write(_rendered(request, report, sections), request.out)


def _check(request: CommitRequest) -> None:
    if request.bundle and request.demo:
        raise UsageError("BUNDLE and --demo name different histories: give one of them")
    if not request.bundle and not request.demo:
        raise UsageError("which fleet? give the folder of a bundle (trimtab commit fleet/), or try --demo")
    if request.output_format is Format.CSV and not request.section:
        raise UsageError(
            "CSV holds one table: name it with --section steps, rules, returns, plans, inventory, held-plans or load"
        )
    if request.fields and not request.section:
        raise UsageError("--fields needs --section, because each part has its own columns")


def _report(request: CommitRequest, tell: Tell) -> CommitReport:
    settings = resolve(file=None, environ=os.environ, flags=()).settings
    bundle = checked_bundle(request.bundle) if request.bundle else open_demo(str(request.demo))
    fleet = build_fleet(bundle, settings, bundle_window(bundle))
    terms = tuple(TERMS.values()) if request.term == "any" else (TERMS[request.term],)
    day = request.at or fleet.window.end.date()
    catalog = load_catalog(request.prices)
    held = held_inventory(request.owned, catalog, bundle, region=request.owned_region)
    market = Market(catalog=catalog, at=day, max_term_years=max(terms), assumptions=settings.assumptions)
    carried = carried_at(bundle, market, fleet)
    (fleet,), market = carried.fleets, carried.market
    usage, basis, window = fleet.usage, AS_IT_WAS, fleet.window
    ordered, notes = None, tuple[str, ...]()
    _check_type(usage, request.instance_type)
    quotes = [quoted_offer(text, pools_by_type(usage)) for text in request.quotes]
    if not request.as_it_was:
        allowed = replace(settings, planning=replace(settings.planning, max_term_years=max(terms)))
        with outcome_cache() as store:
            planned, opened = plan_fleet(
                bundle, allowed, catalog, at=request.at, owned=held.owned, store=store, progress=tell
            )
        usage, window, notes = usage_after(planned), opened.fit.window, opened.degraded
        basis = AFTER_PLAN_QUOTED if request.quotes else AFTER_PLAN
        ordered = None if request.quotes else ordered_layers(planned, day)
    return commit_report(
        usage,
        window,
        market,
        Question(
            terms_years=terms,
            instance_type=request.instance_type,
            nodes=request.nodes,
            hours_mo=request.hours_mo,
        ),
        basis=basis,
        day=day,
        owned=held.owned,
        quotes=quotes,
        held_beside=[
            *carried.said,
            *(f"left out: {line}" for line in held.left_out),
            *not_running(held.owned, day),
            *(note for note in notes if "no commitment is advised" in note),
        ],
        seen=fleet.usage,
        cover_most_frac=settings.planning.commitment_coverage_max_frac,
        ordered=ordered,
    )


def _check_type(usage: Usage, instance_type: str | None) -> None:
    known = pools_by_type(usage)
    if instance_type is not None and instance_type not in known:
        raise UnknownName("instance type", instance_type, known, where="the fleet's on-demand nodes")


def _rendered(request: CommitRequest, report: CommitReport, sections: Sequence[Section]) -> str:
    """Return the parts of the answer in the form that was asked for."""
    match request.output_format:
        case Format.JSON:
            return json.dumps(_document(report), indent=2, allow_nan=False, ensure_ascii=False)
        case Format.YAML:
            return yaml.safe_dump(_document(report), sort_keys=False, allow_unicode=True)
        case Format.MARKDOWN:
            return _for_people(request, report, sections, width=PLAIN_WIDTH, heading="## ")
        case _:
            width = PLAIN_WIDTH if request.out else min(screen_width(), 100)
            return _for_people(request, report, sections, width=width, heading="")


def _document(report: CommitReport) -> dict[str, object]:
    """Return the whole answer for a program: one key a part, one object a row."""
    parts = {section.value: sheet_of(section, report) for section in Section}
    return {
        "schema_version": SCHEMA_VERSION,
        "window": {"start": report.window.start.isoformat(), "end": report.window.end.isoformat()},
        "basis": report.basis,
        **{
            key.replace("-", "_"): [{c.key: row.get(c.key) for c in sheet.columns} for row in sheet.rows]
            for key, sheet in parts.items()
        },
        "wanted_rates": list(report.wanted_rates),
        "held_beside": list(report.held_beside),
    }


def _for_people(
    request: CommitRequest, report: CommitReport, sections: Sequence[Section], *, width: int, heading: str
) -> str:
    colour = request.out is None and colour_wanted()
    blocks = ["\n".join(textwrap.wrap(f"{report.window}; {report.basis}", width))]
    for section in sections:
        body = _body(section, report, request, width, colour=colour)
        if body:
            blocks.append(f"{heading}{section.title}\n\n{body}")
    if not report.advice and not report.spend:
        blocks.append("No commitment below the on-demand price is known for any pool of this fleet.")
    if report.held_beside:
        blocks.append("Held beside these:\n" + "\n".join(f"  {line}" for line in report.held_beside))
    if report.wanted_rates:
        lines = "\n".join(
            textwrap.fill(line, width, initial_indent="  ", subsequent_indent="    ") for line in report.wanted_rates
        )
        blocks.append(
            f"No price is known for these, and none is assumed.\nAsk, and give them with --prices or --offer:\n{lines}"
        )
    return "\n\n".join(blocks)


def _body(section: Section, report: CommitReport, request: CommitRequest, width: int, *, colour: bool) -> str:
    if section is Section.LOAD:
        drawn = [f"{one.pool}\n{picture(curve(one, picture_points(width)))}" for one in report.advice]
        fence = "```" if request.output_format is Format.MARKDOWN else ""
        return "\n\n".join(f"{fence}\n{text}\n{fence}".strip("\n") for text in drawn)
    sheet = sheet_of(section, report)
    if request.fields:
        sheet = sheet.only(request.fields)
    if not sheet.rows and not sheet.notes:
        return ""
    return render(_plain(sheet), request.output_format, width=width, colour=colour)


def _plain(sheet: Sheet) -> Sheet:
    return replace(sheet, columns=[one for one in sheet.columns if one.key not in HIDDEN_FROM_PEOPLE])
