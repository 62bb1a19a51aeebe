"""What to commit to, what is held already, and what it returns."""
