"""What ranges of layers cost: from layers, or from the whole model first."""
