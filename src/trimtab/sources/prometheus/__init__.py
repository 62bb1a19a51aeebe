"""What a Prometheus server says about a fleet: GPUs, demand, who held what."""
