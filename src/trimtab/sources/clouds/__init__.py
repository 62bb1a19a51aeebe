"""What the monitors of the clouds tell of GPUs: one module a cloud, and the tables of a bundle made of what they told."""
