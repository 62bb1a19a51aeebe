"""Runs `trimtab digest`: computes the week, reads the last audit, and writes each digest in its format."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import assert_never

from trimtab.catalog import load_catalog
from trimtab.cli import say
from trimtab.cli.allocate.run import parse_rates
from trimtab.cli.digest import POST_VARIABLE, DigestForm, DigestOptions
from trimtab.cli.history import HistoryChoice, open_history
from trimtab.cli.kept_audits import kept_audits, recall, recall_named
from trimtab.cli.output import PLAIN_WIDTH, colour_wanted, screen_width, write
from trimtab.cli.progress import progress_bar, set_verbosity
from trimtab.diagnose.weeks import IsoWeek
from trimtab.emit.blocks import Page
from trimtab.emit.digest_document import DigestDocument, DigestSources, digest_document, render_digest_json
from trimtab.emit.document import AuditDocument
from trimtab.emit.sections.digest import digest_page
from trimtab.emit.verify_document import parse_verification
from trimtab.emit.writers import mail, markdown, slack, teams, terminal
from trimtab.errors import InputError, UsageError
from trimtab.fleet.model import Fleet
from trimtab.inputs.files import read_text
from trimtab.pipeline.spending import SpendingTerms, week
from trimtab.sources.webhook import post_json

_POSTED = (DigestForm.SLACK, DigestForm.TEAMS, DigestForm.JSON)
_ENDINGS = {DigestForm.TABLE: "txt", DigestForm.MARKDOWN: "md", DigestForm.HTML_MAIL: "html"}
NO_AUDIT = "Unknown: no audit is kept here. Run `trimtab audit` on this history, or give one with --audit."


def run_digest(options: DigestOptions) -> None:
    """Run the command."""
    form = DigestForm(options.form)
    set_verbosity(0, options.quiet)
    url = _address(options, form)
    _check(options, form, url)
    document = _document(options)
    if url is None:
        _write(document, form, options)
        return
    for name, text in _texts(document, form):
        post_json(url, text)
        say(f"posted: {name}", err=True)
    if options.out is not None:
        _write(document, form, options)


def _address(options: DigestOptions, form: DigestForm) -> str | None:
    """Return where to post, None if not requested. Raises UsageError, which does not show the address."""
    if options.post is None:
        return None
    if form not in _POSTED:
        raise UsageError(f"--post goes with -o slack, teams or json, not with {form.value}")
    url = options.post or os.environ.get(POST_VARIABLE, "").strip()
    if not url:
        raise UsageError(f"--post to where? give a URL after it, or set {POST_VARIABLE}")
    return url


def _check(options: DigestOptions, form: DigestForm, url: str | None) -> None:
    """Reject, before any work is done, an output that cannot be written. Raises UsageError."""
    if options.each and options.team is not None:
        raise UsageError("--each is every team, --team is one: give one of them")
    if options.each and form is not DigestForm.JSON and url is None and options.out is None:
        raise UsageError("--each makes several digests: give the folder for them with --out, or --post")
    folder = options.each and form is not DigestForm.JSON
    if options.out is not None and not folder and options.out.is_dir():
        raise UsageError(f"--out {options.out} is a folder; give a file, or --each for one digest a team")
    if options.out is not None and not folder and not options.out.parent.is_dir():
        raise UsageError(f"cannot write {options.out}: there is no folder {options.out.parent}")


def _document(options: DigestOptions) -> DigestDocument:
    choice = HistoryChoice(bundle=options.bundle, demo=options.demo, demo_trace=None, source=options.source)
    asked = None if options.week is None else IsoWeek.parse(options.week)
    terms = SpendingTerms(basis=options.basis, usd_per=parse_rates(options.rates), at=options.at)
    named = None if options.audit is None else recall_named(options.audit)
    verified = None
    if options.verified is not None:
        verified = parse_verification(read_text(options.verified), where=str(options.verified))
    with progress_bar(quiet=options.quiet) as tell:
        history = open_history(choice, tell)
        found = week(history.bundle, terms, asked, load_catalog(options.prices))
    audit, no_audit = (named, "") if named is not None else _last_audit(found.fleet)
    sources = DigestSources(fleet=history.name, basis=found.basis, audit=audit, no_audit=no_audit, verified=verified)
    return digest_document(found.spend, _teams(options, found.spend.teams), sources)


def _teams(options: DigestOptions, known: Sequence[str]) -> Sequence[str | None]:
    return (None, *known) if options.each else (options.team,)


def _last_audit(fleet: Fleet) -> tuple[AuditDocument | None, str]:
    """Return the last kept audit, or why it is not used: there is none, or none of its workloads ran in this fleet."""
    kept = kept_audits()
    if not kept:
        return None, NO_AUDIT
    try:
        audit = recall(kept[-1])
    except InputError as error:
        return None, f"Unknown: the last kept audit cannot be read: {error}"
    if {verdict.workload for verdict in audit.verdicts} & {workload.name for workload in fleet.workloads}:
        return audit, ""
    return None, (
        f"Unknown: the last audit kept here is of another fleet ({audit.fleet}). Run `trimtab audit` on this history, or "
        "give one with --audit."
    )


def _write(document: DigestDocument, form: DigestForm, options: DigestOptions) -> None:
    if not options.each or form is DigestForm.JSON:
        for _, text in _texts(document, form, screen=options.out is None):
            write(text, options.out)
        return
    folder = options.out
    if folder is None:
        raise UsageError("--each needs a folder: --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error}") from error
    for name, text in _texts(document, form):
        file = folder / f"{name}.{_ENDINGS.get(form, 'json')}"
        write(text, file)
        say(f"wrote {file}", err=True)


def _texts(document: DigestDocument, form: DigestForm, *, screen: bool = False) -> Iterator[tuple[str, str]]:
    """Yield each digest's file name and text; JSON is one text for all."""
    if form is DigestForm.JSON:
        yield "digest", render_digest_json(document)
        return
    names = _file_names([digest.team for digest in document.digests])
    for name, digest in zip(names, document.digests, strict=True):
        yield name, _text(digest_page(digest, document.trimtab_version), form, screen)


def _text(page: Page, form: DigestForm, screen: bool) -> str:
    match form:
        case DigestForm.TABLE:
            width, colour = (screen_width(), colour_wanted()) if screen else (PLAIN_WIDTH, False)
            return terminal.write_page(page, width=width, colour=colour)
        case DigestForm.MARKDOWN:
            return markdown.write_page(page)
        case DigestForm.HTML_MAIL:
            return mail.write_page(page)
        case DigestForm.SLACK:
            return slack.write_page(page)
        case DigestForm.TEAMS:
            return teams.write_page(page)
        case DigestForm.JSON:
            raise UsageError("JSON is one text of all digests")
    assert_never(form)


def _file_names(teams_shown: Sequence[str | None]) -> list[str]:
    """Return a file name per digest, valid on every file system and unique."""
    names: list[str] = []
    for team in teams_shown:
        plain = (
            "fleet" if team is None else f"team-{re.sub(r'[^A-Za-z0-9]+', '-', team).strip('-').lower() or 'unnamed'}"
        )
        again = sum(name == plain or re.fullmatch(rf"{re.escape(plain)}-\d+", name) is not None for name in names)
        names.append(f"{plain}-{again + 1}" if again else plain)
    return names
