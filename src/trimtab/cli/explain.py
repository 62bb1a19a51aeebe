"""`trimtab explain`: explains an action (why, its sums, how sure, how to try and undo it) or a workload's verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click

from trimtab.cli.options import (
    NEW_FILE,
    Format,
    argument,
    completed_from,
    format_option,
    option,
    options_from,
    out_option,
)
from trimtab.cli.output import colour_wanted, write
from trimtab.errors import UsageError


def explained_names() -> Iterable[str]:
    """Return the actions of the last audit and its workloads; raises InputError where there is none."""
    from trimtab.cli.kept_audits import recall

    document = recall()
    return (*(action.id for action in document.plan.actions), *(row.name for row in document.spend.by_workload))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """Arguments of `trimtab explain`."""

    name: str | None = argument(metavar="[ID]", required=False, shell_complete=completed_from(explained_names))
    audit_file: Path | None = option(
        "--audit", type=NEW_FILE,
        help="An audit written with `trimtab audit -o json --out FILE`; by default the last one in this folder.",
    )  # fmt: skip
    output_format: Format = format_option(Format.TABLE, Format.JSON)
    out: Path | None = out_option()


@click.command()
@options_from(ExplainOptions)
def command(options: ExplainOptions) -> None:
    """Explain one action of the last audit, or a workload; without ID, list the actions.

    For a workload (as namespace/name) it shows the verdict on its readings, what the plan changes, and why not more.

    \b
    Examples:
      trimtab explain                             the actions and their ids
      trimtab explain a3                          why a3, its sums, and how to undo it
      trimtab explain prod/chat-api               a workload: verdict, cause, why not more
      trimtab explain a3 --audit monday.json      of an audit kept in a file
      trimtab explain a3 -o json
    """
    from trimtab.cli.kept_audits import recall

    document = recall(options.audit_file)
    from trimtab.emit.explain import action_lines, explained  # heavy: only once there is an audit to explain

    colour = options.out is None and colour_wanted()
    if options.name is None:
        write(action_lines(document, colour=colour), options.out)
        return
    text = explained(document, options.name, colour=colour)
    if options.output_format is Format.TABLE:
        write(text, options.out)
        return
    action = document.action(options.name)
    if action is None:
        raise UsageError("-o json is only for actions: a workload's parts are in `trimtab audit -o json`")
    write(action.model_dump_json(indent=2), options.out)
