"""The fleet bundle on disk: a folder of Parquet tables, `bundle.yaml` and `workloads.yaml`.

Writing is atomic (a temporary folder, then a rename). Reading is lazy: a table's file is opened when it is requested, and only
the columns requested are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from trimtab.errors import BundleError, Fault, InputError
from trimtab.inputs.arrow_tables import ARROW_ERRORS, parquet_file, whole
from trimtab.notebook import ShownInNotebook
from trimtab.tables.arrow import arrow_schema, columns_of, conform, empty_table
from trimtab.tables.schemas import TABLES, Dtype
from trimtab.tables.whole_folder import replaced_whole, settle
from trimtab.tables.workloads import WORKLOADS_FILE, Workloads, read_workloads, workloads_text
from trimtab.tables.yaml_faults import load_mapping, read_text, validation_faults

META_FILE = "bundle.yaml"
BUNDLE_VERSION = 1
_ROW_GROUP_ROWS = 65_536
PIECE_ROWS = 65_536
"""Rows of a table that are read at a time: of `demand`, with three histograms of 20 buckets, about 70 MB."""


class BundleMeta(BaseModel):
    """`bundle.yaml`: the window `[start, end)`, who wrote it from what, and what was clamped or dropped on the way."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = BUNDLE_VERSION
    start: AwareDatetime
    end: AwareDatetime
    created_by: str = "trimtab"
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    counts: Mapping[str, int] = Field(default_factory=dict)
    """Reason -> readings or rows that were clamped, dropped or could not be placed."""

    @model_validator(mode="after")
    def _window_is_not_empty(self) -> Self:
        if self.start >= self.end:
            raise ValueError(f"start {self.start.isoformat()} is not before end {self.end.isoformat()}")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle(ShownInNotebook):
    """A fleet's history: its metadata, and access to its tables.

    `path` is the folder, or None for a bundle held in memory (`tables` then holds every table).
    """

    meta: BundleMeta
    workloads: Workloads = field(default_factory=Workloads)
    path: Path | None = None
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    @property
    def start(self) -> datetime:
        """First moment of the window."""
        return self.meta.start

    @property
    def end(self) -> datetime:
        """First moment after the window."""
        return self.meta.end

    def has(self, name: str) -> bool:
        """Return whether the table is there (it may have no rows)."""
        columns_of(name)
        return name in self.tables or (self.path is not None and table_file(self.path, name).is_file())

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a table, or the named columns of it in that order; an absent one has no rows.

        Without `columns` a table comes without its histograms, which are large: ask for those by name.
        """
        wanted = list(columns) if columns is not None else light_columns(name)
        schema = arrow_schema(name, wanted)
        if name in self.tables:
            return self.tables[name].select(wanted)
        if self.path is None or not table_file(self.path, name).is_file():
            return empty_table(name, wanted)
        return _read_columns(table_file(self.path, name), schema)

    def pieces(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the named columns of a table in the order of its rows, `PIECE_ROWS` at most at a time: no file is read whole.

        At least one piece: that of a table without rows has none. Raises BundleError where the file is damaged.
        """
        file = table_file(self.path, name) if self.path is not None and name not in self.tables else None
        if file is not None and file.is_file():
            yield from _read_pieces(file, arrow_schema(name, columns))
        else:
            held = self.table(name, columns)
            yield from (held.slice(first, PIECE_ROWS) for first in range(0, max(held.num_rows, 1), PIECE_ROWS))

    def row_counts(self) -> dict[str, int]:
        """Return how many rows each table has, of those that are there. Raises BundleError if a file cannot be read."""
        held = {name: table.num_rows for name, table in self.tables.items()}
        if self.path is None:
            return held
        files = {name: table_file(self.path, name) for name in TABLES}
        return {name: open_parquet(file).metadata.num_rows for name, file in files.items() if file.is_file()} | held


def light_columns(name: str) -> list[str]:
    """Return the names of a table's columns but for histograms (101 integers a row)."""
    return [column.name for column in columns_of(name) if column.dtype is not Dtype.INTS]


def table_file(folder: Path, name: str) -> Path:
    """Return where a bundle keeps a table."""
    return folder / f"{name}.parquet"


def _read_columns(path: Path, schema: pa.Schema) -> pa.Table:
    """Read the columns that the file has; nullable ones it lacks are null."""
    file = open_parquet(path)
    present = _present(file, schema)
    with _damage_named(path):
        table = whole(file.read(columns=present))
        if present:
            _require_rows(table.num_rows, file)
        return _as_declared(table, schema)


