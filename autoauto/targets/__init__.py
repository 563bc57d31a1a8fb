"""Targets compile ranges of layers into cycles and memory: the cost model of an IPU, and cores of this machine."""
