"""Runs `trimtab audit`: open the history, audit it, keep and write the result, and set the exit code."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import assert_never

import yaml

from trimtab.catalog import load_catalog
from trimtab.cli import ExitCode, say
from trimtab.cli.audit import AuditOptions
from trimtab.cli.history import History, HistoryChoice, held_commitments, open_history
from trimtab.cli.kept_audits import keep
from trimtab.cli.made_plans import DEMO_PREFIX, PlanOrigin, keep_made
from trimtab.cli.options import AnswerOptions, setting_flags
from trimtab.cli.outcome_cache import outcome_cache
from trimtab.cli.output import PLAIN_WIDTH, Format, colour_wanted, screen_width, write, write_answer, write_bytes
from trimtab.cli.progress import progress_bar, set_verbosity
from trimtab.cli.running import written_down
from trimtab.cli.settings import ResolvedSettings, resolve
from trimtab.cli.workers import open_workers
from trimtab.diagnose.billed import BILL_COLUMNS, billed
from trimtab.emit.audit_document import audit_document
from trimtab.emit.blocks import Block, Bullets, Folded, Paragraph, Table
from trimtab.emit.document import AuditDocument, render_json, render_yaml
from trimtab.emit.document.plan import ActionPart
from trimtab.emit.kept_plan import KeptPlan
from trimtab.emit.money import dollars
from trimtab.emit.sections.audit import audit_page
from trimtab.emit.sections.finance import finance_page
from trimtab.emit.words import quick_wins
from trimtab.emit.writers import html, terminal
from trimtab.emit.writers.comment import write_comment
from trimtab.emit.writers.markdown import write_page
from trimtab.errors import UnknownName, UsageError
from trimtab.pipeline import kept_plan
from trimtab.pipeline.auditing import PlanningInput, audited
from trimtab.plan.audit import Audit
from trimtab.plan.proof.scenario import Scenario
from trimtab.safe_text import csv_text
from trimtab.sources.cheap_hours import read_cheap_hours, with_cheap_hours
from trimtab.tables.bundle import Bundle
from trimtab.units import per_month
from trimtab.web.tables import audit_workbook

_VERSION_KEY = "schema_version"


def render_audit(
    document: AuditDocument,
    form: Format,
    *,
    width: int,
    colour: bool,
    fields: Sequence[str] = (),
    next_steps: Sequence[tuple[str, str]] = (),
) -> str:
    """Return an audit as text. `fields` are top-level keys of JSON and YAML, or columns of CSV."""
    check_fields(form, fields)
    match form:
        case Format.TABLE:
            return terminal.write_page(audit_page(document, next_steps=next_steps), width=width, colour=colour)
        case Format.JSON:
            text = render_json(document)
            return json.dumps(_keys(json.loads(text), fields), indent=2, ensure_ascii=False) if fields else text
        case Format.YAML:
            text = render_yaml(document)
            return yaml.safe_dump(_keys(yaml.safe_load(text), fields), sort_keys=False) if fields else text
        case Format.CSV:
            text = render_csv(document)
            return _columns(text, fields) if fields else text
        case Format.MARKDOWN:
            return render_markdown(document)
        case Format.HTML:
            return html.write_page(audit_page(document))
        case Format.GITHUB_COMMENT:
            return render_github_comment(document)
        case Format.XLSX:
            raise UsageError("a workbook is not text; give it a file with --out")
    assert_never(form)


def check_fields(form: Format, fields: Sequence[str]) -> None:
    """Raise UsageError if the format has no fields to choose from, UnknownName for an unknown one."""
    if fields and form not in (Format.JSON, Format.YAML, Format.CSV):
        raise UsageError(f"--fields goes with -o json, yaml or csv, not with {form.value}")
    known = COLUMNS if form is Format.CSV else tuple(AuditDocument.model_fields)
    for name in fields:
        if name not in known:
            raise UnknownName("field", name, known)


def _keys(whole: Mapping[str, object], fields: Sequence[str]) -> dict[str, object]:
    return {key: whole[key] for key in dict.fromkeys((_VERSION_KEY, *fields))}


def _columns(text: str, fields: Sequence[str]) -> str:
    rows = csv.DictReader(io.StringIO(text))
    return csv_text(fields, ([row[name] for name in fields] for row in rows))


COLUMNS = (
    "id",
    "quarter",
    "lever",
    "subject",
    "effect",
    "saving_usd_mo",
    "saving_low_usd_mo",
    "saving_high_usd_mo",
    "saving_basis",
    "share_low_usd_mo",
    "share_high_usd_mo",
    "standalone_usd_mo",
    "last_in_usd_mo",
    "moving_usd_mo",
    "effort_weeks",
    "saving_per_week_usd_mo",
    "risk",
    "quick_win",
    "rollback",
)


def render_csv(document: AuditDocument) -> str:
    """Return the actions as CSV text with a header row."""
    return csv_text(
        COLUMNS, ([_cell(document, action, column) for column in COLUMNS] for action in document.plan.actions)
    )


def _cell(document: AuditDocument, action: ActionPart, column: str) -> object:
    """Format one value for CSV."""
    if column == "quick_win":
        return "yes" if action.id in quick_wins(document) else "no"
    value: object = getattr(action, column)
    return value


_SHOWN_IN_COMMENT = 10
"""Rows of each table shown in a comment."""
_FOLDED = ("buys", "proof", "not-worth", "unjudged")
"""Sections of a comment in addition to the plan."""


def render_markdown(document: AuditDocument) -> str:
    """Return the whole audit as a page."""
    return write_page(audit_page(document))


def render_github_comment(document: AuditDocument) -> str:
    """Return a comment for a pull request: headline and plan visible, the rest collapsed, long tables truncated."""
    page = audit_page(document)
    (plan,) = (section for section in page.sections if section.name == "plan")
    table = [block for block in plan.blocks if isinstance(block, Table)]
    left_out = len(document.plan.actions) - _SHOWN_IN_COMMENT
    more = [Paragraph(words=f"{left_out} more actions are in the full report.")] if left_out > 0 else []
    rest = [
        Folded(title=section.title, blocks=tuple(_short(section.blocks)))
        for section in page.sections
        if section.name in _FOLDED
    ]
    return write_comment(
        "audit",
        page.heading,
        [*_short(table or plan.blocks), *more, *rest],
        headline=page.headline,
        foot=f"{document.coverage.summary}. Tables show at most {_SHOWN_IN_COMMENT} rows. trimtab {document.trimtab_version}",
    )


def _short(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield blocks with tables and lists truncated to the first rows, and without collapsed details."""
    for block in blocks:
        match block:
            case Table():
                yield replace(block, rows=block.rows[:_SHOWN_IN_COMMENT])
            case Bullets():
                yield replace(block, items=block.items[:_SHOWN_IN_COMMENT])
            case Paragraph():
                yield block
            case _:
                continue


