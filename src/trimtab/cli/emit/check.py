"""What `trimtab emit --check` and `--diff` do: hold a folder of manifests against schemas, rules and a cluster, and list it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trimtab.catalog import load_catalog
from trimtab.check import (
    CheckResult,
    Cluster,
    Difference,
    ObjectChange,
    Schemas,
    check_folder,
    differences,
    read_cluster,
)
from trimtab.check.cluster import cluster_of_context, crds_of_context, series_of
from trimtab.check.documents import Folder, read_folder
from trimtab.cli import ExitCode
from trimtab.cli.emit import EmitOptions
from trimtab.cli.output import Cell, Format, Sheet, SheetColumn, sheet_comment, write, write_sheet
from trimtab.errors import UsageError
from trimtab.sources.kubernetes.manifests import read_manifests

_CLAIMS = "resource.k8s.io"
"""The API group whose kinds refer to one another: whoever has one of them is asked for all."""

_CHECK_COLUMNS = (
    SheetColumn(key="file", title="file", whole=True),
    SheetColumn(key="severity", title="", whole=True),
    SheetColumn(key="object", title="object"),
    SheetColumn(key="field", title="field"),
    SheetColumn(key="value", title="saw"),
    SheetColumn(key="what", title="what is wrong"),
    SheetColumn(key="cure", title="cure"),
)
_DIFF_COLUMNS = (
    SheetColumn(key="change", title="change", whole=True),
    SheetColumn(key="object", title="object"),
    SheetColumn(key="file", title="file"),
    SheetColumn(key="field", title="field"),
    SheetColumn(key="before", title="there"),
    SheetColumn(key="after", title="here"),
)


def run_check(root: Path, options: EmitOptions) -> int:
    """Check a folder, list every fault; return the exit code."""
    schemas = _schemas(options)
    checked = check_folder(root, load_catalog(), cluster=_cluster(root, options), schemas=schemas)
    if options.output_format is Format.TABLE:
        write("\n".join([*map(str, checked.faults), _verdict(checked, root, options)]), None)
    else:
        write_sheet(_check_sheet(checked, root, options), options.output_format)
    return ExitCode.NO if checked.errors else ExitCode.DONE


def run_diff(root: Path, options: EmitOptions) -> int:
    """List what applying a folder would change; return 0 where that is nothing, 1 else."""
    folder = read_folder(root)
    if folder.faults:
        raise UsageError(f"{root}: {folder.faults[0]}; see trimtab emit --check {root}")
    cluster = _cluster(root, options, folder)
    if cluster is None:
        raise UsageError("--diff with what? give --against with dumps or a GitOps folder, or --context")
    found = differences(folder, cluster)
    people = options.output_format in (Format.TABLE, Format.GITHUB_COMMENT)
    rows = list(_diff_rows(found, everything=not people))
    sheet = Sheet(columns=_DIFF_COLUMNS, rows=rows, section="change", notes=(_counted(found, root, options),))
    applied = sum(difference.change in (ObjectChange.NEW, ObjectChange.CHANGED) for difference in found)
    if options.output_format is Format.GITHUB_COMMENT:
        what = f"{applied} object{'' if applied == 1 else 's'}" if applied else "nothing"
        write(sheet_comment("emit diff", f"Applying {root} would change {what}", sheet), None)
    else:
        write_sheet(sheet, options.output_format)
    return ExitCode.ERROR if applied else ExitCode.DONE


def _schemas(options: EmitOptions) -> Schemas:
    documents: list[object] = []
    if options.context is not None:
        documents += crds_of_context(options.context)
    if options.schemas is not None:
        documents += [document for _, document in read_manifests(options.schemas)]
    return Schemas.of_crds(documents)


def _cluster(root: Path, options: EmitOptions, folder: Folder | None = None) -> Cluster | None:
    if options.against is not None and options.context is not None:
        raise UsageError("--against and --context both say what the cluster has: give one of them")
    series = None if options.metrics is None else series_of(options.metrics)
    if options.context is not None:
        read = folder or read_folder(root)
        kinds = {
            f"{document.kind}.{document.group}" if document.group else document.kind
            for document in read.objects
            if document.kind
        }
        if any(kind.endswith(f".{_CLAIMS}") for kind in kinds):
            kinds |= {f"{kind}.{_CLAIMS}" for kind in ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass")}
        return cluster_of_context(options.context, kinds).with_series(series)
    if options.against is not None:
        return read_cluster(options.against).with_series(series)
    return None if series is None else Cluster().with_series(series)


def _verdict(checked: CheckResult, root: Path, options: EmitOptions) -> str:
    errors, warnings = len(checked.errors), len(checked.faults) - len(checked.errors)
    beside = options.against or options.context
    unread = "" if beside else " What the cluster has was not read: give --against or --context."
    return (
        f"{root}: {checked.objects} objects and {checked.patches} patches checked, {errors} errors, "
        f"{warnings} warnings.{unread}"
    )


def _check_sheet(checked: CheckResult, root: Path, options: EmitOptions) -> Sheet:
    rows: list[dict[str, Cell]] = [
        {
            "file": found.file,
            "severity": found.severity.value,
            "object": found.object,
            "field": found.field,
            "value": found.value,
            "what": found.what,
            "cure": found.cure,
        }
        for found in checked.faults
    ]
    return Sheet(columns=_CHECK_COLUMNS, rows=rows, notes=(_verdict(checked, root, options),))


def _diff_rows(found: list[Difference], *, everything: bool) -> Iterator[dict[str, Cell]]:
    for difference in found:
        first: dict[str, Cell] = {
            "change": difference.change.value,
            "object": difference.object,
            "file": difference.file,
        }
        if difference.change is ObjectChange.SAME and not everything:
            continue
        for field in difference.fields:
            yield {**first, "field": field.field, "before": field.before or None, "after": field.after or None}
        if not difference.fields:
            yield first


def _counted(found: list[Difference], root: Path, options: EmitOptions) -> str:
    counts = {change: sum(difference.change is change for difference in found) for change in ObjectChange}
    said = ", ".join(f"{count} {change.value}" for change, count in counts.items())
    return f"{root} against {options.against or options.context}: {said}. Nothing was applied."
