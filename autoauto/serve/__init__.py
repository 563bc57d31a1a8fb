"""A found configuration as a server: the protocol, micro-batches out of requests, processes, and load to measure it."""
