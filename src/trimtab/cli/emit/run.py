"""What `trimtab emit` does once its arguments are read: a plan's files or the monitoring, into a folder, at once or not at all.

A listing in it names the files of the last emit with their digests. A file that is there and not in the listing is somebody
else's; one whose digest is another was changed by hand. The new folder is made beside the old one and takes its place whole,
so that a run which is cut off leaves the old one.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.catalog import Catalog, load_catalog
from trimtab.cli import say
from trimtab.cli.emit import EmitOptions
from trimtab.cli.kept_audits import recall, recall_plan
from trimtab.cli.output import Cell, Format, Sheet, SheetColumn, write_sheet
from trimtab.emit.manifests.cluster_file import parse_cluster_file, with_cluster_file
from trimtab.emit.manifests.emission import STAGE_MEANING, Emission
from trimtab.emit.manifests.facts import Autoscaler, EmitFacts
from trimtab.emit.manifests.hygiene_files import hygiene_files
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.emit.verify_document import VerifiedPart, parse_verification
from trimtab.errors import UsageError
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.inputs.files import read_text
from trimtab.monitor import Thresholds, in_cluster_files, monitoring_files, read_thresholds, watched_cluster
from trimtab.monitor.folders import IMAGE, PROMETHEUS
from trimtab.pipeline import open_demo, open_fleet
from trimtab.tables.bundle import Bundle
from trimtab.tables.whole_folder import replaced_whole


def monitoring(
    bundle: Bundle,
    thresholds: Thresholds | None = None,
    catalog: Catalog | None = None,
    *,
    at: date | None = None,
    rule_labels: Mapping[str, str] | None = None,
    verified: VerifiedPart | None = None,
) -> dict[str, str]:
    """Return path -> text of the alerts and boards of a bundle's cluster, priced on a day (default: when it ended).

    `verified` is what a plan was found to have saved; the board of money shows it.
    """
    catalog = catalog or load_catalog()
    market = Market.of(catalog, at or bundle.end.date(), Settings())
    watched = watched_cluster(bundle, market, catalog, rule_labels=rule_labels)
    return monitoring_files(replace(watched, verified=verified), thresholds or Thresholds())


LISTING = ".trimtab-files"
"""Names the files that emit wrote to a folder, each behind its digest."""
_SHOWN = 10


def write_folder(out: Path, files: Mapping[str, str], *, force: bool = False) -> None:
    """Write files by path, and take away those of an earlier emit that are no longer among them; nothing else is touched.

    Raises UsageError where files of others or files changed by hand would be lost (unless `force`), where the folder leads
    elsewhere by a link, or cannot be written.
    """
    out = out.resolve()
    try:
        earlier = _listed(out)
        stale = [path for path in earlier if path not in files and _is_inside(out, path)]
        if not force:
            _refuse_to_lose(out, files, stale, earlier)
        _refuse_links(out, files)
        with replaced_whole(out) as fresh:
            _fill(fresh, out, files, stale)
    except OSError as error:
        raise UsageError(f"cannot write to {out}: {error}") from error


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _listed(out: Path) -> dict[str, str]:
    """Return the files of the last emit with their digests; those of 0.1.0 are listed without (empty)."""
    listing = out / LISTING
    if not listing.is_file():
        return {}
    lines = [line.rpartition("  ") for line in read_text(listing).splitlines() if line]
    return {path: digest for digest, _, path in lines}


def _is_inside(out: Path, path: str) -> bool:
    try:
        return (out / path).resolve().is_relative_to(out)
    except ValueError:  # a damaged listing: no file is called so
        return False


def _refuse_to_lose(out: Path, files: Mapping[str, str], stale: list[str], earlier: Mapping[str, str]) -> None:
    """Raise UsageError, with every file, where somebody else's file or one changed by hand would be lost."""
    lost = []
    for path in [*files, *stale]:
        there = out / path
        if not there.is_file():
            continue
        found = _digest(there.read_bytes())
        wanted = files.get(path)
        if wanted is not None and found == _digest(wanted.encode()):
            continue
        if path not in earlier:
            lost.append(f"{path} (not written by emit)")
        elif earlier[path] and found != earlier[path]:
            lost.append(f"{path} (changed by hand)")
    if lost:
        more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
        raise UsageError(
            f"{out}: {', '.join(lost[:_SHOWN])}{more} would be lost; move them, choose another --out, or say --force"
        )


def _refuse_links(out: Path, files: Mapping[str, str]) -> None:
    """Raise UsageError where a file of ours would be written through a link to a place outside."""
    for path in files:
        if not _is_inside(out, path):
            raise UsageError(
                f"{out / path} leads out of the folder by a link: take the link away, or choose another --out"
            )


def _fill(fresh: Path, out: Path, files: Mapping[str, str], stale: list[str]) -> None:
    """Fill the new folder: what others have in the old one, then our files, then their listing."""
    if out.is_dir():
        shutil.copytree(out, fresh, symlinks=True, dirs_exist_ok=True)
    for path in stale:
        (fresh / path).unlink(missing_ok=True)
        _prune(fresh / path, fresh)
    for path, text in files.items():
        place = fresh / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    lines = [f"{_digest(text.encode())}  {path}" for path, text in files.items()]
    (fresh / LISTING).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _prune(gone: Path, root: Path) -> None:
    """Take away the folders that a file left empty."""
    folder = gone.parent
    while folder != root and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


if TYPE_CHECKING:
    from trimtab.cli.emit import EmitOptions

