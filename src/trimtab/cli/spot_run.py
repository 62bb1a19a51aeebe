"""`trimtab spot-run`: run any program through interruptions, by the command of `trimtab-runtime`."""

from __future__ import annotations

import click


@click.command(
    add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> int:
    """Run a program on spot capacity: on an interruption notice, signal it, wait, and exit so that it is run again."""
    from trimtab_runtime.cli.spot_run import run

    return run(arguments, "trimtab spot-run")
