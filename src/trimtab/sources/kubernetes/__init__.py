"""What Kubernetes tells of a fleet: its API, dumps of it, and kube-state-metrics."""
