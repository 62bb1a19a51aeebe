"""The command line of the runtimes: `trimtab-runtime`, or `python -m trimtab_runtime`. Standard library only.

Each command is a module with `run(arguments, prog) -> exit code`, imported when it is requested; `trimtab spot-run` calls the
same function.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from trimtab_runtime._version import __version__
from trimtab_runtime.errors import TrimtabError, UnknownName

COMMANDS: dict[str, tuple[str, str]] = {
    "spot-run": (
        "trimtab_runtime.cli.spot_run",
        "Run a program on spot capacity: on a notice tell it, wait, and exit so that it is run again.",
    ),
    "profile": ("trimtab_runtime.cli.profile", "Record what the GPUs do while a program runs."),
    "serve": ("trimtab_runtime.cli.serve", "Serve a batched function over HTTP."),
    "checkpoints": ("trimtab_runtime.cli.checkpoints", "List the checkpoints in a folder, and verify them."),
}
"""Command name -> (module that defines `run`, one-line help), in the order in which help shows them."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 error, 2 usage; `spot-run` and `profile` pass on their program's code."""
    try:
        sys.exit(dispatch(sys.argv[1:] if arguments is None else arguments))
    except TrimtabError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(1)


def dispatch(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name and return its exit code; raises `UnknownName` for one that there is not."""
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        print(overview())
        return 0
    if name == "--version":
        print(f"trimtab-runtime {__version__}")
        return 0
    if name not in COMMANDS:
        raise UnknownName("command", name, COMMANDS)
    code: int = import_module(COMMANDS[name][0]).run(arguments[1:], f"trimtab-runtime {name}")
    return code


def overview() -> str:
    """Return the help page: the commands, a line each."""
    lines = [f"  {name:<12} {line}" for name, (_, line) in COMMANDS.items()]
    head = "Usage: trimtab-runtime COMMAND [OPTIONS]      (trimtab-runtime COMMAND --help says more)"
    return "\n".join([head, "", "Commands:", *lines])
