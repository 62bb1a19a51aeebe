"""`trimtab emit`: write the files that enact the plan of the last audit, or those that watch a cluster without a plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from trimtab.cli.options import (
    FILE,
    FILE_OR_FOLDER,
    FOLDER,
    NEW_FOLDER,
    ROW_FORMATS,
    Format,
    bundle_argument,
    demo_option,
    format_option,
    option,
    options_from,
    prices_option,
)

_AUTOSCALERS = ("keda", "hpa")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitOptions:
    """Arguments of `trimtab emit`."""

    bundle: Path | None = bundle_argument()
    demo: str | None = demo_option("With --monitoring: a demonstration fleet.")
    out: Path = option(
        "--out", type=NEW_FOLDER, default=Path("manifests"), show_default=True,
        help="The folder to write to; files of an earlier emit in it are replaced.",
    )  # fmt: skip
    only: tuple[str, ...] = option("--action", metavar="ID", help="Only this action; repeat for several.")
    autoscaler: str | None = option(
        "--autoscaler", type=click.Choice(_AUTOSCALERS), help="The autoscaler to write for services.  [default: keda]"
    )
    add_only: bool = option("--add-only", help="Autoscalers that can only add replicas, for the first day.")
    cluster_file: Path | None = option(
        "--cluster", type=FILE, metavar="FILE",
        help="Facts that the history does not contain: pod labels, model servers, node classes, quotas (YAML).",
    )  # fmt: skip
    output_format: Format = format_option(
        *ROW_FORMATS, Format.GITHUB_COMMENT, flags=("--format",),
        said="Format of the list of written files; github-comment needs --diff.",
    )  # fmt: skip
    monitoring: bool = option(
        "--monitoring", help="Write alerts and dashboards for a cluster from a bundle alone; no audit is needed."
    )  # fmt: skip
    thresholds: Path | None = option(
        "--thresholds", type=FILE, metavar="FILE", help="With --monitoring: your thresholds of the alerts (YAML)."
    )
    verified: Path | None = option(
        "--verify", type=FILE, metavar="FILE",
        help="With --monitoring: realised savings, for the cost dashboard: a file of `trimtab verify -o json`.",
    )  # fmt: skip
    prices: Path | None = prices_option("With --monitoring: your own rates, CSV or YAML; they override the price list.")
    in_cluster: bool = option(
        "--in-cluster", help="Write what runs trimtab weekly in a cluster: manifests, a Helm chart, a Dockerfile."
    )
    image: str | None = option(
        "--image", metavar="NAME", help="With --in-cluster: the image that you built, preferably with its digest."
    )
    server: str | None = option(
        "--prometheus", metavar="URL", help="With --in-cluster: the Prometheus to read, as the cluster sees it."
    )
    dry_run: bool = option("--dry-run", help="List the files, write none.")
    force: bool = option("--force", help="Overwrite files that emit did not write, and those changed by hand.")
    checked: Path | None = option(
        "--check", type=FOLDER, metavar="FOLDER",
        help="Write nothing; show what is wrong with the manifests in a folder, each fault with its fix.",
    )  # fmt: skip
    compared: Path | None = option(
        "--diff", type=FOLDER, metavar="FOLDER", help="Write nothing; show what applying a folder would change."
    )
    against: Path | None = option(
        "--against", type=FILE_OR_FOLDER, metavar="PATH",
        help="With --check or --diff: the present state: kubectl get -o json, a GitOps folder, or a bundle.",
    )  # fmt: skip
    context: str | None = option(
        "--context", metavar="NAME", help="With --check or --diff: compare with this cluster, through kubectl."
    )
    schemas: Path | None = option(
        "--schemas", type=FILE_OR_FOLDER, metavar="PATH",
        help="With --check: CustomResourceDefinitions of the cluster (kubectl get crd -o yaml).",
    )  # fmt: skip
    metrics: Path | None = option(
        "--metrics", type=FILE, metavar="FILE",
        help="With --check: names of the series that your Prometheus has, one per line.",
    )  # fmt: skip


@click.command()
@options_from(EmitOptions)
def command(options: EmitOptions) -> int:
    """Write the manifests that enact the plan of the last audit.

    Nothing is applied and no cluster is touched: read APPLY.md in the folder, which says in which order to apply what.

    --check exits with 4 if there are errors. --diff exits like `diff`: 0 if applying would change nothing, 1 if it would.
    --check needs the extra `check`: pip install 'trimtab[check]'.

    \b
    Examples:
      trimtab audit --demo && trimtab emit             everything, into manifests/
      trimtab emit --action a1 --action a3 --out gitops/trimtab
      trimtab emit --autoscaler hpa --cluster cluster.yaml
      trimtab emit --dry-run -o json | jq '.rows[].path'
      trimtab emit --check manifests/ --against fleet/
      trimtab emit --monitoring fleet/ --out monitoring
      trimtab emit --in-cluster --image registry.example/trimtab:0.2.0 --out deploy
      kubectl get ns,deploy,sts,scaledobjects,nodepools -A -o json > now.json
      trimtab emit --diff manifests/ --against now.json
      trimtab emit --diff manifests/ --against gitops/ -o github-comment > comment.md
    """
    from trimtab.errors import UsageError

    if options.output_format is Format.GITHUB_COMMENT and options.compared is None:
        raise UsageError("-o github-comment needs --diff")
    if options.checked is not None and options.compared is not None:
        raise UsageError("--check and --diff are two questions: ask one at a time")
    if options.checked is not None:
        from trimtab.cli.emit.check import run_check

        return run_check(options.checked, options)
    if options.compared is not None:
        from trimtab.cli.emit.check import run_diff

        return run_diff(options.compared, options)
    if any(given is not None for given in (options.against, options.context, options.schemas, options.metrics)):
        raise UsageError("--against, --context, --schemas and --metrics go with --check or --diff")
    if options.in_cluster:
        from trimtab.cli.emit.run import run_in_cluster

        if options.monitoring or options.bundle is not None or options.demo is not None:
            raise UsageError("--in-cluster needs no bundle, and --monitoring is a folder of its own: ask for it alone")
        run_in_cluster(options)
        return 0
    if options.image is not None or options.server is not None:
        raise UsageError("--image and --prometheus go with --in-cluster")
    if options.monitoring:
        from trimtab.cli.emit.run import run_monitoring

        if (options.bundle is None) == (options.demo is None):
            raise UsageError(
                "watch which cluster? give the folder of a bundle (trimtab emit --monitoring fleet/), or --demo"
            )
        run_monitoring(options)
        return 0
    watching = (options.bundle, options.demo, options.thresholds, options.verified, options.prices)
    if any(given is not None for given in watching):
        raise UsageError(
            "a bundle, --demo, --thresholds, --verify and --prices go with --monitoring; else the last audit is emitted"
        )
    from trimtab.cli.emit.run import run_emit

    run_emit(options)
    return 0
