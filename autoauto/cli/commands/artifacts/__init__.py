"""Commands that put a plan into force: files for other programs, a server, and load on it."""
