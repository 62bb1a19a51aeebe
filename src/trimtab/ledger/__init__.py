"""Money: one bill for history, objective and replay; commitments and allocation."""

from trimtab.ledger.allocation import IDLE, Allocation, Holdings, allocate
from trimtab.ledger.billing import Bill, Usage, bill
from trimtab.ledger.commitments import (
    Commitment,
    CommitmentOffer,
    best_count,
    best_spend,
    nodes_committed,
    spend_needed,
)
from trimtab.ledger.focus import focus_rows

__all__ = [
    "IDLE",
    "Allocation",
    "Bill",
    "Commitment",
    "CommitmentOffer",
    "Holdings",
    "Usage",
    "allocate",
    "best_count",
    "best_spend",
    "bill",
    "focus_rows",
    "nodes_committed",
    "spend_needed",
]
