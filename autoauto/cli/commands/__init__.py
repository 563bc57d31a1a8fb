"""The commands, one per file; a part of a command is a file that begins with its name."""
