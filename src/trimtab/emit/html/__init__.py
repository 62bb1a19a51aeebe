"""Self-contained HTML pages and the pictures on them."""
