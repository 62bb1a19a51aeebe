"""`trimtab explain`: why an action, its sums, how sure, how to try it and how to undo it."""

from __future__ import annotations

from pathlib import Path

import click

from trimtab.cli.output import Format, colour_wanted, write


@click.command()
@click.argument("action_id", metavar="[ID]", required=False)
@click.option("--audit", "audit_file", type=click.Path(dir_okay=False, path_type=Path),
              help="An audit written with `trimtab audit -o json --out FILE`; else the last one here.")  # fmt: skip
@click.option("-o", "--output", "output_format", type=click.Choice([Format.TABLE.value, Format.JSON.value]),
              default=Format.TABLE.value, show_default=True, help="The form of the answer.")  # fmt: skip
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to a file.")
def command(action_id: str | None, audit_file: Path | None, output_format: str, out: Path | None) -> None:
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

    document = recall(audit_file)
    colour = out is None and colour_wanted()
    if action_id is None:
        write(action_lines(document, colour=colour), out)
        return
    action = document.action(action_id)
    if action is None:
        raise UnknownName(
            "action",
            action_id,
            [known.id for known in document.plan.actions],
            where=f"the plan for {document.fleet} (`trimtab explain` lists it)",
        )
    if Format(output_format) is Format.JSON:
        write(action.model_dump_json(indent=2), out)
    else:
        write(explain_action(document, action, colour=colour), out)
