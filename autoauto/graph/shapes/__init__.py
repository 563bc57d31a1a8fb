"""Concrete shapes and small constants of every tensor, node by node."""
