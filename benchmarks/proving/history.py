"""What a cluster's monitoring would have kept of a fleet, as a fleet bundle: Parquet tables, bundle.yaml, workloads.yaml.

Only what sensors and schedulers see is written: nodes, who held which GPU, readings by the hour, requests by the minute, runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.proving.world.clock import HOUR_S, MINUTE_S

Floats = npt.NDArray[np.float64]
START = datetime(2026, 10, 5, tzinfo=UTC)
"""A Monday."""
_MINUTES = HOUR_S // MINUTE_S
_BINS = 101
_UTC = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A kind of node: what it is called and what it holds."""

    instance_type: str
    gpu: str
    gpus: int
    memory_gib: float
    provider: str = "aws"
    region: str = "us-east-1"


class History:
    """Rows of a bundle in the making; times are seconds from its start."""

    def __init__(self, hours: int, start: datetime = START, blind: Sequence[tuple[float, float]] = ()) -> None:
        self.hours, self.start = hours, start
        minute_s = np.arange(hours * _MINUTES) * float(MINUTE_S)
        self._blind = np.zeros(len(minute_s), dtype=bool)
        """Minutes of which nothing was measured."""
        for begin, end in blind:
            self._blind |= (minute_s >= begin) & (minute_s < end)
        self._rows: dict[str, list[dict[str, object]]] = {
            name: [] for name in ("nodes", "devices", "allocations", "jobs")
        }
        self._usage: list[pa.Table] = []
        self._demand: list[pa.Table] = []

    def moment(self, at_s: float) -> datetime:
        """Return a time of the world as a date."""
        return self.start + timedelta(seconds=round(at_s))

    def node(
        self,
        name: str,
        machine: Machine,
        *,
        start_s: float = 0.0,
        end_s: float = inf,
        capacity: str = "on-demand",
    ) -> None:
        """Bill a node; its devices are `NAME/0`, `NAME/1` and so on."""
        self._rows["nodes"].append(
            {
                "node": name,
                "provider": machine.provider,
                "instance_type": machine.instance_type,
                "region": machine.region,
                "zone": f"{machine.region}a",
                "capacity_type": capacity,
                "start": self.moment(start_s),
                "end": None if end_s >= self.hours * HOUR_S else self.moment(end_s),
                "gpu": machine.gpu,
                "gpu_count": machine.gpus,
            }
        )
        self._rows["devices"] += [
            {"device": f"{name}/{at}", "node": name, "gpu": machine.gpu, "memory_gib": machine.memory_gib}
            for at in range(machine.gpus)
        ]

    def hold(
        self, workload: str, kind: str, pod: str, node: str, places: Sequence[int], start_s: float, end_s: float
    ) -> None:
        """Let a pod hold some of a node's GPUs."""
        self._rows["allocations"] += [
            {
                "workload": workload,
                "namespace": workload.split("/")[0],
                "owner_kind": kind,
                "team": workload.split("/")[0],
                "pod": pod,
                "node": node,
                "device": f"{node}/{place}",
                "gpus": 1.0,
                "start": self.moment(start_s),
                "end": None if end_s >= self.hours * HOUR_S else self.moment(end_s),
            }
            for place in places
        ]

    def usage(self, device: str, workload: str | None, sm_active: Floats, *, memory_gib: float, util: Floats) -> None:
        """Add readings by minute (n_minutes,), NaN where this workload did not hold the device."""
        seen = [np.where(self._blind, np.nan, values) for values in (sm_active, util)]
        hours, utils = (values.reshape(self.hours, _MINUTES) for values in seen)
        samples = (~np.isnan(hours)).sum(axis=1)
        kept = np.flatnonzero(samples)
        if not len(kept):
            return
        # NaN sorts last: the readings of an hour that was held in part come first, and ranks are taken of them
        ordered, used = np.sort(hours[kept], axis=1), np.sort(utils[kept], axis=1)
        count = samples[kept]
        first = np.datetime64(self.start.replace(tzinfo=None), "us")
        bins = np.rint(np.clip(np.nan_to_num(ordered, nan=-1.0), -1.0, 1.0) * (_BINS - 1)).astype(np.int64)
        place = np.arange(len(kept))[:, None] * _BINS + bins
        counted = np.bincount(place[bins >= 0], minlength=len(kept) * _BINS).astype(np.int64)
        offsets = pa.array(np.arange(0, len(counted) + 1, _BINS, dtype=np.int32))
        self._usage.append(
            pa.table(
                {
                    "device": pa.array([device] * len(kept)),
                    "workload": pa.array([workload] * len(kept), pa.string()),
                    "hour": pa.array(first + (kept * HOUR_S).astype("timedelta64[s]")).cast(_UTC),
                    "samples": pa.array(count),
                    "samples_expected": pa.array(np.full(len(kept), _MINUTES)),
                    **_summary("sm_active", ordered, count),
                    **_summary("gpu_util", used, count),
                    **_summary("tensor_active", ordered * 0.4, count),
                    **_summary("dram_active", ordered * 0.7, count),
                    "memory_used_gib_mean": pa.array(np.full(len(kept), memory_gib)),
                    "memory_used_gib_max": pa.array(np.full(len(kept), memory_gib)),
                    "activity_histogram": pa.ListArray.from_arrays(offsets, pa.array(counted)),
                    "basis": pa.array(["raw samples"] * len(kept)),
                }
            )
        )

    def demand(self, workload: str, columns: Mapping[str, Floats], bounds_s: Floats, counts: Floats) -> None:
        """Add a service's requests by minute."""
        kept = np.flatnonzero(~self._blind)
        counts, columns, rows = counts[kept], {name: values[kept] for name, values in columns.items()}, len(kept)
        first = np.datetime64(self.start.replace(tzinfo=None), "us")
        starts = first + (kept * MINUTE_S).astype("timedelta64[s]")
        offsets = pa.array(np.arange(0, counts.size + 1, counts.shape[1], dtype=np.int32))
        bounds = np.tile(bounds_s, (rows, 1))
        table = {
            "workload": pa.array([workload] * rows),
            "start": pa.array(starts).cast(_UTC),
            "interval_s": pa.array(np.full(rows, float(MINUTE_S))),
            **{name: pa.array(values) for name, values in columns.items()},
            "latency_le_s": pa.ListArray.from_arrays(offsets, pa.array(bounds.ravel())),
            "latency_count": pa.ListArray.from_arrays(offsets, pa.array(counts.ravel())),
        }
        self._demand.append(pa.table(table))

    def job(self, row: Mapping[str, object]) -> None:
        """Add a run."""
        self._rows["jobs"].append(dict(row))

    def write(self, folder: Path, workloads: Mapping[str, object]) -> Path:
        """Write the bundle and return its folder."""
        folder.mkdir(parents=True)
        for name, rows in self._rows.items():
            if rows or name != "jobs":
                pq.write_table(pa.Table.from_pylist(rows, schema=_schema(name)), folder / f"{name}.parquet")
        pq.write_table(pa.concat_tables(self._usage), folder / "gpu_usage.parquet")
        if self._demand:
            pq.write_table(pa.concat_tables(self._demand), folder / "demand.parquet")
        meta = {
            "version": 1,
            "start": self.start,
            "end": self.start + timedelta(hours=self.hours),
            "created_by": "proving ground",
            "sources": ["another simulator"],
        }
        (folder / "bundle.yaml").write_text(yaml.safe_dump(meta, sort_keys=False), encoding="utf-8")
        declared = {"version": 1, "workloads": dict(workloads)}
        (folder / "workloads.yaml").write_text(yaml.safe_dump(declared, sort_keys=False), encoding="utf-8")
        return folder


