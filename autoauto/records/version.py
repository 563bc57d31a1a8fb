"""Which autoauto this is."""

VERSION = "0.1.0"
"""As in pyproject.toml; a study remembers which one made it."""