def _read_pieces(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """Read the columns as `_read_columns` does, some rows at a time."""
    rows = 0
    with open_parquet(path) as file, _damage_named(path):
        for batch in file.iter_batches(PIECE_ROWS, columns=_present(file, schema)):
            rows += batch.num_rows
            yield _as_declared(whole(pa.Table.from_batches([batch])), schema)
        _require_rows(rows, file)
        if not rows:
            yield schema.empty_table()


def _present(file: pq.ParquetFile, schema: pa.Schema) -> list[str]:
    return [column for column in schema.names if column in file.schema_arrow.names]


def _require_rows(rows: int, file: pq.ParquetFile) -> None:
    if rows != file.metadata.num_rows:
        raise pa.ArrowInvalid(f"{rows} rows where it says that it has {file.metadata.num_rows}")


def _as_declared(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of the schema, null where it lacks one."""
    for missing in schema.names:
        if missing not in table.column_names:
            table = table.append_column(missing, pa.nulls(table.num_rows, schema.field(missing).type))
    return table.select(schema.names).cast(schema)


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """Raise what Arrow says of a damaged file as a BundleError that names it."""
    try:
        yield
    except ARROW_ERRORS as error:
        raise BundleError(
            [Fault(what="the file is damaged", where=str(path), value=str(error), cure="collect it again")]
        ) from error


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file. Raises BundleError if it is empty, truncated or not Parquet at all."""
    try:
        return parquet_file(path)
    except ARROW_ERRORS as error:
        size = path.stat().st_size if path.is_file() else 0
        what = "the file is empty" if size == 0 else "not a readable Parquet file (truncated?)"
        raise BundleError(
            [Fault(what=what, where=str(path), value=f"{size} bytes", cure="collect it again")]
        ) from error


def memory_bundle(tables: Mapping[str, pa.Table], meta: BundleMeta, workloads: Workloads | None = None) -> Bundle:
    """Return a bundle held in memory, its tables brought to their schemas. Raises BundleError."""
    conformed = {name: conform(name, table) for name, table in tables.items()}
    return Bundle(meta=meta, workloads=workloads or Workloads(), tables=conformed)


def write_bundle(
    path: Path, tables: Mapping[str, pa.Table], meta: BundleMeta, workloads: Workloads | None = None
) -> Bundle:
    """Write a bundle folder at once or not at all; an existing bundle there is replaced, any other folder is refused.

    Raises BundleError if a table does not fit its schema, InputError where the place is taken.
    """
    conformed = {name: conform(name, table) for name, table in tables.items()}
    if path.exists() and not (path.is_dir() and ((path / META_FILE).is_file() or not any(path.iterdir()))):
        raise InputError(f"{path}: exists and is not a fleet bundle; choose another folder")
    with replaced_whole(path) as fresh:
        for name, table in conformed.items():
            pq.write_table(table, table_file(fresh, name), compression="zstd", row_group_size=_ROW_GROUP_ROWS)
        (fresh / META_FILE).write_text(meta_text(meta), encoding="utf-8")
        (fresh / WORKLOADS_FILE).write_text(workloads_text(workloads or Workloads()), encoding="utf-8")
    return Bundle(meta=meta, workloads=workloads or Workloads(), path=path)


def meta_text(meta: BundleMeta) -> str:
    """Return the YAML text of bundle.yaml; `parse_meta` gives the same value back."""
    return yaml.safe_dump(meta.model_dump(mode="json"), sort_keys=False)


def parse_meta(text: str, *, where: str = META_FILE) -> BundleMeta:
    """Read the text of a bundle.yaml. Raises BundleError with every fault."""
    raw = load_mapping(text, where)
    version = raw.get("version", BUNDLE_VERSION)
    if isinstance(version, int) and version > BUNDLE_VERSION:
        cure = f"this trimtab reads up to version {BUNDLE_VERSION}: update trimtab"
        raise BundleError([Fault(what="the bundle is of a newer version", where=where, value=str(version), cure=cure)])
    try:
        return BundleMeta.model_validate(raw)
    except ValidationError as error:
        raise BundleError(validation_faults(error, BundleMeta, where)) from error


def read_bundle(path: Path | str) -> Bundle:
    """Open a bundle folder; tables are read when requested.

    Raises InputError if the folder is not a bundle, BundleError where its YAML files are at fault.
    """
    folder = Path(path)
    settle(folder)
    if not (folder / META_FILE).is_file():
        raise InputError(f"{folder}: no {META_FILE} there; a fleet bundle is a folder that `trimtab collect` wrote")
    meta = parse_meta(read_text(folder / META_FILE), where=str(folder / META_FILE))
    return Bundle(meta=meta, workloads=read_workloads(folder / WORKLOADS_FILE), path=folder)
