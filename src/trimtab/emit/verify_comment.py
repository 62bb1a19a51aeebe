"""A verification as a comment of a pull request: how each action did, the rest folded away."""

from __future__ import annotations

from trimtab.emit.blocks import Block, Folded
from trimtab.emit.sections.verification import verification_page
from trimtab.emit.writers.comment import write_comment
from trimtab.plan.verify.verification import Verification

_OPEN = "actions"
"""The section that is not folded away."""


def render_verification_comment(found: Verification, fleet: str) -> str:
    """Return the comment."""
    page = verification_page(found, fleet)
    shown = [block for section in page.sections if section.name == _OPEN for block in section.blocks]
    rest: list[Block] = [
        Folded(title=section.title, blocks=section.blocks) for section in page.sections if section.name != _OPEN
    ]
    return write_comment("verify", page.heading, [*shown, *rest], headline=page.headline, foot=page.seen)
