"""A cause planted between two weeks: is it named, with the right amount, and do messages keep within the limits of chats?

Each fleet has services that hold GPUs over two weeks. One of them is changed on the second Monday: it holds other GPUs, moves
to other nodes, gets another rate, begins or ends; the amount is known from rates and hours alone. Others hold a few hours more
or less in the second week, which is no error. Then fleets of up to 1,000 teams are written as messages.

Run: python -m benchmarks.digest [--seeds N]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from time import perf_counter

from trimtab.catalog import load_catalog
from trimtab.diagnose.weeks import ChangeCause
from trimtab.emit.digest_document import DigestSources, digest_part
from trimtab.emit.sections.digest import digest_page
from trimtab.emit.writers import slack, teams
from trimtab.pipeline.spending import SpendingTerms, WeekOfFleet, week
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import Bundle, BundleMeta, memory_bundle
from trimtab.units import HR_PER_WEEK, usd

START = datetime(2026, 9, 7, tzinfo=UTC)
"""A Monday."""
LARGE, SMALL = "g5.12xlarge", "g5.xlarge"
RATES_USD_HR = {LARGE: 4.0, SMALL: 1.5}
_GPUS = {LARGE: 4, SMALL: 1}
_HOURS = 2 * HR_PER_WEEK
_TERMS = SpendingTerms(usd_per={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A GPU that a workload held for some hours."""

    workload: str
    node: str
    device: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """What was changed of which workload, and what that adds to the second week."""

    workload: str
    cause: ChangeCause
    usd: float
    rate_factor: float = 1.0


def plant(seed: int) -> tuple[list[tuple[str, str]], list[Held], Planted]:
    """Return nodes (name, type), who held what, and the change."""
    rng = Random(seed)
    cause = (ChangeCause.GPU_HOURS, ChangeCause.NODES, ChangeCause.PRICE, ChangeCause.NEW, ChangeCause.GONE)[seed % 5]
    nodes = [(f"large-{at}", LARGE) for at in range(rng.randint(2, 5))]
    held = []
    for at, (name, _) in enumerate(nodes[1:]):
        hours = _HOURS - rng.randint(0, 20)
        held += [Held(workload=f"lab/other-{at}", node=name, device=0, start=0, end=hours)]
    mine, first = "web/planted", nodes[0][0]
    per_gpu = RATES_USD_HR[LARGE] / _GPUS[LARGE]
    gpus = rng.randint(1, 3)
    whole = [Held(workload=mine, node=first, device=at, start=0, end=_HOURS) for at in range(gpus)]
    begun = [Held(workload=mine, node=first, device=at, start=HR_PER_WEEK, end=_HOURS) for at in range(gpus)]
    ended = [Held(workload=mine, node=first, device=at, start=0, end=HR_PER_WEEK) for at in range(gpus)]
    match cause:
        case ChangeCause.GPU_HOURS:
            hours = rng.randint(20, HR_PER_WEEK)
            held += [*whole, Held(workload=mine, node=first, device=3, start=HR_PER_WEEK, end=HR_PER_WEEK + hours)]
            amount = hours * per_gpu
        case ChangeCause.NODES:
            nodes += [(f"small-{at}", SMALL) for at in range(gpus)]
            moved = [
                Held(workload=mine, node=f"small-{at}", device=0, start=HR_PER_WEEK, end=_HOURS) for at in range(gpus)
            ]
            held += [*ended, *moved]
            amount = gpus * HR_PER_WEEK * (RATES_USD_HR[SMALL] - per_gpu)
        case ChangeCause.PRICE:
            held += whole
            factor = rng.choice([0.8, 1.1, 1.5])
            amount = gpus * HR_PER_WEEK * per_gpu * (factor - 1)
            return nodes, held, Planted(workload=mine, cause=cause, usd=amount, rate_factor=factor)
        case ChangeCause.NEW:
            held += begun
            amount = gpus * HR_PER_WEEK * per_gpu
        case _:
            held += ended
            amount = -gpus * HR_PER_WEEK * per_gpu
    return nodes, held, Planted(workload=mine, cause=cause, usd=amount)


