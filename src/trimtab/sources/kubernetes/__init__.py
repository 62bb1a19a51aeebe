"""What Kubernetes says about a fleet: its API, dumps of it, and kube-state-metrics."""
