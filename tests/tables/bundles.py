"""Small hand-made tables for tests of the bundle."""

from datetime import UTC, datetime, timedelta

from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import BundleMeta

START = datetime(2026, 9, 1, tzinfo=UTC)
END = START + timedelta(days=2)
META = BundleMeta(start=START, end=END, sources=("a test",), counts={"clamped": 3})
HOUR = timedelta(hours=1)


def device(name="GPU-0", **changes):
    return {"device": name, "node": "n0", "gpu": "A100-40GB", "memory_gib": 39.6, **changes}


def node(name="n0", **changes):
    row = {
        "node": name,
        "provider": "aws",
        "instance_type": "p4d.24xlarge",
        "region": "us-east-1",
        "capacity_type": "on-demand",
        "start": START,
        "gpu_count": 8,
        "labels": {"team": "ml"},
    }
    return {**row, **changes}


def allocation(**changes):
    row = {"workload": "prod/chat", "pod": "chat-1", "node": "n0", "device": "GPU-0", "gpus": 1.0, "start": START}
    return {**row, **changes}


def usage(hour=0, **changes):
    row = {
        "device": "GPU-0",
        "workload": "prod/chat",
        "hour": START + hour * HOUR,
        "samples": 12,
        "samples_expected": 12,
        "sm_active_mean": 0.4,
        "activity_histogram": [0] * 40 + [12] + [0] * 60,
        "basis": "raw samples",
    }
    return {**row, **changes}


def tables(**rows):
    """The four required tables; name one to give its rows."""
    given = {"devices": [device()], "nodes": [node()], "allocations": [allocation()], "gpu_usage": [usage()], **rows}
    return {name: table_from_rows(name, listed) for name, listed in given.items()}
