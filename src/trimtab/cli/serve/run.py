"""What `trimtab serve` does once its arguments are read: find the audits, say where the page is, serve."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, assert_never

import pyarrow.compute as pc

from trimtab.catalog import load_catalog
from trimtab.cli import say
from trimtab.cli.allocate import AllocateOptions
from trimtab.cli.allocate.run import charged_back
from trimtab.cli.allocate.tables import who_sheet
from trimtab.cli.commit import CommitOptions
from trimtab.cli.commit.run import commit_document, commit_page, reported
from trimtab.cli.commit.tables import CommitPart, sheet_of
from trimtab.cli.history import held_commitments
from trimtab.cli.kept_audits import HISTORY, find, kept_audits, number_of, recall, recall_plan
from trimtab.cli.made_plans import DEMO_PREFIX, PlanOrigin, recall_made
from trimtab.cli.options import parsed
from trimtab.cli.outcome_cache import outcome_cache
from trimtab.cli.output import Cell, Sheet
from trimtab.cli.progress import progress_bar, set_verbosity
from trimtab.cli.running import running_audits
from trimtab.cli.serve import ServeOptions
from trimtab.cli.settings import resolve
from trimtab.emit.audit_document import audit_document
from trimtab.emit.document import AuditDocument
from trimtab.emit.kept_plan import KeptPlan
from trimtab.errors import InputError, UnknownName, UsageError
from trimtab.fleet.settings import Settings
from trimtab.pipeline import kept_plan, open_demo, open_fleet, verify_plan
from trimtab.pipeline.auditing import PlanningInput, Progress, ProvenPlan, audited, plan_and_prove
from trimtab.plan.verify.verification import Verification
from trimtab.tables.bundle import Bundle
from trimtab.units import HR_PER_WEEK, S_PER_HR
from trimtab.web import tables
from trimtab.web.library import (
    AuditEntry,
    CommitmentsQuestion,
    GpuHoursQuestion,
    HistoryQuestion,
    Library,
    RunningAudit,
)
from trimtab.web.plan_pages import CommitmentsResult
from trimtab.web.replay_pages import GpuHours, monday_of


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
        user_header=options.user_header,
        proxies=options.proxies,
        users=options.users,
        names=options.names,
        certificate=options.certificate,
        key=options.key,
    )
    place.rules()
    if (options.certificate is None) != (options.key is None):
        raise UsageError("--tls-cert and --tls-key belong together")
    if options.audits and options.demo is not None:
        raise UsageError("--audits and --demo name different audits: give one of them")
    library = Library(source=_source(options))
    for entry in library.entries()[:1]:
        library.switchboard(entry)
    if not options.quiet:
        say(f"trimtab serves {place.address} (Ctrl-C ends it)", err=True)
    run_server(library, place, catalog=load_catalog(options.prices), reviews=options.reviews)


def _source(options: ServeOptions) -> _AuditsOfPlace | _Demonstration:
    plans = plans_again(options.flags, options.prices, options.owned, later=options.later)
    if options.demo is not None:
        with progress_bar(quiet=options.quiet) as tell:
            return _demonstration(options.demo, plans, tell)
    return cluster_source(options.audits, plans)


def cluster_source(texts: Sequence[str], plans: PlanRefresh) -> _AuditsOfPlace:
    """Return the audits of the folders that `named_folders` reads; those that are kept here where none is named."""
    folders = named_folders(texts)
    if len(folders) < 2 and not any(folders):
        return audit_source(next(iter(folders.values()), None), plans)
    clusters = _Clusters(places={name: _place_of(folder) for name, folder in folders.items()})
    return _AuditsOfPlace(place=clusters, plans=plans)


def named_folders(texts: Sequence[str]) -> dict[str, Path]:
    """Return folders by the name of their cluster: `NAME=DIR`, or DIR (no name where it is the only one).

    Raises UsageError where a folder is not there, a name has other characters than an address may have, or two are the same.
    """
    found: dict[str, Path] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        folder = Path(rest if equals else text)
        if not folder.is_dir():
            raise UsageError(f"--audits {text}: {folder} is not a folder")
        name = name if equals else folder.resolve().name.lstrip(".") if len(texts) > 1 else ""
        if name in found or (name and not _CLUSTER.fullmatch(name)):
            fault = "two folders have this name" if name in found else "letters, digits, - and _ make a name"
            raise UsageError(f"--audits {text}: {fault}; write NAME={folder}")
        found[name] = folder
    return found


_CLUSTER = re.compile("[A-Za-z0-9_-]{1,40}")
_APART = "."
"""Between a cluster's name and that of its audit."""


