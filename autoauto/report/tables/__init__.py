"""Records -> tables, each defined once, and their three writers."""
