"""Whether a plan holds: on unseen history, where the world departs, in another world, within a budget."""
