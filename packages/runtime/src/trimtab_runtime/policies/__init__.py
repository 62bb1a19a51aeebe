"""Pure decision rules: one step (state, observation) -> (state, decision), in the subset of Python that Numba compiles."""
