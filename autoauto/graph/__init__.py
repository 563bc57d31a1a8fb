"""From an ONNX file or a built-in model to a LayerGraph, and ranges of its layers as models of their own."""
