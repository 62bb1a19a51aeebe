"""A whole audit of a generated fleet: diagnosis, plan, attribution, proof, robustness, as `trimtab audit` does them.

    python -m benchmarks.whole_audit [--workloads 500] [--days 30] [--quotas g5.xlarge=64] [--keep fleet500]

Services with a daily rhythm at a fixed peak size, queued training runs on held nodes, notebooks: hourly readings of every GPU,
demand by the quarter of an hour with latency histograms, runs. A process of its own generates the fleet and writes it as a
bundle, so that neither its time nor its memory counts; the audit reads the files, as users' audits do.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.fleet.settings import Limits, Settings
from trimtab.pipeline.auditing import PlanningInput, audited
from trimtab.tables.arrow import arrow_schema
from trimtab.tables.bundle import Bundle, BundleMeta, memory_bundle, read_bundle, table_file, write_bundle
from trimtab.tables.workloads import Workloads
from trimtab.units import HR_PER_DAY, S_PER_HR, usd

START = datetime(2026, 9, 7, tzinfo=UTC)
STEP_S = 900
KIB_PER_GIB = 1024 * 1024
SHAPES = {"g5.xlarge": ("A10G", 1, 22.5), "g5.12xlarge": ("A10G", 4, 22.5), "p4d.24xlarge": ("A100-SXM4-40GB", 8, 40.0)}
LE_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, float("inf"))
LARGE = ("gpu_usage", "demand")
Row = dict[str, object]


class _Fleet:
    """The fleet under construction, and the rows of its workload at hand."""

    def __init__(self, days: int, seed: int) -> None:
        self.hours = days * HR_PER_DAY
        self.rng = np.random.default_rng(seed)
        self.rows: dict[str, list[Row]] = {name: [] for name in ("devices", "nodes", "allocations", "jobs")}
        self.readings: dict[str, list[pa.Table]] = {name: [] for name in LARGE}

    def node(self, name: str, instance_type: str) -> list[str]:
        gpu, count, memory_gib = SHAPES[instance_type]
        self.rows["nodes"].append(
            {"node": name, "provider": "aws", "instance_type": instance_type, "region": "us-east-1",
             "capacity_type": "on-demand", "start": START, "gpu": gpu, "gpu_count": count}
        )  # fmt: skip
        devices = [f"{name}/{number}" for number in range(count)]
        self.rows["devices"] += [
            {"device": device, "node": name, "gpu": gpu, "memory_gib": memory_gib} for device in devices
        ]
        return devices

    def hold(
        self, workload: str, node: str, devices: list[str], kind: str, start: int = 0, end: int | None = None
    ) -> None:
        self.rows["allocations"] += [
            {"workload": workload, "namespace": workload.partition("/")[0], "owner_kind": kind,
             "team": workload.partition("/")[0], "pod": f"{workload}-{node}-{start}", "node": node, "device": device,
             "gpus": 1.0, "start": START + timedelta(hours=start),
             "end": None if end is None else START + timedelta(hours=end)}
            for device in devices
        ]  # fmt: skip

    def use(self, workload: str, device: str, hours: np.ndarray, level: np.ndarray) -> None:
        count = len(hours)
        columns = {
            "device": [device] * count,
            "workload": [workload] * count,
            "hour": [START + timedelta(hours=int(hour)) for hour in hours],
            "samples": [240] * count,
            "samples_expected": [240] * count,
            "sm_active_mean": level,
            "sm_active_max": np.minimum(level * 1.3, 1.0),
            "memory_used_gib_max": [6.0] * count,
            "basis": ["raw samples"] * count,
        }
        self.readings["gpu_usage"].append(_table("gpu_usage", columns, count))

    def service(self, number: int) -> None:
        name, replicas = f"team-{number % 20}/api-{number}", int(self.rng.integers(2, 7))
        steps = np.arange(self.hours * S_PER_HR // STEP_S)
        hour = steps * STEP_S / S_PER_HR
        shape = 0.55 + 0.35 * np.sin((hour - self.rng.integers(0, HR_PER_DAY)) / HR_PER_DAY * 2 * np.pi)
        load = np.clip(shape * self.rng.lognormal(0, 0.05, len(steps)), 0.02, 1.0) * 0.6
        per_replica = self.rng.uniform(1, 20)
        arrivals = self.rng.poisson(load * per_replica * replicas * STEP_S).astype(np.float64)
        slow = np.clip(load, 0, 0.95)
        within = 1 - np.exp(-np.array(LE_S[:-1])[None, :] / (0.15 / (1 - slow))[:, None])
        counts = np.diff(np.concatenate([np.zeros((len(steps), 1)), within, np.ones((len(steps), 1))], axis=1), axis=1)
        self.readings["demand"].append(
            _table(
                "demand",
                {
                    "workload": [name] * len(steps),
                    "start": [START + timedelta(seconds=int(step) * STEP_S) for step in steps],
                    "interval_s": np.full(len(steps), float(STEP_S)),
                    "arrivals": arrivals,
                    "replicas_ready": np.full(len(steps), float(replicas)),
                    "running_mean": load * replicas,
                    "latency_le_s": [list(LE_S)] * len(steps),
                    "latency_count": (counts * arrivals[:, None]).tolist(),
                },
                len(steps),
            )
        )
        level = load.reshape(self.hours, -1).mean(axis=1)
        for replica in range(replicas):
            (device,) = self.node(f"api-{number}-{replica}", "g5.xlarge")
            self.hold(name, f"api-{number}-{replica}", [device], "Deployment")
            self.use(name, device, np.arange(self.hours), level)

    def training(self, number: int) -> None:
        name, node = f"research-{number % 10}/train-{number}", f"train-{number}"
        devices = self.node(node, "p4d.24xlarge" if number % 4 == 0 else "g5.12xlarge")
        hour = int(self.rng.integers(0, HR_PER_DAY))
        while hour < self.hours - HR_PER_DAY:
            length = int(self.rng.integers(2, 16))
            self.rows["jobs"].append(
                {"job": f"{name}-{hour}", "workload": name, "submit": START + timedelta(hours=hour),
                 "start": START + timedelta(hours=hour), "end": START + timedelta(hours=hour + length),
                 "gpus": float(len(devices)), "state": "completed"}
            )  # fmt: skip
            self.hold(name, node, devices, "Job", hour, hour + length)
            for device in devices:
                self.use(name, device, np.arange(hour, hour + length), self.rng.uniform(0.5, 0.9, length))
            hour += length + int(self.rng.integers(1, 20))

    def notebook(self, number: int) -> None:
        name, node = f"lab-{number % 10}/notebook-{number}", f"notebook-{number}"
        (device,) = self.node(node, "g5.xlarge")
        self.hold(name, node, [device], "StatefulSet")
        hours = np.arange(self.hours)
        at_work = (hours % HR_PER_DAY >= 9) & (hours % HR_PER_DAY < 17)
        self.use(name, device, hours, np.where(at_work, self.rng.uniform(0.0, 0.4, self.hours), 0.0))

    def workload(self, number: int) -> dict[str, pa.Table]:
        """Make the next workload, and return its rows by table."""
        match number % 5:
            case 0 | 1:
                self.service(number)
            case 2 | 3:
                self.training(number)
            case _:
                self.notebook(number)
        tables = {name: pa.Table.from_pylist(
            [{column: row.get(column) for column in arrow_schema(name).names} for row in rows], schema=arrow_schema(name)
        ) for name, rows in self.rows.items()}  # fmt: skip
        tables |= {name: pa.concat_tables(pieces) for name, pieces in self.readings.items() if pieces}
        for pieces in (*self.rows.values(), *self.readings.values()):
            pieces.clear()
        return tables


def _table(name: str, columns: dict[str, object], rows: int) -> pa.Table:
    schema = arrow_schema(name)
    return pa.table(
        [
            pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(rows, field.type)
            for field in schema
        ],
        schema=schema,
    )


def _workloads(workloads: int, days: int, seed: int) -> Iterator[dict[str, pa.Table]]:
    """Yield the rows, by table, of two services to two training workloads to one notebook."""
    fleet = _Fleet(days, seed)
    yield from (fleet.workload(number) for number in range(workloads))


def _described(days: int) -> tuple[BundleMeta, Workloads]:
    """Return what `bundle.yaml` and `workloads.yaml` of a generated fleet say."""
    end = START + timedelta(days=days)
    declared = {"version": 1, "workloads": {f"research-{n}/*": {"interruptible": n % 2 == 0} for n in range(10)}}
    meta = BundleMeta(start=START, end=end, created_by="benchmark", sources=("generated",))
    return meta, Workloads.model_validate(declared)


def generated(workloads: int, days: int, seed: int = 0) -> Bundle:
    """Return a generated fleet in memory."""
    tables: dict[str, list[pa.Table]] = defaultdict(list)
    for rows in _workloads(workloads, days, seed):
        for name, table in rows.items():
            tables[name].append(table)
    return memory_bundle({name: pa.concat_tables(pieces) for name, pieces in tables.items()}, *_described(days))


def write_generated(workloads: int, days: int, folder: Path, seed: int = 0) -> None:
    """Write a generated fleet as a bundle; of its large tables it never holds more than one workload's rows."""
    write_bundle(folder, {}, *_described(days))
    small: dict[str, list[pa.Table]] = defaultdict(list)
    with ExitStack() as files:
        writers = {
            name: files.enter_context(
                pq.ParquetWriter(table_file(folder, name), arrow_schema(name), compression="zstd")
            )
            for name in LARGE
        }
        for rows in _workloads(workloads, days, seed):
            for name, table in rows.items():
                if name in writers:
                    writers[name].write_table(table)
                else:
                    small[name].append(table)
    for name, pieces in small.items():
        pq.write_table(pa.concat_tables(pieces), table_file(folder, name), compression="zstd")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="taken and not used: the fleet is generated")
    parser.add_argument("--workloads", type=int, default=500)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--quotas", default="", help="as the setting limits.quotas: g5.xlarge=64,g5.12xlarge=14")
    parser.add_argument("--keep", type=Path, help="write the fleet to this new folder and leave it there, for commands")
    asked = parser.parse_args()
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="whole-audit-"))
    generation = get_context("spawn").Process(target=write_generated, args=(asked.workloads, asked.days, folder))
    generation.start()
    generation.join()
    if generation.exitcode:
        raise SystemExit("the fleet could not be generated")
    stages: list[tuple[str, float]] = []

    def tell(stage: str, share: float) -> None:
        name = stage.partition(" of ")[0]
        if not stages or stages[-1][0] != name:
            stages.append((name, time.perf_counter()))
            print(f"{name} ...", flush=True)

    began, cpu = time.perf_counter(), time.process_time()
    settings = Settings(limits=Limits(quotas=asked.quotas))
    found, _ = audited(PlanningInput(bundle=read_bundle(folder), settings=settings, progress=tell))
    ended = time.perf_counter()
    if asked.keep is None:
        shutil.rmtree(folder)
    ends = [*(at for _, at in stages[1:]), ended]
    answer = {
        "benchmark": "whole_audit",
        "data": "generated",
        "workloads": asked.workloads,
        "days": asked.days,
        "quotas_usd_mo": {price.use.words: price.cost_usd_mo for price in found.plan.limits},
        "wall_s": round(ended - began, 1),
        "cpu_s": round(time.process_time() - cpu, 1),
        "rss_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB_PER_GIB, 2),
        "stages_s": {name: round(end - at, 1) for (name, at), end in zip(stages, ends, strict=True)},
        "actions": len(found.plan.actions),
        "gap_frac": round(found.plan.gap_frac, 5),
        "bill_usd": round(usd(found.bill_micro_usd), 2),
        "saving_frac": round(found.plan.joint_saving_micro_usd / found.bill_micro_usd, 4),
        "targets_kept": sum(result.kept for result in found.proof.targets),
        "targets": len(found.proof.targets),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
