"""Descriptions of a model before anything is planned: of ONNX files, and of decoders."""
