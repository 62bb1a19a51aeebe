"""A public proving ground: fleets whose truth is another simulator, audited from outside, their plans enacted there."""
