"""What the inputs of a model are: their axes, which of them is the batch, and the lengths of the others."""
