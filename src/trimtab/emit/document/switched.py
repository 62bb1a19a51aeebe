"""The plan with some of its actions switched off: chosen again, billed again, proved again."""

from __future__ import annotations

from trimtab.emit.document.actions import TargetPart
from trimtab.emit.document.part import Part


class SwitchedActionPart(Part):
    """An action of the plan that was chosen again."""

    id: str | None
    """Of the plan's action that it is; null where it takes the place of one that is off."""
    lever: str
    """What the saving is owed to."""
    subject: str
    """What it is done to."""
    effect: str
    """What to do, in words."""
    saving_usd_mo: float
    """Its share of the joint saving; where `shares` is false, what is lost without it."""
    risk: str
    """low, medium or high."""


class SwitchedPart(Part):
    """The best plan that does without some actions; with nothing off, the plan itself."""

    off: tuple[str, ...]
    """Ids of the actions that are off."""
    before_usd_mo: float
    """Today's bill at the plan's rates."""
    bill_usd_mo: float
    """The bill with what is left, and with what takes the place of what is off."""
    rest_usd_mo: float
    """The bill with what is left and nothing in its place."""
    joint_saving_usd_mo: float
    """`before_usd_mo` less `bill_usd_mo`, to the cent."""
    saving_frac: float
    """That as a share of the bill."""
    actions: tuple[SwitchedActionPart, ...]
    """What is done, the most saving first."""
    shares: bool
    """Whether the actions' savings sum to the joint one."""
    proof_saving_frac: float
    """What the replay of the proof window saves, as a share of its bill."""
    targets: tuple[TargetPart, ...]
    """What the targets attain there."""
    targets_kept: int
    """How many of them are kept."""
