"""Fleets whose truth is not the replay's: each is audited from outside, its plan enacted in another simulator, claims compared.

Run: python -m benchmarks.proving [--fleets N] [--family NAME] [--seed S] [--jobs N] [--out FILE] [--small]
     python -m benchmarks.proving --merge FILE [--merge FILE ...]
     python -m benchmarks.proving --referee [N]

Exit status: 0; with --small or --strict 1 at a broken target, a breach or a crash; 2 on usage.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.proving import referee
from benchmarks.proving.parts import DAYS, SMALL_DAYS
from benchmarks.proving.runner import Asked, families, judged
from benchmarks.proving.score import HEAD, Verdict, row_of, totals

SMALL = ("cpu-bound", "multi-pod-runs", "mixed-widths", "small-runs", "idle-nodes", "price-cut", "metrics-missing")
"""Families of the small form: services and runs, laws, widths, prices and gaps, each a minute at most."""
USAGE = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    options = _parser().parse_args(arguments)
    if options.referee:
        referee.main(options.referee)
        return
    days = SMALL_DAYS if options.small else DAYS
    if options.merge:
        verdicts = list(_read(options.merge))
    else:
        with tempfile.TemporaryDirectory() as folder:
            base = Path(options.keep or folder)
            asked = [
                Asked(family=name, seed=seed, days=days, folder=base / f"{name}-{seed}", again=options.again)
                for seed in range(options.seed, options.seed + options.fleets)
                for name in _chosen(options)
            ]
            verdicts = list(judged(asked, options.jobs, options.out))
    _show(verdicts, days)
    faults = [f"{one.family} {one.seed}: {fault}" for one in verdicts for fault in one.faults]
    if faults and (options.small or options.strict):
        sys.exit("\n".join(faults))


def _chosen(options: argparse.Namespace) -> list[str]:
    names = [family.name for family in families()]
    unknown = sorted(set(options.family) - set(names))
    if unknown:
        print(f"no such family: {', '.join(unknown)}; there are {', '.join(names)}", file=sys.stderr)
        sys.exit(USAGE)
    wanted = options.family or (SMALL if options.small else names)
    return [name for name in names if name in wanted]


def _read(paths: Sequence[str]) -> Iterator[Verdict]:
    for path in paths:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            yield Verdict.from_json(line)


def _show(verdicts: Sequence[Verdict], days: int) -> None:
    """Print a row a family and, last, one line of figures: of all, of the frozen families and of those that came after."""
    names = list(dict.fromkeys(one.family for one in sorted(verdicts, key=lambda one: not one.frozen)))
    print()
    print("| " + " | ".join(HEAD) + " |")
    print("|" + "---|" * len(HEAD))
    for name in names:
        print("| " + " | ".join(row_of([one for one in verdicts if one.family == name])) + " |")
    figures = {
        "benchmark": "proving",
        "days": days,
        "families": len(names),
        **totals(verdicts),
        "frozen": totals([one for one in verdicts if one.frozen]),
        "added_after": totals([one for one in verdicts if not one.frozen]),
    }
    print(json.dumps(figures))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleets", type=int, default=1, metavar="N", help="fleets a family")
    parser.add_argument(
        "--small", action="store_true", help=f"a few families, {SMALL_DAYS} days of history, --strict: for CI"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 at a broken target, a breach or a crash")
    parser.add_argument("--family", action="append", default=[], metavar="NAME", help="only this one; repeat for more")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first fleet of each family")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="fleets at once, a process each")
    parser.add_argument("--out", metavar="FILE", help="add each verdict there, a line of JSON")
    parser.add_argument("--merge", action="append", default=[], metavar="FILE", help="sum up such files, run nothing")
    parser.add_argument("--keep", metavar="DIR", help="keep bundles, documents and manifests there")
    parser.add_argument("--again", action="store_true", help="enact anew the audits that --keep left, audit nothing")
    parser.add_argument(
        "--referee",
        type=int,
        nargs="?",
        const=100,
        metavar="N",
        help="hold the world against the referee on N services (100)",
    )
    return parser


if __name__ == "__main__":
    main()
