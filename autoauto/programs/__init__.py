"""Beside the main path: programs of existing runtimes as values, and small runtimes that sources describe."""
