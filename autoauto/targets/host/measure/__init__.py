"""What a sub-model takes and holds, measured in a process of its own."""
