"""When every action of a schedule runs: checks, dependencies, and two kinds of transfers."""
