"""Time and memory of a sub-model, measured in a separate process."""
