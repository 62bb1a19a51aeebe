"""`trimtab audit`: where the money goes, what to do first, what it saves, and the proof."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import click

from trimtab.cli.output import Format, output_options
from trimtab.cli.price_options import at_option, prices_option
from trimtab.cli.scenario_options import ScenarioOptions, limit_flags, scenario_options
from trimtab.cli.server_options import ServerOptions, server_options


@click.command()
@click.argument("bundle", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--demo", is_flag=False, flag_value="two-hundred-k", metavar="[NAME]",
              help="Audit a demonstration fleet; two-hundred-k where no name is given.")  # fmt: skip
@click.option("--demo-trace", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Audit a fleet of fixed size that served a recorded request trace (Parquet).")  # fmt: skip
@server_options(required=False)
@prices_option()
@at_option()
@scenario_options
@click.option("--quota", "quotas", multiple=True, metavar="TYPE=NODES",
              help="A quota that the plan must keep: p5.48xlarge=16, g6.xlarge@us-east-1:spot=40.")  # fmt: skip
@click.option("--spot-max", type=click.FloatRange(0, 1), metavar="SHARE",
              help="The plan may put at most this share of node-hours on spot.")  # fmt: skip
@click.option("--cloud", "clouds", multiple=True, metavar="PROVIDER",
              help="Another cloud that work may move to, at what moving costs: gcp, azure; may be repeated.")  # fmt: skip
@click.option("--hourly", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Price or carbon by the hour, CSV: deferrable runs wait for the best hours.")  # fmt: skip
@click.option("--owned", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Commitments that you hold, as `trimtab commit --owned` takes them.")  # fmt: skip
@click.option("--settings", "settings_file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="A settings file instead of trimtab.toml.")  # fmt: skip
@click.option(
    "--set", "flags", multiple=True, metavar="KEY=VALUE", help="One setting, such as planning.proof_frac=0.25."
)
@click.option("--show-settings", is_flag=True, help="Show every setting and where it came from, and stop.")
@click.option("--report/--no-report", "report", default=None, show_default="only with a demonstration",
              help="Write trimtab-report/report.html as well.")  # fmt: skip
@click.option("--fail-over", type=click.FloatRange(min=0), metavar="USD_MO",
              help="Exit with code 10 where more than so much a month can be saved.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="No progress, no notes, errors only.")
@click.option("-v", "--verbose", count=True, help="Log stages (-v) or every step (-vv) on stderr.")
@output_options(*Format)
def command(
    bundle: Path | None,
    demo: str | None,
    demo_trace: Path | None,
    source: ServerOptions,
    prices: Path | None,
    at: date | None,
    options: ScenarioOptions,
    quotas: tuple[str, ...],
    spot_max: float | None,
    clouds: tuple[str, ...],
    hourly: Path | None,
    owned: Path | None,
    settings_file: Path | None,
    flags: tuple[str, ...],
    show_settings: bool,
    report: bool | None,
    fail_over: float | None,
    quiet: bool,
    verbose: int,
    output_format: Format,
    out: Path | None,
    fields: tuple[str, ...],
) -> int:
    """Find where a GPU fleet's money goes, what to do first, what it saves, and prove it.

    \b
    Examples:
      trimtab audit --demo                                a demonstration, no cluster needed
      trimtab audit fleet/                                a bundle that `trimtab collect` wrote
      trimtab audit -p http://localhost:9090 --from 30d   straight from a Prometheus server
      trimtab audit fleet/ -o html --out report.html      one page with pictures
      trimtab audit fleet/ -o json | jq .plan.actions     the same for a program
      trimtab audit fleet/ --set planning.engineers=2 --prices own-rates.yaml
      trimtab audit fleet/ --quota p5.48xlarge=16 --spot-max 0.3 --owned held.csv
      trimtab audit fleet/ --cloud gcp                    work may move to another cloud, where that pays
      trimtab audit fleet/ --demand 1.5x --price spot+30%  a scenario beside the plan
      trimtab audit fleet/ -q --fail-over 5000            exit code 10 above $5,000 a month
    """
    from trimtab.cli.audit.run import AuditRequest, run_audit
    from trimtab.cli.history import Named

    return run_audit(
        AuditRequest(
            named=Named(bundle=bundle, demo=demo, demo_trace=demo_trace, source=source),
            prices=prices,
            at=at,
            scenario=options.scenario(),
            hourly=hourly,
            owned=owned,
            settings_file=settings_file,
            flags=(*flags, *limit_flags(quotas, spot_max, clouds)),
            show_settings=show_settings,
            report=report,
            fail_over_usd_mo=fail_over,
            quiet=quiet,
            verbose=verbose,
            output_format=output_format,
            out=out,
            fields=fields,
        )
    )
