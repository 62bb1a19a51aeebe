"""Memory, speed and cost of a workload on a GPU."""
