"""What a Prometheus server tells of a fleet: GPUs, demand, who held what."""
