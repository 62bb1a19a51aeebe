"""One module a lever: fleet -> candidate changes."""
