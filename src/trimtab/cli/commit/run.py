"""Runs `trimtab commit`: opens the history, computes the advice, and shows it as a page of sections."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace

import yaml

from trimtab.catalog import load_catalog
from trimtab.cli.commit import CommitOptions
from trimtab.cli.commit.tables import CommitPart, curve, load_layers, picture, picture_points, sheet_of
from trimtab.cli.history import held_inventory
from trimtab.cli.outcome_cache import outcome_cache
from trimtab.cli.output import SCHEMA_VERSION, Format, write, write_answer, write_page
from trimtab.cli.progress import Tell, progress_bar, set_verbosity
from trimtab.cli.settings import resolve
from trimtab.emit.blocks import Block, Chart, Drawing, Page, Section, bullets
from trimtab.emit.html.charts import LOAD_LAYERS, load_curve
from trimtab.emit.html.markup import PHONE_WIDTH, WIDTH, Html
from trimtab.emit.words import without_committed_rate
from trimtab.errors import UnknownName, UsageError
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.ledger import Usage
from trimtab.levers.commit_advice import Advice
from trimtab.pipeline import PlanningInput, open_demo, plan_and_prove
from trimtab.pipeline.opening import carried_at
from trimtab.plan.commit_after import ordered_layers, usage_after
from trimtab.plan.commitments.commit_report import (
    AFTER_PLAN,
    AFTER_PLAN_QUOTED,
    AS_IT_WAS,
    CommitReport,
    CommittedUse,
    Question,
    commit_report,
    pools_by_type,
)
from trimtab.plan.commitments.inventory import not_running
from trimtab.sources.bills.commitments import TERMS, quoted_offer
from trimtab.tables.checks import checked_bundle


def run_commit(options: CommitOptions) -> None:
    """Run the command."""
    set_verbosity(options.verbose, options.quiet)
    _check(options)
    with progress_bar(quiet=options.quiet) as tell:
        tell("opening the fleet", 0.0)
        report = reported(options, tell)
    answer, form = options.answer, options.answer.output_format
    if form in (Format.TABLE, Format.MARKDOWN):
        fleet = str(options.bundle or f"demo {options.demo}")
        parts = [CommitPart(options.section)] if options.section else list(CommitPart)
        write_page(commit_page(fleet, report, parts, answer.fields), form, answer.out)
    elif options.section:
        write_answer(sheet_of(CommitPart(options.section), report), answer)
    elif form is Format.JSON:
        write(json.dumps(commit_document(report), indent=2, allow_nan=False, ensure_ascii=False), answer.out)
    else:
        write(yaml.safe_dump(commit_document(report), sort_keys=False, allow_unicode=True), answer.out)


def _check(options: CommitOptions) -> None:
    if options.bundle and options.demo:
        raise UsageError("BUNDLE and --demo name different histories: give one of them")
    if not options.bundle and not options.demo:
        raise UsageError("which fleet? give the folder of a bundle (trimtab commit fleet/), or try --demo")
    if options.answer.output_format is Format.CSV and not options.section:
        raise UsageError(
            "CSV holds one table: name it with --section steps, rules, returns, plans, inventory, held-plans or load"
        )
    if options.answer.fields and not options.section:
        raise UsageError("--fields needs --section, because each part has its own columns")


def reported(options: CommitOptions, tell: Tell) -> CommitReport:
    """Work out the answer; raises TrimtabError."""
    settings = resolve(file=None, environ=os.environ, flags=()).settings
    bundle = checked_bundle(options.bundle) if options.bundle else open_demo(str(options.demo))
    fleet = build_fleet(bundle, settings, bundle_window(bundle))
    terms = tuple(TERMS.values()) if options.term == "any" else (TERMS[options.term],)
    day = options.at or fleet.window.end.date()
    catalog = load_catalog(options.prices)
    held = held_inventory(options.owned, catalog, bundle, region=options.owned_region)
    market = Market(catalog=catalog, at=day, max_term_years=max(terms), assumptions=settings.assumptions)
    carried = carried_at(bundle, market, fleet)
    (fleet,), market = carried.fleets, carried.market
    use = CommittedUse(usage=fleet.usage, window=fleet.window, basis=AS_IT_WAS, as_it_was=fleet.usage)
    notes = tuple[str, ...]()
    _check_type(fleet.usage, options.instance_type)
    quotes = tuple(quoted_offer(text, pools_by_type(fleet.usage)) for text in options.quotes)
    if not options.as_it_was or options.after_plan:
        allowed = replace(settings, planning=replace(settings.planning, max_term_years=max(terms)))
        with outcome_cache() as store:
            given = PlanningInput(
                bundle=bundle,
                settings=allowed,
                catalog=catalog,
                at=options.at,
                owned=held.owned,
                store=store,
                progress=tell,
            )
            made = plan_and_prove(given)
        notes = made.opened.degraded
        use = CommittedUse(
            usage=usage_after(made.planned),
            window=made.opened.fit.window,
            basis=AFTER_PLAN_QUOTED if options.quotes else AFTER_PLAN,
            as_it_was=fleet.usage,
            ordered=None if options.quotes else ordered_layers(made.planned, day),
        )
    return commit_report(
        use,
        market,
        Question(
            day=day,
            terms_years=terms,
            instance_type=options.instance_type,
            quotes=quotes,
            cover_most_frac=settings.planning.commitment_coverage_max_frac,
            nodes=options.nodes,
            hours_mo=options.hours_mo,
        ),
        held.owned,
        held_beside=[
            *carried.said,
            *(f"left out: {line}" for line in held.left_out),
            *not_running(held.owned, day),
            *(note for note in notes if "no commitment is advised" in note),
        ],
    )


def _check_type(usage: Usage, instance_type: str | None) -> None:
    known = pools_by_type(usage)
    if instance_type is not None and instance_type not in known:
        raise UnknownName("instance type", instance_type, known, where="the fleet's on-demand nodes")


def commit_document(report: CommitReport) -> dict[str, object]:
    """Return the whole answer for programs: one key per part, one object per row."""
    parts = {section.value: sheet_of(section, report) for section in CommitPart}
    return {
        "schema_version": SCHEMA_VERSION,
        "window": {"start": report.window.start.isoformat(), "end": report.window.end.isoformat()},
        "basis": report.basis,
        **{
            key.replace("-", "_"): [{c.key: row.get(c.key) for c in sheet.columns} for row in sheet.rows]
            for key, sheet in parts.items()
        },
        "wanted_rates": list(report.wanted_rates),
        "on_demand_usd_mo": round(report.known.on_demand_usd_mo, 2),
        "unjudged_usd_mo": round(report.known.unjudged_usd_mo, 2),
        "held_beside": list(report.held_beside),
    }


_HIDDEN = {"pool", "plan", "beside_reservations", "layers", "term_usd", "source"}
"""Columns hidden from people, because the pool or plan is the heading of its rows."""
_YEARLY = ("on_demand_usd_year", "committed_usd_year")
"""They compare terms of unequal length."""


def commit_page(fleet: str, report: CommitReport, parts: Sequence[CommitPart], fields: Sequence[str] = ()) -> Page:
    """Return the page with some parts of the answer and their columns `fields` (empty: all)."""
    known = report.advice or report.spend
    unjudged = without_committed_rate(report.known.unjudged_usd_mo, report.known.on_demand_usd_mo)
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
                gloss="ask the provider, and give them with --prices or --offer",
                blocks=(bullets([*unjudged, *report.wanted_rates]),),
            ),
        ),
    )


def _blocks(part: CommitPart, report: CommitReport, fields: Sequence[str]) -> tuple[Block, ...]:
    if part is CommitPart.LOAD:
        return tuple(_load(at, advice) for at, advice in enumerate(report.advice))
    sheet = sheet_of(part, report)
    sheet = sheet.only(fields) if fields else sheet
    hidden = _HIDDEN if part is not CommitPart.RETURNS or fields else _HIDDEN | _needless(report)
    shown = replace(sheet, columns=[column for column in sheet.columns if column.key not in hidden])
    return shown.table(), bullets(sheet.notes)


def _needless(report: CommitReport) -> set[str]:
    """Return the columns of returns that say nothing new: sums a year where all terms are equal, nothing paid upfront."""
    one_term = len({row.offer.term_years for row in report.returns}) < 2
    free = not any(row.offer.upfront_usd for row in report.returns)
    return {*(_YEARLY if one_term else ()), *({"upfront_usd"} if free else ())}


def _load(at: int, advice: Advice) -> Drawing:
    name, layers = str(advice.pool), load_layers(advice)

    def drawn(width: float) -> Html:
        return load_curve(name, at, layers, width=width)

    keys = tuple(key for key, nodes in zip(LOAD_LAYERS, layers, strict=True) if any(nodes))
    return Drawing(
        title=name,
        draw=lambda width: picture(curve(advice, picture_points(width))),
        chart=Chart(draw=lambda: drawn(WIDTH), on_phone=lambda: drawn(PHONE_WIDTH), keys=keys),
    )
