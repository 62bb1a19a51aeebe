"""Fleets whose truth is not the replay's: each is audited from outside, its plan enacted in another simulator, claims compared.

Run: python -m benchmarks.proving [--fleets N] [--small] [--family NAME] [--seed S] [--referee]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.proving import referee
from benchmarks.proving.adversarial import ADVERSARIAL
from benchmarks.proving.families import DAYS, FAMILIES, SMALL_DAYS, Family
from benchmarks.proving.score import Verdict, judge, row_of, totals


def main() -> None:
    arguments = _parser().parse_args()
    if arguments.referee:
        referee.main(arguments.referee)
        return
    known = (*FAMILIES, *ADVERSARIAL)
    chosen = [family for family in known if not arguments.family or family.name in arguments.family]
    if not chosen:
        sys.exit(f"no such family; there are {', '.join(family.name for family in known)}")
    days = SMALL_DAYS if arguments.small else DAYS
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory() as folder:
        for family in chosen:
            base = Path(arguments.keep) if arguments.keep else Path(folder)
            verdicts += _family(family, range(arguments.seed, arguments.seed + arguments.fleets), days, base)
    _show(chosen, verdicts)
    frozen = [one for one in verdicts if one.frozen]
    print(
        json.dumps(
            {
                "benchmark": "proving",
                "days": days,
                "families": len(chosen),
                **totals(verdicts),
                "frozen": totals(frozen),
                "added_after": totals([one for one in verdicts if not one.frozen]),
            }
        )
    )


def _family(family: Family, seeds: Sequence[int], days: int, folder: Path) -> list[Verdict]:
    found = []
    for seed in seeds:
        began = time.perf_counter()
        verdict = judge(family, seed, days, folder / f"{family.name}-{seed}")
        found.append(verdict)
        print(f"{family.name} {seed}: {verdict.line()} ({time.perf_counter() - began:.0f} s)", flush=True)
    return found


def _show(families: Sequence[Family], verdicts: Sequence[Verdict]) -> None:
    print()
    head = (
        "family",
        "fleets",
        "claimed",
        "kept",
        "cost 5 %",
        "interval",
        "realised",
        "breaches",
        "refused",
        "crashed",
        "not played",
    )
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for family in families:
        mine = [one for one in verdicts if one.family == family.name]
        print("| " + " | ".join(row_of(family, mine)) + " |")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleets", type=int, default=1, metavar="N", help="fleets a family")
    parser.add_argument("--small", action="store_true", help=f"{SMALL_DAYS} days of history, for CI")
    parser.add_argument("--family", action="append", default=[], metavar="NAME", help="only this one; repeat for more")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first fleet of each family")
    parser.add_argument(
        "--referee",
        type=int,
        nargs="?",
        const=100,
        metavar="N",
        help="hold the world against the referee on N services (100)",
    )
    parser.add_argument("--keep", metavar="DIR", help="keep bundles, documents and manifests there")
    return parser


if __name__ == "__main__":
    main()
