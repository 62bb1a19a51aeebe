"""A plan afterwards: what was enacted, what was saved, what drifted."""