REPORT = Path("trimtab-report") / "report.html"
FINANCE = "finance.html"


def run_audit(options: AuditOptions) -> int:
    """Run the command and return its exit code."""
    scenario = options.other.scenario()
    set_verbosity(options.verbose, options.quiet)
    flags = (*options.flags, *setting_flags(options))
    resolved = resolve(file=options.settings_file, environ=os.environ, flags=flags)
    answer = options.answer
    if options.show_settings:
        write_answer(resolved.sheet(), answer)
        return 0
    choice = HistoryChoice(
        bundle=options.bundle, demo=options.demo, demo_trace=options.demo_trace, source=options.source
    )
    choice.check()
    _check_output(answer)
    document, plan, is_demo = _audited(options, choice, scenario, resolved)
    notes = _kept(document, plan)
    report, fault = _report(document) if (is_demo if options.report is None else options.report) else (None, "")
    _show(options, document, report)
    if report and answer.output_format is not Format.TABLE:
        notes.append(f"wrote {report}")
    if fault and options.report:
        raise UsageError(fault)
    if fault:
        notes.append(f"warning: {fault}")
    if not options.quiet:
        for note in notes:
            say(note, err=True)
    limit = options.fail_over_usd_mo
    return ExitCode.OVER_LIMIT if limit is not None and document.plan.joint_saving_usd_mo > limit else ExitCode.DONE


def _check_output(answer: AnswerOptions) -> None:
    """Reject, before any work is done, an output that cannot be written. Raises UsageError, UnknownName."""
    check_fields(answer.output_format, answer.fields)
    answer.check()


def _at_best_hours(history: History, hourly: Path | None) -> History:
    """Return the history with deferrable runs waiting for the best hours in a file, and say which hours those are."""
    if hourly is None:
        return history
    best = read_cheap_hours(hourly)
    bundle = with_cheap_hours(history.bundle, best)
    meta = bundle.meta.model_copy(update={"notes": (*bundle.meta.notes, f"{hourly.name}: {best}")})
    return replace(history, bundle=replace(bundle, meta=meta))


