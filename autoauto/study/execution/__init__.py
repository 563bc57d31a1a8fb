"""Who measures: this process, processes of its own, Dask, workers that share a study."""
