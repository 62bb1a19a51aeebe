"""What a plan changes about a workload, and where it then runs: one typed record, and one function that resolves it."""
