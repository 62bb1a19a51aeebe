"""Money: one bill for history, objective and replay; commitments and allocation."""

from trimtab.ledger.billing import IDLE, Allocation, Bill, Holdings, Usage, allocate, bill, focus_rows
from trimtab.ledger.commitments import (
    Commitment,
    CommitmentOffer,
    best_count,
    best_spend,
    nodes_committed,
    spend_needed,
)

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
