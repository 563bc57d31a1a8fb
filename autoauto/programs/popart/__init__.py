"""PopART's pipelining transformation [popart-pipelining]: from a graph of layers to a program of fragments."""
