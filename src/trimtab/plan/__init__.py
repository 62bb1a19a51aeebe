"""Options, the joint problem, bounds, attribution, roadmap."""