def _summary(name: str, ordered: Floats, count: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
    """Return mean, nearest-rank median and 95th percentile, and maximum of sorted rows of which `count` are readings."""
    values = np.clip(ordered, 0.0, 1.0)
    row = np.arange(len(values))

    def rank(quantile: float) -> pa.Array:
        return pa.array(values[row, np.ceil(quantile * count).astype(np.int64) - 1])

    mean = pa.array(np.nansum(values, axis=1) / count)
    return {f"{name}_mean": mean, f"{name}_p50": rank(0.5), f"{name}_p95": rank(0.95), f"{name}_max": rank(1.0)}


def _schema(name: str) -> pa.Schema:
    """Return the columns that are written of a table; the bundle's documentation names their types."""
    text, real, whole = pa.string(), pa.float64(), pa.int64()
    columns: dict[str, dict[str, pa.DataType]] = {
        "nodes": {
            "node": text,
            "provider": text,
            "instance_type": text,
            "region": text,
            "zone": text,
            "capacity_type": text,
            "start": _UTC,
            "end": _UTC,
            "gpu": text,
            "gpu_count": whole,
        },
        "devices": {"device": text, "node": text, "gpu": text, "memory_gib": real},
        "allocations": {
            **dict.fromkeys(("workload", "namespace", "owner_kind", "team", "pod", "node", "device"), text),
            "gpus": real,
            "start": _UTC,
            "end": _UTC,
        },
        "jobs": {
            **dict.fromkeys(("job", "workload"), text),
            **dict.fromkeys(("submit", "start", "end"), _UTC),
            "gpus": real,
            "state": text,
            "node": text,
            **dict.fromkeys(("checkpoint_interval_s", "checkpoint_save_s", "checkpoint_restore_s"), real),
        },
    }
    return pa.schema(list(columns[name].items()))
