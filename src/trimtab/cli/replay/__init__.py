"""`trimtab replay`: what would have happened under other scaling policies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli.options import (
    FILE,
    NEW_FILE,
    NEW_FOLDER,
    AnswerOptions,
    answer_options,
    bundle_argument,
    demo_option,
    option,
    options_from,
    quiet_option,
)
from trimtab.cli.output import (
    PLAIN_WIDTH,
    ROW_FORMATS,
    Cell,
    Format,
    Sheet,
    SheetColumn,
    fixed,
    percent,
    screen_width,
    write,
    write_sheet,
)
from trimtab.cli.progress import progress_bar, set_verbosity
from trimtab.errors import UsageError

if TYPE_CHECKING:
    from trimtab.cli.replay.run import ServiceRuns
    from trimtab.tables.bundle import Bundle


COLUMNS = (
    SheetColumn(key="workload", title="service"),
    SheetColumn(key="policy", title="policy", whole=True),
    SheetColumn(key="usd_mo", title="$/month", show=fixed(0), right=True, whole=True),
    SheetColumn(key="over_clairvoyant", title="x best", show=fixed(2), right=True, whole=True),
    SheetColumn(key="attained_frac", title="in time", show=percent(2), right=True, whole=True),
    SheetColumn(key="keeps_targets", title="keeps", show=lambda cell: "yes" if cell else "no", whole=True),
    SheetColumn(key="wait_p99_s", title="wait p99 s", show=fixed(1), right=True, whole=True),
    SheetColumn(key="cold_starts", title="starts", show=fixed(0), right=True, whole=True),
    SheetColumn(key="pareto", title="front", show=lambda cell: "*" if cell else " ", whole=True),
)
MORE_COLUMNS = (
    SheetColumn(key="notes", title="notes"),
    SheetColumn(key="wait_p50_s", title="wait p50 s", show=fixed(1), right=True),
    SheetColumn(key="node_hr", title="node-hours", show=fixed(1), right=True),
    SheetColumn(key="wait_p95_s", title="wait p95 s", show=fixed(1), right=True),
    SheetColumn(key="given_up_frac", title="gave up", show=percent(2), right=True),
)
SPOT_COLUMNS = (
    SheetColumn(key="spot_frac", title="on spot", show=percent(2), right=True, whole=True),
    SheetColumn(key="lost_replicas", title="lost", show=fixed(0), right=True, whole=True),
)
TABLE_FIELDS = tuple(column.key for column in COLUMNS if column.key != "workload")
"""In tables, each service's name is the heading of its rows; programs get every column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Arguments of `trimtab replay`."""

    bundle: Path | None = bundle_argument()
    demo: str | None = demo_option("Replay a demonstration fleet; two-hundred-k by default.")
    demo_trace: Path | None = option(
        "--demo-trace", type=FILE, metavar="FILE", help="Replay a recorded request trace (Parquet)."
    )
    policies: tuple[str, ...] = option(
        "--policy", metavar="NAME[:N]", help="A policy to replay; repeat for several. Default: a usual selection."
    )
    sweeps: tuple[str, ...] = option(
        "--sweep", metavar="NAME:FROM..TO[:STEP]", help="A policy over a range, such as hpa:50..90:5."
    )
    only: tuple[str, ...] = option("--workload", metavar="NAME", help="Only this service; repeat for several.")
    picture: Path | None = option(
        "--picture", type=NEW_FILE, metavar="FILE.svg", help="Draw capacity against demand of the first service."
    )
    floors: tuple[str, ...] = option(
        "--spot", metavar="one-in-N|all",
        help="Replay each policy on spot too: one replica in N on demand, or all on spot; repeat for several.",
    )  # fmt: skip
    loss: str = option(
        "--loss", default="0.1/hr", show_default=True, help="How many times an hour a zone reclaims its spot nodes."
    )
    zones: int = option(
        "--zones", type=click.IntRange(1), default=3, show_default=True, help="Zones that spot is spread over."
    )
    outage_hr: float = option(
        "--outage-hr",
        type=float,
        default=1.5,
        show_default=True,
        help="How long a zone then has no capacity, on average.",
    )
    availability: Path | None = option(
        "--availability", type=FILE, metavar="FILE",
        help="Recorded spot probes (Parquet: zone, t_s, available_nodes) instead of --loss, --zones and --outage-hr.",
    )  # fmt: skip
    pool: bool = option(
        "--pool", help="Instead, replay services that declare `pool: true` as they take turns on shared GPUs."
    )
    own_replicas: bool = option(
        "--own-replicas",
        help="With --pool: a model with many requests at once gets replicas on GPUs of its own for a while.",
    )
    emit_pool: Path | None = option(
        "--emit-pool", type=NEW_FOLDER, metavar="DIR", help="With --pool: write the pods of the shared GPUs here."
    )
    cluster_file: Path | None = option(
        "--cluster", type=FILE, metavar="FILE",
        help="With --own-replicas and --emit-pool: the cluster's Prometheus and its labels (YAML, as for emit).",
    )  # fmt: skip
    quiet: bool = quiet_option("No progress.")
    answer: AnswerOptions = answer_options(*ROW_FORMATS, Format.HTML)


