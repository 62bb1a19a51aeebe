"""What is broken and untidy in fleets by hand, priced at one dollar for a node-hour."""

from tests.fleets import at

from trimtab.diagnose.broken import broken
from trimtab.diagnose.cluster_records import cluster_records
from trimtab.diagnose.hygiene import offences
from trimtab.diagnose.untidy import BilledWindow, broken_costs, untidy
from trimtab.diagnose.waste import waste_of
from trimtab.fleet.build import build_fleet
from trimtab.fleet.settings import Settings
from trimtab.ledger import allocate, bill

SETTINGS = Settings()
RATE = 1_000_000


def stray(rows, workload, node, start=0, end=None, owner_kind="Deployment"):
    rows.rows["allocations"].append(
        {
            "workload": workload, "namespace": workload.partition("/")[0], "owner_kind": owner_kind,
            "pod": f"{workload}-{node}", "node": node, "gpus": 0.0, "start": at(start),
            "end": None if end is None else at(end),
        }
    )  # fmt: skip
    return rows


def pod(rows, workload, name, node=None, gpus=1.0, created=0, **more):
    told = {
        "pod": name, "namespace": workload.partition("/")[0], "workload": workload, "owner_kind": "Deployment",
        "node": node, "phase": "Running" if node else "Pending", "gpus": gpus, "created": at(created),
        "scheduled": at(created) if node else None,
    }  # fmt: skip
    rows.rows["pods"].append(told | more)
    return rows


def fault(rows, node, kind, start, end=None, device=None, **more):
    told = {"node": node, "device": device, "fault": kind, "start": at(start), "end": None if end is None else at(end)}
    rows.rows["faults"].append(told | more)
    return rows


def found_in(rows, settings=SETTINGS):
    """Return what is untidy over the whole history, and the waste of its bill by kind, in dollars."""
    bundle = rows.bundle()
    fleet = build_fleet(bundle, settings)
    billed = bill(fleet.usage, dict.fromkeys(fleet.usage.pools, RATE))
    window = BilledWindow(fleet=fleet, allocation=allocate(billed, fleet.holdings))
    records = cluster_records(bundle, (fleet,), fleet.window, settings)
    breakages = broken(records, settings.hygiene)
    found = untidy(breakages, offences(records, settings.hygiene), records, [window])
    waste = waste_of(fleet, window.allocation, settings.bands, {}, frozenset(), broken_costs(breakages, window))
    assert sum(row.micro_usd for row in waste) == billed.total
    return found, {row.kind: row.micro_usd / RATE for row in waste}


def broken_usd(found):
    return {(row.breakage.what, row.breakage.subject): row.cost.micro_usd / RATE for row in found.broken}


def offence_usd(found):
    return {(row.offence.kind, row.offence.subject): row.cost.micro_usd / RATE for row in found.offences}
