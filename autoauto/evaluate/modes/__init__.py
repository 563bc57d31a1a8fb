"""The modes of running a model, a file each: how a mode is planned, bounded and compiled, and its result."""
