"""Launch commands of serving engines, for configurations that generate text: one process a replica."""
