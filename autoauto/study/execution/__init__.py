"""Executors (inline, processes, Dask), and the loop with leases by which several processes share a study."""
