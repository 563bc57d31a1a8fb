"""LayerGraph of an ONNX file or a built-in model, and ranges of its layers as models of their own."""
