"""Where a fleet is read from beside Prometheus: the options of `collect` for Kubernetes, Slurm, clouds and traces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import cast

import click

from trimtab.errors import UsageError

Command = Callable[..., object]

CURRENT = "current"
"""The value of --context that means the kubeconfig's current context."""
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_ANY = click.Path(exists=True, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What was said about places other than a Prometheus server; empty where nothing was."""

    context: str | None
    kubeconfig: Path | None
    kube_dumps: tuple[Path, ...]
    slurm: tuple[Path, ...]
    timezone: str
    gpu_names: tuple[str, ...]
    trace: Path | None
    machine: str | None
    repeat: int | None
    cloudwatch: tuple[str, ...]
    gcp_project: tuple[str, ...]
    azure: tuple[str, ...]
    cloud_endpoints: tuple[str, ...]

    @property
    def clouds(self) -> bool:
        """Tell whether a cloud's monitor was named."""
        return bool(self.cloudwatch or self.gcp_project or self.azure)

    @property
    def kubernetes(self) -> bool:
        """Tell whether a cluster was named, live or as a dump."""
        return bool(self.context or self.kubeconfig or self.kube_dumps)

    def check(self, url: str | None) -> None:
        """Raise UsageError where no place or contradicting ones were named."""
        if self.kube_dumps and (self.context or self.kubeconfig):
            raise UsageError("--kube-dump and --context read the same things: give one of them")
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
                "where from? give --prometheus URL, --context NAME (Kubernetes), --kube-dump PATH, --slurm FILE, "
                "--cloudwatch REGION, --gcp-project ID, --azure WORKSPACE or --trace FILE; see trimtab collect --help"
            )
        if not self.trace and (self.machine or self.repeat):
            raise UsageError("--machine and --repeat are assumptions about a --trace FILE: name one")
        apart = self.slurm or self.trace or (self.clouds and url)
        if apart and len(named) > 1:
            raise UsageError(f"{' and '.join(named)} are different fleets: collect each into a folder of its own")

    def boards(self) -> dict[str, str]:
        """Return what --gpu says: GRES type -> board; raises UsageError."""
        pairs = {}
        for pair in self.gpu_names:
            kind, equals, name = pair.partition("=")
            if not (equals and kind.strip() and name.strip()):
                raise UsageError(f"--gpu {pair!r} says no board; write TYPE=BOARD, as a100=A100-SXM4-80GB")
            pairs[kind.strip()] = name.strip()
        return pairs


def place_options(command: Command) -> Command:
    """Add the options to a command, as one parameter `places`."""
    options = (
        click.option("--context", metavar="NAME", help="Read a live Kubernetes cluster: a kubeconfig context, or `current`."),
        click.option("--kubeconfig", type=_FILE, help="The kubeconfig file."),
        click.option("--kube-dump", "kube_dumps", multiple=True, type=_ANY, metavar="PATH",
                     help="Read `kubectl get -o json` dumps: a file or a folder; repeat for several."),
        click.option("--slurm", multiple=True, type=_FILE, metavar="FILE",
                     help="Read dumps of Slurm: sacct (text or JSON), scontrol show node, sinfo; repeat for several."),
        click.option("--timezone", default="UTC", show_default=True, metavar="ZONE",
                     help="The clock of Slurm's moments, such as Europe/Berlin."),
        click.option("--gpu", "gpu_names", multiple=True, metavar="TYPE=BOARD",
                     help="Which board a GRES type of Slurm means, such as a100=A100-SXM4-80GB; repeat for several."),
        click.option("--trace", type=_FILE, metavar="FILE",
                     help="Make a fleet of a recorded trace (Parquet) of jobs, pods or requests, known by its columns."),
        click.option("--machine", metavar="TYPE", help="The machine that a trace is laid on, as aws:p4d.24xlarge:us-east-1."),
        click.option("--repeat", type=click.IntRange(min=2), metavar="DAYS",
                     help="Repeat a shorter trace to so many days, for a plan and its proof."),
        click.option("--cloudwatch", multiple=True, metavar="REGION",
                     help="Read Amazon CloudWatch: GPU metrics of the agent and of Container Insights; repeat for several."),
        click.option("--gcp-project", multiple=True, metavar="ID", help="Read Google Cloud Monitoring; repeat for several."),
        click.option("--azure", multiple=True, metavar="WORKSPACE",
                     help="Read Azure Monitor: a Log Analytics workspace with container insights; repeat for several."),
        click.option("--cloud-endpoint", "cloud_endpoints", multiple=True, metavar="NAME=URL", envvar="TRIMTAB_CLOUD_ENDPOINTS",
                     help="Another address of a cloud: aws, gcp-monitoring, gcp-compute, azure-logs or azure-management."),
    )  # fmt: skip

    @wraps(command)
    def packed(**given: object) -> object:
        said = {field.name: given.pop(field.name) for field in fields(Places)}
        return command(places=cast("Callable[..., Places]", Places)(**said), **given)

    result: Command = packed
    for option in reversed(options):
        result = option(result)
    return result


def print_rbac(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    """Print the read-only role and stop (a click callback)."""
    if wanted and not context.resilient_parsing:
        from trimtab.sources.kubernetes.api import rbac_manifest

        click.echo(rbac_manifest(), nl=False)
        context.exit()
