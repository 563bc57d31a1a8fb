"""PopART's pipelining transformation: from a graph of layers to a program of fragments."""