@click.command()
@options_from(ReplayOptions)
def command(options: ReplayOptions) -> None:
    """Replay services under other scaling policies: cost, targets, and the distance to the best in hindsight.

    Policies are tuned on the first part of the history and replayed over the rest: static[:REPLICAS], hpa:PERCENT,
    hpa-duty:PERCENT, keda:PERCENT, knative:PERCENT, saturation, saturation-tokens, token-aware, token-velocity[:PERCENT],
    dynamo[:PERCENT], dynamo-load[:PERCENT], tokens:PERCENT (of a full replica's), cron[:PERCENT], forecast[:PERCENT] and
    plan (what an audit would choose). hpa and keda take further metrics, +duty:PERCENT, +queue:SECONDS (waiting work per
    replica), +kv:PERCENT and +wait:SECONDS, and follow whichever asks for most. A * marks those that no other beats in
    both cost and requests in time.

    \b
    Examples:
      trimtab replay --demo
      trimtab replay fleet/ --policy hpa:70 --policy plan
      trimtab replay fleet/ --workload prod/chat-api --sweep hpa:40..90:5 -o csv
      trimtab replay fleet/ --policy keda:70+queue:5+kv:95+wait:1
      trimtab replay fleet/ --policy hpa:70 --spot one-in-4 --spot all --loss 0.1/hr
      trimtab replay --demo-trace requests.parquet --policy forecast --picture replay.svg
      trimtab replay --demo --sweep hpa:40..90:5 -o html --out replay.html
      trimtab replay fleet/ --pool --own-replicas --emit-pool pool/ --cluster cluster.yaml
    """
    from trimtab.cli.replay.page import capacity_picture, lines, replay_page
    from trimtab.cli.replay.run import DEFAULT_POLICIES, is_short, replay_services, replay_trace, spot_asked
    from trimtab.fleet.settings import Settings

    set_verbosity(0, options.quiet)
    names = [*options.policies, *options.sweeps] or list(DEFAULT_POLICIES)
    asked = spot_asked(options.floors, options.loss, options.zones, options.outage_hr, options.availability)
    if sum(1 for named in (options.bundle, options.demo, options.demo_trace) if named) != 1:
        raise UsageError("which history? give one: a bundle's folder, --demo [NAME] or --demo-trace FILE")
    if options.pool:
        _write_pool(options)
        return
    if options.emit_pool is not None:
        raise UsageError("--emit-pool writes what --pool chooses: add --pool")
    if options.own_replicas:
        raise UsageError("--own-replicas is a rule of --pool: add --pool")
    if options.cluster_file is not None:
        raise UsageError(
            "--cluster says where the files of --pool find Prometheus: add --pool --own-replicas --emit-pool DIR"
        )
    with progress_bar(quiet=options.quiet) as tell:
        tell("reading the fleet", 0.0)
        if options.demo_trace is not None and is_short(options.demo_trace):
            found = replay_trace(options.demo_trace, names, options.only, Settings(), tell, asked)
        else:
            found = replay_services(
                _opened(options.bundle, options.demo, options.demo_trace), names, options.only, Settings(), tell, asked
            )
    if options.picture is not None:
        write(capacity_picture(found[0]), options.picture)
    sheet = _sheet(found)
    if options.answer.output_format is Format.HTML:
        write(replay_page(found, sheet), options.answer.out)
        return
    if options.answer.output_format is Format.TABLE:
        width = PLAIN_WIDTH if options.answer.out else screen_width()
        sheet = replace(sheet, notes=(*sheet.notes, *_remarks(found), *(lines(service, width) for service in found)))
    usual = (*TABLE_FIELDS, *(column.key for column in SPOT_COLUMNS if asked is not None))
    shown = options.answer.fields or (usual if options.answer.output_format is Format.TABLE else ())
    write_sheet(sheet, options.answer.output_format, out=options.answer.out, fields=shown)


