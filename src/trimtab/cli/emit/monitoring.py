"""What `trimtab emit --monitoring` does: alerts and boards of a bundle's cluster, written without an audit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.catalog import load_catalog
from trimtab.cli.emit.folder import write_folder
from trimtab.cli.output import Cell, Format, Sheet, SheetColumn, write_sheet
from trimtab.emit.manifests.cluster_file import parse_cluster_file
from trimtab.inputs.files import read_text
from trimtab.monitor import read_thresholds
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
    )
    if not options.dry_run:
        write_folder(options.out, files, force=options.force)
    write_sheet(_sheet(files, options.out, written=not options.dry_run), Format(options.output_format))


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
