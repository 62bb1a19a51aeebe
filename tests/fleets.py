"""Small fleets by hand: rows of a bundle's tables, a bundle of them, and a catalog of few machines to plan them on."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache

import pyarrow as pa

from trimtab.catalog import load_catalog
from trimtab.catalog.prices import PriceBook
from trimtab.catalog.registry import Catalog
from trimtab.tables.arrow import arrow_schema, table_from_rows
from trimtab.tables.bundle import BundleMeta, memory_bundle
from trimtab.tables.schemas import TABLES
from trimtab.tables.workloads import Workloads

MONDAY = datetime(2026, 9, 7, tzinfo=UTC)
SHAPES = {
    "p4d.24xlarge": ("A100-SXM4-40GB", 8, 40.0),
    "p5.48xlarge": ("H100-SXM5-80GB", 8, 80.0),
    "p3.8xlarge": ("V100-SXM2-16GB", 4, 16.0),
    "g5.xlarge": ("A10G", 1, 22.5),
    "g5.12xlarge": ("A10G", 4, 22.5),
}

FEW_MACHINES = frozenset(SHAPES) | {"p5.4xlarge", "g4dn.xlarge", "g6.xlarge", "g7e.2xlarge"}


@cache
def few_machines(*more):
    """Return the packaged catalog with a few of the machines of one provider, of every size and generation of GPU, and `more`.

    A service is replayed on each machine that could hold it, so an audit takes a third of the time that it takes on all.
    """
    whole = load_catalog()
    instances = {
        (provider, name): instance_type
        for (provider, name), instance_type in whole.instance_table.items()
        if provider == "aws" and name in FEW_MACHINES.union(more)
    }
    prices = tuple(price for price in whole.prices.prices if (price.provider, price.instance_type) in instances)
    return Catalog(whole.gpu_table, whole.mig_table, instances, PriceBook(prices, instances))


def at(hours):
    return MONDAY + timedelta(hours=hours)


def _table(rows, schema):
    return pa.Table.from_pylist([{column: row.get(column) for column in schema.names} for row in rows], schema=schema)


def with_starts(bundle, *pods):
    """The same with pods of prod/api that tell how long their starts took: all of it, its pulls, its load (else 30 s)."""
    begin = bundle.start + timedelta(days=1)
    told = [
        {
            "pod": f"api-{number}", "namespace": "prod", "workload": "prod/api", "node": f"n{number}", "phase": "Running",
            "gpus": 1.0, "created": begin, "scheduled": begin, "started": begin + timedelta(seconds=took_s - (load or [30])[0]),
            "ready": begin + timedelta(seconds=took_s), "pull_s": pull_s,
        }
        for number, (took_s, pull_s, *load) in enumerate(pods)
    ]  # fmt: skip
    return replace(bundle, tables={**bundle.tables, "pods": table_from_rows("pods", told)})


class FleetRows:
    """Collects rows; every method takes hours from the window's start."""

    def __init__(self, days):
        self.days = days
        self.rows = {name: [] for name in TABLES}
        self.workloads = {}
        self.notes = ()

    def node(self, name, instance_type, start=0, end=None, capacity_type="on-demand", region="us-east-1"):
        gpu, count, memory_gib = SHAPES[instance_type]
        self.rows["nodes"].append(
            {
                "node": name,
                "provider": "aws",
                "instance_type": instance_type,
                "region": region,
                "capacity_type": capacity_type,
                "start": at(start),
                "end": None if end is None else at(end),
                "gpu": gpu,
                "gpu_count": count,
            }
        )
        for device in range(count):
            self.rows["devices"].append(
                {"device": f"{name}/{device}", "node": name, "gpu": gpu, "memory_gib": memory_gib}
            )
        return self

    def hold(self, workload, node, devices, start=0, end=None, pod=None, owner_kind=None, team=None):
        for device in devices:
            self.rows["allocations"].append(
                {
                    "workload": workload,
                    "namespace": workload.partition("/")[0],
                    "owner_kind": owner_kind,
                    "team": team,
                    "pod": pod or f"{workload}-{node}",
                    "node": node,
                    "device": f"{node}/{device}",
                    "gpus": 1.0,
                    "start": at(start),
                    "end": None if end is None else at(end),
                }
            )
        return self

    def use(self, workload, node, device, hours, sm=None, util=None, memory_gib=4.0, tensor=None, dram=None):
        for hour in hours:
            level = sm(hour) if callable(sm) else sm
            self.rows["gpu_usage"].append(
                {
                    "device": f"{node}/{device}",
                    "workload": workload,
                    "hour": at(hour),
                    "samples": 240,
                    "samples_expected": 240,
                    "sm_active_mean": level,
                    "sm_active_max": level,
                    "gpu_util_mean": util,
                    "gpu_util_max": util,
                    "tensor_active_mean": tensor,
                    "dram_active_mean": dram,
                    "memory_used_gib_max": memory_gib,
                    "basis": "raw samples",
                }
            )
        return self

    def job(self, workload, submit, start, end, gpus, name=None, state="completed"):
        self.rows["jobs"].append(
            {
                "job": name or f"{workload}-{submit}",
                "workload": workload,
                "submit": at(submit),
                "start": None if start is None else at(start),
                "end": None if end is None else at(end),
                "gpus": float(gpus),
                "state": state,
            }
        )
        return self

    def demand(
        self,
        workload,
        requests_of_hour,
        replicas,
        le_s=(),
        counts=None,
        running=None,
        first_tokens=None,
        per_token=None,
    ):
        """One row per hour; `counts(hour)` gives requests per latency bucket, `first_tokens(hour)` those by first token.

        `per_token(hour)` gives those by time per token.
        """
        for hour in range(self.days * 24):
            self.rows["demand"].append(
                {
                    "workload": workload,
                    "start": at(hour),
                    "interval_s": 3600.0,
                    "arrivals": float(requests_of_hour(hour)),
                    "replicas_ready": float(replicas),
                    "running_mean": None if running is None else float(running(hour)),
                    "latency_le_s": None if counts is None else list(le_s),
                    "latency_count": None if counts is None else [float(n) for n in counts(hour)],
                    "ttft_le_s": None if first_tokens is None else list(le_s),
                    "ttft_count": None if first_tokens is None else [float(n) for n in first_tokens(hour)],
                    "tpot_le_s": None if per_token is None else list(le_s),
                    "tpot_count": None if per_token is None else [float(n) for n in per_token(hour)],
                }
            )
        return self

    def bundle(self):
        tables = {
            name: _table(rows, arrow_schema(name))
            for name, rows in self.rows.items()
            if rows or name in ("devices", "nodes", "allocations", "gpu_usage")
        }
        meta = BundleMeta(start=MONDAY, end=at(self.days * 24), created_by="test", sources=("a test",))
        return memory_bundle(tables, meta, Workloads.model_validate({"version": 1, "workloads": self.workloads}))
