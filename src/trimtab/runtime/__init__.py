"""What users embed: the dynamic batcher and spot-safe checkpointing. Standard library only."""
