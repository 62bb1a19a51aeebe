"""`trimtab audit`: where the money goes, what to do first, what it saves, and the proof."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

import click

from trimtab.cli.options import (
    FILE,
    AnswerOptions,
    ScenarioOptions,
    answer_options,
    at_option,
    bundle_argument,
    cloud_option,
    demo_option,
    group,
    option,
    options_from,
    owned_option,
    prices_option,
    quiet_option,
    quota_option,
    set_option,
    spot_max_option,
    verbose_option,
)
from trimtab.cli.output import Format
from trimtab.cli.server_options import ServerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """Arguments of `trimtab audit`."""

    bundle: Path | None = bundle_argument()
    demo: str | None = demo_option("Audit a demonstration fleet; two-hundred-k by default.")
    demo_trace: Path | None = option(
        "--demo-trace", type=FILE, metavar="FILE",
        help="Audit a fleet of fixed size that served a recorded request trace (Parquet).",
    )  # fmt: skip
    source: ServerOptions = group(ServerOptions)
    prices: Path | None = prices_option()
    at: date | None = at_option()
    other: ScenarioOptions = group(ScenarioOptions)
    quotas: tuple[str, ...] = quota_option(
        "A quota that the plan must keep: p5.48xlarge=16, g6.xlarge@us-east-1:spot=40."
    )
    spot_max: float | None = spot_max_option("Largest share of node-hours that the plan may put on spot.")
    clouds: tuple[str, ...] = cloud_option(
        "Another cloud that work may move to, including the cost of moving: gcp, azure; repeat for several."
    )
    hourly: Path | None = option(
        "--hourly", type=FILE, metavar="FILE",
        help="Price or carbon by the hour, CSV: deferrable runs wait for the best hours.",
    )  # fmt: skip
    owned: Path | None = owned_option()
    settings_file: Path | None = option(
        "--settings", type=FILE, metavar="FILE", help="A settings file instead of trimtab.toml."
    )
    flags: tuple[str, ...] = set_option("planning.proof_frac=0.25")
    show_settings: bool = option("--show-settings", help="Show every setting and where it came from, then exit.")
    report: bool | None = option(
        "--report/--no-report", default=None, show_default="only with a demonstration",
        help="Also write trimtab-report/report.html, and finance.html beside it.",
    )  # fmt: skip
    fail_over_usd_mo: float | None = option(
        "--fail-over", type=click.FloatRange(min=0), metavar="USD_MO",
        help="Exit with code 10 if more than this amount a month can be saved.",
    )  # fmt: skip
    engine: str | None = option(
        "--engine", metavar="URL", help="Evaluate workloads on the workers of a Dask cluster: dask://HOST:8786."
    )
    quiet: bool = quiet_option("No progress, no notes, errors only.")
    verbose: int = verbose_option()
    answer: AnswerOptions = answer_options(*Format)


@click.command()
@options_from(AuditOptions)
def command(options: AuditOptions) -> int:
    """Find where a GPU fleet's money goes, what to do first, what it saves, and prove it.

    \b
    Examples:
      trimtab audit --demo                                a demonstration, no cluster needed
      trimtab audit fleet/                                a bundle that `trimtab collect` wrote
      trimtab audit -p http://localhost:9090 --from 30d   straight from a Prometheus server
      trimtab audit fleet/ -o html --out report.html      one page with pictures
      trimtab audit fleet/ -o xlsx --out audit.xlsx       a workbook with one sheet per table
      trimtab audit fleet/ -o json | jq .plan.actions     the same for a program
      trimtab audit fleet/ --set planning.engineers=2 --prices own-rates.yaml
      trimtab audit fleet/ --quota p5.48xlarge=16 --spot-max 0.3 --owned held.csv
      trimtab audit fleet/ --cloud gcp                    work may move to another cloud, where that pays
      trimtab audit fleet/ --demand 1.5x --price spot+30%  a scenario beside the plan
      trimtab audit fleet/ --engine dask://scheduler:8786  workloads judged by a cluster's workers
      trimtab audit fleet/ -q --fail-over 5000            exit code 10 above $5,000 a month
    """
    from trimtab.cli.audit.run import run_audit

    return run_audit(options)
