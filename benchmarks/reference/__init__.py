"""Optima and other programs that claims are held against: measuring scripts and tests import them, the product does not."""