_MONITORING_COLUMNS = (
    SheetColumn(key="path", title="file", whole=True),
    SheetColumn(key="what", title="what"),
    SheetColumn(key="series", title="series", right=True),
    SheetColumn(key="alerts", title="alerts", right=True),
    SheetColumn(key="panels", title="panels", right=True),
)
_IN_CLUSTER = {
    "Dockerfile": "image of the wheels, on a base chosen by digest",
    "manifests/kustomization.yaml": "Kustomization",
    "manifests/trimtab.yaml": "account, role, volume, network policy, CronJob, page",
    "chart/Chart.yaml": "Helm chart of the same objects",
    "chart/values.yaml": "its settings",
    "chart/templates/trimtab.yaml": "its objects",
}


def run_monitoring(options: EmitOptions) -> None:
    """Run the command for a bundle's folder, or for a demonstration."""
    history = open_fleet(options.bundle) if options.bundle is not None else open_demo(str(options.demo))
    path = options.cluster_file
    declared = parse_cluster_file(read_text(path), where=str(path)) if path else None
    files = monitoring(
        history,
        read_thresholds(options.thresholds) if options.thresholds else None,
        load_catalog(options.prices),
        rule_labels=declared.rule_labels if declared else None,
        verified=parse_verification(read_text(told), where=str(told)) if (told := options.verified) else None,
    )
    if not options.dry_run:
        write_folder(options.out, files, force=options.force)
    write_sheet(_monitoring_sheet(files, options.out, written=not options.dry_run), Format(options.output_format))


def run_in_cluster(options: EmitOptions) -> None:
    """Run the command for a cluster that is to run trimtab."""
    files = in_cluster_files(options.image or IMAGE, options.server or PROMETHEUS)
    if not options.dry_run:
        write_folder(options.out, files, force=options.force)
    rows: list[dict[str, Cell]] = [{"path": path, "what": _IN_CLUSTER[path]} for path in files]
    note = (
        f"{len(files)} files {'for' if options.dry_run else 'written to'} {options.out}: kubectl apply -k "
        f"{options.out}/manifests, or helm install trimtab {options.out}/chart -n trimtab --create-namespace. Nothing was "
        "applied, and no image was built: docs/how-to/run-in-a-cluster.md."
    )
    write_sheet(Sheet(columns=_MONITORING_COLUMNS[:2], rows=rows, notes=(note,)), Format(options.output_format))


def _monitoring_sheet(files: dict[str, str], out: Path, *, written: bool) -> Sheet:
    return Sheet(
        columns=_MONITORING_COLUMNS,
        rows=[{"path": path, **_told(path, text)} for path, text in files.items()],
        notes=(
            f"{len(files)} files {'written to' if written else 'for'} {out}: kubectl apply -k {out}. Nothing was applied.",
            "Prometheus must select the rules' labels (rule_labels of --cluster); what each alert means and what to do: "
            "docs/how-to/watch-a-cluster.md.",
        ),
    )


def _told(path: str, text: str) -> dict[str, Cell]:
    """Return what a file is, and of what it holds how many."""
    if path.endswith(".rules.yaml"):
        return {"what": "PrometheusRule", "series": text.count("- record: "), "alerts": text.count("- alert: ")}
    if path.endswith(".dashboard.json"):
        return {"what": "Grafana board", "panels": text.count('"gridPos"')}
    return {"what": "Kustomization"}


_COLUMNS = (
    SheetColumn(key="stage", title="stage", whole=True),
    SheetColumn(key="path", title="file", whole=True),
    SheetColumn(key="kind", title="what"),
    SheetColumn(
        key="actions", title="actions", show=lambda cell: ", ".join(cell) if isinstance(cell, tuple) else str(cell)
    ),
)


def run_emit(options: EmitOptions) -> None:
    """Run the command."""
    kept = recall_plan()
    facts = _facts(kept.facts, options)
    emission = emit_plan(kept.plan, facts, only=options.only)
    if not options.only:
        emission = replace(emission, files=(*emission.files, *hygiene_files(recall(), facts)))
    if not options.dry_run:
        write_folder(options.out, {file.path: file.text for file in emission.files}, force=options.force)
    for_people = options.output_format is Format.TABLE
    write_sheet(_sheet(emission, options), options.output_format, fields=("path", "actions") if for_people else ())
    for action, subjects, reason in emission.grouped():
        say(f"left to you: {action}, {', '.join(subjects)}: {reason}", err=True)


def _facts(facts: EmitFacts, options: EmitOptions) -> EmitFacts:
    if options.cluster_file is not None:
        where = str(options.cluster_file)
        text = read_text(options.cluster_file)
        facts = with_cluster_file(facts, parse_cluster_file(text, where=where), where=where)
    return replace(facts, autoscaler=Autoscaler(options.autoscaler or facts.autoscaler), add_only=options.add_only)


def _sheet(emission: Emission, options: EmitOptions) -> Sheet:
    stages = emission.stages()
    return Sheet(
        columns=_COLUMNS,
        rows=[
            {
                "stage": f"{stages[file.stage]}. {STAGE_MEANING[file.stage]}",
                "path": file.path,
                "kind": file.kind,
                "actions": file.actions,
            }
            for file in emission.files
        ],
        section="stage",
        notes=(
            f"{len(emission.files)} files {'for' if options.dry_run else 'written to'} {options.out}; apply them stage by "
            f"stage, as APPLY.md there says. Nothing was applied.",
        ),
    )
