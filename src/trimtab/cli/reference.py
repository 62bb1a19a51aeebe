"""Writes the reference pages from the code: commands, settings, the audit's JSON, levers and tables.

Write one with `python -m trimtab.cli.reference commands > docs/reference/commands.md`; likewise the other names in `PAGES`.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from textwrap import dedent
from types import MappingProxyType
from typing import get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trimtab.cli import COMMANDS, ExitCode, root
from trimtab.cli.settings import defaults, env_name
from trimtab.emit.document import AuditDocument
from trimtab.fleet.settings import Alternatives, Assumptions, Bands, Effort, Hygiene, Limits, Ownership, Planning
from trimtab.levers.lever import CompositionStage, EffortStep, Lever
from trimtab.levers.registry import BUILT_IN, ENTRY_POINTS
from trimtab.tables.schemas import REQUIRED_TABLES, TABLES, Column

_WIDTH = 100
_COMMANDS_HEAD = """# Commands

<!-- Written from the commands' own help by `python -m trimtab.cli.reference commands`; do not edit. -->

Every command, with the text that `trimtab COMMAND --help` shows. [Settings](settings.md) that several commands share and
[the audit as JSON](audit.md) have their own pages. The commands of the runtime, which a training job or a serving image
installs alone, are those of `trimtab-runtime --help`.

## Exit codes

| code | meaning |
|---|---|
"""


def commands_page() -> str:
    """Return the page, in Markdown."""
    names = [f"trimtab {name}" for name in COMMANDS]
    contents = "\n".join(f"- [{name}](#{name.replace(' ', '-')}): {COMMANDS[name.split()[1]][1]}" for name in names)
    parts = [f"## {path}\n\n```text\n{text}\n```\n" for path, text in _helps(root, "trimtab") if path != "trimtab"]
    codes = "".join(f"| {code.value} | {code.meaning} |\n" for code in ExitCode)
    return "\n".join([_COMMANDS_HEAD + codes, f"## All commands\n\n{contents}\n", *parts])


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
    "alternatives": Alternatives,
    "hygiene": Hygiene,
}
_TITLES = {
    "bands": "Where a reading becomes a verdict",
    "efforts": "Effort of each lever in engineer-weeks",
    "assumptions": "Assumptions about what the data does not show",
    "planning": "How the plan is made and laid out",
    "ownership": "Costs of GPUs in addition to their hours",
    "limits": "Limits of a plan",
    "alternatives": "Alternatives that are always judged and never planned",
    "hygiene": "Thresholds for reporting something as untidy or broken",
}

_SETTINGS_HEAD = """# Settings

<!-- Written from src/trimtab/fleet/settings.py by `python -m trimtab.cli.reference settings`; do not edit. -->

A value given with `--set KEY=VALUE` goes over a variable of the environment, that over `trimtab.toml` in the working folder
(or the file that `--settings` names), and that over the default. `trimtab audit --show-settings` shows each value in force and
where it came from. All faults are reported at once, with near matches for a misspelt name.

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


_AUDIT_HEAD = """# The audit as JSON

<!-- Written from src/trimtab/emit/document/ by `python -m trimtab.cli.reference audit`; do not edit. -->

`trimtab audit -o json` (and `-o yaml`, with the same keys) writes one document. Its JSON Schema is published as
`src/trimtab/emit/schemas/audit-1.json`; `schema_version` stands first, and within a version no key is renamed or removed.

Money is in dollars, rounded to the cent once: the rows of `waste` and of each spend table sum to `bill_usd_mo`, and the
actions' `saving_usd_mo` sum to `joint_saving_usd_mo`, to the cent. Months have 730 hours. A suffix states the unit; `_frac` is
a share in 0..1 (an attained one may lie a little above 1). What was not measured is null, never 0.
"""


def audit_page() -> str:
    """Return the page as Markdown."""
    return (
        "\n".join([_AUDIT_HEAD, *(line for part in _parts(AuditDocument) for line in _part_section(part))]).rstrip()
        + "\n"
    )


def _parts(root: type[BaseModel]) -> list[type[BaseModel]]:
    """Return the models in reading order, each once."""
    found = [root]
    for part in found:
        found += [child for field in part.model_fields.values() if (child := _model_in(field)) and child not in found]
    return found


