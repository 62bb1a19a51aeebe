"""What a collect has so far, on disk: a Parquet file a span of hours, written whole or not at all.

A collect that died, however, goes on where it stopped: the next one of the same server, metrics and units reads the spans that
are there and asks for the others. Owners, nodes, demand and runs are asked for again: they cost little.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.errors import InputError
from trimtab.inputs.arrow_tables import read_arrow_table
from trimtab.sources.hour_grid import Cube, HourGrid, UsageKey
from trimtab.sources.prometheus.client import Floats
from trimtab.sources.prometheus.dcgm import GpuLabels
from trimtab.sources.prometheus.gpu_series import Tally

logger = logging.getLogger(__name__)

Bins = Mapping[UsageKey, Mapping[int, list[int]]]
_KEY_COLUMNS = ("device", "namespace", "pod")
_META = b"trimtab"


@dataclass(frozen=True, slots=True, kw_only=True)
class HourSpan:
    """What was collected of some hours: readings, histograms by hour, samples, and what was counted on the way."""

    cube: Cube
    bins: Bins
    tally: Tally
    basis: str
    """Of what the histograms are."""

    @property
    def samples(self) -> dict[UsageKey, Floats]:
        """Return the samples by hour of every device and pod."""
        return {key: np.nan_to_num(self.cube.of("samples", key)) for key in self.cube.keys("samples")}


def identity_of(*parts: object) -> str:
    """Return a name for what a collect depends on; spans of another one are not ours."""
    return sha256("\n".join(map(repr, parts)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The spans kept in a folder; without a folder nothing is kept."""

    folder: Path | None

    def of(self, identity: str) -> Journal:
        """Return the part of the journal for one server and one way to read it."""
        return self if self.folder is None else Journal(folder=self.folder / identity)

    def holds(self, span: HourGrid) -> bool:
        """Return whether a span is there."""
        return self.folder is not None and self._file(self.folder, span).is_file()

    def read(self, span: HourGrid) -> HourSpan | None:
        """Return a span, or None where it is not there."""
        if self.folder is None or not self.holds(span):
            return None
        file = self._file(self.folder, span)
        try:
            return _span(read_arrow_table(file), span)
        except (InputError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # what cannot be read is asked of the server again, and written over
            logger.warning("%s: a part kept of an earlier run cannot be read and is collected again: %s", file, error)
            return None

    def write(self, grid: HourGrid, span: HourSpan) -> None:
        """Keep a span: after a crash it is there whole or not at all."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self._file(self.folder, grid)
        fresh = file.with_suffix(".new")
        with fresh.open("wb") as stream:
            pq.write_table(_table(span), stream, compression="zstd")
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(file)

    def remove(self) -> None:
        """Forget everything: the bundle is written."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def _file(folder: Path, span: HourGrid) -> Path:
        return folder / f"{span.start_s}-{span.hours}.parquet"


def _table(span: HourSpan) -> pa.Table:
    keys = list(dict.fromkeys(key for rows in span.cube.values.values() for key in rows))
    columns: dict[str, pa.Array] = {
        name: pa.array([getattr(key, name) for key in keys], type=pa.string()) for name in _KEY_COLUMNS
    }
    for statistic, rows in span.cube.values.items():
        columns[statistic] = pa.array([rows.get(key) for key in keys], type=pa.list_(pa.float64()))
    hours = pa.list_(pa.int64())
    columns["bin_hours"] = pa.array([list(span.bins.get(key, {})) for key in keys], type=hours)
    columns["bin_counts"] = pa.array([list(span.bins.get(key, {}).values()) for key in keys], type=pa.list_(hours))
    devices = {key.device: asdict(span.tally.devices[key.device]) for key in keys if key.device in span.tally.devices}
    meta = {"basis": span.basis, "counts": span.tally.counts, "devices": devices}
    return pa.table(columns).replace_schema_metadata({_META: json.dumps(meta).encode()})


def _span(table: pa.Table, grid: HourGrid) -> HourSpan:
    keys = [UsageKey(*who) for who in zip(*(table.column(name).to_pylist() for name in _KEY_COLUMNS), strict=True)]
    cube = Cube(grid=grid)
    for statistic in table.column_names:
        if statistic in (*_KEY_COLUMNS, "bin_hours", "bin_counts"):
            continue
        rows = zip(keys, table.column(statistic).to_pylist(), strict=True)
        cube.values[statistic] = {key: np.array(row, dtype=np.float64) for key, row in rows if row is not None}
    meta = json.loads(table.schema.metadata[_META])
    hours, counts = (table.column(name).to_pylist() for name in ("bin_hours", "bin_counts"))
    bins = {key: dict(zip(at, found, strict=True)) for key, at, found in zip(keys, hours, counts, strict=True) if at}
    devices = {name: GpuLabels(**labels) for name, labels in meta["devices"].items()}
    return HourSpan(cube=cube, bins=bins, tally=Tally(devices=devices, counts=meta["counts"]), basis=meta["basis"])
