"""The command line: arguments, exit codes, and printed lines, with control characters removed.

`trimtab --help` must stay fast, so a command's module is imported only when the command runs. Its one-line help is in
`COMMANDS`; a test checks that it equals the command's own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from enum import IntEnum
from importlib import import_module
from typing import NoReturn

import click

from trimtab._version import __version__
from trimtab.errors import TrimtabError
from trimtab.safe_text import for_terminal, without_secrets


def shown(text: str) -> str:
    """Return a text that is safe to print; our own colours are kept."""
    return for_terminal(without_secrets(text), colours=True)


def say(text: str, *, err: bool = False) -> None:
    """Print a line, on stderr if it is not the answer."""
    click.echo(shown(text), err=err)


COMMANDS: dict[str, tuple[str, str]] = {
    "audit": (
        "trimtab.cli.audit",
        "Find where a GPU fleet's money goes, what to do first, what it saves, and prove it.",
    ),
    "explain": (
        "trimtab.cli.explain",
        "Explain one action of the last audit, or a workload; without ID, list the actions.",
    ),
    "emit": ("trimtab.cli.emit", "Write the manifests that enact the plan of the last audit."),
    "review": (
        "trimtab.cli.review",
        "Show what a change of manifests would have cost over a fleet's history, and which targets it would have missed.",
    ),
    "what-if": (
        "trimtab.cli.what_if",
        "Plan a fleet under changed demand, prices or limits, and show both plans side by side.",
    ),
    "verify": (
        "trimtab.cli.verify",
        "Show what the last audit's plan has saved since: each action on track, short (and why), or not enacted.",
    ),
    "diff": (
        "trimtab.cli.diff",
        "Show what changed between two audits: actions added, removed or changed, the bill, the saving.",
    ),
    "doctor": (
        "trimtab.cli.doctor",
        "Check which data is missing, how that weakens the answer, and how to fix it.",
    ),
    "allocate": (
        "trimtab.cli.allocate",
        "Show what each team, workload, namespace, kind or model costs, in total and per request and token.",
    ),
    "digest": (
        "trimtab.cli.digest",
        "Summarize a week of a fleet or a team: cost, changes, open actions, realised savings.",
    ),
    "serve": (
        "trimtab.cli.serve",
        "Show the kept audits as pages in a browser: where the money goes, the plan with switches, the proof, "
        "and what it has saved since.",
    ),
    "mcp": (
        "trimtab.cli.mcp",
        "Let an agent ask: the kept audits, plans, prices and fits as read-only tools of an MCP server.",
    ),
    "replay": (
        "trimtab.cli.replay",
        "Replay services under other scaling policies: cost, targets, and the distance to the best in hindsight.",
    ),
    "collect": (
        "trimtab.cli.collect",
        "Write a fleet bundle from Prometheus, Kubernetes, Slurm, clouds and bills.",
    ),
    "rollup": (
        "trimtab.cli.rollup",
        "Aggregate raw GPU samples to hourly rows with histograms, where the samples are stored.",
    ),
    "fit": ("trimtab.cli.fit", "Find which GPU a model needs, how many, and what it costs."),
    "profile": (
        "trimtab.cli.profile",
        "Show what the GPUs do while a program runs, what it costs, and what limits their use.",
    ),
    "prices": ("trimtab.cli.prices", "List what GPUs cost, at a date, in a region, under a buying option."),
    "quotas": (
        "trimtab.cli.quotas",
        "Read the clouds' GPU quotas, in whole nodes, for settings and doctor.",
    ),
    "compare": (
        "trimtab.cli.compare",
        "Compare a canary with what it would replace: promote, hold, or roll back.",
    ),
    "quality": (
        "trimtab.cli.quality",
        "Test with paired samples whether a candidate answers as well as a baseline.",
    ),
    "commit": (
        "trimtab.cli.commit",
        "Recommend how much to commit to and when, what it returns, and how other rules would have done.",
    ),
    "batch": ("trimtab.cli.batch", "Tune the dynamic batcher that `trimtab.batch` puts in front of a model."),
    "spot-run": (
        "trimtab.cli.spot_run",
        "Run a program on spot capacity: on an interruption notice, signal it, wait, and exit so that it is run again.",
    ),
}
"""Command name -> (module that defines `command`, one-line help), in the order of `trimtab --help`."""


class ExitCode(IntEnum):
    """What the program ends with; each code's meaning is what the page on commands says of it."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    DONE = 0, "done"
    ERROR = (
        1,
        (
            "an error: its cause and what to do next are on the error stream; of `emit --diff`: applying would change something"
        ),
    )
    USAGE = 2, "the command line was not understood"
    CREDENTIALS = 3, "credentials are missing or were refused"
    NO = 4, "no: faults (`emit --check`), targets missed (`review`), roll back (`compare`), reject (`quality`)"
    UNDECIDED = 5, "the data is not conclusive yet (`compare`, `quality`, `review`)"
    OVER_LIMIT = 10, "more than `--fail-over`: savings (`audit`), growth of the bill (`review`)"
    REQUEUE = 75, "interrupted by a notice, to be started again (`spot-run`)"
    INTERRUPTED = 130, "interrupted from the keyboard"
    """By shell convention: 128 and the number of SIGINT."""


class LazyGroup(click.Group):
    """A click group that imports a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name][0]).command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take `trimtab help audit` as `trimtab audit --help`."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; a call that it refuses is told what to do instead."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise import_module("trimtab.cli.cures").with_cure(error) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], COMMANDS, n=1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean '{near[0]}'?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="trimtab")
def root() -> None:
    """Find the cheapest way to have met a GPU fleet's targets, prove it by replay, and write what enacts it.

    \b
    Start here:
      trimtab audit --demo                 a demonstration fleet, no cluster needed
      trimtab prices --gpus                the GPU matrix
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with an `ExitCode`, or with the code of a program that it ran."""
    try:
        code = root.main(args=arguments, prog_name="trimtab", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:  # its message is the help
        say(error.format_message(), err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        if isinstance(error, click.UsageError) and error.ctx is not None:
            say(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n", err=True)
        _fail(error.format_message(), error.exit_code)
    except click.Abort:
        click.echo("interrupted", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    except TrimtabError as error:
        _fail(str(error), error.exit_code)
    except OSError as error:
        if error.filename is None:
            raise
        _fail(f"{error.filename}: {error.strerror or type(error).__name__}", ExitCode.ERROR)
    sys.exit(code if isinstance(code, int) else ExitCode.DONE)


def _fail(message: str, code: int) -> NoReturn:
    say(f"{click.style('error:', fg='red', bold=True)} {for_terminal(message)}", err=True)
    sys.exit(code)
