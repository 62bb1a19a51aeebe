"""A demonstration fleet with a long tail planted in it: each fault is told once, and its dollars are in the bill once."""

from datetime import timedelta

import pyarrow as pa
import pytest
from tests.diagnose.untidy_fleet import broken_usd, offence_usd

from trimtab.diagnose.broken import broken
from trimtab.diagnose.cluster_records import cluster_records
from trimtab.diagnose.findings import OffenceKind, WasteKind
from trimtab.diagnose.hygiene import offences
from trimtab.diagnose.long_tail import TAIL_COLUMNS, VOLUME_COLUMNS, TailKind, long_tail
from trimtab.diagnose.untidy import BilledWindow, broken_costs, untidy
from trimtab.diagnose.waste import waste_of
from trimtab.fleet.build import build_fleet
from trimtab.fleet.settings import Settings
from trimtab.fleet.starts import starts_of
from trimtab.ledger import allocate, bill
from trimtab.sources.demo import demo_fleet
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import BundleMeta, memory_bundle
from trimtab.tables.workloads import Workloads

RATE = 1_000_000
GPUS = 4
"""Of a node, which costs a dollar an hour: a pod of one GPU pays for a quarter of it."""
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def planted():
    """The fleet of four A100s, and beside it: an empty node on which a pod crashes and a stray stands, a pod that waits for a
    node, a run that waits in a queue, and two volumes of which no pod mounts one."""
    tables, declared, meta = demo_fleet("quad-a100")
    end, start = meta["end"], meta["start"]
    old = tables["nodes"].to_pylist(maps_as_pydicts="strict")
    nodes = [
        *old,
        {**old[0], "node": "spare-1", "start": start, "end": None},
        {**old[0], "node": "spare-2", "end": None},
    ]
    devices = tables["devices"].to_pylist()
    devices += [{**devices[0], "device": f"GPU-spare-{number}", "node": f"spare-{number}"} for number in (1, 2)]
    allocations = tables["allocations"].to_pylist()
    common = {"owner_kind": "Deployment", "team": "x", "node": "spare-1"}
    allocations += [
        {**common, "workload": "web/cache", "namespace": "web", "pod": "cache-0", "device": None, "gpus": 0.0,
         "start": start, "end": None},
        {**common, "workload": "prod/broken", "namespace": "prod", "pod": "broken-0", "device": "GPU-spare-1", "gpus": 1.0,
         "start": end - DAY, "end": None},
    ]  # fmt: skip
    pods = [
        {"pod": "broken-0", "namespace": "prod", "workload": "prod/broken", "owner_kind": "Deployment", "node": "spare-1",
         "phase": "Running", "gpus": 1.0, "created": end - DAY, "scheduled": end - DAY, "restarts": 280,
         "waiting": "CrashLoopBackOff", "last_exit": "Error (exit 1)", "last_ended": end - timedelta(minutes=3),
         "last_life_s": 4.0},
        {"pod": "new-0", "namespace": "prod", "workload": "prod/new", "owner_kind": "Deployment", "node": None,
         "phase": "Pending", "gpus": 8.0, "created": end - DAY, "unschedulable": "0/6 nodes: insufficient nvidia.com/gpu"},
    ]  # fmt: skip
    jobs = [
        {"job": "ml/ran", "workload": "ml/tune", "submit": start, "start": start, "end": start + DAY / 24, "gpus": 1.0,
         "state": "completed", "node": "spare-2", "queue": "q"},
        {"job": "ml/waits", "workload": "ml/tune", "submit": end - DAY / 2, "start": None, "end": None, "gpus": 1.0,
         "state": "queued", "queue": "q"},
    ]  # fmt: skip
    claims = [
        {
            "namespace": "prod",
            "name": name,
            "workload": mounts,
            "capacity_gib": 100.0,
            "phase": "Bound",
            "created": start,
        }
        for name, mounts in (("idle", None), ("used", "prod/image-caption"))
    ]
    rows = {
        "nodes": nodes,
        "devices": devices,
        "allocations": allocations,
        "pods": pods,
        "jobs": jobs,
        "volumes": claims,
    }
    made = {**tables, **{name: table_from_rows(name, items) for name, items in rows.items()}}
    return memory_bundle(made, BundleMeta.model_validate(meta), Workloads.model_validate(declared))


@pytest.fixture(scope="module")
def found(planted):
    settings = Settings()
    fleet = build_fleet(planted, settings)
    billed = bill(fleet.usage, dict.fromkeys(fleet.usage.pools, RATE))
    window = BilledWindow(fleet=fleet, allocation=allocate(billed, fleet.holdings))
    records = cluster_records(planted, (fleet,), fleet.window, settings)
    breakages = broken(records, settings.hygiene)
    told = untidy(breakages, offences(records, settings.hygiene), records, [window])
    waste = waste_of(fleet, window.allocation, settings.bands, {}, frozenset(), broken_costs(breakages, window))
    return fleet, told, {row.kind: row.micro_usd / RATE for row in waste}


def test_each_planted_fault_is_told_once(found):
    _, told, _ = found
    named = offence_usd(told)

    assert named[OffenceKind.PENDING, "prod/new"] == 0
    assert ("container in a crash loop", "prod/broken") in broken_usd(told)
    assert (OffenceKind.STRAY, "web/cache") in named
    assert named[OffenceKind.QUEUED, "q"] == pytest.approx(12 / GPUS)
    for subject in ("prod/new", "prod/broken", "web/cache", "q"):
        times = [key for key in (*named, *broken_usd(told)) if key[1] == subject]
        assert len(times) == 1, times


def test_a_stray_pod_costs_nothing_while_another_holds_its_node(found):
    fleet, told, _ = found

    assert offence_usd(told)[OffenceKind.STRAY, "web/cache"] == pytest.approx(fleet.window.hours - 24)
    assert broken_usd(told)["container in a crash loop", "prod/broken"] == pytest.approx(24 / GPUS, rel=0.02)


def test_what_the_faults_cost_is_in_the_waste_of_their_kind_and_no_more_than_it(found):
    _, told, waste = found
    claimed = dict.fromkeys(WasteKind, 0.0)
    for row in told.offences:
        if row.offence.counted_in is not None:
            claimed[row.offence.counted_in] += row.cost.micro_usd / RATE
    for row in told.broken:
        claimed[row.breakage.kind] += row.cost.micro_usd / RATE

    unheld = (WasteKind.HOURS_NOT_USED, WasteKind.UNALLOCATED_NODES, WasteKind.NON_GPU_PODS)
    assert sum(claimed[kind] for kind in unheld) <= sum(waste.get(kind, 0.0) for kind in unheld) + 1e-3
    for kind in set(WasteKind) - set(unheld):
        assert claimed[kind] <= waste.get(kind, 0.0) + 1e-3, kind


def test_the_volume_that_no_pod_mounts_is_told_beside_the_bill(planted, found):
    fleet, _, _ = found
    costs: pa.Table = planted.table("costs", TAIL_COLUMNS)

    rows = long_tail(
        costs, planted.table("volumes", VOLUME_COLUMNS), planted.table("pods", ["namespace"]), {}, fleet,
        starts_of(planted), {},
    )  # fmt: skip

    (row,) = [row for row in rows if row.kind is TailKind.IDLE_VOLUMES]
    assert row.evidence.startswith("1 claim of 100 GiB (idle), mounted by no pod when the cluster was read")
