"""Generated clusters with planted offenders and lookalikes: who is named, at which dollars, and who is accused in vain.

    python -m benchmarks.hygiene --clusters 300

The truth is that of `benchmarks.untidy_clusters`, counted minute by minute. Rules were written and their settings chosen on the
seeds below 2000; reported are those from 2000 on.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field

import click

from benchmarks.untidy_clusters import drawn_cluster
from trimtab.diagnose.broken import broken
from trimtab.diagnose.cluster_records import cluster_records
from trimtab.diagnose.findings import OffenceKind
from trimtab.diagnose.hygiene import offences
from trimtab.diagnose.untidy import BilledWindow, Untidy, untidy
from trimtab.fleet.settings import Settings
from trimtab.pipeline.opening import priced_history
from trimtab.tables.bundle import Bundle
from trimtab.units import usd

WITHIN_FRAC = 0.05
WITHIN_USD = 1.0
"""What costs less is not told apart from nothing."""
FIRST_SEED = 2000
_BROKEN = {
    "runs that failed": "failed",
    "runs that met their time limit": "timeout",
    "runs lost with their node": "node_fail",
    "runs that were preempted": "preempted",
    "container in a crash loop": "crash loop",
    "thermal throttling": "throttle",
    "cordoned": "cordoned",
}
_OFFENCES = {
    OffenceKind.STRAY: "stray",
    OffenceKind.NO_TAINT: "no taint",
    OffenceKind.PENDING: "pending",
    OffenceKind.QUEUED: "queued",
    OffenceKind.STUCK: "stuck",
    OffenceKind.UNUSED: "unused",
    OffenceKind.NOTEBOOK: "notebook",
    OffenceKind.OVER_ASKED: "over-asked",
    OffenceKind.SCATTERED: "scattered",
}
Named = dict[tuple[str, str], float]


@dataclass(slots=True)
class Score:
    """Counts over clusters."""

    planted: int = 0
    named: int = 0
    within: int = 0
    false_alarms: int = 0
    lookalikes: int = 0
    missed: list[str] = field(default_factory=list)
    off: list[str] = field(default_factory=list)
    accused: list[str] = field(default_factory=list)
    errors: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


def untidy_in(bundle: Bundle) -> Untidy:
    """Return what the audit would say of a bundle's whole history."""
    settings = Settings()
    fleet, allocation = priced_history(bundle, settings)
    window = BilledWindow(fleet=fleet, allocation=allocation)
    records = cluster_records(bundle, (fleet,), fleet.window, settings)
    return untidy(broken(records, settings.hygiene), offences(records, settings.hygiene), records, [window])


def named_in(found: Untidy) -> Named:
    """Return who is named for what, with dollars, in the words of the truth."""
    named: Named = {}
    for broke in found.broken:
        what = _BROKEN.get(broke.breakage.what, "xid" if broke.breakage.what.startswith("XID") else broke.breakage.what)
        key = (what, broke.breakage.subject)
        named[key] = named.get(key, 0.0) + usd(broke.cost.micro_usd)
    for row in found.offences:
        named[_OFFENCES[row.offence.kind], row.offence.subject] = usd(row.cost.micro_usd)
    return named


def judge(score: Score, seed: int) -> None:
    """Hold one cluster against its truth."""
    cluster = drawn_cluster(seed)
    named = named_in(untidy_in(cluster.bundle()))
    score.lookalikes += cluster.lookalikes
    for key, true_usd in cluster.truth.items():
        score.planted += 1
        if key not in named:
            score.missed.append(f"{seed}: {key}")
            continue
        score.named += 1
        off_usd = abs(named[key] - true_usd)
        score.errors[key[0]].append(off_usd / true_usd if true_usd else off_usd)
        if off_usd <= max(WITHIN_FRAC * true_usd, WITHIN_USD):
            score.within += 1
        else:
            score.off.append(f"{seed}: {key} true {true_usd:.2f} said {named[key]:.2f}")
    accused = [key for key in named if key not in cluster.truth]
    score.false_alarms += len(accused)
    score.accused += [f"{seed}: {key} {named[key]:.2f}" for key in accused]


@click.command()
@click.option("--clusters", default=40, show_default=True, help="How many clusters.")
@click.option("--first", default=FIRST_SEED, show_default=True, help="The first seed.")
def main(clusters: int, first: int) -> None:
    """Print one line for each fault, then a line for each kind, then one JSON line."""
    score = Score()
    for seed in range(first, first + clusters):
        judge(score, seed)
    for line in (*(f"missed {it}" for it in score.missed), *(f"off {it}" for it in score.off), *score.accused):
        print(line)
    for what, errors in sorted(score.errors.items()):
        print(f"{what:12} {len(errors):5} named, error mean {sum(errors) / len(errors):.4f}, worst {max(errors):.4f}")
    print(
        json.dumps(
            {
                "clusters": clusters,
                "planted": score.planted,
                "named": score.named,
                "within_5_percent": score.within,
                "lookalikes": score.lookalikes,
                "false_alarms": score.false_alarms,
            }
        )
    )


if __name__ == "__main__":
    main()
