"""Generated bills split by team against an oracle in exact fractions that shares no code with the split.

Each bill is a CSV as FOCUS has it, of a few nodes over some hours: idle GPUs, nodes shared by teams, MIG slices, commitments
used and unused, credits and corrections with and without a resource, tax, tagged storage, machines named by type alone,
machines that no telemetry knows, and charges in euros. The oracle goes charge by charge and minute by minute.

    python -m benchmarks.bill_splits [--bills 10000]
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

from trimtab.catalog.providers import nodes_by_resource
from trimtab.diagnose.bill_split import COLUMNS, ChargeBasis, CostSplit, charges_of, spent_of_bill
from trimtab.fleet.build import build_fleet
from trimtab.fleet.settings import Settings
from trimtab.sources.bills.focus import read_bills
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import BundleMeta, memory_bundle
from trimtab.units import HR_PER_DAY, S_PER_HR, usd

START = datetime(2026, 9, 1, tzinfo=UTC)
TEAMS = ("assist", "research", "search", "vision")
TYPE, REGION = "p4d.24xlarge", "us-east-1"
USD_PER_EUR = Fraction(108, 100)
IDLE, UNUSED = "unallocated", "unused commitment"
HALF_CENT = 0.005
SLOTS = (Fraction(1), Fraction(2), Fraction(1, 7), Fraction(3, 7))
"""GPUs that a pod holds: whole ones and MIG slices."""
CHARGE_FIELDS = (
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "BilledCost",
    "EffectiveCost",
    "BillingCurrency",
    "ChargeCategory",
    "ChargeClass",
    "CommitmentDiscountStatus",
    "ResourceId",
    "RegionId",
    "SkuPriceDetails",
    "Tags",
)


@dataclass(frozen=True, slots=True)
class Hold:
    """A team's GPUs on a node from one hour to another."""

    node: int
    team: str
    gpus: Fraction
    start_hr: int
    end_hr: int


@dataclass(frozen=True, slots=True)
class World:
    """A generated month in small."""

    hours: int
    gpus_of_node: tuple[int, ...]
    holds: tuple[Hold, ...]
    charges: tuple[Mapping[str, str], ...]


@dataclass(slots=True)
class _Charges:
    """Writes charges down as FOCUS rows."""

    draw: random.Random
    rows: list[Mapping[str, str]] = field(default_factory=list)

    def add(self, start_hr: int, hours: int, usd_text: str, **cells: str) -> None:
        at = START + timedelta(hours=start_hr)
        row = dict.fromkeys(CHARGE_FIELDS, "")
        row |= {"ChargePeriodStart": at.isoformat(), "ChargePeriodEnd": (at + timedelta(hours=hours)).isoformat()}
        row |= {"BilledCost": usd_text, "EffectiveCost": usd_text, "BillingCurrency": "USD", "ChargeCategory": "Usage"}
        self.rows.append({**row, **cells})

    def money(self, most: float) -> str:
        return f"{self.draw.uniform(0, most):.{self.draw.choice((2, 6, 9))}f}"


def world(seed: int) -> World:
    """Return a generated fleet and its bill."""
    draw = random.Random(seed)
    hours = draw.randint(HR_PER_DAY, HR_PER_DAY + 6)
    gpus = tuple(draw.choice((4, 8)) for _ in range(draw.randint(2, 5)))
    holds = tuple(hold for node, count in enumerate(gpus) for hold in _holds(draw, node, count, hours))
    bill = _Charges(draw=draw)
    for node in range(len(gpus)):
        _node_charges(bill, node, hours)
    _other_charges(bill, hours)
    return World(hours=hours, gpus_of_node=gpus, holds=holds, charges=tuple(bill.rows))


def _holds(draw: random.Random, node: int, gpus: int, hours: int) -> Iterator[Hold]:
    free = Fraction(gpus)
    for _ in range(draw.randint(0, 5)):
        slot = draw.choice(SLOTS)
        if slot <= free:
            free -= slot
            start = draw.randrange(hours)
            yield Hold(node, draw.choice(TEAMS), slot, start, draw.randint(start + 1, hours))


def _node_charges(bill: _Charges, node: int, hours: int) -> None:
    draw, resource = bill.draw, f"arn:aws:ec2:{REGION}:1:instance/node-{node}"
    first = draw.randrange(hours)
    for hour in range(first, min(hours, first + 4)):
        covered = draw.random() < 0.3
        cells = {"ResourceId": resource, "CommitmentDiscountStatus": "Used" if covered else ""}
        cells |= {"BilledCost": "0"} if covered else {}
        currency = "EUR" if draw.random() < 0.1 else "USD"
        bill.add(hour, 1, bill.money(40), BillingCurrency=currency, **cells)
    if draw.random() < 0.5:
        bill.add(0, hours, bill.money(300), ResourceId=resource)
    if draw.random() < 0.3:
        bill.add(0, hours, f"-{bill.money(20)}", ResourceId=resource, ChargeCategory="Credit")
    if draw.random() < 0.3:
        bill.add(0, hours, f"-{bill.money(9)}", ResourceId=resource, ChargeClass="Correction")


def _other_charges(bill: _Charges, hours: int) -> None:
    draw = bill.draw
    details = json.dumps({"InstanceType": TYPE})
    bill.add(0, hours, bill.money(90), SkuPriceDetails=details, RegionId=REGION)
    bill.add(0, hours, bill.money(90), SkuPriceDetails=json.dumps({"InstanceType": "g5.xlarge"}), RegionId=REGION)
    bill.add(0, hours, bill.money(30), CommitmentDiscountStatus="Unused")
    bill.add(0, hours, bill.money(50), ChargeCategory="Tax")
    bill.add(0, hours, f"-{bill.money(50)}", ChargeCategory="Credit")
    bill.add(
        0, hours, bill.money(20), Tags=json.dumps({"user:Team": draw.choice((*TEAMS, "data"))}), ResourceId="vol-1"
    )
    bill.add(0, hours, bill.money(20), ResourceId="vol-2")
    bill.add(0, hours, bill.money(500), ChargeCategory="Purchase", EffectiveCost="0")


