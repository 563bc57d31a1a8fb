"""The costs of ranges of layers: from layers, or from the whole model first."""
