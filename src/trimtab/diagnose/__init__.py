"""Waste that sums to the bill."""
