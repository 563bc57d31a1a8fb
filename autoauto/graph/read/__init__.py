"""Read an ONNX file: flat nodes, concrete shapes, the values of weights."""
