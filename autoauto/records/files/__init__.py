"""Values as JSON and TOML."""
