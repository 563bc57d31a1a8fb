"""A search configuration in a TOML file."""
