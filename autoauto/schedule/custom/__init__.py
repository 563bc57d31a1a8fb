"""Orders that others wrote: files -> Schedule."""
