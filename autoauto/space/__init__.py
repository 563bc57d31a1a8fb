"""What may vary: knobs, modes, constraints, objectives, the space of a search, and what came of a configuration."""
