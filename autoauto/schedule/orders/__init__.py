"""Orders of micro-batches, one a file, and their registry."""
