"""`trimtab emit`: write the files that enact the plan of the last audit."""

from __future__ import annotations

from pathlib import Path

import click

from trimtab.cli.output import ROW_FORMATS, Format

_AUTOSCALERS = ("keda", "hpa")


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
def command(
    out: Path,
    only: tuple[str, ...],
    autoscaler: str | None,
    add_only: bool,
    cluster_file: Path | None,
    output_format: str,
    dry_run: bool,
    force: bool,
) -> None:
    """Write the manifests that enact the plan of the last audit.

    Nothing is applied and no cluster is touched: read APPLY.md in the folder, which says in which order to apply what.

    \b
    Examples:
      trimtab audit --demo && trimtab emit             everything, into manifests/
      trimtab emit --action a1 --action a3 --out gitops/trimtab
      trimtab emit --autoscaler hpa --cluster cluster.yaml
      trimtab emit --dry-run -o json | jq '.rows[].path'
    """
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
