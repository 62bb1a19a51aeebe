"""The page that says in which order to apply what was emitted, and what was left to a person."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.emit.manifests.emission import STAGE_MEANING, Emission


def apply_order(emission: Emission) -> str:
    """Return the page as Markdown; trimtab writes files and never touches a cluster."""
    lines = [
        "# How to apply this plan",
        "",
        "Apply stage by stage; go on when the canary of each decision record holds. Nothing here was applied by trimtab.",
        *_stages(emission),
        *_left(emission),
    ]
    return "\n".join(lines) + "\n"


def _stages(emission: Emission) -> Iterator[str]:
    for stage, number in emission.stages().items():
        yield ""
        yield f"## {number}. {STAGE_MEANING[stage][:1].upper()}{STAGE_MEANING[stage][1:]}"
        yield ""
        for file in emission.files:
            if file.stage is stage:
                yield f"- [ ] `{file.path}` ({file.kind}; {', '.join(file.actions)})"


def _left(emission: Emission) -> Iterator[str]:
    if emission.withheld:
        yield ""
        yield "## Left to a person"
        yield ""
    for action, subjects, reason in emission.grouped():
        yield f"- {action}, {', '.join(f'`{subject}`' for subject in subjects)}: {reason}"
