"""Records -> tables, pictures and progress bars for the terminal."""
