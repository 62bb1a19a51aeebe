"""The plan with some of its actions switched off: chosen, billed and proved again."""

from __future__ import annotations

from trimtab.emit.document.part import Part
from trimtab.emit.document.plan import TargetPart


class SwitchedActionPart(Part):
    """An action of the plan that was chosen again."""

    id: str | None
    """Id of the same action in the plan; null if it replaces an action that is off."""
    lever: str
    """The lever that saves."""
    subject: str
    """What it changes."""
    effect: str
    """What to do, in words."""
    saving_usd_mo: float
    """Its share of the joint saving; if `shares` is false, what is lost if it alone is left out."""
    risk: str
    """low, medium or high."""


class SwitchedPart(Part):
    """The best plan without some actions; with none off, the plan itself."""

    off: tuple[str, ...]
    """Ids of the actions that are off."""
    before_usd_mo: float
    """Today's bill at the plan's rates."""
    bill_usd_mo: float
    """The bill with the remaining actions and their replacements."""
    rest_usd_mo: float
    """The bill with the remaining actions only."""
    joint_saving_usd_mo: float
    """`before_usd_mo` less `bill_usd_mo`, to the cent."""
    saving_frac: float
    """That as a share of the bill."""
    actions: tuple[SwitchedActionPart, ...]
    """The actions, largest saving first."""
    shares: bool
    """True if the actions' savings sum to the joint saving."""
    proof_saving_frac: float
    """What the replay of the proof window saves, as a share of its bill."""
    targets: tuple[TargetPart, ...]
    """What the targets reach there."""
    targets_kept: int
    """How many of them are met."""