def oracle(made: World, *, effective: bool) -> dict[str, Fraction]:
    """Return what each name pays, in dollars, exactly."""
    found: dict[str, Fraction] = defaultdict(Fraction)
    for row in made.charges:
        cost = Fraction(row["EffectiveCost" if effective else "BilledCost"])
        cost *= USD_PER_EUR if row["BillingCurrency"] == "EUR" else 1
        for name, share in _shares(made, row).items():
            found[name] += cost * share
    return found


def _shares(made: World, row: Mapping[str, str]) -> dict[str, Fraction]:
    resource = row["ResourceId"]
    if row["CommitmentDiscountStatus"] == "Unused":
        return {UNUSED: Fraction(1)}
    if "/node-" in resource:
        return _held(made, [int(resource.rpartition("-")[2])], row)
    if row["Tags"]:
        return {next(iter(json.loads(row["Tags"]).values())): Fraction(1)}
    if TYPE in row["SkuPriceDetails"]:
        return _held(made, list(range(len(made.gpus_of_node))), row)
    if row["SkuPriceDetails"]:
        return {"shared (machines without telemetry)": Fraction(1)}
    names = {"Tax": "shared (tax)", "Credit": "shared (credits)", "Purchase": "shared (purchases)"}
    return {names.get(row["ChargeCategory"], "shared (untagged)"): Fraction(1)}


def _held(made: World, nodes: list[int], row: Mapping[str, str]) -> dict[str, Fraction]:
    """Return the shares of node time that teams held in the charge period; what is left is idle."""
    start, end = (
        int((datetime.fromisoformat(row[name]) - START).total_seconds()) // S_PER_HR
        for name in ("ChargePeriodStart", "ChargePeriodEnd")
    )
    whole = Fraction(len(nodes) * (end - start))
    found: dict[str, Fraction] = defaultdict(Fraction)
    for hold in made.holds:
        if hold.node in nodes:
            hours = max(0, min(end, hold.end_hr) - max(start, hold.start_hr))
            found[hold.team] += hold.gpus * hours / made.gpus_of_node[hold.node] / whole
    found[IDLE] = 1 - sum(found.values(), Fraction(0))
    return found


def ours(made: World, folder: Path, basis: ChargeBasis) -> dict[str, int]:
    """Return what each name pays in micro-dollars, read from the CSV and split by trimtab."""
    path = folder / "bill.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, CHARGE_FIELDS)
        writer.writeheader()
        writer.writerows(made.charges)
    nodes = [_node_row(node, gpus) for node, gpus in enumerate(made.gpus_of_node)]
    holds = [_hold_row(number, hold) for number, hold in enumerate(made.holds)]
    tables = {"nodes": nodes, "allocations": holds, "devices": [], "gpu_usage": []}
    meta = BundleMeta(start=START, end=START + timedelta(hours=made.hours))
    bundle = memory_bundle({name: table_from_rows(name, rows) for name, rows in tables.items()}, meta)
    costs = read_bills([path]).table.select(COLUMNS)
    spent = spent_of_bill(
        charges_of(costs, basis, {"EUR": float(USD_PER_EUR)}),
        build_fleet(bundle, Settings()),
        nodes_by_resource(bundle.table("nodes", ["node", "labels"])),
        CostSplit.parse("team"),
    )
    return {name: int(days.sum()) for name, days in (*spent.held.items(), *spent.unheld.items())}


def _node_row(node: int, gpus: int) -> dict[str, object]:
    row = {"node": f"node-{node}", "provider": "aws", "instance_type": TYPE, "region": REGION, "start": START}
    return {**row, "capacity_type": "on-demand", "gpu": "A100-40GB", "gpu_count": gpus}


def _hold_row(number: int, hold: Hold) -> dict[str, object]:
    row = {"workload": f"{hold.team}/w", "team": hold.team, "pod": f"p{number}", "node": f"node-{hold.node}"}
    times = {"start": START + timedelta(hours=hold.start_hr), "end": START + timedelta(hours=hold.end_hr)}
    return {**row, **times, "gpus": float(hold.gpus)}


def main() -> None:
    """Split every bill both ways and print the largest errors as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bills", type=int, default=10_000)
    bills = parser.parse_args().bills
    began, worst, worst_total, wrong, names = time.perf_counter(), 0.0, 0.0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(bills):
            made, basis = world(seed), ChargeBasis.EFFECTIVE if seed % 2 else ChargeBasis.BILLED
            right, got = oracle(made, effective=basis is ChargeBasis.EFFECTIVE), ours(made, Path(folder), basis)
            errors = [abs(usd(got.get(name, 0)) - float(right.get(name, 0))) for name in {*right, *got}]
            worst = max(worst, *errors)
            wrong += sum(error >= HALF_CENT for error in errors)
            names += len(errors)
            worst_total = max(worst_total, abs(usd(sum(got.values())) - float(sum(right.values()))))
    print(f"{bills} bills, {names} payers: largest error of a payer ${worst:.9f}, of a whole bill ${worst_total:.9f}")
    answer = {
        "benchmark": "bill_splits",
        "bills": bills,
        "payers": names,
        "payers_wrong_by_half_a_cent": wrong,
        "max_payer_error_usd": worst,
        "max_total_error_usd": worst_total,
        "seconds": round(time.perf_counter() - began, 1),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
