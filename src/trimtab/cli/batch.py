"""`trimtab batch tune`: settings of the dynamic batcher for a latency target, from measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from trimtab.cli.options import FILE, AnswerOptions, answer_options, option, options_from
from trimtab.cli.output import Cell, Sheet, SheetColumn, fixed, write_answer
from trimtab.cli.progress import progress_bar
from trimtab.errors import UsageError
from trimtab.replay.batches import HEADROOM_FRAC, Objective, Trial, tune as tune_batches
from trimtab.sources.traces.batch_files import read_arrivals, read_curve
from trimtab.units import MS_PER_S

MOST_ARRIVALS = 20_000
SHOWN = 10


@click.group(name="batch")
def command() -> None:
    """Tune the dynamic batcher that `trimtab.batch` puts in front of a model.

    \b
    Examples:
      trimtab batch tune --curve curve.csv --arrivals requests.csv --target-ms 50
      trimtab batch tune --curve curve.csv --arrivals requests.parquet --target-ms 80 --quantile 0.99 -o json
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    """Arguments of `trimtab batch tune`."""

    curve: Path = option(
        "--curve", type=FILE, required=True, help="CSV of measured batch times: columns batch and seconds (or ms)."
    )
    arrivals: Path = option(
        "--arrivals", type=FILE, required=True,
        help="CSV or Parquet of arrival times: column t_s in seconds, or timestamp.",
    )  # fmt: skip
    target_ms: float = option(
        "--target-ms", type=click.FloatRange(min=0, min_open=True), required=True,
        help="Latency to keep at the quantile.",
    )  # fmt: skip
    quantile: float = option(
        "--quantile", type=click.FloatRange(0.5, 0.999), default=0.95, show_default=True,
        help="Share of requests that must be within the target.",
    )  # fmt: skip
    headroom: float = option(
        "--headroom", type=click.FloatRange(0, 0.9), default=HEADROOM_FRAC, show_default=True,
        help="Share of the target kept as a margin for what a replay does not model: waking threads, varying run times.",
    )  # fmt: skip
    replicas: int = option(
        "--replicas", type=click.IntRange(min=1), default=1, show_default=True,
        help="Replicas that share the arrivals in turn; one of them is replayed.",
    )  # fmt: skip
    speedup: float = option(
        "--speedup", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True,
        help="Time compression of the arrivals: 2 is twice the rate.",
    )  # fmt: skip
    objective: str = option(
        "--objective", type=click.Choice(["device", "latency"]), default="device", show_default=True,
        help="What to minimize within the target: device time or latency.",
    )  # fmt: skip
    limit: int = option(
        "--limit", type=click.IntRange(min=1), default=MOST_ARRIVALS, show_default=True,
        help="Maximum number of arrivals to replay, from the first on.",
    )  # fmt: skip
    answer: AnswerOptions = answer_options()


@command.command()
@options_from(TuneOptions)
def tune(options: TuneOptions) -> None:
    """Find the batcher's settings for a latency target by replaying recorded arrivals.

    \b
    Examples:
      trimtab batch tune --curve curve.csv --arrivals requests.csv --target-ms 50
      trimtab batch tune --curve curve.csv --arrivals day.parquet --target-ms 80 --replicas 4
    """
    times_s = [
        time_s / options.speedup for time_s in read_arrivals(options.arrivals)[:: options.replicas][: options.limit]
    ]
    if len(times_s) < 2:
        raise UsageError(f"{options.arrivals}: a replica gets fewer than two arrivals, too few to replay")
    with progress_bar(quiet=False) as tell:
        trials = tune_batches(
            times_s,
            read_curve(options.curve),
            target_s=options.target_ms / MS_PER_S,
            share=options.quantile,
            headroom_frac=options.headroom,
            objective=Objective(options.objective),
            progress=lambda done, whole: tell(f"setting {done} of {whole}", done / whole),
        )
    write_answer(trials_sheet(trials, options.quantile, options.target_ms, options.headroom), options.answer)


def trials_sheet(trials: Sequence[Trial], quantile: float, target_ms: float, headroom: float) -> Sheet:
    """Return the best trials as rows, and the chosen one as the line to write in code."""
    columns = (
        SheetColumn(key="max_batch", title="max batch", right=True),
        SheetColumn(key="min_batch", title="min batch", right=True),
        SheetColumn(key="window_s", title="window ms", right=True, show=_as_ms),
        SheetColumn(key="latency_s", title=f"p{100 * quantile:g} ms", right=True, show=_as_ms),
        SheetColumn(key="p50_s", title="p50 ms", right=True, show=_as_ms),
        SheetColumn(key="mean_batch", title="mean batch", right=True, show=fixed(1)),
        SheetColumn(key="device_s_req", title="device ms/request", right=True, show=_as_ms),
        SheetColumn(
            key="busy_frac", title="device busy", right=True, show=lambda cell: f"{100 * float(str(cell)):.0f}%"
        ),
        SheetColumn(key="meets_target", title="meets", show=lambda cell: "yes" if cell else "no"),
    )
    greedy = next(trial for trial in trials if trial.rule.window_s == 0)
    shown = [trial for trial in trials if trial.meets][:SHOWN]
    rows = [_row(trial) for trial in shown] + ([] if greedy in shown else [_row(greedy)])
    aim = f"Chosen to keep p{100 * quantile:g} within {(1 - headroom) * target_ms:g} ms in the replay"
    notes = (
        f"Write: {decorator(trials[0])}",
        f"{aim}: {100 * headroom:g} % of the {target_ms:g} ms are a margin for what a replay lacks (--headroom).",
        "A window of 0 is greedy, with learned waits.",
    )
    return Sheet(columns=columns, rows=rows, notes=notes)


def _row(trial: Trial) -> dict[str, Cell]:
    return {
        "max_batch": trial.rule.max_batch,
        "min_batch": trial.rule.min_batch,
        "window_s": trial.rule.window_s,
        "latency_s": trial.latency_s,
        "p50_s": trial.replayed.latency_s(0.5),
        "mean_batch": trial.replayed.mean_batch,
        "device_s_req": trial.device_s_req,
        "busy_frac": trial.replayed.busy_frac,
        "meets_target": trial.meets,
    }


def decorator(trial: Trial) -> str:
    """Return the decorator with a trial's settings, to paste into code."""
    rule = trial.rule
    window = f", min_batch={rule.min_batch}, window_s={rule.window_s:.4g}" if rule.window_s > 0 else ""
    return f"@trimtab.batch(max_batch={rule.max_batch}{window}, target_s={rule.target_s:g})"


def _as_ms(cell: object) -> str:
    return f"{float(str(cell)) * MS_PER_S:.2f}"
