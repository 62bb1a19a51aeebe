"""What a workload would use and keep under a set of effects: replays, each done once."""
