"""What was billed, and what is committed to: bills, and lists of commitments."""