def _write_pool(options: ReplayOptions) -> None:
    """Write which services could share GPUs in turns; text only."""
    from trimtab.cli.replay.pool import pool_facts, pool_report, write_pool_files
    from trimtab.fleet.settings import Settings

    if options.demo_trace is not None:
        raise UsageError("--pool needs services with a model each: give a bundle's folder or --demo")
    if options.answer.output_format is not Format.TABLE:
        raise UsageError("--pool is written as text; leave -o out")
    if options.cluster_file is not None and not (options.own_replicas and options.emit_pool):
        raise UsageError(
            "--cluster goes with --own-replicas and --emit-pool DIR: no other file of a pool asks Prometheus"
        )
    facts = pool_facts(options.cluster_file)
    with progress_bar(quiet=options.quiet) as tell:
        bundle = _opened(options.bundle, options.demo, None)
        report = pool_report(bundle, Settings(), tell, own_replicas=options.own_replicas)
    lines = list(report.lines)
    if options.emit_pool is not None:
        lines.append(write_pool_files(report, options.emit_pool, facts))
    write("\n".join(lines) + "\n", options.answer.out)


def _opened(bundle: Path | None, demo: str | None, demo_trace: Path | None) -> Bundle:
    from trimtab.pipeline import open_demo, open_trace
    from trimtab.tables.checks import checked_bundle

    if bundle is not None:
        return checked_bundle(bundle)
    return open_trace(demo_trace) if demo_trace is not None else open_demo(str(demo))


def _sheet(found: list[ServiceRuns]) -> Sheet:
    rows: list[dict[str, Cell]] = []
    for service in found:
        front = service.front()
        rows += [
            {
                "workload": service.workload,
                "policy": row.name,
                "usd_mo": round(row.usd_mo, 2),
                "over_clairvoyant": row.over_clairvoyant,
                "attained_frac": row.attained_frac,
                "keeps_targets": row.keeps,
                "wait_p50_s": row.wait_p50_s,
                "wait_p95_s": row.wait_p95_s,
                "wait_p99_s": row.wait_p99_s,
                "cold_starts": row.cold_starts,
                "node_hr": row.node_hr,
                "spot_frac": row.spot_frac,
                "lost_replicas": row.lost_replicas,
                "given_up_frac": row.given_up_frac,
                "pareto": row.name in front,
                "notes": "; ".join(row.notes),
            }
            for row in service.rows()
        ]
    return Sheet(
        columns=(*COLUMNS, *SPOT_COLUMNS, *MORE_COLUMNS),
        rows=rows,
        section="workload",
        notes=(
            f"Replayed over {found[0].span}; policies are tuned on the history before it.",
            "x best: replica-hours over the fewest that could have served every step with the future known.",
        ),
    )


def _remarks(found: list[ServiceRuns]) -> Iterator[str]:
    """Yield notes on the figures: unusual runs, gaps, targets that no run keeps."""
    for service in found:
        gaps = service.runs[0].replay.gap_steps
        if gaps:
            share = gaps / len(service.history.arrivals)
            yield (
                f"{service.workload}: {share:.1%} of the time has no record: no arrivals are replayed then, but running "
                "replicas are billed."
            )
        yield from (f"{service.workload}: {remark}." for remark in service.impossible)
        for row in service.rows():
            if row.notes:
                yield f"{service.workload}, {row.name}: {'; '.join(row.notes)}."
