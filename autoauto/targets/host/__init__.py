"""This machine as a target: real processes, real memory limits, measured times."""
