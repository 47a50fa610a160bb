"""One file per method, read from top to bottom."""
