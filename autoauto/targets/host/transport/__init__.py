"""Shared memory: rings of messages between processes, and arrays in a file."""
