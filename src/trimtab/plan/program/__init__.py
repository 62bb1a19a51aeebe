"""The joint problem, its certified bound, and the limits on it."""
