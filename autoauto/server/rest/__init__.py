"""The REST interface: a table of paths, what each answers, and the server."""
