"""Checkpoints that survive a kill at any instant, verified when read, at the speed of the disk."""
