"""`trimtab explain`: why an action, its sums, how sure, how to try it and how to undo it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from trimtab.cli.options import NEW_FILE, Format, argument, format_option, option, options_from, out_option
from trimtab.cli.output import colour_wanted, write


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """What was asked of `trimtab explain`."""

    action_id: str | None = argument(metavar="[ID]", required=False)
    audit_file: Path | None = option(
        "--audit", type=NEW_FILE,
        help="An audit written with `trimtab audit -o json --out FILE`; else the last one here.",
    )  # fmt: skip
    output_format: Format = format_option(Format.TABLE, Format.JSON)
    out: Path | None = out_option()


@click.command()
@options_from(ExplainOptions)
def command(options: ExplainOptions) -> None:
    """Explain one action of the last audit; without ID, list the actions.

    \b
    Examples:
      trimtab explain                             the actions and their ids
      trimtab explain a3                          why a3, its sums, and how to undo it
      trimtab explain a3 --audit monday.json      of an audit kept in a file
      trimtab explain a3 -o json
    """
    from trimtab.cli.kept_audits import recall
    from trimtab.emit.explain import action_lines, explain_action
    from trimtab.errors import UnknownName

    document = recall(options.audit_file)
    colour = options.out is None and colour_wanted()
    if options.action_id is None:
        write(action_lines(document, colour=colour), options.out)
        return
    action = document.action(options.action_id)
    if action is None:
        raise UnknownName(
            "action",
            options.action_id,
            [known.id for known in document.plan.actions],
            where=f"the plan for {document.fleet} (`trimtab explain` lists it)",
        )
    if options.output_format is Format.JSON:
        write(action.model_dump_json(indent=2), options.out)
    else:
        write(explain_action(document, action, colour=colour), options.out)
