"""`trimtab collect`: write a fleet bundle from Prometheus, Kubernetes, Slurm, clouds and bills."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from trimtab.cli import say
from trimtab.cli.options import (
    FILE,
    FILE_OR_FOLDER,
    NEW_FILE,
    NEW_FOLDER,
    group,
    option,
    options_from,
    quiet_option,
    verbose_option,
)
from trimtab.cli.server_options import ServerOptions
from trimtab.errors import UsageError

CURRENT = "current"
"""The value of --context for the kubeconfig's current context."""
ENDPOINTS = ("aws", "gcp-monitoring", "gcp-compute", "azure-logs", "azure-management")
"""Addresses of clouds that --cloud-endpoint may replace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceOptions:
    """The sources other than a Prometheus server that were named; empty if none."""

    context: str | None = option(
        "--context", metavar="NAME", help="Read a live Kubernetes cluster: a kubeconfig context, or `current`."
    )
    kubeconfig: Path | None = option("--kubeconfig", type=FILE, help="The kubeconfig file.")
    kube_dumps: tuple[Path, ...] = option(
        "--kube-dump", type=FILE_OR_FOLDER, metavar="PATH",
        help="Read `kubectl get -o json` dumps: a file or a folder; repeat for several.",
    )  # fmt: skip
    slurm: tuple[Path, ...] = option(
        "--slurm", type=FILE, metavar="FILE",
        help="Read dumps of Slurm: sacct (text or JSON), scontrol show node, sinfo; repeat for several.",
    )  # fmt: skip
    timezone: str = option(
        "--timezone", default="UTC", show_default=True, metavar="ZONE",
        help="Time zone of Slurm's timestamps, such as Europe/Berlin.",
    )  # fmt: skip
    gpu_names: tuple[str, ...] = option(
        "--gpu", metavar="TYPE=BOARD",
        help="The GPU that a GRES type of Slurm means, such as a100=A100-SXM4-80GB; repeat for several.",
    )  # fmt: skip
    trace: Path | None = option(
        "--trace", type=FILE, metavar="FILE",
        help="Make a fleet from a recorded trace (Parquet) of jobs, pods or requests; its kind is recognized by its columns.",
    )  # fmt: skip
    machine: str | None = option(
        "--machine",
        metavar="TYPE",
        help="The machine type that a trace is assumed to run on, as aws:p4d.24xlarge:us-east-1.",
    )
    repeat: int | None = option(
        "--repeat", type=click.IntRange(min=2), metavar="DAYS",
        help="Repeat a shorter trace to this many days, enough for a plan and its proof.",
    )  # fmt: skip
    cloudwatch: tuple[str, ...] = option(
        "--cloudwatch", metavar="REGION",
        help="Read Amazon CloudWatch: GPU metrics of the agent and of Container Insights; repeat for several.",
    )  # fmt: skip
    gcp_project: tuple[str, ...] = option(
        "--gcp-project", metavar="ID", help="Read Google Cloud Monitoring; repeat for several."
    )
    azure: tuple[str, ...] = option(
        "--azure", metavar="WORKSPACE",
        help="Read Azure Monitor: a Log Analytics workspace with container insights; repeat for several.",
    )  # fmt: skip
    cloud_endpoints: tuple[str, ...] = option(
        "--cloud-endpoint", metavar="NAME=URL", envvar="TRIMTAB_CLOUD_ENDPOINTS",
        help="Another address of a cloud: aws, gcp-monitoring, gcp-compute, azure-logs or azure-management.",
    )  # fmt: skip

    @property
    def clouds(self) -> bool:
        """Return whether a cloud's monitor was named."""
        return bool(self.cloudwatch or self.gcp_project or self.azure)

    @property
    def kubernetes(self) -> bool:
        """Return whether a cluster was named, live or as a dump."""
        return bool(self.context or self.kubeconfig or self.kube_dumps)

    def check(self, url: str | None) -> None:
        """Raise UsageError if no source or conflicting ones were named."""
        if self.kube_dumps and (self.context or self.kubeconfig):
            raise UsageError("--kube-dump and --context read the same objects: give one of them")
        named = [
            option
            for option, value in (
                ("--prometheus", url),
                ("--context or --kube-dump", self.kubernetes),
                ("a cloud's monitor", self.clouds),
                ("--slurm", self.slurm),
                ("--trace", self.trace),
            )
            if value
        ]
        if not named:
            raise UsageError(
                "collect from where? give --prometheus URL, --context NAME (Kubernetes), --kube-dump PATH, --slurm FILE, "
                "--cloudwatch REGION, --gcp-project ID, --azure WORKSPACE or --trace FILE; see trimtab collect --help"
            )
        if not self.trace and (self.machine or self.repeat):
            raise UsageError("--machine and --repeat are assumptions about a --trace FILE: name one")
        apart = self.slurm or self.trace or (self.clouds and url)
        if apart and len(named) > 1:
            raise UsageError(f"{' and '.join(named)} are different fleets: collect each into a folder of its own")

    def boards(self) -> dict[str, str]:
        """Parse --gpu into GRES type -> GPU. Raises UsageError."""
        pairs = {}
        for pair in self.gpu_names:
            kind, equals, name = pair.partition("=")
            if not (equals and kind.strip() and name.strip()):
                raise UsageError(f"--gpu {pair!r} names no GPU; write TYPE=GPU, as a100=A100-SXM4-80GB")
            pairs[kind.strip()] = name.strip()
        return pairs


