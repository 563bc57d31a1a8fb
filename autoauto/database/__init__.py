"""Databases, through SQLAlchemy: what differs between them, and which of their errors pass."""
