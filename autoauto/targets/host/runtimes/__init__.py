"""The runtimes of the host, behind one protocol."""