def endpoints_of(pairs: tuple[str, ...]) -> dict[str, str]:
    """Return the addresses given in place of the clouds' own, by name. Raises UsageError."""
    found = {}
    for pair in pairs:
        name, equals, url = pair.partition("=")
        if not equals or name not in ENDPOINTS:
            raise UsageError(f"--cloud-endpoint {pair!r}: write NAME=URL; the names are {', '.join(ENDPOINTS)}")
        found[name] = url
    return found


def _print_rbac(context: click.Context, _parameter: click.Parameter, wanted: bool) -> bool:
    """Print the read-only role and exit (a click callback)."""
    if wanted and not context.resilient_parsing:
        from trimtab.sources.kubernetes.api import rbac_manifest

        click.echo(rbac_manifest(), nl=False)
        context.exit()
    return wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectOptions:
    """Arguments of `trimtab collect`."""

    source: ServerOptions = group(ServerOptions)
    places: PlaceOptions = group(PlaceOptions)
    rbac: bool = option(
        "--rbac", is_eager=True, callback=_print_rbac, help="Print the read-only role that --context needs, then exit."
    )
    out: Path = option(
        "--out", type=NEW_FOLDER, default=Path("fleet"), show_default=True,
        help="The bundle's folder; an existing bundle is replaced.",
    )  # fmt: skip
    rules: Path | None = option(
        "--recording-rules", type=NEW_FILE, metavar="FILE",
        help="Write recording rules that keep hourly statistics for later collects, then exit.",
    )  # fmt: skip
    fresh: bool = option("--fresh", help="Start over instead of resuming an interrupted collect into --out.")
    quiet: bool = quiet_option("Only errors on stderr.")
    verbose: int = verbose_option()


@click.command()
@options_from(CollectOptions)
def command(options: CollectOptions) -> None:
    """Write a fleet bundle from Prometheus, Kubernetes, Slurm, clouds and bills.

    The bundle holds GPU activity, who held the GPUs, demand and cost. Read-only. The window's whole
    hours are collected, aggregated on the server; set the password of --user in TRIMTAB_PROMETHEUS_PASSWORD. An interrupted
    collect resumes when it is started again.

    \b
    Examples:
      trimtab collect --prometheus http://localhost:9090
      trimtab collect -p https://mimir.example/prometheus --tenant prod --bearer-file token --from 30d --out fleet
      trimtab collect -p http://localhost:9090 --focus bills/ --workloads workloads.yaml
      trimtab collect -p http://localhost:9090 --context prod
      trimtab collect -p http://localhost:9090 --cluster cluster.yaml
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
    from trimtab.cli.collect.run import gather, missing_prices, write_rules
    from trimtab.cli.progress import progress_bar, set_verbosity
    from trimtab.sources.bundle_doctor import bundle_coverage
    from trimtab.sources.prometheus.journal import Journal
    from trimtab.tables.bundle import write_bundle
    from trimtab.tables.workloads import read_workloads

    source = options.source
    set_verbosity(options.verbose, options.quiet)
    if options.rules is not None:
        click.echo(write_rules(source, options.rules))
        return
    journal = Journal(folder=options.out.with_name(f".{options.out.name}.collecting"))
    if options.fresh:
        journal.remove()
    declared = read_workloads(source.workloads) if source.workloads is not None else None
    with progress_bar(quiet=options.quiet) as report:
        collected = gather(source, options.places, report, journal)
    bundle = write_bundle(options.out, collected.tables, collected.meta, declared)
    journal.remove()
    say(f"{options.out}: {bundle_coverage(bundle)}")
    for name, table in collected.tables.items():
        say(f"  {name:<12} {table.num_rows:>9,} rows")
    for line in missing_prices(collected):
        say(line, err=True)
    for line in (*collected.meta.sources, *collected.meta.notes):
        say(f"  {line}", err=True)
    for reason, number in collected.meta.counts.items():
        say(f"  {number:,} x {reason}", err=True)
