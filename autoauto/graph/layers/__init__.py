"""Layers of a model: which nodes compute, which share code, which share weights."""
