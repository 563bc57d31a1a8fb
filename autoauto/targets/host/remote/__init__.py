"""Processes on other machines, which Dask workers start."""
