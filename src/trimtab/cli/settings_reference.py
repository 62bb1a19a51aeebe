"""The reference page of the settings, from their table.

Write it with `python -m trimtab.cli.settings_reference > docs/reference/settings.md`.
"""

from __future__ import annotations

import ast
import inspect
import sys
from textwrap import dedent

from trimtab.cli.settings import defaults, env_name
from trimtab.fleet.settings import Assumptions, Bands, Effort, Hygiene, Limits, Ownership, Planning, Ventures

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
    "efforts": "What a lever costs in engineer-weeks",
    "assumptions": "What the data cannot tell",
    "planning": "How the plan is made and laid out",
    "ownership": "What GPUs cost besides their hours",
    "limits": "What a plan may not exceed",
    "ventures": "What is always judged and never planned",
    "hygiene": "From when on something untidy or broken is named",
}

_HEAD = """# Settings

<!-- Written from src/trimtab/fleet/settings.py by `python -m trimtab.cli.settings_reference`; do not edit. -->

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
    lines = [_HEAD]
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
    sys.stdout.write(settings_page())
