"""Pages that need no network."""