def _model_in(field: FieldInfo) -> type[BaseModel] | None:
    kinds = [field.annotation, *get_args(field.annotation)]
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _part_section(part: type[BaseModel]) -> Iterator[str]:
    yield f"## {_title(part)}"
    yield ""
    yield " ".join((part.__doc__ or "").split())
    yield ""
    yield "| key | type | meaning |"
    yield "|---|---|---|"
    for name, field in part.model_fields.items():
        yield f"| `{name}` | {_type(field.annotation)} | {' '.join((field.description or '').split())} |"
    yield ""


def _title(part: type[BaseModel]) -> str:
    name = part.__name__.removesuffix("Part")
    return "The document" if part is AuditDocument else f"`{name}`"


def _type(kind: object) -> str:
    """Name a type in terms of JSON."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _title(kind)
    plain = {int: "integer", float: "number", str: "string", bool: "true or false", type(None): "null"}
    if isinstance(kind, type) and kind in plain:
        return plain[kind]
    arguments = [argument for argument in get_args(kind) if argument is not ...]
    if get_origin(kind) is tuple:
        return f"list of {_type(arguments[0])}"
    if get_origin(kind) is dict:
        return "object"
    if arguments and all(isinstance(argument, int) for argument in arguments):
        return " or ".join(str(argument) for argument in arguments)
    if arguments:
        return " or ".join(_type(argument) for argument in arguments)
    return "string"


_LEVERS_HEAD = f"""# Levers

<!-- Written by `python -m trimtab.cli.reference levers`; do not edit. -->

A lever is one way to save. In which order ways of running a workload are composed from them, and why none of their savings is a
percentage from a blog post: [Joint optimization](../explanation/joint-optimization.md).

Efforts are planning assumptions of this project, not measured: working days of one engineer who has what `trimtab emit` wrote,
counted step by step below, five to a week. What a lever's first use in a fleet takes (operators, metrics, drills) is paid
once, by all that use it together. Put your own under `efforts` in the [settings](settings.md):
`efforts.autoscaling.first_weeks`, `.weeks` and `.per`. An installed package adds a lever by an entry point of the group
`{ENTRY_POINTS}` ([CONTRIBUTING](../../CONTRIBUTING.md)).
"""
STAGE_MEANING: Mapping[CompositionStage, str] = MappingProxyType(
    {
        CompositionStage.PLACE: "where a workload runs, on how many GPUs, with weights in which format",
        CompositionStage.HOLD: "how many replicas or nodes are held, and when",
        CompositionStage.FORM: "how a replica serves requests, and how many replicas are then needed",
        CompositionStage.BUY: "how nodes are bought, for what meets its targets on demand",
        CompositionStage.FLEET: "nodes and purchases that belong to no single workload",
    }
)


def levers_page() -> str:
    """Return the page as Markdown."""
    lines = [_LEVERS_HEAD, "| lever | decides | serves | effort | risk |", "|---|---|---|---|---|"]
    lines += [
        f"| [{lever.name}](#{lever.name}) | {lever.stage.value} | {_serves(lever)} | {_effort(lever)} | {lever.risk.value} |"
        for lever in BUILT_IN
    ]
    lines += ["", *(f"- **{stage.value}**: {meaning}" for stage, meaning in STAGE_MEANING.items()), ""]
    return "\n".join([*lines, *(line for lever in BUILT_IN for line in _lever_section(lever))]).rstrip() + "\n"


def _lever_section(lever: Lever) -> Iterator[str]:
    yield f"## {lever.name}"
    yield ""
    yield f"{lever.meaning}. Read more: [{lever.page.rpartition('/')[2]}](../{lever.page})."
    yield ""
    yield f"- Serves {_serves(lever)}; {_effort(lever)}; risk {lever.risk.value}."
    drift = lever.drift_frac
    yield (
        f"- Its savings drifted by {drift:.0%} (80 % quantile) when plans were tested on later weeks."
        if drift is not None
        else "- No drift of its savings was measured for this lever alone: the drift of all levers together is used."
    )
    if lever.first_steps:
        yield f"- The first use takes, in working days: {_steps(lever.first_steps)}."
    if lever.steps:
        yield f"- Each {lever.effort.per} takes: {_steps(lever.steps)}."
    yield f"- To undo it: {lever.rollback}."
    yield ""


def _serves(lever: Lever) -> str:
    return ", ".join(sorted(kind.value for kind in lever.kinds)) or "the fleet"


def _effort(lever: Lever) -> str:
    first = f"{lever.effort.first_weeks:g} engineer-weeks for the first use, then " if lever.effort.first_weeks else ""
    return f"{first}{lever.effort.weeks:g} engineer-weeks per {lever.effort.per}"


def _steps(steps: Iterable[EffortStep]) -> str:
    return "; ".join(f"{step.what} ({step.days:g})" for step in steps)


ROWS = {
    "devices": "A GPU or MIG instance.",
    "nodes": "A node's life: a node that went and came back has two rows.",
    "allocations": "Who held which GPU from when to when.",
    "gpu_usage": "A device, the workload that held it, and an hour.",
    "demand": "A service and an interval.",
    "jobs": "A run.",
    "costs": "A charge, in the columns of FOCUS 1.0-1.4.",
    "spot_events": "An interruption, or a change of availability.",
    "pods": "A pod, what it asks for, what it tolerates and how it fares.",
    "faults": "A stretch in which a node or a GPU was broken, cordoned or slowed down.",
    "scalers": "An autoscaler that is in place.",
    "disruption_budgets": "A pod disruption budget that is in place.",
    "queues": "A queue (and resource flavor) that rations GPUs.",
    "resource_quotas": "What a ResourceQuota limits of one resource.",
    "limit_ranges": "What an item of a LimitRange says of one resource.",
    "images": "An image that a GPU node holds.",
    "volumes": "A claim to a persistent volume.",
}
"""Table -> what one row is."""

_TABLES_HEAD = """# Tables of a fleet bundle

