"""`trimtab compare`: compares a canary with what it would replace, and recommends what to do with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import click

from trimtab.cli import ExitCode
from trimtab.cli.options import (
    FILE_OR_FOLDER,
    AnswerOptions,
    Format,
    answer_options,
    argument,
    option,
    options_from,
    prices_option,
)
from trimtab.cli.output import Cell, Sheet, SheetColumn, percent, write_sheet

if TYPE_CHECKING:
    from trimtab.diagnose.canary import CanaryComparison, CanaryRun, Contrast

SEED = 7
_POSITIVE = click.FloatRange(min=0, min_open=True)


def _figure(cell: Cell) -> str:
    return f"{cell:.4g}" if isinstance(cell, int | float) else str(cell)


COLUMNS = (
    SheetColumn(key="what", title="", whole=True),
    SheetColumn(key="present", title="present", show=_figure, right=True, whole=True),
    SheetColumn(key="canary", title="canary", show=_figure, right=True, whole=True),
    SheetColumn(key="change_frac", title="change", show=percent(1, signed=True), right=True, whole=True),
    SheetColumn(key="low_frac", title="low", show=percent(1, signed=True), right=True, whole=True),
    SheetColumn(key="high_frac", title="high", show=percent(1, signed=True), right=True, whole=True),
    SheetColumn(key="standing", title="so", whole=True),
    SheetColumn(key="verdict", title="verdict", whole=True),
)
_TABLE_FIELDS = tuple(column.key for column in COLUMNS if column.key != "verdict")
"""Columns for people: the verdict, which is of all figures together, stands below the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """Arguments of `trimtab compare`."""

    present: Path = argument(type=FILE_OR_FOLDER)
    canary: Path = argument(type=FILE_OR_FOLDER)
    workload: str | None = option("--workload", metavar="NAME", help="Which service, if a bundle holds several.")
    usd_hr: tuple[float, float] | None = option(
        "--usd-hr", type=(_POSITIVE, _POSITIVE), metavar="PRESENT CANARY",
        help="What each side costs per hour; bundles have their own prices.",
    )  # fmt: skip
    slack: float = option(
        "--slack", type=click.FloatRange(min=0, max=1), default=0.1, show_default=True,
        help="How much worse p99 and throughput may be, as a share.",
    )  # fmt: skip
    split: bool = option("--split", help="The sides received different shares of traffic: do not judge throughput.")
    prices: Path | None = prices_option("Your own rates for bundles, CSV or YAML; they override the price list.")
    seed: int = option("--seed", type=int, default=SEED, show_default=True, help="Fixes the resampling.")
    answer: AnswerOptions = answer_options()


@click.command()
@options_from(CompareOptions)
def command(options: CompareOptions) -> int:
    """Compare a canary with what it would replace: promote, hold, or roll back.

    Throughput, p99 latency, failures and dollars per request are compared, each with a 95 % interval of the change. PRESENT and
    CANARY are files of requests (CSV or Parquet with a latency and a start), results of `vllm bench serve --save-detailed`, or
    fleet bundles.

    Roll back: a figure is clearly worse (p99, throughput: beyond the slack; cost: at all; failures: by half a percent).
    Promote: no figure can be that much worse. Hold: the runs are not conclusive yet.

    Exit codes: 0 promote; 4 roll back; 5 hold; 1 the runs cannot be read or compared; 2 wrong options. With `-o json`
    each row has its own result and the verdict.

    \b
    Examples:
      trimtab compare before.csv canary.csv
      trimtab compare before.json canary.json --usd-hr 12.29 4.60
      trimtab compare fleet-in-may/ fleet-in-june/ --workload chat/api
      trimtab compare stable.parquet canary.parquet --split -o markdown
    """
    from trimtab.diagnose.canary import CanaryRule, CanaryVerdict, compare
    from trimtab.pipeline.canary import canary_side

    costs = options.usd_hr or (None, None)
    present = canary_side(options.present, costs[0], options.workload, options.prices)
    other = canary_side(options.canary, costs[1], options.workload, options.prices)
    found = compare(
        present, other, CanaryRule(slack_frac=options.slack, throughput=not options.split), seed=options.seed
    )
    answer = options.answer
    fields = answer.fields or (_TABLE_FIELDS if answer.output_format in (Format.TABLE, Format.MARKDOWN) else ())
    write_sheet(_sheet(found, present, other, options.split), answer.output_format, out=answer.out, fields=fields)
    match found.verdict:
        case CanaryVerdict.PROMOTE:
            return ExitCode.DONE
        case CanaryVerdict.ROLL_BACK:
            return ExitCode.NO
        case CanaryVerdict.HOLD:
            return ExitCode.UNDECIDED
        case _:
            assert_never(found.verdict)


def _sheet(found: CanaryComparison, present: CanaryRun, canary: CanaryRun, split: bool) -> Sheet:
    notes = [
        f"{found.verdict.value.upper()}: {'; '.join(found.because)}.",
        f"{present.answered:,.0f} requests answered in the present, {canary.answered:,.0f} in the canary.",
    ]
    if present.usd_hr is None or canary.usd_hr is None:
        notes.append("$ a request is not judged: give the cost of each side per hour with --usd-hr.")
    if split:
        notes.append("Throughput is shown but not judged (--split).")
    return Sheet(columns=COLUMNS, rows=[_row(contrast, found) for contrast in found.contrasts], notes=notes)


def _row(contrast: Contrast, found: CanaryComparison) -> dict[str, Cell]:
    ratio = not contrast.what.startswith("failed")
    shift = 1.0 if ratio else 0.0
    change = (
        contrast.canary / contrast.present - 1 if ratio and contrast.present else contrast.canary - contrast.present
    )
    return {
        "what": contrast.what,
        "present": contrast.present,
        "canary": contrast.canary,
        "change_frac": round(change, 6),
        "low_frac": round(contrast.low - shift, 6),
        "high_frac": round(contrast.high - shift, 6),
        "standing": contrast.standing.value,
        "verdict": found.verdict.value,
    }
