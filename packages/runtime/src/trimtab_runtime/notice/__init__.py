"""Interruption notices of clouds and schedulers, seen in a thread that never holds the training up."""
