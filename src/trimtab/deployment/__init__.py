"""What a plan does to a workload, and where it then runs: one typed record, one function that resolves it."""
