"""The page that people keep open: audits, plans with switches, proofs, and the same as JSON; read-only."""
