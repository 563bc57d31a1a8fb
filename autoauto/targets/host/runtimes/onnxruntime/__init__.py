"""ONNX Runtime on the processor: its knobs and how it runs a model."""
