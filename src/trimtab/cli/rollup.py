"""`trimtab rollup`: aggregates raw samples to hours inside Parquet files or a warehouse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from trimtab.cli.options import NEW_FILE, argument, option, options_from, verbose_option


@dataclass(frozen=True, slots=True, kw_only=True)
class RollupOptions:
    """Arguments of `trimtab rollup`."""

    samples: str = argument()
    engine: str = option(
        "--engine", envvar="TRIMTAB_ENGINE", default="duckdb://", show_default=True, metavar="URL",
        help="The engine that runs it: duckdb://, spark://HOST:7077, clickhouse://, bigquery://, snowflake://, trino://.",
    )  # fmt: skip
    step_s: float = option(
        "--step", type=click.FloatRange(min=1.0), default=60.0, show_default=True, metavar="SECONDS",
        help="The scrape interval, which determines the number of samples in a full hour.",
    )  # fmt: skip
    out: Path = option(
        "--out", type=NEW_FILE, default=Path("gpu_usage.parquet"), show_default=True,
        help="The table to write; put it into a fleet bundle.",
    )  # fmt: skip
    verbose: int = verbose_option()


@click.command()
@options_from(RollupOptions)
def command(options: RollupOptions) -> None:
    """Aggregate raw GPU samples to hourly rows with histograms, where the samples are stored.

    SAMPLES is a Parquet file, a folder or pattern of them, or the name of a table of the engine: one row per device and
    scrape, with device, workload, time (UTC) and readings (gpu_util, sm_active, tensor_active, dram_active as shares in 0..1,
    memory_used_gib, power_w).

    \b
    Examples:
      trimtab rollup samples/ --step 15 --out fleet/gpu_usage.parquet
      trimtab rollup hdfs:///dcgm/2026-11 --engine spark://spark-master:7077
      trimtab rollup telemetry.dcgm --engine 'trino://user@trino:8080/hive'
    """
    from trimtab.cli.progress import set_verbosity
    from trimtab.tables.rollup import complete_samples, open_engine, rollup_spans, write_usage

    set_verbosity(options.verbose, quiet=False)
    with open_engine(options.engine) as opened:
        table = complete_samples(opened.table(options.samples))
        written = write_usage(options.out, rollup_spans(table, opened.execute, step_s=options.step_s))
        click.echo(f"{options.out}: {written.rows:,} rows of {written.hours:,} hours, by {opened.name}")
