"""What makes one workload's choice another's concern: one module a coupling, and the parts that they play (`parts`)."""
