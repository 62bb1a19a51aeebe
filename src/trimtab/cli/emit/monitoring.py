"""What `trimtab emit --monitoring` and `--in-cluster` do: write what watches a cluster, and what runs trimtab in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.catalog import load_catalog
from trimtab.cli.emit.folder import write_folder
from trimtab.cli.output import Cell, Format, Sheet, SheetColumn, write_sheet
from trimtab.emit.manifests.cluster_file import parse_cluster_file
from trimtab.emit.verify_document import parse_verification
from trimtab.inputs.files import read_text
from trimtab.monitor import in_cluster_files, read_thresholds
from trimtab.monitor.in_cluster import IMAGE, PROMETHEUS
from trimtab.pipeline import open_demo, open_fleet
from trimtab.pipeline.watching import monitoring

if TYPE_CHECKING:
    from trimtab.cli.emit import EmitOptions

_COLUMNS = (
    SheetColumn(key="path", title="file", whole=True),
    SheetColumn(key="what", title="what"),
    SheetColumn(key="series", title="series", right=True),
    SheetColumn(key="alerts", title="alerts", right=True),
    SheetColumn(key="panels", title="panels", right=True),
)
_IN_CLUSTER = {
    "Dockerfile": "image of the wheels, on a base chosen by digest",
    "manifests/kustomization.yaml": "Kustomization",
    "manifests/trimtab.yaml": "account, role, volume, network policy, CronJob",
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
    write_sheet(_sheet(files, options.out, written=not options.dry_run), Format(options.output_format))


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
    write_sheet(Sheet(columns=_COLUMNS[:2], rows=rows, notes=(note,)), Format(options.output_format))


def _sheet(files: dict[str, str], out: Path, *, written: bool) -> Sheet:
    return Sheet(
        columns=_COLUMNS,
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
