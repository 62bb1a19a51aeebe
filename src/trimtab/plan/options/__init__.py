"""Every way to run each workload that fits and keeps its targets, and why the others were dropped."""