def _audited(
    options: AuditOptions, choice: HistoryChoice, scenario: Scenario | None, resolved: ResolvedSettings
) -> tuple[AuditDocument, KeptPlan, bool]:
    """Return the audit's document, its plan as `trimtab emit` needs it, and whether the history was a demonstration."""
    with progress_bar(quiet=options.quiet) as shown, written_down(_fleet_words(options), shown) as tell:
        tell("opening the fleet", 0.0)
        history = _at_best_hours(open_history(choice, tell), options.hourly)
        catalog = load_catalog(options.prices)
        with outcome_cache() as store, open_workers(options.engine) as workers:
            given = PlanningInput(
                bundle=history.bundle,
                settings=resolved.settings,
                catalog=catalog,
                name=history.name,
                at=options.at,
                owned=held_commitments(options.owned, catalog, history.bundle),
                scenario=scenario,
                store=store,
                workers=workers,
                progress=tell,
            )
            found, made = audited(given)
        if (source := _made_from(options, choice, resolved)) is not None:
            keep_made(source, made)
        plan = kept_plan(found, history.bundle, made)
    document = audit_document(found)
    notes = (*document.coverage.notes, *_bill_notes(history.bundle, found))
    coverage = document.coverage.model_copy(update={"notes": notes})
    return document.model_copy(update={"coverage": coverage}), plan, history.demo


def _made_from(options: AuditOptions, choice: HistoryChoice, resolved: ResolvedSettings) -> PlanOrigin | None:
    """Return what the plan is made from; None where `what-if` cannot read the same again."""
    added = (choice.source.workloads, choice.source.bills, options.hourly, options.owned)
    if any(added) or (choice.bundle is None and choice.demo is None):
        return None
    fleet = str(choice.bundle) if choice.bundle is not None else f"{DEMO_PREFIX}{choice.demo}"
    return PlanOrigin(fleet=fleet, settings=resolved.settings, prices=options.prices, at=options.at)


def _fleet_words(options: AuditOptions) -> str:
    return str(options.bundle) if options.bundle else f"demo {options.demo}" if options.demo else "a collected fleet"


def _bill_notes(bundle: Bundle, found: Audit) -> list[str]:
    """Compare the bills, if any, with the audit's prices for the same hours."""
    costs = bundle.table("costs", BILL_COLUMNS)
    if not costs.num_rows:
        return []
    types = set(bundle.table("nodes", ["instance_type"])["instance_type"].to_pylist())
    window = found.plan.window
    seen = billed(costs, window, types)
    notes = []
    if seen.foreign_rows:
        notes.append(f"{seen.foreign_rows:,} cost rows in currencies other than USD are not counted")
    if not seen.usd > 0:
        return [*notes, "the bills contain no cost of the fleet's instance types in the fit window"]
    billed_usd_mo = per_month(seen.usd, window.hours)
    notes.append(
        f"the bills say {dollars(billed_usd_mo)} a month for these nodes; the audit prices the same hours at "
        f"{dollars(found.bill_usd_mo)} ({found.bill_usd_mo / billed_usd_mo - 1:+.1%}); if your rates differ, give them with "
        "--prices"
    )
    return notes


def _kept(document: AuditDocument, plan: KeptPlan) -> list[str]:
    """Keep the audit for `trimtab explain` and `emit`. If the folder cannot be written, only these commands are affected."""
    try:
        keep(document, plan)
    except OSError as error:
        return [f"warning: the audit was not kept, so `trimtab explain` and `emit` will not find it: {error}"]
    return []


def _report(document: AuditDocument) -> tuple[Path | None, str]:
    """Write the HTML report and the finance page; return the path, or why it could not be written."""
    try:
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        REPORT.write_text(html.write_page(audit_page(document)), encoding="utf-8")
        REPORT.with_name(FINANCE).write_text(html.write_page(finance_page(document)), encoding="utf-8")
    except OSError as error:
        return None, f"cannot write {REPORT}: {error}; run in another folder, or give --no-report"
    return REPORT, ""


def _show(options: AuditOptions, document: AuditDocument, report: Path | None) -> None:
    out = options.answer.out
    if options.answer.output_format is Format.XLSX and out is not None:
        write_bytes(audit_workbook(document), out)
        return
    to_screen = out is None
    text = render_audit(
        document,
        options.answer.output_format,
        width=screen_width() if to_screen else PLAIN_WIDTH,
        colour=to_screen and colour_wanted(),
        fields=options.answer.fields,
        next_steps=_next_steps(document, options, report),
    )
    write(text, out)


def _next_steps(document: AuditDocument, options: AuditOptions, report: Path | None) -> list[tuple[str, str]]:
    """Return the next steps for the reader: a command or a file, and what it shows."""
    steps = []
    if report:
        steps.append((f"open {report}", "this report with charts, in a browser"))
    else:
        again = " ".join(["trimtab audit", *([shlex.quote(str(options.bundle))] if options.bundle else [])])
        steps.append((f"{again} -o html --out report.html", "one page with charts"))
    if document.plan.actions:
        largest = max(document.plan.actions, key=lambda action: action.saving_usd_mo)
        steps.append((f"trimtab explain {largest.id}", "why, the arithmetic, how to try and undo it"))
        steps.append(("trimtab emit", "the files that enact the plan, in a safe order"))
    return steps
