"""History under other rules."""
