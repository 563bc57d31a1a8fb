"""What a model is run for, a file each: how a mode is planned, bounded, compiled, and what it gives."""