<!-- Written from src/trimtab/tables/schemas.py by `python -m trimtab.cli.reference tables`; do not edit. -->

A fleet bundle is a folder: one Parquet file a table, `bundle.yaml` (the window `[start, end)`, the sources, notes, and how many
readings were clamped or dropped and why) and `workloads.yaml` (what only people know). `trimtab collect` writes one; everything
else reads it. Times are UTC, intervals are `[start, end)`, shares are 0..1, and a reading that was not made is null, never 0.

Histograms have 101 bins over 0..1: bin i counts the readings with floor(100 x value + 1/2) = i, so that histograms of parts add
up to the histogram of the whole.

Reading checks a bundle whole and names every fault at once. Tolerated, repaired in memory and counted: readings that are
NaN, infinite, negative, sentinels or beyond their bound (made null), duplicate rows, rows outside the window, intervals of
no length, unknown columns. Everything else that does not fit is refused.

Nothing is billed twice. Rows of one node, or holdings of one GPU by one pod, that overlap in time and agree become one; two
lives of one node name that differ and overlap by an hour at most are cut at the later start. Beyond that they are refused,
with their rows, and so are nodes that hold GPUs of the same ids at once (one machine under two names) and charges for one
instance that overlap over different periods (a bill's days beside its hours). A charge that two bill files both hold is taken
once. A GPU that several pods hold at once is shared between them.
"""


def tables_page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_TABLES_HEAD, *(line for name in TABLES for line in _table_section(name))]).rstrip() + "\n"


def _table_section(name: str) -> Iterator[str]:
    required = "must be there" if name in REQUIRED_TABLES else "may be absent"
    yield f"## `{name}`"
    yield ""
    yield f"One row: {ROWS[name][0].lower()}{ROWS[name][1:]} The table {required}."
    yield ""
    yield "| column | type | unit | meaning | origin |"
    yield "|---|---|---|---|---|"
    yield from (_row(column) for column in TABLES[name])
    yield ""


def _row(column: Column) -> str:
    kind = column.dtype.value + ("" if column.nullable else ", never null")
    cells = (f"`{column.name}`", kind, column.unit, column.meaning, column.origin)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


PAGES = {
    "commands": commands_page,
    "settings": settings_page,
    "audit": audit_page,
    "levers": levers_page,
    "tables": tables_page,
}
"""Name of a page in docs/reference -> the function that writes it."""

if __name__ == "__main__":
    sys.stdout.write(PAGES[sys.argv[1]]())
