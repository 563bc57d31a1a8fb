"""ONNX Runtime on the CPU: its knobs and how it runs a model."""
