"""What `trimtab emit --check` and `--diff` do: hold a folder of manifests against schemas, rules and a cluster, and list it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trimtab.catalog import load_catalog
from trimtab.check import CheckResult, Cluster, Difference, Schemas, check_folder, differences, read_cluster
from trimtab.check.cluster import cluster_of_context, crds_of_context, series_of
from trimtab.check.comparison import ObjectChange
from trimtab.check.documents import Folder, read_folder
from trimtab.cli.output import Cell, Format, Sheet, SheetColumn, sheet_comment, write, write_sheet
from trimtab.errors import UsageError
from trimtab.sources.kubernetes.manifests import read_manifests

EXIT_FAULTS = 4
"""Exit code of a check that found errors."""
EXIT_DIFFERS = 1
"""Exit code of `--diff` where applying would change something, as that of `diff`."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """What to hold a folder against, and the form of the answer."""

    folder: Path
    against: Path | None
    context: str | None
    schemas: Path | None
    metrics: Path | None
    output_format: Format


def run_check(request: CheckRequest) -> int:
    """Check a folder, list every fault; return the exit code."""
    schemas = _schemas(request)
    checked = check_folder(request.folder, load_catalog(), cluster=_cluster(request, None), schemas=schemas)
    if request.output_format is Format.TABLE:
        write("\n".join([*map(str, checked.faults), _verdict(checked, request)]), None)
    else:
        write_sheet(_check_sheet(checked, request), request.output_format)
    return EXIT_FAULTS if checked.errors else 0


def run_diff(request: CheckRequest) -> int:
    """List what applying a folder would change; return 0 where that is nothing, 1 else."""
    folder = read_folder(request.folder)
    if folder.faults:
        raise UsageError(f"{request.folder}: {folder.faults[0]}; see trimtab emit --check {request.folder}")
    cluster = _cluster(request, folder)
    if cluster is None:
        raise UsageError("--diff with what? give --against with dumps or a GitOps folder, or --context")
    found = differences(folder, cluster)
    people = request.output_format in (Format.TABLE, Format.GITHUB_COMMENT)
    rows = list(_diff_rows(found, everything=not people))
    sheet = Sheet(columns=_DIFF_COLUMNS, rows=rows, section="change", notes=(_counted(found, request),))
    applied = sum(difference.change in (ObjectChange.NEW, ObjectChange.CHANGED) for difference in found)
    if request.output_format is Format.GITHUB_COMMENT:
        what = f"{applied} object{'' if applied == 1 else 's'}" if applied else "nothing"
        write(sheet_comment("emit diff", f"Applying {request.folder} would change {what}", sheet), None)
    else:
        write_sheet(sheet, request.output_format)
    return EXIT_DIFFERS if applied else 0


def _schemas(request: CheckRequest) -> Schemas:
    documents: list[object] = []
    if request.context is not None:
        documents += crds_of_context(request.context)
    if request.schemas is not None:
        documents += [document for _, document in read_manifests(request.schemas)]
    return Schemas.of_crds(documents)


def _cluster(request: CheckRequest, folder: Folder | None) -> Cluster | None:
    if request.against is not None and request.context is not None:
        raise UsageError("--against and --context both say what the cluster has: give one of them")
    series = None if request.metrics is None else series_of(request.metrics)
    if request.context is not None:
        read = folder or read_folder(request.folder)
        kinds = {
            f"{document.kind}.{document.group}" if document.group else document.kind
            for document in read.objects
            if document.kind
        }
        if any(kind.endswith(f".{_CLAIMS}") for kind in kinds):
            kinds |= {f"{kind}.{_CLAIMS}" for kind in ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass")}
        return cluster_of_context(request.context, kinds).with_series(series)
    if request.against is not None:
        return read_cluster(request.against).with_series(series)
    return None if series is None else Cluster().with_series(series)


def _verdict(checked: CheckResult, request: CheckRequest) -> str:
    errors, warnings = len(checked.errors), len(checked.faults) - len(checked.errors)
    beside = request.against or request.context
    unread = "" if beside else " What the cluster has was not read: give --against or --context."
    return (
        f"{request.folder}: {checked.objects} objects and {checked.patches} patches checked, {errors} errors, "
        f"{warnings} warnings.{unread}"
    )


def _check_sheet(checked: CheckResult, request: CheckRequest) -> Sheet:
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
    return Sheet(columns=_CHECK_COLUMNS, rows=rows, notes=(_verdict(checked, request),))


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


def _counted(found: list[Difference], request: CheckRequest) -> str:
    counts = {change: sum(difference.change is change for difference in found) for change in ObjectChange}
    said = ", ".join(f"{count} {change.value}" for change, count in counts.items())
    return f"{request.folder} against {request.against or request.context}: {said}. Nothing was applied."
