"""Programs of existing runtimes as values, and small runtimes of our own; beside the main path."""
