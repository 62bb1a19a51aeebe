"""`trimtab collect`: write a fleet bundle from Prometheus, Kubernetes, Slurm, clouds and bills."""

from __future__ import annotations

from pathlib import Path

import click

from trimtab.cli.place_options import Places, place_options, print_rbac
from trimtab.cli.screen import say
from trimtab.cli.server_options import ServerOptions, server_options


@click.command()
@server_options(required=False)
@place_options
@click.option("--rbac", is_flag=True, is_eager=True, expose_value=False, callback=print_rbac,
              help="Print the read-only role that --context needs, and stop.")  # fmt: skip
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("fleet"), show_default=True,
              help="The bundle's folder; a bundle that is there is replaced.")  # fmt: skip
@click.option("--recording-rules", "rules", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write recording rules that keep hourly statistics for later collects, and stop.")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Begin anew: do not go on where a collect into --out was cut off.")
@click.option("-q", "--quiet", is_flag=True, help="Only errors on stderr.")
@click.option("-v", "--verbose", count=True, help="Log stages (-v) or every step (-vv) on stderr.")
def command(
    source: ServerOptions, places: Places, out: Path, rules: Path | None, fresh: bool, quiet: bool, verbose: int
) -> None:
    """Write a fleet bundle from Prometheus, Kubernetes, Slurm, clouds and bills.

    It holds what the GPUs did, who held them, what was asked of them and what they cost. Reads only. The window's whole
    hours are collected, aggregated on the server; set the password of --user in TRIMTAB_PROMETHEUS_PASSWORD. One that was cut
    off goes on where it stopped when it is started again.

    \b
    Examples:
      trimtab collect --prometheus http://localhost:9090
      trimtab collect -p https://mimir.example/prometheus --tenant prod --bearer-file token --from 30d --out fleet
      trimtab collect -p http://localhost:9090 --focus bills/ --workloads workloads.yaml
      trimtab collect -p http://localhost:9090 --context prod
      trimtab collect -p east=http://localhost:9090 -p west=http://localhost:9091
      trimtab collect -p https://thanos.example --cluster-label cluster
      trimtab collect -p http://localhost:9090 --recording-rules trimtab-rules.yaml
      trimtab collect --kube-dump dump.json
      trimtab collect --rbac | kubectl apply -f -
      trimtab collect --slurm jobs.txt --slurm nodes.txt --gpu a100=A100-SXM4-80GB --timezone Europe/Berlin
      trimtab collect --cloudwatch us-east-1 --cloudwatch eu-west-1 --from 14d
      trimtab collect --gcp-project my-project --out fleet-gcp
      trimtab collect --azure 00000000-0000-0000-0000-000000000000
      trimtab collect --trace philly2017_jobs.parquet --machine aws:p3.8xlarge
      trimtab collect --trace gentd26_pod_gpu_1min.parquet --repeat 14
    """
    from trimtab.cli.collect_run import gather
    from trimtab.cli.collect_servers import write_rules
    from trimtab.cli.owned_prices import missing_prices
    from trimtab.cli.progress import progress_bar, set_verbosity
    from trimtab.sources.bundle_doctor import bundle_coverage
    from trimtab.sources.prometheus.journal import Journal
    from trimtab.tables.bundle import write_bundle
    from trimtab.tables.workloads import read_workloads

    set_verbosity(verbose, quiet)
    if rules is not None:
        click.echo(write_rules(source, rules))
        return
    journal = Journal(folder=out.with_name(f".{out.name}.collecting"))
    if fresh:
        journal.remove()
    declared = read_workloads(source.workloads) if source.workloads is not None else None
    with progress_bar(quiet=quiet) as report:
        collected = gather(source, places, report, journal)
    bundle = write_bundle(out, collected.tables, collected.meta, declared)
    journal.remove()
    say(f"{out}: {bundle_coverage(bundle)}")
    for name, table in collected.tables.items():
        say(f"  {name:<12} {table.num_rows:>9,} rows")
    for line in missing_prices(collected):
        say(line, err=True)
    for line in (*collected.meta.sources, *collected.meta.notes):
        say(f"  {line}", err=True)
    for reason, number in collected.meta.counts.items():
        say(f"  {number:,} x {reason}", err=True)
