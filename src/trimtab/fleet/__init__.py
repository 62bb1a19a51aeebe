"""What runs: workloads, targets, demand, and the closed set of effects on them."""
