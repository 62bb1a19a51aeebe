"""Money: one bill for history, objective and replay; commitments and allocation."""

from trimtab.ledger.allocation import IDLE, Allocation, Holdings, allocate
from trimtab.ledger.bill import Bill, Commitment, Usage, bill
from trimtab.ledger.commitments import best_count
from trimtab.ledger.discounts import NO_DISCOUNTS, Discounts
from trimtab.ledger.focus import focus_rows
from trimtab.ledger.spend import SpendPlan, best_spend, spend_needed

__all__ = [
    "IDLE",
    "NO_DISCOUNTS",
    "Allocation",
    "Bill",
    "Commitment",
    "Discounts",
    "Holdings",
    "SpendPlan",
    "Usage",
    "allocate",
    "best_count",
    "best_spend",
    "bill",
    "focus_rows",
    "spend_needed",
]
