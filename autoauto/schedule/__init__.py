"""Plan -> Schedule -> Timeline: orders of micro-batches, checked and simulated."""
