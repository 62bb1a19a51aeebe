"""`trimtab replay`: what would have happened under other scaling policies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli.output import Cell, Column, Format, Sheet, fixed, output_options, write, write_sheet
from trimtab.cli.progress import progress_bar, set_verbosity
from trimtab.errors import UsageError
from trimtab.units import S_PER_HR

if TYPE_CHECKING:
    from trimtab.cli.replay_run import ServiceRuns
    from trimtab.tables.bundle import Bundle


def _percent(cell: Cell) -> str:
    return f"{cell:.2%}" if isinstance(cell, int | float) else str(cell)


COLUMNS = (
    Column(key="workload", title="service"),
    Column(key="policy", title="policy", whole=True),
    Column(key="usd_mo", title="$/month", show=fixed(0), right=True, whole=True),
    Column(key="over_clairvoyant", title="x best", show=fixed(2), right=True, whole=True),
    Column(key="attained_frac", title="in time", show=_percent, right=True, whole=True),
    Column(key="keeps_targets", title="keeps", show=lambda cell: "yes" if cell else "no", whole=True),
    Column(key="wait_p99_s", title="wait p99 s", show=fixed(1), right=True, whole=True),
    Column(key="cold_starts", title="starts", show=fixed(0), right=True, whole=True),
    Column(key="pareto", title="front", show=lambda cell: "*" if cell else " ", whole=True),
    Column(key="notes", title="notes"),
)
MORE_COLUMNS = (
    Column(key="node_hr", title="node-hours", show=fixed(1), right=True),
    Column(key="wait_p95_s", title="wait p95 s", show=fixed(1), right=True),
    Column(key="given_up_frac", title="gave up", show=_percent, right=True),
)
TABLE_FIELDS = tuple(column.key for column in COLUMNS if column.key != "workload")
"""A table heads each service's rows with its name; machines get every column."""


@click.command()
@click.argument("bundle", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--demo", is_flag=False, flag_value="two-hundred-k", metavar="[NAME]",
              help="Replay a demonstration fleet; two-hundred-k where no name is given.")  # fmt: skip
@click.option("--demo-trace", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Replay a recorded request trace (Parquet).")  # fmt: skip
@click.option("--policy", "policies", multiple=True, metavar="NAME[:N]",
              help="A policy to replay; give several. Without any: a usual selection.")  # fmt: skip
@click.option("--sweep", "sweeps", multiple=True, metavar="NAME:FROM..TO[:STEP]",
              help="A policy over a range, such as hpa:50..90:5.")  # fmt: skip
@click.option("--workload", "only", multiple=True, metavar="NAME", help="Only this service; give several.")
@click.option("--picture", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.svg",
              help="Draw capacity against demand of the first service.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@output_options()
def command(
    bundle: Path | None,
    demo: str | None,
    demo_trace: Path | None,
    policies: tuple[str, ...],
    sweeps: tuple[str, ...],
    only: tuple[str, ...],
    picture: Path | None,
    quiet: bool,
    output_format: Format,
    out: Path | None,
    fields: tuple[str, ...],
) -> None:
    """Replay services under other scaling policies: cost, targets, and the distance to the best in hindsight.

    Policies are tuned on the first part of the history and replayed over the rest: static[:REPLICAS], hpa:PERCENT,
    hpa-duty:PERCENT, keda:PERCENT, knative:PERCENT, saturation, cron[:PERCENT], forecast[:PERCENT] and plan (what an
    audit would choose). hpa and keda take further metrics, +duty:PERCENT, +queue:SECONDS (waiting work per replica),
    +kv:PERCENT and +wait:SECONDS, and follow whichever asks for most. A * marks those that no other beats in both cost
    and requests in time.

    \b
    Examples:
      trimtab replay --demo
      trimtab replay fleet/ --policy hpa:70 --policy plan
      trimtab replay fleet/ --workload prod/chat-api --sweep hpa:40..90:5 -o csv
      trimtab replay fleet/ --policy keda:70+queue:5+kv:95+wait:1
      trimtab replay --demo-trace requests.parquet --policy forecast --picture replay.svg
    """
    from trimtab.cli.replay_picture import capacity_picture
    from trimtab.cli.replay_run import DEFAULT_POLICIES, replay_services
    from trimtab.fleet.settings import Settings

    set_verbosity(0, quiet)
    names = [*policies, *sweeps] or list(DEFAULT_POLICIES)
    with progress_bar(quiet=quiet) as tell:
        tell("reading the fleet", 0.0)
        found = replay_services(_opened(bundle, demo, demo_trace), names, only, Settings(), tell)
    if picture is not None:
        write(capacity_picture(found[0]), picture)
    shown = fields or (TABLE_FIELDS if output_format is Format.TABLE else ())
    write_sheet(_sheet(found), output_format, out=out, fields=shown)


def _opened(bundle: Path | None, demo: str | None, demo_trace: Path | None) -> Bundle:
    from trimtab.pipeline import open_demo, open_trace
    from trimtab.tables.checks import checked_bundle

    if sum(1 for named in (bundle, demo, demo_trace) if named) != 1:
        raise UsageError("which history? give one: a bundle's folder, --demo [NAME] or --demo-trace FILE")
    if bundle is not None:
        return checked_bundle(bundle)
    return open_trace(demo_trace) if demo_trace is not None else open_demo(str(demo))


def _sheet(found: list[ServiceRuns]) -> Sheet:
    rows: list[dict[str, Cell]] = []
    for service in found:
        for run in service.runs:
            replay = run.replay
            rows.append(
                {
                    "workload": service.workload,
                    "policy": run.name,
                    "usd_mo": round(service.usd_mo(run), 2),
                    "over_clairvoyant": run.over_clairvoyant,
                    "attained_frac": run.worst_attained_frac,
                    "keeps_targets": run.keeps,
                    "wait_p95_s": replay.wait_p95_s,
                    "wait_p99_s": replay.wait_p99_s,
                    "cold_starts": replay.cold_starts,
                    "node_hr": float(replay.node_seconds.sum()) / S_PER_HR,
                    "given_up_frac": replay.unmet / max(replay.requests, 1.0),
                    "pareto": run.undominated,
                    "notes": "; ".join(run.notes),
                }
            )
    window = found[0].window
    return Sheet(
        columns=(*COLUMNS, *MORE_COLUMNS),
        rows=rows,
        section="workload",
        notes=(
            f"Replayed over {window}; policies are tuned on what came before.",
            "x best: replica-hours over the least that would have served every step, had the future been known.",
        ),
    )
