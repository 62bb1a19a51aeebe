"""Facts: GPUs, MIG profiles, instance types, offerings and the price book; rows of data with source and as_of."""
