"""The inputs of a model: their axes, which of them is the batch, and the lengths of the others."""
