"""Writes the reference pages of the command line: the help of each command, and the table of settings.

Write one with `python -m trimtab.cli.reference commands > docs/reference/commands.md`; likewise `settings`.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from textwrap import dedent

import click

from trimtab.cli import COMMANDS, root
from trimtab.cli.settings import defaults, env_name
from trimtab.fleet.settings import Assumptions, Bands, Effort, Hygiene, Limits, Ownership, Planning, Ventures

_WIDTH = 100
_COMMANDS_HEAD = """# Commands

<!-- Written from the commands' own help by `python -m trimtab.cli.reference commands`; do not edit. -->

Every command, with the text that `trimtab COMMAND --help` shows. [Settings](settings.md) that several commands share and
[the audit as JSON](audit.md) have their own pages. The commands of the runtime, which a training job or a serving image
installs alone, are those of `trimtab-runtime --help`.

## Exit codes

| code | meaning |
|---|---|
| 0 | done |
| 1 | an error: its cause and what to do next are on the error stream; of `emit --diff`: applying would change something |
| 2 | the command line was not understood |
| 3 | credentials are missing or were refused |
| 4 | no: faults (`emit --check`), targets missed (`review`), roll back (`compare`), reject (`quality`) |
| 5 | the data cannot tell yet (`compare`, `quality`, `review`) |
| 10 | more than `--fail-over`: savings (`audit`), growth of the bill (`review`) |
| 75 | interrupted by a notice, to be started again (`spot-run`) |
| 130 | interrupted from the keyboard |
"""


def commands_page() -> str:
    """Return the page, in Markdown."""
    names = [f"trimtab {name}" for name in COMMANDS]
    contents = "\n".join(f"- [{name}](#{name.replace(' ', '-')}): {COMMANDS[name.split()[1]][1]}" for name in names)
    parts = [f"## {path}\n\n```text\n{text}\n```\n" for path, text in _helps(root, "trimtab") if path != "trimtab"]
    return "\n".join([_COMMANDS_HEAD, f"## All commands\n\n{contents}\n", *parts])


def _helps(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """Yield a command's name and help, then those of its subcommands."""
    context = click.Context(command, info_name=path, terminal_width=_WIDTH, max_content_width=_WIDTH)
    context.help_option_names = ["-h", "--help"]
    yield path, "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from _helps(below, f"{path} {name}")


_GROUPS = {
    "bands": Bands,
    "efforts": Effort,
    "assumptions": Assumptions,
    "planning": Planning,
    "ownership": Ownership,
    "limits": Limits,
    "ventures": Ventures,
    "hygiene": Hygiene,
}
_TITLES = {
    "bands": "Where a reading becomes a verdict",
    "efforts": "Effort of each lever in engineer-weeks",
    "assumptions": "Assumptions about what the data does not show",
    "planning": "How the plan is made and laid out",
    "ownership": "Costs of GPUs in addition to their hours",
    "limits": "Limits of a plan",
    "ventures": "Alternatives that are always judged and never planned",
    "hygiene": "Thresholds for reporting something as untidy or broken",
}

_SETTINGS_HEAD = """# Settings

<!-- Written from src/trimtab/fleet/settings.py by `python -m trimtab.cli.reference settings`; do not edit. -->

A value given with `--set KEY=VALUE` goes over a variable of the environment, that over `trimtab.toml` in the working folder
(or the file that `--settings` names), and that over the default. `trimtab audit --show-settings` shows each value in force and
where it came from. All faults are told at once, with near matches for a misspelt name.

```toml
# trimtab.toml
[planning]
proof_frac = 0.25

[efforts.autoscaling]
weeks = 4
per = "class"
first_weeks = 6

[limits.quotas]
"p5.48xlarge" = 16
"g6.xlarge@us-east-1:spot" = 40
```

The same from the environment: `TRIMTAB_PLANNING_PROOF_FRAC=0.25`, `TRIMTAB_EFFORTS_AUTOSCALING_WEEKS=4`.
"""


def settings_page() -> str:
    """Return the page as Markdown."""
    lines = [_SETTINGS_HEAD]
    for group, owner in _GROUPS.items():
        meanings = _meanings(owner)
        lines += [
            f"## `{group}`: {_TITLES[group]}",
            "",
            inspect.cleandoc(owner.__doc__ or ""),
            "",
            "| key | default | environment | meaning |",
            "|---|---|---|---|",
        ]
        for key, value in defaults().items():
            if key.startswith(f"{group}."):
                shown = f"{value:.4g}" if isinstance(value, float) else str(value)
                meaning = meanings.get(key.rpartition(".")[2], "")
                lines.append(f"| `{key}` | {shown} | `{env_name(key)}` | {meaning} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _meanings(owner: type) -> dict[str, str]:
    """Return the docstring under each field of a dataclass."""
    body = ast.parse(dedent(inspect.getsource(owner))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        text = after.value if isinstance(after, ast.Expr) else None
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Constant):
            found[field.target.id] = " ".join(str(text.value).split())
    return found


if __name__ == "__main__":
    sys.stdout.write({"commands": commands_page, "settings": settings_page}[sys.argv[1]]())
