"""The reference page of the levers: `python -m trimtab.emit.levers_reference > docs/reference/levers.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from trimtab.levers.lever import CompositionStage, EffortStep, Lever
from trimtab.levers.registry import BUILT_IN, ENTRY_POINTS

_HEAD = f"""# Levers

<!-- Written by `python -m trimtab.emit.levers_reference`; do not edit. -->

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
    lines = [_HEAD, "| lever | decides | serves | effort | risk |", "|---|---|---|---|---|"]
    lines += [
        f"| [{lever.name}](#{lever.name}) | {lever.stage.value} | {_serves(lever)} | {_effort(lever)} | {lever.risk.value} |"
        for lever in BUILT_IN
    ]
    lines += ["", *(f"- **{stage.value}**: {meaning}" for stage, meaning in STAGE_MEANING.items()), ""]
    return "\n".join([*lines, *(line for lever in BUILT_IN for line in _section(lever))]).rstrip() + "\n"


def _section(lever: Lever) -> Iterator[str]:
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


if __name__ == "__main__":
    sys.stdout.write(levers_page())
