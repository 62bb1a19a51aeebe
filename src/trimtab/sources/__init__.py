"""The world -> tables."""
