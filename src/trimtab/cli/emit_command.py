"""`trimtab emit`: write the files that enact the plan of the last audit."""

from __future__ import annotations

from pathlib import Path

import click

from trimtab.cli.output import ROW_FORMATS, Format

_AUTOSCALERS = ("keda", "hpa")
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("manifests"), show_default=True,
              help="The folder to write to; files of an earlier emit in it are replaced.")  # fmt: skip
@click.option("--action", "only", multiple=True, metavar="ID", help="Only this action; give it again for more.")
@click.option("--autoscaler", type=click.Choice(_AUTOSCALERS), help="What scales services.  [default: keda]")
@click.option("--add-only", is_flag=True,
              help="Autoscalers that may only add replicas: the canary of the first day.")  # fmt: skip
@click.option("--cluster", "cluster_file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="What no history tells: pod labels, model servers, node classes, quotas (YAML).")  # fmt: skip
@click.option("-o", "--output", "--format", "output_format", type=click.Choice([one.value for one in ROW_FORMATS]),
              default=Format.TABLE.value, show_default=True, help="The form of the list of what was written.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="List the files, write none.")
@click.option("--force", is_flag=True, help="Write over files that emit did not write, and over those changed by hand.")
@click.option("--check", "checked", type=_FOLDER, metavar="FOLDER",
              help="Write nothing: say what is wrong with the manifests of a folder, each fault with its cure.")  # fmt: skip
@click.option("--diff", "compared", type=_FOLDER, metavar="FOLDER",
              help="Write nothing: say what applying a folder would change.")  # fmt: skip
@click.option("--against", type=click.Path(exists=True, path_type=Path), metavar="PATH",
              help="With --check, --diff: what is there: kubectl get -o json, a GitOps folder, or a bundle.")  # fmt: skip
@click.option("--context", metavar="NAME", help="With --check, --diff: ask this cluster, by kubectl.")
@click.option("--schemas", type=click.Path(exists=True, path_type=Path), metavar="PATH",
              help="With --check: CustomResourceDefinitions of the cluster (kubectl get crd -o yaml).")  # fmt: skip
@click.option("--metrics", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="With --check: names of the series that your Prometheus has, one a line.")  # fmt: skip
def command(
    out: Path,
    only: tuple[str, ...],
    autoscaler: str | None,
    add_only: bool,
    cluster_file: Path | None,
    output_format: str,
    dry_run: bool,
    force: bool,
    checked: Path | None,
    compared: Path | None,
    against: Path | None,
    context: str | None,
    schemas: Path | None,
    metrics: Path | None,
) -> int:
    """Write the manifests that enact the plan of the last audit.

    Nothing is applied and no cluster is touched: read APPLY.md in the folder, which says in which order to apply what.

    Exit code of --check: 4 where there are errors. Of --diff, as that of diff: 0 where applying would change nothing, 1 where
    it would. --check needs the extra: pip install 'trimtab[check]'.

    \b
    Examples:
      trimtab audit --demo && trimtab emit             everything, into manifests/
      trimtab emit --action a1 --action a3 --out gitops/trimtab
      trimtab emit --autoscaler hpa --cluster cluster.yaml
      trimtab emit --dry-run -o json | jq '.rows[].path'
      trimtab emit --check manifests/ --against fleet/
      kubectl get ns,deploy,sts,scaledobjects,nodepools -A -o json > now.json
      trimtab emit --diff manifests/ --against now.json
    """
    from trimtab.errors import UsageError

    if checked is not None or compared is not None:
        from trimtab.cli.emit_check import CheckRequest, run_check, run_diff

        folder = checked or compared
        if folder is None or (checked is not None and compared is not None):
            raise UsageError("--check and --diff are two questions: ask one at a time")
        request = CheckRequest(
            folder=folder,
            against=against,
            context=context,
            schemas=schemas,
            metrics=metrics,
            output_format=Format(output_format),
        )
        return run_check(request) if checked is not None else run_diff(request)
    if against is not None or context is not None or schemas is not None or metrics is not None:
        raise UsageError("--against, --context, --schemas and --metrics go with --check or --diff")
    from trimtab.cli.emit_run import EmitRequest, run_emit
    from trimtab.emit.manifests.facts import Autoscaler

    run_emit(
        EmitRequest(
            out=out,
            only=only,
            autoscaler=Autoscaler(autoscaler) if autoscaler else None,
            add_only=add_only,
            cluster_file=cluster_file,
            output_format=Format(output_format),
            dry_run=dry_run,
            force=force,
        )
    )
    return 0
