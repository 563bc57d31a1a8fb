"""Plan -> files that put it into force in another runtime."""
