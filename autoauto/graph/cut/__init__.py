"""Ranges of layers cut out of an ONNX file as models of their own."""