def bundle_of(nodes: Sequence[tuple[str, str]], held: Sequence[Held], teams_of: int = 3) -> Bundle:
    """Return the history as tables."""
    rows = {
        "nodes": [
            {"node": name, "provider": "aws", "instance_type": kind, "region": "us-east-1", "capacity_type": "on-demand",
             "start": START, "gpu": "A10G", "gpu_count": _GPUS[kind]}
            for name, kind in nodes
        ],
        "devices": [
            {"device": f"{name}/{at}", "node": name, "gpu": "A10G", "memory_gib": 22.5}
            for name, kind in nodes
            for at in range(_GPUS[kind])
        ],
        "allocations": [
            {"workload": part.workload, "namespace": part.workload.partition("/")[0], "pod": f"p{number}",
             "team": f"team-{number % teams_of}" if part.workload != "web/planted" else "web", "node": part.node,
             "device": f"{part.node}/{part.device}", "gpus": 1.0, "start": START + timedelta(hours=part.start),
             "end": START + timedelta(hours=part.end)}
            for number, part in enumerate(held)
        ],
        "gpu_usage": [],
    }  # fmt: skip
    meta = BundleMeta(start=START, end=START + timedelta(hours=_HOURS), sources=("a benchmark",))
    return memory_bundle({name: table_from_rows(name, listed) for name, listed in rows.items()}, meta)


def weeks_of(bundle: Bundle, rate_factor: float) -> WeekOfFleet:
    """Return the second week at own rates, of which the large node's changes with it."""
    monday = (START + timedelta(hours=HR_PER_WEEK)).date()
    lines = ["provider,instance_type,region,option,usd_hr,as_of,note"]
    for kind, rate in RATES_USD_HR.items():
        lines.append(f"aws,{kind},us-east-1,on-demand,{rate},{START.date()},")
    lines.append(f"aws,{LARGE},us-east-1,on-demand,{RATES_USD_HR[LARGE] * rate_factor:.6f},{monday},")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rates.csv"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return week(bundle, _TERMS, None, load_catalog(file))


def scores(seeds: int) -> Iterator[tuple[bool, float, bool]]:
    """Yield for each fleet whether the planted cause is the largest of its workload, the error of its amount, and the sums."""
    for seed in range(seeds):
        nodes, held, planted = plant(seed)
        spend = weeks_of(bundle_of(nodes, held), planted.rate_factor).spend
        (row,) = [row for row in spend.rows if row.name == planted.workload]
        causes = {cause: usd(micro) for cause, micro in row.causes.items()}
        first = max(causes, key=lambda cause: abs(causes[cause]))
        exact = all(
            row.former is None or sum(row.causes.values()) == row.now.micro_usd - row.former.micro_usd
            for row in spend.rows
        )
        yield first is planted.cause, abs(causes.get(planted.cause, 0.0) - planted.usd) / abs(planted.usd), exact


def messages(team_count: int) -> dict[str, object]:
    """Return how long the messages of a fleet of so many teams are, and how long they took."""
    nodes = [(f"small-{at}", SMALL) for at in range(team_count)]
    name = "a-namespace-with-a-long-name/" + "w" * 60
    held = [
        Held(workload=f"{name}-{at}", node=f"small-{at}", device=0, start=at % 99, end=_HOURS)
        for at in range(team_count)
    ]
    found = weeks_of(bundle_of(nodes, held, team_count), 1.0)
    started = perf_counter()
    page = digest_page(digest_part(found.spend, None, DigestSources(fleet="fleet/", basis=found.basis)), "0")
    to_slack, to_teams = slack.write_page(page), teams.write_page(page)
    return {
        "teams": team_count,
        "slack_fits": slack.fits_slack(json.loads(to_slack)["blocks"]),
        "teams_bytes": teams.message_bytes(json.loads(to_teams)),
        "write_s": round(perf_counter() - started, 2),
    }


def main() -> None:
    """Measure, and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    arguments = parser.parse_args()
    found = list(scores(arguments.seeds))
    print(
        json.dumps(
            {
                "fleets": len(found),
                "planted_cause_named_frac": sum(named for named, _, _ in found) / len(found),
                "worst_amount_error_frac": max(error for _, error, _ in found),
                "sums_exact": all(exact for _, _, exact in found),
                "messages": [messages(count) for count in (10, 100, 1000)],
            }
        )
    )


if __name__ == "__main__":
    main()
