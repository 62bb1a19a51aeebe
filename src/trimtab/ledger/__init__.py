"""Money: one bill for history, objective and replay; commitments and allocation."""
