"""ONNX Runtime on a GPU of NVIDIA: its knobs and how it runs a model."""
