"""The space of a search: knobs, modes, constraints, objectives; and the trial of a configuration."""
