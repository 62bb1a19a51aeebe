"""What `trimtab serve` does once its arguments are read: find the audits, say where the page is, serve."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trimtab.catalog import load_catalog
from trimtab.cli.history import held_commitments
from trimtab.cli.kept_audits import HISTORY, kept_audits, number_of, recall
from trimtab.cli.outcome_cache import outcome_cache
from trimtab.cli.progress import progress_bar, set_verbosity
from trimtab.cli.screen import say
from trimtab.cli.serve import ServeOptions
from trimtab.cli.settings import resolve
from trimtab.cli.what_if.run import DEMO_PREFIX
from trimtab.emit.audit_document import audit_document
from trimtab.emit.document import AuditDocument
from trimtab.errors import InputError, UnknownName, UsageError
from trimtab.fleet.settings import Settings
from trimtab.pipeline import open_demo, open_fleet
from trimtab.pipeline.auditing import Progress, ProvenPlan, audited, plan_and_prove
from trimtab.tables.bundle import Bundle
from trimtab.web.library import AuditEntry, Library


def run_serve(options: ServeOptions) -> None:
    """Run the command until it is interrupted; raises UsageError where the address would be open to others without a token."""
    set_verbosity(0, options.quiet)
    try:
        from trimtab.web.server import ServerPlace, read_token, run_server
    except ImportError as error:
        raise UsageError(
            f"the page needs the extra `web`: pip install 'trimtab[web]' ({error.name} is missing)"
        ) from error
    place = ServerPlace(
        host=options.host,
        port=options.port,
        token=read_token(options.token_file) if options.token_file else None,
        names=options.names,
        certificate=options.certificate,
        key=options.key,
    )
    place.rules()
    if (options.certificate is None) != (options.key is None):
        raise UsageError("--tls-cert and --tls-key belong together")
    if options.audits is not None and options.demo is not None:
        raise UsageError("--audits and --demo name different audits: give one of them")
    library = Library(source=_source(options))
    for entry in library.entries()[:1]:
        library.switchboard(entry)
    if not options.quiet:
        say(f"trimtab serves {place.address} (Ctrl-C ends it)", err=True)
    run_server(library, place)


def _source(options: ServeOptions) -> _Audits:
    plans = plans_again(options.flags, options.prices, options.owned)
    if options.demo is not None:
        with progress_bar(quiet=options.quiet) as tell:
            return _demonstration(options.demo, plans, tell)
    return audit_source(options.audits, plans)


def plans_again(
    flags: Sequence[str], prices: Path | None, owned: Path | None, *, keep_outcomes: bool = True
) -> PlansAgain:
    """Return how plans of audits are made again: with these settings, rates and commitments held; raises SettingsError."""
    settings = resolve(file=None, environ=os.environ, flags=flags).settings
    return PlansAgain(settings=settings, prices=prices, owned=owned, keep_outcomes=keep_outcomes)


def audit_source(folder: Path | None, plans: PlansAgain) -> _Kept | _Files:
    """Return the audits of a folder, a history or JSON files, else those that are kept here."""
    if folder is None or (folder / HISTORY).is_dir():
        return _Kept(plans=plans, state=folder)
    return _Files(plans=plans, folder=folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlansAgain:
    """How plans are made again."""

    settings: Settings
    prices: Path | None
    owned: Path | None
    keep_outcomes: bool = True
    """Whether what is replayed for it is written to the cache of outcomes."""

    def again(self, fleet: str, tell: Progress) -> ProvenPlan:
        """Plan a fleet by the name that its audit has; raises TrimtabError where its history is not at hand."""
        tell("opening the fleet", 0.0)
        bundle, catalog = history_of(fleet), load_catalog(self.prices)
        with outcome_cache(keep=self.keep_outcomes) as store:
            return plan_and_prove(
                bundle,
                self.settings,
                catalog,
                owned=held_commitments(self.owned, catalog, bundle),
                store=store,
                progress=tell,
            )


def history_of(fleet: str) -> Bundle:
    """Open the history of an audit by the name that it gave the fleet; raises InputError where it is not at hand."""
    if fleet.startswith(DEMO_PREFIX):
        return open_demo(fleet.removeprefix(DEMO_PREFIX))
    if Path(fleet).is_dir():
        return open_fleet(fleet)
    raise InputError(f"the history of this audit, {fleet}, is not here; start the server where that folder is")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """The history that `trimtab audit` keeps."""

    plans: PlansAgain
    state: Path | None

    def entries(self) -> Sequence[AuditEntry]:
        return [
            AuditEntry(name=str(number_of(folder)), stamp=str(folder.stat().st_mtime_ns))
            for folder in reversed(kept_audits(self.state))
        ]

    def document(self, name: str) -> AuditDocument:
        return recall(next(folder for folder in kept_audits(self.state) if str(number_of(folder)) == name))

    def plan(self, name: str, tell: Progress) -> ProvenPlan:
        return self.plans.again(self.document(name).fleet, tell)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """A folder of documents."""

    plans: PlansAgain
    folder: Path

    def entries(self) -> Sequence[AuditEntry]:
        files = sorted(self.folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
        return [AuditEntry(name=file.stem, stamp=str(file.stat().st_mtime_ns)) for file in files]

    def document(self, name: str) -> AuditDocument:
        return recall(self.folder / f"{name}.json")

    def plan(self, name: str, tell: Progress) -> ProvenPlan:
        return self.plans.again(self.document(name).fleet, tell)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Demonstration:
    """One audit, made for this server and kept nowhere."""

    name: str
    found: AuditDocument
    made: ProvenPlan

    def entries(self) -> Sequence[AuditEntry]:
        return [AuditEntry(name=self.name, stamp="")]

    def document(self, name: str) -> AuditDocument:
        if name != self.name:
            raise UnknownName("audit", name, [self.name])
        return self.found

    def plan(self, name: str, tell: Progress) -> ProvenPlan:
        return self.made


_Audits = _Kept | _Files | _Demonstration


def _demonstration(name: str, plans: PlansAgain, tell: Progress) -> _Demonstration:
    catalog = load_catalog(plans.prices)
    bundle = open_demo(name)
    with outcome_cache() as store:
        found, made = audited(
            bundle,
            plans.settings,
            catalog,
            name=f"{DEMO_PREFIX}{name}",
            owned=held_commitments(plans.owned, catalog, bundle),
            store=store,
            progress=tell,
        )
    return _Demonstration(name=name, found=audit_document(found), made=made)