def plans_again(
    flags: Sequence[str],
    prices: Path | None,
    owned: Path | None,
    *,
    keep_outcomes: bool = True,
    later: Path | None = None,
) -> PlanRefresh:
    """Return how plans of audits are made again: with these settings, rates and commitments held; raises SettingsError."""
    settings = resolve(file=None, environ=os.environ, flags=flags).settings
    return PlanRefresh(settings=settings, prices=prices, owned=owned, keep_outcomes=keep_outcomes, later=later)


def audit_source(folder: Path | None, plans: PlanRefresh) -> _AuditsOfPlace:
    """Return the audits of a folder, a history or JSON files, else those that are kept here."""
    return _AuditsOfPlace(place=_place_of(folder), plans=plans)


def _place_of(folder: Path | None) -> _AuditPlace:
    return _History(state=folder) if folder is None or (folder / HISTORY).is_dir() else _DocumentFolder(folder=folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRefresh:
    """How plans are made again."""

    settings: Settings
    prices: Path | None
    owned: Path | None
    keep_outcomes: bool = True
    """Whether what is replayed for it is written to the cache of outcomes."""
    later: Path | None = None
    """The history that plans are compared with; None: that of the audit, as far as it lies after what the planner saw."""

    def again(self, fleet: str, tell: Progress) -> ProvenPlan:
        """Plan a fleet by the name that its audit has; raises TrimtabError where its history is not at hand."""
        tell("opening the fleet", 0.0)
        with outcome_cache(keep=self.keep_outcomes) as store:
            source = PlanOrigin(fleet=fleet, settings=self.settings, prices=self.prices)
            made = None if self.owned is not None else recall_made(source, store)
            if made is not None:
                return made
            bundle, catalog = history_of(fleet), load_catalog(self.prices)
            return plan_and_prove(
                PlanningInput(
                    bundle=bundle,
                    settings=self.settings,
                    catalog=catalog,
                    owned=held_commitments(self.owned, catalog, bundle),
                    store=store,
                    progress=tell,
                )
            )

    def verified(self, kept: KeptPlan, tell: Progress) -> Verification:
        """Hold a plan against later history as `trimtab verify` does; raises TrimtabError."""
        tell("reading the later history", 0.0)
        bundle = open_fleet(self.later) if self.later else history_of(kept.fleet)
        return verify_plan(kept, bundle, catalog=load_catalog(self.prices))

    def later_stamp(self, fleet: str) -> str:
        """Return what changes when the folder of the later history does."""
        folder = self.later or Path(fleet)
        return str(folder.stat().st_mtime_ns) if folder.is_dir() else ""

    def worked_out(self, fleet: str, question: HistoryQuestion, tell: Progress) -> object:
        """Answer a question about a history; raises TrimtabError where that is not at hand."""
        match question:
            case CommitmentsQuestion():
                return self._commitments(fleet, tell)
            case GpuHoursQuestion():
                tell("reading the history", 0.0)
                return gpu_hours(history_of(fleet), question.workload)
        assert_never(question)

    def _commitments(self, fleet: str, tell: Progress) -> CommitmentsResult:
        """Return what `trimtab commit` says of a history, as its page and its document."""
        options = parsed(CommitOptions, self._options_for(fleet))
        report = reported(options, tell)
        steps = _as_table(sheet_of(CommitPart.STEPS, report))
        return CommitmentsResult(
            page=commit_page(fleet, report, list(CommitPart)),
            document=commit_document(report),
            steps=replace(steps, key="commitments", title="Commitments"),
        )

    def _options_for(self, fleet: str) -> list[str]:
        """Return the options by which a command reads a history; raises InputError where it is not at hand."""
        if not fleet.startswith(DEMO_PREFIX) and not Path(fleet).is_dir():
            history_of(fleet)
        named = ["--demo", fleet.removeprefix(DEMO_PREFIX)] if fleet.startswith(DEMO_PREFIX) else ["--", fleet]
        given = (("--prices", self.prices), ("--owned", self.owned))
        return [*(part for name, file in given if file for part in (name, str(file))), *named]

    def allocated(self, fleet: str, asked: tables.AllocationQuestion, tell: Progress) -> tables.AllocatedBill:
        """Split the bill of a history as `trimtab allocate` does; raises TrimtabError."""
        terms = ["--by", asked.split, "--idle", asked.idle, "--shared", asked.shared]
        terms += ["--cost", asked.basis] if asked.basis else []
        _, answer = charged_back(parsed(AllocateOptions, [*terms, *self._options_for(fleet)]), tell)
        sheet = who_sheet(answer)
        return tables.AllocatedBill(table=_as_table(sheet), notes=tuple(sheet.notes))


_ALLOCATED = {
    "share_frac": tables.SHARE,
    "gpu_hours": tables.WHOLE,
    "usd_per_1k_requests": tables.SMALL_MONEY,
    "usd_per_mtok": tables.SMALL_MONEY,
}
_ALWAYS_SHOWN = ("name", "usd_mo", "share_frac")
"""Columns that a phone has room for."""


def _as_table(sheet: Sheet) -> tables.DataTable:
    """Return the rows of `trimtab allocate` under columns of a page."""
    columns = tuple(
        tables.DataColumn(
            key=column.key,
            title=column.title,
            format=_ALLOCATED.get(column.key, tables.MONEY if column.right else tables.WORDS),
            less=column.key not in _ALWAYS_SHOWN,
        )
        for column in sheet.columns
    )
    rows = [{column.key: _value(row.get(column.key)) for column in columns} for row in sheet.rows]
    return tables.DataTable(key="allocation", title="Allocation", columns=columns, rows=rows)


def _value(cell: Cell) -> tables.Value:
    return cell if isinstance(cell, str | int | float | None) else ", ".join(cell)


def history_of(fleet: str) -> Bundle:
    """Open the history of an audit by the name that it gave the fleet; raises InputError where it is not at hand."""
    if fleet.startswith(DEMO_PREFIX):
        return open_demo(fleet.removeprefix(DEMO_PREFIX))
    if Path(fleet).is_dir():
        return open_fleet(fleet)
    raise InputError(f"the history of this audit, {fleet}, is not here; start the server where that folder is")


class _AuditPlace(Protocol):
    """Where audits lie, and what lies beside them."""

    def entries(self) -> Sequence[AuditEntry]: ...
    def document(self, name: str) -> AuditDocument: ...
    def kept_plan(self, name: str) -> KeptPlan: ...
    def running(self) -> Sequence[RunningAudit]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _History:
    """The history that `trimtab audit` keeps."""

    state: Path | None

    def entries(self) -> Sequence[AuditEntry]:
        return [
            AuditEntry(name=str(number_of(folder)), stamp=str(folder.stat().st_mtime_ns))
            for folder in reversed(kept_audits(self.state))
        ]

    def document(self, name: str) -> AuditDocument:
        return recall(next(folder for folder in kept_audits(self.state) if str(number_of(folder)) == name))

    def kept_plan(self, name: str) -> KeptPlan:
        """Return the plan that was kept with an audit; raises UnknownName."""
        return recall_plan(find(name, self.state))

    def running(self) -> Sequence[RunningAudit]:
        return [
            RunningAudit(fleet=audit.fleet, started=audit.started, stage=audit.stage, done_frac=audit.done_frac)
            for audit in running_audits(self.state)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _DocumentFolder:
    """A folder of documents."""

    folder: Path

    def entries(self) -> Sequence[AuditEntry]:
        files = sorted(self.folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
        return [AuditEntry(name=file.stem, stamp=str(file.stat().st_mtime_ns)) for file in files]

    def document(self, name: str) -> AuditDocument:
        return recall(self.folder / f"{name}.json")

    def kept_plan(self, name: str) -> KeptPlan:
        """Raise InputError, because a document holds no plan that can be compared with later history."""
        raise InputError(
            f"the plan of audit {name} was not kept here: a JSON file holds no plan that can be verified. Ask of an audit that "
            "`trimtab audit` kept (`trimtab mcp` without --audits, or with a `.trimtab` folder)"
        )

    def running(self) -> Sequence[RunningAudit]:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clusters:
    """Audits of several clusters; an audit is called by its cluster and its name there: `eu.12`."""

    places: Mapping[str, _AuditPlace]

    def entries(self) -> Sequence[AuditEntry]:
        return [
            AuditEntry(name=f"{cluster}{_APART}{entry.name}", stamp=entry.stamp)
            for cluster, place in self.places.items()
            for entry in place.entries()
        ]

    def document(self, name: str) -> AuditDocument:
        cluster, _, own = name.partition(_APART)
        return self.places[cluster].document(own)

    def kept_plan(self, name: str) -> KeptPlan:
        cluster, _, own = name.partition(_APART)
        return self.places[cluster].kept_plan(own)

    def running(self) -> Sequence[RunningAudit]:
        return [
            replace(audit, fleet=f"{cluster}: {audit.fleet}")
            for cluster, place in self.places.items()
            for audit in place.running()
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _AuditsOfPlace:
    """The audits of a place; what a document does not hold is worked out again from the history that it names."""

    place: _AuditPlace
    plans: PlanRefresh

    def entries(self) -> Sequence[AuditEntry]:
        return self.place.entries()

    def document(self, name: str) -> AuditDocument:
        return self.place.document(name)

    def plan(self, name: str, tell: Progress) -> ProvenPlan:
        return self.plans.again(self.document(name).fleet, tell)

    def verified(self, name: str, tell: Progress) -> Verification:
        return self.plans.verified(self.kept_plan(name), tell)

    def later_stamp(self, name: str) -> str:
        return self.plans.later_stamp(self.document(name).fleet)

    def allocated(self, name: str, asked: tables.AllocationQuestion, tell: Progress) -> tables.AllocatedBill:
        return self.plans.allocated(self.document(name).fleet, asked, tell)

    def worked_out(self, name: str, question: HistoryQuestion, tell: Progress) -> object:
        return self.plans.worked_out(self.document(name).fleet, question, tell)

    def running(self) -> Sequence[RunningAudit]:
        return self.place.running()

    def kept_plan(self, name: str) -> KeptPlan:
        """Return the plan that was kept with an audit; raises UnknownName, and InputError where none was."""
        return self.place.kept_plan(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Demonstration:
    """One audit, made for this server and kept nowhere."""

    name: str
    plans: PlanRefresh
    found: AuditDocument
    kept: KeptPlan
    made: ProvenPlan

    def entries(self) -> Sequence[AuditEntry]:
        return [AuditEntry(name=self.name, stamp="")]

    def document(self, name: str) -> AuditDocument:
        if name != self.name:
            raise UnknownName("audit", name, [self.name])
        return self.found

    def plan(self, name: str, tell: Progress) -> ProvenPlan:
        return self.made

    def verified(self, name: str, tell: Progress) -> Verification:
        return self.plans.verified(self.kept, tell)

    def later_stamp(self, name: str) -> str:
        return self.plans.later_stamp(self.found.fleet)

    def allocated(self, name: str, asked: tables.AllocationQuestion, tell: Progress) -> tables.AllocatedBill:
        return self.plans.allocated(self.found.fleet, asked, tell)

    def worked_out(self, name: str, question: HistoryQuestion, tell: Progress) -> object:
        return self.plans.worked_out(self.found.fleet, question, tell)

    def running(self) -> Sequence[RunningAudit]:
        return ()


def gpu_hours(bundle: Bundle, workload: str) -> GpuHours:
    """Return the activity of each GPU that a workload held, by hour, in whole weeks from a Monday."""
    usage = bundle.table("gpu_usage", ["device", "workload", "hour", "sm_active_mean", "gpu_util_mean"])
    usage = usage.filter(pc.equal(usage["workload"], workload))
    if not usage.num_rows:
        return GpuHours(start=datetime.fromtimestamp(0, UTC), gpus=(), activity_frac=())
    hours = [moment.astimezone(UTC) for moment in usage["hour"].to_pylist()]
    start = monday_of(min(hours))
    weeks = int((max(hours) - start).total_seconds() // (S_PER_HR * HR_PER_WEEK)) + 1
    best = pc.coalesce(usage["sm_active_mean"], usage["gpu_util_mean"]).to_pylist()
    node = {
        row["device"]: row["node"]
        for row in bundle.table("devices", ["device", "node"]).select(["device", "node"]).to_pylist()
    }
    series: dict[str, list[float | None]] = {}
    for device, moment, value in zip(usage["device"].to_pylist(), hours, best, strict=True):
        name = f"{node.get(device) or 'unknown node'} {device}"
        row = series.setdefault(name, [None] * (weeks * HR_PER_WEEK))
        row[int((moment - start).total_seconds() // S_PER_HR)] = None if value is None or math.isnan(value) else value
    return GpuHours(start=start, gpus=tuple(series), activity_frac=tuple(map(tuple, series.values())))


def _demonstration(name: str, plans: PlanRefresh, tell: Progress) -> _Demonstration:
    catalog = load_catalog(plans.prices)
    bundle = open_demo(name)
    with outcome_cache() as store:
        given = PlanningInput(
            bundle=bundle,
            settings=plans.settings,
            catalog=catalog,
            name=f"{DEMO_PREFIX}{name}",
            owned=held_commitments(plans.owned, catalog, bundle),
            store=store,
            progress=tell,
        )
        found, made = audited(given)
    kept = kept_plan(found, bundle, made)
    return _Demonstration(name=name, plans=plans, found=audit_document(found), kept=kept, made=made)
