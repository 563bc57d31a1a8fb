"""Orders of micro-batches: one a file, each with its `SPECS`; `registry.py` collects them."""
