"""One script a claim: `python -m benchmarks.NAME [--data PATH]`; the last line printed is one JSON object."""
